// Exact42 is a judger in one file: reward 1 when the agent's final text,
// trimmed, equals the task's answer. It builds as a process and as a WASM
// module.
package main

import (
	"context"
	"strings"

	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/serve"
)

type exact struct{}

// Judge implements judger.Judger.
func (exact) Judge(_ context.Context, r *judger.Request) (judger.Verdict, error) {
	return judger.Pass(strings.TrimSpace(r.Rollout().FinalText()) == r.Task().String("answer")), nil
}

func init() {
	judger.Register("exact42", func(struct{}) (judger.Judger, error) { return exact{}, nil },
		judger.Summary("the final text equals the task's answer"))
}

func main() { serve.Main() }
