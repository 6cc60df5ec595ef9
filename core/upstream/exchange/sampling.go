package exchange

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// Names are how a dialect calls what is sampled by; an empty one has no place
// in it.
type Names struct {
	MaxTokens, Seed, Stop string
	TopK                  bool
	// Exact takes out what the body has and want doesn't.
	Exact bool
}

// Sampling is what has to be set in a body so that it samples as want says.
// What says so already isn't among it, so that it keeps its bytes.
func Sampling(had gjson.Result, want chat.Sampling, n Names) []Field {
	var out []Field
	float := func(name string, v *float64) {
		if v == nil || had.Get(name).Type == gjson.Number && had.Get(name).Num == *v {
			return
		}
		out = append(out, Field{name, strconv.AppendFloat(nil, *v, 'g', -1, 64)})
	}
	integer := func(name string, v int64) {
		if name == "" || had.Get(name).Type == gjson.Number && had.Get(name).Int() == v {
			return
		}
		out = append(out, Field{name, strconv.AppendInt(nil, v, 10)})
	}
	float("temperature", want.Temperature)
	float("top_p", want.TopP)
	if want.TopK != nil && n.TopK {
		integer("top_k", int64(*want.TopK))
	}
	if want.MaxTokens != nil {
		integer(n.MaxTokens, int64(*want.MaxTokens))
	}
	if want.Seed != nil {
		integer(n.Seed, *want.Seed)
	}
	if want.Stop != nil && !slices.Equal(texts(had.Get(n.Stop)), want.Stop) {
		if value, err := json.Marshal(want.Stop); err == nil {
			out = append(out, Field{n.Stop, value})
		}
	}
	if n.Exact {
		out = append(out, surplus(had, want, n)...)
	}
	return out
}

// surplus are the fields of a body that say how to sample where want doesn't.
func surplus(had gjson.Result, want chat.Sampling, n Names) []Field {
	var out []Field
	drop := func(name string, wanted bool) {
		if name != "" && !wanted && had.Get(name).Exists() {
			out = append(out, Field{Name: name})
		}
	}
	drop("temperature", want.Temperature != nil)
	drop("top_p", want.TopP != nil)
	drop("top_k", want.TopK != nil && n.TopK)
	drop(n.MaxTokens, want.MaxTokens != nil)
	drop(n.Seed, want.Seed != nil)
	drop(n.Stop, want.Stop != nil)
	return out
}

// texts reads a text or a list of them.
func texts(v gjson.Result) []string {
	if v.Type == gjson.String {
		return []string{v.Str}
	}
	out := []string{}
	for _, item := range v.Array() {
		out = append(out, item.String())
	}
	return out
}
