package rows

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/converter"
)

func inJSON(t testing.TB, row *converter.Row) string {
	t.Helper()
	b, err := chat.Marshal(row)
	require.NoError(t, err)
	return string(b)
}

// put sets a value in decoded JSON; one past the end of a list is added.
func put(v any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch t := v.(type) {
	case map[string]any:
		t[path[0]] = put(t[path[0]], path[1:], value)
	case []any:
		i, _ := strconv.Atoi(path[0])
		if i == len(t) {
			return append(slices.Clone(t), value)
		}
		t[i] = put(t[i], path[1:], value)
	}
	return v
}

// TestReplace: a hook may change what a row is worth and which of its tokens
// are trained, never where it comes from or what was sampled.
func TestReplace(t *testing.T) {
	w := newWorld(t)
	w.call("main", nil, []int32{1, 2, 3}, []int32{7, 8})
	row := w.rows()[0]
	row.Integrity.Warn = []string{"odd"}
	set := func(path string, value any) func(any) any {
		return func(v any) any { return put(v, strings.Split(path, "."), value) }
	}
	type changes []func(any) any
	for _, c := range []struct {
		name   string
		change changes
		want   string // of the error; "" for none
	}{
		{"nothing", nil, ""},
		{"reward", changes{set("reward", 0.25)}, ""},
		{"no reward", changes{set("reward", nil)}, ""},
		{"components", changes{set("components", map[string]float64{"d": 2})}, ""},
		{"a token is masked", changes{set("loss_mask.3", 0), set("logprobs.3", nil)}, ""},
		{"a context token is another", changes{set("input_ids.0", 99)}, ""},
		{"cut", changes{set("input_ids", []int{1, 2, 3, 7}), set("loss_mask", []int{0, 0, 0, 1}), set("logprobs", []any{nil, nil, nil, -7})}, ""},
		{"a finding more", changes{set("integrity.warn.1", "very odd")}, ""},
		{"a fatal finding", changes{set("integrity.fatal", []string{"no"})}, ""},

		{"mask of another length", changes{set("loss_mask.5", 0)}, "input_ids, loss_mask and logprobs have 5, 6 and 5 items, want one length"},
		{"ids of another length", changes{set("input_ids", []int{1, 2, 3, 7})}, "want one length"},
		{"longer", changes{set("input_ids.5", 1), set("loss_mask.5", 0), set("logprobs.5", nil)}, "it has 6 ids, the row has 5"},
		{"empty", changes{set("input_ids", []int{}), set("loss_mask", []int{}), set("logprobs", []int{})}, "a row may be cut, but neither emptied"},
		{"ids gone", changes{set("input_ids", nil)}, "want one length"},
		{"prompt_len over the ids", changes{set("prompt_len", 6)}, "prompt_len is not between 0 and the 5 ids"},
		{"prompt_len gone", changes{set("prompt_len", nil)}, "prompt_len"},
		{"context is trained", changes{set("loss_mask.0", 1), set("logprobs.0", -1)}, "loss_mask[0] is 1, but the token is not trained in the row"},
		{"another sampled token", changes{set("input_ids.3", 9)}, "token 3 is trained, so its id and logprob have to stay"},
		{"another logprob", changes{set("logprobs.3", -0.5)}, "token 3 is trained"},
		{"no logprob", changes{set("logprobs.3", nil)}, "token 3 is trained"},
		{"logprob where the mask is 0", changes{set("logprobs.0", 0)}, "logprobs[0] is a number where loss_mask is 0"},
		{"mask of 2", changes{set("loss_mask.3", 2)}, "loss_mask[3] is 2, want 0 or 1"},
		{"another rollout", changes{set("rollout", "t1~1")}, "it changes rollout, which says where the row comes from"},
		{"another row", changes{set("row", "x")}, "it changes row"},
		{"other calls", changes{set("calls", []string{})}, "it changes calls"},
		{"another model", changes{set("model", "x")}, "it changes model"},
		{"sampling", changes{set("sampling_effective.temperature", 1)}, "it changes sampling_effective"},
		{"a finding less", changes{set("integrity.warn", []string{})}, "a hook may only add"},
		{"calls missing", changes{set("integrity.missing", 1)}, "it changes integrity"},
		{"unknown field", changes{set("extra", 1)}, `unknown field "extra"`},
		{"reward of another kind", changes{set("reward", "1")}, "cannot unmarshal"},
		{"no row", changes{func(any) any { return []any{} }}, "cannot unmarshal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := inJSON(t, row)
			var v any
			require.NoError(t, json.Unmarshal([]byte(before), &v))
			for _, change := range c.change {
				v = change(v)
			}
			raw, err := chat.Marshal(v)
			require.NoError(t, err)
			value := string(raw)
			got, err := Replace(row, raw)
			assert.Equal(t, before, inJSON(t, row), "the original stays as it was")
			if c.want != "" {
				assert.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			assert.JSONEq(t, value, inJSON(t, got))

			// What is stored of a change gives the same row again.
			_, changed := Difference(json.RawMessage(before), json.RawMessage(inJSON(t, got)))
			again, err := Apply(row, changed)
			require.NoError(t, err)
			assert.Equal(t, inJSON(t, got), inJSON(t, again))
		})
	}
}

