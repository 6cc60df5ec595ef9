package engine

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/model"
)

const question = `{"model": "m", "messages": [{"role": "user", "content": "hello"}]}`

// caller is invoker/call: one call of the model instead of a program.
type caller struct{}

func (caller) Plan(context.Context, *invoker.PlanRequest) (*invoker.Plan, error) {
	return &invoker.Plan{Call: &invoker.ModelCall{Path: "/v1/chat/completions", Body: json.RawMessage(question)}}, nil
}

func (caller) Result(_ context.Context, q *invoker.ResultRequest) (*invoker.Result, error) {
	return &invoker.Result{Text: q.Stdout}, nil
}

// asker is judger/ask, which asks its model twice.
type asker struct{}

func (asker) Judge(ctx context.Context, r *judger.Request) (judger.Verdict, error) {
	for range 2 {
		if _, err := model.Ask(ctx, r.Session(), "/v1/chat/completions", []byte(question)); err != nil {
			return judger.Verdict{}, err
		}
	}
	return judger.Reward(1), nil
}

func callers() []component.Component {
	open := func(v any) func(context.Context, json.RawMessage) (any, error) {
		return func(context.Context, json.RawMessage) (any, error) { return v, nil }
	}
	return []component.Component{
		{Descriptor: component.Descriptor{Kind: component.Invoker, Name: "call", Protocol: component.Protocol, Output: invoker.OutputSchema}, Open: open(caller{})},
		{Descriptor: component.Descriptor{Kind: component.Judger, Name: "ask", Protocol: component.Protocol, Output: judger.Output, Methods: []string{judger.MethodJudge}, Wants: []string{"model"}}, Open: open(asker{})},
	}
}

// slow is an upstream that answers with three tokens for two, when let go on.
func slow(t testing.TB, asked chan<- bool, goOn <-chan bool) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/chat/completions") {
			http.NotFound(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // only then it is seen that the client has gone
		select {
		case asked <- true:
		case <-r.Context().Done():
		}
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id": "x", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
			"usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}}`))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func asking(url string) string {
	return `
penstock: v1
tasks: { inline: [{ id: one }] }
models:
  m: { upstream: { kind: openai, url: "` + url + `" }, model: m, format: upstream }
stages:
  - { id: call, uses: invoker/call, model: m, budget: { calls: 1 } }
  - { id: ask, uses: judger/ask, model: m, budget: { calls: 2 } }
`
}

// TestAnInterruptedCallEndsAtOnce: nobody is left to read its reply, so that
// nothing is waited for.
func TestAnInterruptedCallEndsAtOnce(t *testing.T) {
	for name, first := range map[string]int{"a stage's": 0, "a judge's": 1} {
		t.Run(name, func(t *testing.T) {
			asked, goOn := make(chan bool), make(chan bool)
			b := start(t, asking(slow(t, asked, goOn)), callers()...)
			b.engine.drain = 10 * time.Minute // to see who doesn't wait
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for range first {
					<-asked
					goOn <- true
				}
				<-asked
				cancel()
			}()
			began := time.Now()
			_, err := b.engine.Run(ctx)
			require.NoError(t, err)
			assert.Less(t, time.Since(began), time.Minute)
			assert.Equal(t, trace.Cancelled, b.rollout("one~0").Status)
		})
	}
}

// TestAJudgesCallsAreCounted: in the rollout and the run, as their cost is, and
// not in the agent's budget.
func TestAJudgesCallsAreCounted(t *testing.T) {
	asked, goOn := make(chan bool, 3), make(chan bool)
	close(goOn)
	b := start(t, asking(slow(t, asked, goOn)), callers()...)
	totals := b.run()
	r := b.rollout("one~0")
	require.Equal(t, trace.Completed, r.Status, r.Error)
	assert.Equal(t, "ok", r.ExitStatus)
	assert.Equal(t, 3, r.Calls)
	assert.Equal(t, 6, r.Usage.Input)
	assert.Equal(t, 9, r.Usage.Output)
	assert.Equal(t, r.Usage, totals.Usage)
	assert.Equal(t, 3, totals.Calls)
}
