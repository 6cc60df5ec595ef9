package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/schema"
	"github.com/penstock-dev/penstock/sdk/sdktest"
)

func TestEveryTransportDescribesTheSame(t *testing.T) {
	for _, id := range []string{"judger/tame", "hook/shout", "invoker/echo", "format/letters"} {
		kind, name, _ := strings.Cut(id, "/")
		var want component.Descriptor
		for i, transport := range []string{Builtin, Process, Wasm} {
			r := transports(kind, name)[transport](t)
			d, err := r.Describe(kind, name)
			require.NoError(t, err)
			if i == 0 {
				want = d
			}
			assert.Equal(t, want, d, transport)
			assert.Equal(t, transport, r.Transport(kind, name))
			assert.Contains(t, r.Names(kind), name)
		}
	}
}

func TestJudgersGiveTheSameOnEveryTransport(t *testing.T) {
	cases := []sdktest.Case{
		{Name: "equal", Request: `{"task":{"answer":"4"},"rollout":{"final_text":"4"}}`,
			Want: `{"reward":1,"components":{"calls":0},"explanation":"got \"4\", want \"4\" <&>","status":"scored"}`},
		{Name: "input wins", Request: `{"input":{"expect":"é\"\n"},"task":{"answer":"4"},"rollout":{"final_text":"4","tool_calls":[{"id":"a"},{"id":"b"}]}}`,
			Want: `{"reward":0,"components":{"calls":2},"explanation":"got \"4\", want \"é\\\"\\n\" <&>","status":"scored"}`},
		{Name: "config", Config: `{"ignore_case": true}`, Request: `{"task":{"answer":"YES"},"rollout":{"final_text":"yes"}}`,
			Want: `{"reward":1,"components":{"calls":0},"explanation":"got \"yes\", want \"YES\" <&>","status":"scored"}`},
		{Name: "skip", Request: `{"rollout":{"final_text":"skip"}}`, Want: `{"reward":null,"explanation":"nothing to see","status":"skipped"}`},
		{Name: "error", Request: `{"rollout":{"final_text":"error"}}`, Error: "can't tell"},
		{Name: "unknown key", Config: `{"ignore_cas": true}`, Request: `{}`, Error: `/ignore_cas: unknown field, did you mean "ignore_case"?`},
		{Name: "wrong type", Config: `{"ignore_case": "yes"}`, Request: `{}`, Error: "/ignore_case: is string, want boolean"},
		{Name: "refused by the judger", Config: `{"weight": -1}`, Request: `{}`, Error: "/weight: is negative"},
		{Name: "group", Request: `{"rollouts":[{"final_text":"a"},{"final_text":"b"},{"final_text":"a"}]}`,
			Want: `[{"reward":1,"status":"scored"},{"reward":0,"status":"scored"},{"reward":1,"status":"scored"}]`},
	}
	for name, load := range transports(component.Judger, "tame") {
		t.Run(name, func(t *testing.T) {
			r := load(t)
			sdktest.Judger(t, func(ctx context.Context, config json.RawMessage) (judger.Judger, error) {
				return r.Judger(ctx, "tame", config)
			}, cases)
		})
	}
}

func TestHooksGiveTheSameOnEveryTransport(t *testing.T) {
	cases := []sdktest.Case{
		{Name: "replace", Request: `{"point":"request","request":{"messages":[{"role":"user","parts":[{"type":"text","text":"hi <b> é"}]}],"sampling":{}}}`,
			Want: `{"action":"replace","value":{"messages":[{"role":"user","parts":[{"type":"text","text":"HI <B> É"}]}],"sampling":{}},"report":{"loud":true}}`},
		{Name: "nothing to change", Request: `{"point":"request","request":{"messages":[]}}`, Want: `{"action":"continue"}`},
		{Name: "deny", Request: `{"point":"tool_call","tool_call":{"name":"danger"}}`, Want: `{"action":"deny","reason":"danger is not a toy"}`},
		{Name: "bad subject", Request: `{"point":"request","request":{"messages":[{"role":1}]}}`, Error: "want a string"},
	}
	for name, load := range transports(component.Hook, "shout") {
		t.Run(name, func(t *testing.T) {
			r := load(t)
			sdktest.Hook(t, func(ctx context.Context, config json.RawMessage) (hook.Hook, error) {
				return r.Hook(ctx, "shout", config)
			}, cases)
		})
	}
}

func TestInvokersGiveTheSameOnEveryTransport(t *testing.T) {
	for name, load := range transports(component.Invoker, "echo") {
		t.Run(name, func(t *testing.T) {
			i, err := load(t).Invoker(t.Context(), "echo", nil)
			require.NoError(t, err)
			plan, err := i.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":"<x>"}`), Session: invoker.Session{Token: "s"}})
			require.NoError(t, err)
			assert.Equal(t, &invoker.Plan{Argv: []string{"echo", "<x>"}, Env: map[string]string{"TOKEN": "s"}, Output: invoker.JSONL}, plan)
			first, err := i.(invoker.Liner).Line(t.Context(), &invoker.LineRequest{Line: "abc"})
			require.NoError(t, err)
			second, err := i.(invoker.Liner).Line(t.Context(), &invoker.LineRequest{Line: "de", State: first.State})
			require.NoError(t, err)
			assert.Equal(t, invoker.LineResult{State: json.RawMessage("5"), Ready: true}, second)
			result, err := i.Result(t.Context(), &invoker.ResultRequest{Stdout: "out", State: second.State, ExitStatus: "ok"})
			require.NoError(t, err)
			assert.Equal(t, &invoker.Result{Text: "out", Error: "5", ExitStatus: "ok"}, result)
		})
	}
}

