package streamjson

import (
	"math"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// number is one that may be missing, null, or in a string: programs that print
// as Claude Code does write all of these. What is none of them is missing.
type number struct{ v *float64 }

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(b), `" `), 64)
	if err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) && v >= 0 {
		n.v = &v
	}
	return nil
}

func (n number) tokens() int {
	if n.v == nil || *n.v > math.MaxInt32 {
		return 0
	}
	return int(*n.v)
}

// usage is that of a result line, in tokens.
type usage struct {
	Input         number `json:"input_tokens"`
	CacheCreation number `json:"cache_creation_input_tokens"`
	CacheRead     number `json:"cache_read_input_tokens"`
	Output        number `json:"output_tokens"`
}

// model is what one model had of a run.
type model struct {
	Input         number `json:"inputTokens"`
	CacheCreation number `json:"cacheCreationInputTokens"`
	CacheRead     number `json:"cacheReadInputTokens"`
	Output        number `json:"outputTokens"`
	Cost          number `json:"costUSD"`
	CostBasis     string `json:"costBasis"`
}

// usage is what the run used: its own sum or, where there is none, that of its
// models; nil if it tells neither.
func (l *resultLine) usage() *chat.Usage {
	if u := l.Usage; u != nil && (u.Input.v != nil || u.Output.v != nil) {
		return tokens(u.Input, u.CacheCreation, u.CacheRead, u.Output)
	}
	var sum *chat.Usage
	for _, m := range l.Models {
		if m.Input.v == nil && m.Output.v == nil {
			continue
		}
		u := tokens(m.Input, m.CacheCreation, m.CacheRead, m.Output)
		if sum != nil {
			*u = sum.Add(*u)
		}
		sum = u
	}
	return sum
}

func tokens(input, written, read, output number) *chat.Usage {
	return &chat.Usage{
		Input: input.tokens() + written.tokens() + read.tokens(), Output: output.tokens(),
		Cached: read.tokens(), CacheWrite: written.tokens(),
	}
}

// cost is nil where it isn't known, which is not the same as nothing, and where
// the program guesses: behind a gateway it counts models that it does not know
// at the price of one that it does.
func (l *resultLine) cost() *float64 {
	sum, known := 0.0, len(l.Models) > 0
	for _, m := range l.Models {
		switch {
		case m.CostBasis == "unknown":
			return nil
		case m.Cost.v == nil:
			known = false
		default:
			sum += *m.Cost.v
		}
	}
	if l.Cost.v == nil && known {
		return &sum
	}
	return l.Cost.v
}
