// Close is a judger in one file, built as a WASM module: a number is worth the
// more, the nearer it is. Of a large rollout only what is read here crosses
// into the module.
package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/serve"
)

type config struct {
	Within float64 `json:"within" desc:"how far off the answer may be for any reward"`
}

// Judge implements judger.Judger.
func (c config) Judge(_ context.Context, r *judger.Request) (judger.Verdict, error) {
	want, err := strconv.ParseFloat(r.Task().String("answer"), 64)
	if err != nil {
		return judger.Verdict{}, fmt.Errorf("the task's answer is no number: %w", err)
	}
	got, err := strconv.ParseFloat(strings.TrimSpace(r.Rollout().FinalText()), 64)
	if err != nil {
		return judger.Reward(0), nil
	}
	return judger.Reward(max(0, 1-math.Abs(got-want)/c.Within)), nil
}

func open(c config) (judger.Judger, error) { return c, nil }
func init()                                { judger.Register("close", open) }
func main()                                { serve.Main() }