// TestR20_AnInvokerCalledWithinACall: from a plugin's own call, too, where it answers,
// and for a caller who gave up, who is told so at once.
func TestR20_AnInvokerCalledWithinACall(t *testing.T) {
	for name, load := range transports(component.Invoker, "echo") {
		t.Run(name, func(t *testing.T) {
			r := load(t)
			i, err := r.Invoker(t.Context(), "echo", nil)
			require.NoError(t, err)
			hook := guarded(&entry{key: "hook/asks"}, slog.New(slog.DiscardHandler), asks{i}).(hook.Hook)
			before := runtime.NumGoroutine()
			_, err = hook.Apply(t.Context(), nil)
			require.NoError(t, err)

			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			began := time.Now()
			_, err = hook.Apply(ctx, nil)
			require.ErrorIs(t, fails(t, err, Cancelled), context.Canceled)
			assert.Contains(t, err.Error(), "plugin invoker/echo: ")
			_, err = i.Result(ctx, &invoker.ResultRequest{})
			fails(t, err, Cancelled)
			_, err = i.(invoker.Liner).Line(ctx, &invoker.LineRequest{Line: "abc"})
			fails(t, err, Cancelled)
			assert.Less(t, time.Since(began), 20*time.Second)
			assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 15*time.Second, 10*time.Millisecond, "goroutines stay")
			_, err = hook.Apply(t.Context(), nil)
			require.NoError(t, err, "and the next call is answered")
		})
	}
}

// asks is a hook that calls an invoker.
type asks struct{ of invoker.Invoker }

func (a asks) Apply(ctx context.Context, _ *hook.Event) (hook.Result, error) {
	_, err := a.of.Plan(ctx, &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":"x"}`)})
	return hook.Result{}, err
}

func TestFormatsGiveTheSameOnEveryTransportAndSplit(t *testing.T) {
	const text = "abC é日本 Dx"
	parse := func(t *testing.T, f format.Format, size int) []format.Event {
		p, err := f.Open(t.Context(), &format.ParseOptions{})
		require.NoError(t, err)
		defer p.Close()
		var events []format.Event
		for b := []byte(text); len(b) > 0; b = b[min(size, len(b)):] {
			events = p.Feed(events, b[:min(size, len(b))])
		}
		events = p.Finish(events)
		require.NoError(t, p.Err())
		return format.Join(events)
	}
	var whole []format.Event
	for _, name := range []string{Builtin, Process, Wasm} {
		f, err := transports(component.Format, "letters")[name](t).Format(t.Context(), "letters", nil)
		require.NoError(t, err)
		assert.Equal(t, []string{"<end>"}, f.Markers())
		c := &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "hi"}}}}}
		r, err := f.Render(t.Context(), &format.RenderRequest{Chat: c})
		require.NoError(t, err)
		assert.Equal(t, "hi<end>", format.Text(r.Segments))
		r, err = f.Tail(t.Context(), &format.RenderRequest{Chat: c}, 1, format.EndedLength)
		require.NoError(t, err)
		assert.Equal(t, 1, r.Segments[0].Message)
		assert.Equal(t, []string{"length"}, r.Stops)
		if name == Builtin {
			whole = parse(t, f, len(text))
		}
		sizes := []int{2, 3, len(text)}
		if name != Builtin { // half a rune isn't the format's business on a transport
			sizes = append(sizes, 1)
		} else {
			sizes = sizes[2:]
		}
		for _, size := range sizes {
			assert.Equal(t, whole, parse(t, f, size), "%s in chunks of %d", name, size)
		}
	}
}

func TestAnyNumberOfStreamsShareInstances(t *testing.T) {
	for _, name := range []string{Process, Wasm} {
		t.Run(name, func(t *testing.T) {
			f, err := transports(component.Format, "letters")[name](t).Format(t.Context(), "letters", nil)
			require.NoError(t, err)
			var parsers []format.Parser
			for range 500 {
				p, err := f.Open(t.Context(), &format.ParseOptions{})
				require.NoError(t, err)
				parsers = append(parsers, p)
			}
			var wg sync.WaitGroup
			for i, p := range parsers {
				wg.Go(func() {
					var events []format.Event
					for range i%7 + 1 {
						events = p.Feed(events, []byte("a"))
					}
					events = p.Finish(events)
					assert.NoError(t, p.Err())
					assert.Len(t, events, i%7+2)
					assert.NoError(t, p.Close())
				})
			}
			wg.Wait()
		})
	}
}