func TestReplaceRowWithoutIDs(t *testing.T) {
	w := newWorld(t)
	w.call("main", nil, nil, nil, func(c *trace.Call) { c.Capture = "text" })
	row := w.rows()[0]
	require.Nil(t, row.InputIDs)
	value := strings.Replace(inJSON(t, row), `"text":"[]"`, `"text":"other"`, 1)
	got, err := Replace(row, json.RawMessage(value))
	require.NoError(t, err)
	assert.Equal(t, "other", chat.PlainText(got.Messages[0].Parts))
	with := strings.Replace(inJSON(t, row), `"input_ids":null`, `"input_ids":[1]`, 1)
	_, err = Replace(row, json.RawMessage(with))
	assert.ErrorContains(t, err, "it gives ids to a row that has none")
}

func TestDifference(t *testing.T) {
	for _, c := range []struct{ name, before, after, wantBefore, wantAfter string }{
		{"changed", `{"a":1,"b":2}`, `{"a":1,"b":3}`, `{"b":2}`, `{"b":3}`},
		{"gone", `{"a":1,"b":2}`, `{"a":1}`, `{"b":2}`, `{"b":null}`},
		{"new", `{"a":1}`, `{"a":1,"b":2}`, `{"b":null}`, `{"b":2}`},
		{"same", `{"a":1}`, `{"a":1}`, `{}`, `{}`},
		{"denied", `{"a":1}`, ``, ``, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			var after json.RawMessage
			if c.after != "" {
				after = json.RawMessage(c.after)
			}
			b, a := Difference(json.RawMessage(c.before), after)
			assert.Equal(t, c.wantBefore, string(b))
			assert.Equal(t, c.wantAfter, string(a))
		})
	}
}

// FuzzReplace: whatever a hook answers, a row that is taken keeps the law.
func FuzzReplace(f *testing.F) {
	one, logprob := 1, -0.5
	row := &converter.Row{Schema: converter.Schema, Row: "r", InputIDs: []int32{1, 2, 3}, LossMask: []int8{0, 1, 1},
		Logprobs: []*float64{nil, &logprob, &logprob}, PromptLen: &one}
	before, err := chat.Marshal(row)
	require.NoError(f, err)
	f.Add(before)
	f.Add([]byte(`{"input_ids":[1]}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		got, err := Replace(row, value)
		if err != nil {
			return
		}
		require.Len(t, got.LossMask, len(got.InputIDs))
		require.Len(t, got.Logprobs, len(got.InputIDs))
		for i, m := range got.LossMask {
			require.Equal(t, m == 1, got.Logprobs[i] != nil)
			require.LessOrEqual(t, m, row.LossMask[i])
		}
		_, changed := Difference(before, json.RawMessage(inJSON(t, got)))
		again, err := Apply(row, changed)
		require.NoError(t, err)
		require.Equal(t, inJSON(t, got), inJSON(t, again))
	})
}
