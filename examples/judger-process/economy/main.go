// Economy is a judger in one file: a right answer is worth 1, less a price for
// each tool call.
package main

import (
	"context"
	"strings"

	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/serve"
)

type config struct {
	Price float64 `json:"price" desc:"what a tool call costs of the reward"`
}

// Judge implements judger.Judger.
func (c config) Judge(_ context.Context, r *judger.Request) (judger.Verdict, error) {
	calls := float64(len(r.Rollout().ToolCalls()))
	if strings.TrimSpace(r.Rollout().FinalText()) != r.Task().String("answer") {
		return judger.Reward(0), nil
	}
	v := judger.Reward(max(0, 1-c.Price*calls))
	v.Components = map[string]float64{"calls": calls}
	return v, nil
}

func open(c config) (judger.Judger, error) { return c, nil }
func init()                                { judger.Register("economy", open) }
func main()                                { serve.Main() }
