package engine

import (
	"context"
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

// lingering says a last word when it is told to end.
type lingering struct{}

func (lingering) Plan(context.Context, *invoker.PlanRequest) (*invoker.Plan, error) {
	return &invoker.Plan{Argv: []string{"sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"}, Output: invoker.JSONL}, nil
}

func (lingering) Line(ctx context.Context, r *invoker.LineRequest) (invoker.LineResult, error) {
	state, err := json.Marshal(string(r.State) + r.Line)
	if ctx.Err() != nil {
		err = ctx.Err() // as a plugin in a process does
	}
	return invoker.LineResult{State: state}, err
}

func (lingering) Result(_ context.Context, r *invoker.ResultRequest) (*invoker.Result, error) {
	return &invoker.Result{ExitStatus: invoker.OK, Text: string(r.State)}, nil
}

// TestALastWordIsRead: of an agent that was ended, which doesn't change why.
func TestALastWordIsRead(t *testing.T) {
	b := start(t, `penstock: v1
tasks: { inline: [{ id: a }] }
stages:
  - { id: solve, uses: invoker/lingering, idle: 1s }
`, component.Component{
		Descriptor: component.Descriptor{Kind: component.Invoker, Name: "lingering", Protocol: component.Protocol, Output: invoker.OutputSchema},
		Open:       func(context.Context, json.RawMessage) (any, error) { return lingering{}, nil },
	})
	b.run()
	s := b.stage("a~0", "solve")
	assert.Equal(t, noActivity, s.ExitStatus, s.Error)
	assert.Contains(t, s.Error, "neither wrote nor called the model for 1s")
}

// TestR20_ARunThatWasGivenUpStartsNothing: it ends at once, and leaves nothing behind
// but what resume goes on with.
func TestR20_ARunThatWasGivenUpStartsNothing(t *testing.T) {
	b := start(t, `penstock: v1
tasks: { inline: [{ id: a }, { id: b }] }
stages:
  - { id: solve, uses: invoker/say, with: { prompt: x } }
`)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	totals, err := b.engine.Run(ctx)
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 20*time.Second)
	assert.Zero(t, totals.Status[trace.Completed])
	assert.NoDirExists(t, b.folder.Path("artifacts", "a~0"))
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 15*time.Second, 10*time.Millisecond, "goroutines stay")
	assert.Equal(t, 2, b.run().Status[trace.Completed])
}
