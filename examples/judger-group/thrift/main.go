// Thrift is a judger of groups in one file: of the samples of a task, those
// that are right are held against the one of them that made do with the fewest
// tool calls.
package main

import (
	"context"
	"strings"

	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/serve"
)

type thrift struct{}

// JudgeGroup implements judger.GroupJudger: a verdict for each rollout, in
// their order.
func (thrift) JudgeGroup(_ context.Context, r *judger.GroupRequest) ([]judger.Verdict, error) {
	rollouts := r.Rollouts()
	fewest := 0
	for _, o := range rollouts {
		n := 1 + len(o.ToolCalls())
		if right(o.FinalText(), r) && (fewest == 0 || n < fewest) {
			fewest = n
		}
	}
	verdicts := make([]judger.Verdict, len(rollouts))
	for i, o := range rollouts {
		verdicts[i] = judger.Reward(0)
		if right(o.FinalText(), r) {
			verdicts[i] = judger.Reward(float64(fewest) / float64(1+len(o.ToolCalls())))
		}
	}
	return verdicts, nil
}

func right(text string, r *judger.GroupRequest) bool {
	return strings.TrimSpace(text) == r.Task().String("answer")
}

func open(struct{}) (judger.GroupJudger, error) { return thrift{}, nil }
func init()                                     { judger.RegisterGroup("thrift", open) }
func main()                                     { serve.Main() }