func TestAStreamWhosePluginDiesSaysSoAndOthersGoOn(t *testing.T) {
	f, err := transports(component.Format, "letters")[Wasm](t).Format(t.Context(), "letters", nil)
	require.NoError(t, err)
	p, err := f.Open(t.Context(), &format.ParseOptions{})
	require.NoError(t, err)
	assert.Len(t, p.Feed(nil, []byte("aB")), 2)
	assert.Empty(t, p.Feed(nil, []byte("!")))
	fails(t, p.Err(), Trapped)
	assert.Empty(t, p.Finish(nil))
	require.NoError(t, p.Close())
	again, err := f.Open(t.Context(), &format.ParseOptions{})
	require.NoError(t, err)
	assert.Len(t, again.Feed(nil, []byte("aB")), 2)
	require.NoError(t, again.Err())
	require.NoError(t, again.Close())
}

// files keeps what a converter writes.
type files map[string]*strings.Builder

type closing struct{ io.Writer }

func (closing) Close() error { return nil }

func (f files) Create(ending string) (io.WriteCloser, error) {
	f[ending] = &strings.Builder{}
	return closing{f[ending]}, nil
}

func TestConvertersGiveTheSameInAProcess(t *testing.T) {
	rows := func(n int, bad int) iter.Seq2[*converter.Row, error] {
		return func(yield func(*converter.Row, error) bool) {
			reward := 0.5
			for i := range n {
				row := &converter.Row{Row: strings.Repeat("r", i%10), Reward: &reward}
				if i == bad {
					row.Status = "bad"
				}
				if !yield(row, nil) {
					return
				}
			}
		}
	}
	var want files
	for _, name := range []string{Builtin, Process} {
		c, err := transports(component.Converter, "ids")[name](t).Converter(t.Context(), "ids", nil)
		require.NoError(t, err)
		out := files{}
		require.NoError(t, c.Convert(t.Context(), rows(1000, -1), out))
		if want == nil {
			want = out
		}
		assert.Equal(t, want, out)
		require.ErrorContains(t, c.Convert(t.Context(), rows(1000, 500), files{}), "a bad row")
		broken := func(yield func(*converter.Row, error) bool) { yield(nil, errors.New("no rows today")) }
		require.ErrorContains(t, c.Convert(t.Context(), broken, files{}), "no rows today")
	}
}

// TestALargeRowGoesByFile, in its place among the others.
func TestALargeRowGoesByFile(t *testing.T) {
	large := strings.Repeat("r", 9<<20)
	rows := func(yield func(*converter.Row, error) bool) {
		for _, name := range []string{"one", large, "three"} {
			if !yield(&converter.Row{Row: name}, nil) {
				return
			}
		}
	}
	temp := shortTemp(t)
	c, err := transports(component.Converter, "ids")[Process](t).Converter(t.Context(), "ids", nil)
	require.NoError(t, err)
	out := files{}
	require.NoError(t, c.Convert(t.Context(), rows, out))
	assert.Equal(t, "one\n"+large+"\nthree\n", out["txt"].String())
	left, err := filepath.Glob(filepath.Join(temp, "*", "*", "penstock-document-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestAFieldAtFaultHasItsPointerOnEveryTransport(t *testing.T) {
	for name, load := range transports(component.Judger, "tame") {
		_, err := load(t).Judger(t.Context(), "tame", json.RawMessage(`{"weight":-1}`))
		var field *schema.Error
		require.ErrorAs(t, err, &field, name)
		assert.Equal(t, "/weight", field.Pointer)
	}
}

func TestARetryableErrorStaysOneOnEveryTransport(t *testing.T) {
	for name, load := range transports(component.Judger, "tame") {
		_, err := open(t, load(t), "tame").Judge(t.Context(), judgeRequest(`{"rollout":{"final_text":"again"}}`))
		var e *component.Error
		require.ErrorAs(t, err, &e, name)
		assert.Equal(t, component.Error{Code: "busy", Message: "try again", Retryable: true}, *e, name)
	}
}

func TestEqualPluginAndConfigShareAnInstance(t *testing.T) {
	r := transports(component.Judger, "tame")[Wasm](t)
	a, err := r.Judger(t.Context(), "tame", json.RawMessage(`{"weight":1,"ignore_case":true}`))
	require.NoError(t, err)
	b, err := r.Judger(t.Context(), "tame", json.RawMessage(`{"ignore_case": true, "weight": 1}`))
	require.NoError(t, err)
	c, err := r.Judger(t.Context(), "tame", nil)
	require.NoError(t, err)
	assert.Equal(t, a, b)
	assert.NotEqual(t, a, c)
}

func TestTheRealClockIsGrantedOnly(t *testing.T) {
	for _, grant := range [][]string{nil, {"now"}} {
		r, _ := load(t, Source{Key: "judger/wild", Wasm: zooBuilt.wasm, Grant: grant})
		v, err := ask(open(t, r, "wild"), "clock")
		require.NoError(t, err)
		assert.Equal(t, grant != nil, *v.Reward > 1e9, "%v", *v.Reward)
	}
}
