package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/hook"
)

type hookFunc func(ctx context.Context, e *hook.Event) (hook.Result, error)

func (f hookFunc) Apply(ctx context.Context, e *hook.Event) (hook.Result, error) { return f(ctx, e) }

func changes(name string, f hookFunc, points ...hook.Point) gateway.Hook {
	return gateway.Hook{Name: name, Hook: f, Changes: points}
}

func hooks(hs ...gateway.Hook) setting {
	return func(_ *gateway.Options, m *gateway.Model) { m.Hooks = hs }
}

// swap replaces text in the subject of a hook.
func swap(from, to string) hookFunc {
	return func(_ context.Context, e *hook.Event) (hook.Result, error) {
		subject := e.Subject().String("")
		if !strings.Contains(subject, from) {
			return hook.Pass(), nil
		}
		return hook.Result{Action: hook.Replace, Value: json.RawMessage(strings.ReplaceAll(subject, from, to)), Report: json.RawMessage(`{"swapped":true}`)}, nil
	}
}

func deny(reason string) hookFunc {
	return func(context.Context, *hook.Event) (hook.Result, error) {
		return hook.Result{Action: hook.Deny, Reason: reason}, nil
	}
}

// TestRequestHooks change what the model sees, in the order of the file;
// what the client sent is kept as it was.
func TestRequestHooks(t *testing.T) {
	e := says("ok"+imEnd, 10)
	b := start(t, e, hooks(changes("first", swap("kumquat", "fruit"), hook.Request), changes("second", swap("fruit", "***"), hook.Request)))
	require.Equal(t, 200, post(t, b.session(t), ask("a kumquat", true, addTool)).status)
	assert.Contains(t, e.seen()[0].Prompt, "a ***")
	c := b.store.only(t)
	assert.Contains(t, string(c.Messages[0]), "kumquat")
	assert.Equal(t, "a ***", c.Chat.Messages[0].Parts[0].Text)
	require.Len(t, c.Edits, 2)
	for i, want := range []struct{ hook, before, after string }{{"first", "a kumquat", "a fruit"}, {"second", "a fruit", "a ***"}} {
		edit := c.Edits[i]
		assert.Equal(t, want.hook, edit.Hook)
		assert.Equal(t, "request", edit.Point)
		assert.Equal(t, "replace", edit.Action)
		assert.JSONEq(t, `{"/messages/0":{"role":"user","parts":[{"type":"text","text":"`+want.before+`"}]}}`, string(edit.Before))
		assert.JSONEq(t, `{"/messages/0":{"role":"user","parts":[{"type":"text","text":"`+want.after+`"}]}}`, string(edit.After))
		assert.JSONEq(t, `{"swapped":true}`, string(edit.Report))
	}
	assert.Equal(t, "add", c.Chat.Tools[0].Name)
	assert.NotEmpty(t, c.Chat.Tools[0].Raw, "a tool that no hook changed keeps its own bytes")
}

// TestRequestHooksKeepOtherBytes: what a hook left alone is rendered with the
// client's own spaces.
func TestRequestHooksKeepOtherBytes(t *testing.T) {
	e := says("ok"+imEnd, 10)
	b := start(t, e, hooks(changes("mask", swap("kumquat", "***"), hook.Request)))
	body := `{"model":"policy","max_tokens":9,"tools":[{"name":"add","input_schema":{ "type": "object", "x": [ 1, 2.0 ] }}],"messages":[` +
		`{"role":"user","content":"a kumquat"},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"add","input":{ "a": 1.50, "b": null }}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"ok"}]}]}`
	require.Equal(t, 200, post(t, b.session(t), body).status)
	c := b.store.only(t)
	assert.Equal(t, "a ***", c.Chat.Messages[0].Parts[0].Text)
	assert.Equal(t, `{ "a": 1.50, "b": null }`, string(c.Chat.Messages[1].Parts[0].Arguments))
	assert.Equal(t, `{ "type": "object", "x": [ 1, 2.0 ] }`, string(c.Chat.Tools[0].Parameters))
	assert.NotEmpty(t, c.Chat.Tools[0].Raw)
}

// TestHookEvent: what a hook is told.
func TestHookEvent(t *testing.T) {
	var mu sync.Mutex
	docs := map[hook.Point]string{}
	look := hookFunc(func(_ context.Context, e *hook.Event) (hook.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		docs[e.Point()] = e.Task().String("word") + " " + e.Rollout().String("id") + " " + e.Subject().String("name") + " " + e.Tools().String("/0/name")
		return hook.Pass(), nil
	})
	b := start(t, says(`<call add>{"a":1}</call>`+imEnd, 10), hooks(changes("look", look, hook.Request, hook.ToolCall, hook.Reply)))
	require.Equal(t, 200, post(t, b.session(t), ask("hello", false, addTool)).status)
	assert.Equal(t, map[hook.Point]string{
		hook.Request: "kumquat t1~0  ", hook.ToolCall: "kumquat t1~0 add add", hook.Reply: "kumquat t1~0  ",
	}, docs)
	assert.Empty(t, b.store.only(t).Edits, "a hook that only continues leaves no edit")
}

// TestNextTurnExtendsUnderHooks: hooks at every point change nothing of what
// was sampled.
func TestNextTurnExtendsUnderHooks(t *testing.T) {
	b := start(t, says(`one <call add>{"a":"1"}</call>`+imEnd, 4), hooks(
		changes("mask", swap("kumquat", "***"), hook.Request),
		changes("fix", swap(`"a":"1"`, `"a":1`), hook.ToolCall),
		changes("shout", swap("one ", "ONE "), hook.Reply),
	))
	s := b.session(t)
	first := joined(t, eventsOf(t, post(t, s, ask("a kumquat", true, addTool))))
	assert.Equal(t, "ONE ", at(first, "content", 0, "text"))
	assert.Equal(t, 1.0, at(first, "content", 1, "input", "a"))
	next := `{"model":"policy","max_tokens":1000,` + addTool + `,"messages":[{"role":"user","content":"a kumquat"},` +
		`{"role":"assistant","content":` + quoted(first["content"]) + `},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":` + quoted(at(first, "content", 1, "id")) + `,"content":"a kumquat again"}]}]}`
	require.Equal(t, 200, post(t, s, next).status)
	calls := b.store.all()
	require.Len(t, calls, 2)
	whole := append(append([]int32(nil), calls[0].PromptIDs...), calls[0].SampledIDs...)
	require.True(t, calls[1].Extends, "class %q", calls[1].Fork)
	assert.Equal(t, whole, calls[1].PromptIDs[:len(whole)])
	prompt := string(tokenizer.Decode(nil, calls[1].PromptIDs))
	assert.Contains(t, prompt, `<call add>{"a":"1"}</call>`)
	assert.Contains(t, prompt, "*** again")
	assert.NotContains(t, prompt, "kumquat")
}

// TestToolCallHooks: a call is fixed, and stands beside the original.
func TestToolCallHooks(t *testing.T) {
	const text = `text <call add>{"a":"1"}</call><call add>{"a":2}</call> after`
	for _, streamed := range []bool{true, false} {
		b := start(t, says(text+imEnd, 3), hooks(changes("fix", swap(`"a":"1"`, `"a":1`), hook.ToolCall)))
		a := post(t, b.session(t), ask("hello", streamed, addTool))
		var m map[string]any
		if streamed {
			m = joined(t, eventsOf(t, a))
		} else {
			m = decoded(t, a.body)
		}
		assert.Equal(t, "text ", at(m, "content", 0, "text"))
		assert.Equal(t, map[string]any{"a": 1.0}, at(m, "content", 1, "input"))
		assert.Equal(t, map[string]any{"a": 2.0}, at(m, "content", 2, "input"))
		assert.Equal(t, " after", at(m, "content", 3, "text"))
		assert.Equal(t, "tool_use", m["stop_reason"])
		c := b.store.only(t)
		assert.JSONEq(t, `{"a":"1"}`, string(c.Parsed.Parts[1].Arguments))
		assert.JSONEq(t, `{"a":1}`, string(c.Served.Parts[1].Arguments))
		assert.Equal(t, c.Parsed.Parts[1].ID, c.Served.Parts[1].ID)
		assert.Equal(t, text+imEnd, c.Raw)
		require.Len(t, c.Edits, 1)
		assert.Contains(t, string(c.Edits[0].Before), `{"a":"1"}`)
		assert.Contains(t, string(c.Edits[0].After), `{"a":1}`)
	}
}

// TestHeldCallsLetTextThrough: while a call is held, all before it is already
// with the client, and the call comes once it is complete.
func TestHeldCallsLetTextThrough(t *testing.T) {
	step := make(chan struct{})
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		s := stream(`text <call add>{"a":1}</call><call add>{"a":2}`, 5)
		s.wait = func(i int) error {
			if i > 0 {
				<-step
			}
			return nil
		}
		return s, nil
	}}
	b := start(t, e, hooks(changes("pass", func(context.Context, *hook.Event) (hook.Result, error) { return hook.Pass(), nil }, hook.ToolCall)))
	s := b.session(t)
	r, err := http.DefaultClient.Do(request(t, s, ask("hello", true, addTool)))
	require.NoError(t, err)
	defer r.Body.Close()
	buf := make([]byte, 1<<20)
	n, err := r.Body.Read(buf)
	require.NoError(t, err)
	for !strings.Contains(string(buf[:n]), `"text":"text "`) {
		m, err := r.Body.Read(buf[n:])
		require.NoError(t, err)
		n += m
	}
	assert.NotContains(t, string(buf[:n]), "tool_use")
	close(step)
	list, err := events(r.Body)
	require.NoError(t, err)
	assert.Equal(t, "message_stop", list[len(list)-1].name)
}

// TestDenials: what a denial at each point is to the client.
func TestDenials(t *testing.T) {
	const text = `text <call add>{"a":1}</call>`
	for _, streamed := range []bool{true, false} {
		message := func(a answer) map[string]any {
			require.Equal(t, 200, a.status, a.body)
			if streamed {
				return joined(t, eventsOf(t, a))
			}
			return decoded(t, a.body)
		}
		t.Run(fmt.Sprint("stream=", streamed), func(t *testing.T) {
			e := says(text+imEnd, 3)
			b := start(t, e, hooks(changes("no", deny("not allowed here"), hook.Request)))
			s := b.session(t)
			a := post(t, s, ask("hello", streamed, addTool))
			isAnthropicError(t, a, 403, "permission_error")
			assert.Contains(t, a.body, "not allowed here")
			assert.Empty(t, e.seen())
			assert.Zero(t, s.Stats().Calls)
			c := b.store.only(t)
			assert.Equal(t, trace.CallDenied, c.Status)
			assert.Equal(t, "deny", c.Edits[0].Action)

			b = start(t, says(text+imEnd, 3), hooks(changes("no", deny("no sums"), hook.ToolCall)))
			m := message(post(t, b.session(t), ask("hello", streamed, addTool)))
			assert.Equal(t, "end_turn", m["stop_reason"])
			assert.Len(t, m["content"], 2)
			assert.Equal(t, "no sums", at(m, "content", 1, "text"))
			c = b.store.only(t)
			assert.Equal(t, trace.CallOK, c.Status)
			assert.Equal(t, chat.FinishToolCalls, c.Parsed.Finish)
			assert.Equal(t, chat.FinishStop, c.Served.Finish)

			only2 := hookFunc(func(ctx context.Context, e *hook.Event) (hook.Result, error) {
				if e.Subject().Int("/arguments/a") == 1 {
					return deny("not this one")(ctx, e)
				}
				return hook.Pass(), nil
			})
			b = start(t, says(text+`<call add>{"a":2}</call>`+imEnd, 3), hooks(changes("no", only2, hook.ToolCall)))
			m = message(post(t, b.session(t), ask("hello", streamed, addTool)))
			assert.Equal(t, "tool_use", m["stop_reason"])
			assert.Equal(t, "not this one", at(m, "content", 1, "text"))
			assert.Equal(t, 2.0, at(m, "content", 2, "input", "a"))

			b = start(t, says(text+imEnd, 3), hooks(changes("no", deny("nothing to say"), hook.Reply)))
			m = message(post(t, b.session(t), ask("hello", streamed, addTool)))
			assert.Equal(t, "end_turn", m["stop_reason"])
			assert.Len(t, m["content"], 1)
			assert.Equal(t, "nothing to say", at(m, "content", 0, "text"))
			c = b.store.only(t)
			assert.Equal(t, text+imEnd, c.Raw)
			assert.Len(t, c.Parsed.Parts, 2)
			assert.Len(t, c.Served.Parts, 1)
		})
	}
}

// TestReplyHooks get the reply whole; keep-alives go on meanwhile.
func TestReplyHooks(t *testing.T) {
	slow := hookFunc(func(ctx context.Context, e *hook.Event) (hook.Result, error) {
		time.Sleep(100 * time.Millisecond)
		return swap("old", "new")(ctx, e)
	})
	b := start(t, says(`<think>h</think>old <call add>{"a":"old"}</call>`+imEnd, 3), hooks(changes("slow", slow, hook.Reply)),
		func(o *gateway.Options, m *gateway.Model) { o.KeepAlive = 20 * time.Millisecond })
	a := post(t, b.session(t), ask("hello", true, addTool))
	assert.True(t, strings.HasPrefix(a.body, ":"), "a keep-alive came first")
	m := joined(t, eventsOf(t, a))
	assert.Equal(t, "new ", at(m, "content", 1, "text"))
	assert.Equal(t, "new", at(m, "content", 2, "input", "a"))
	c := b.store.only(t)
	assert.Equal(t, "old ", c.Parsed.Parts[1].Text)
	assert.Equal(t, "new ", c.Served.Parts[1].Text)
	assert.Equal(t, c.Parsed.ID, c.Served.ID)
	assert.Equal(t, c.Parsed.Usage, c.Served.Usage)
}

// TestHooksThatTalkNonsense: what can't be served or shown is an error of the
// hook, not a reply of the model.
func TestHooksThatTalkNonsense(t *testing.T) {
	for _, c := range []struct {
		point hook.Point
		value string
		want  string
	}{
		{hook.Reply, `{}`, "it has no parts; deny leaves a reply out"},
		{hook.Reply, `{"parts":null}`, "it has no parts"},
		{hook.Reply, `{"parts":[{"type":"zork","text":"a"}]}`, `part 0 has type "zork"`},
		{hook.Reply, `{"parts":[{"type":"image","data":"a"}]}`, `part 0 has type "image"`},
		{hook.Reply, `{"parts":[{"type":"tool_call","arguments":{}}]}`, "part 0 is a tool call without a name"},
		{hook.Reply, `{"parts":[{"type":"tool_call","name":"add"}]}`, "the arguments of add are missing, not an object"},
		{hook.ToolCall, `{"id":"a","name":"add","arguments":"{bad"}`, `the arguments of add are "{bad", not an object`},
		{hook.ToolCall, `{"id":"a","name":"add","arguments":[1]}`, "the arguments of add are [1], not an object"},
		{hook.Request, `{"messages":[{"role":"nobody","parts":[]}]}`, `message 0 has role "nobody"`},
		{hook.Request, `{"messages":[{"role":"user","parts":[{"type":"zork"}]}]}`, `message 0 has a part of type "zork"`},
	} {
		t.Run(string(c.point)+" "+c.value, func(t *testing.T) {
			h := changes("bad", func(context.Context, *hook.Event) (hook.Result, error) {
				return hook.Result{Action: hook.Replace, Value: json.RawMessage(c.value)}, nil
			}, c.point)
			b := start(t, says(`text <call add>{"a":1}</call>`+imEnd, 100), hooks(h))
			s := b.session(t)
			a := post(t, s, ask("hello", false, addTool))
			assert.Contains(t, a.body, "bad failed")
			edits := b.store.only(t).Edits
			require.Len(t, edits, 1)
			assert.Contains(t, edits[0].Error, c.want)
			assert.NotEmpty(t, s.Stats().Spoilt+s.Stats().Fault)
		})
	}
}

// TestHookErrors: closed is a denial, open goes on; both are recorded.
func TestHookErrors(t *testing.T) {
	for name, f := range map[string]hookFunc{
		"error":     func(context.Context, *hook.Event) (hook.Result, error) { return hook.Result{}, errors.New("boom") },
		"panic":     func(context.Context, *hook.Event) (hook.Result, error) { panic("boom") },
		"no action": func(context.Context, *hook.Event) (hook.Result, error) { return hook.Result{}, nil },
		"wrong value": func(context.Context, *hook.Event) (hook.Result, error) {
			return hook.Result{Action: hook.Replace, Value: json.RawMessage(`[1]`)}, nil
		},
		"no value": func(context.Context, *hook.Event) (hook.Result, error) { return hook.Result{Action: hook.Replace}, nil },
	} {
		for _, point := range []hook.Point{hook.Request, hook.ToolCall, hook.Reply} {
			for _, open := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/open=%v", name, point, open), func(t *testing.T) {
					h := changes("bad", f, point)
					h.FailOpen = open
					b := start(t, says(`text <call add>{"a":1}</call>`+imEnd, 100), hooks(h))
					s := b.session(t)
					a := post(t, s, ask("hello", false, addTool))
					c := b.store.only(t)
					require.Len(t, c.Edits, 1)
					assert.NotEmpty(t, c.Edits[0].Error)
					if open {
						assert.Equal(t, "tool_use", decoded(t, a.body)["stop_reason"])
						assert.Equal(t, "continue", c.Edits[0].Action)
						return
					}
					assert.Equal(t, "deny", c.Edits[0].Action)
					assert.Contains(t, a.body, "bad failed")
					assert.NotContains(t, a.body, c.Edits[0].Error, "what went wrong is not for the agent")
					told := s.Stats().Spoilt
					if point == hook.Request {
						told = s.Stats().Fault
					}
					assert.Equal(t, fmt.Sprintf("bad failed at %s: %s", point, c.Edits[0].Error), told)
					if point == hook.Request {
						assert.Equal(t, 403, a.status)
					} else {
						assert.Equal(t, "end_turn", decoded(t, a.body)["stop_reason"])
					}
				})
			}
		}
	}
}

// TestObservers get copies of what passed, after the changes, and hold
// nothing up.
func TestObservers(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	gate := make(chan struct{})
	watch := gateway.Hook{Name: "watch", Observes: []hook.Point{hook.Request, hook.ToolCall, hook.Reply}, Hook: hookFunc(func(_ context.Context, e *hook.Event) (hook.Result, error) {
		<-gate
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, string(e.Point())+" "+e.Subject().String(""))
		return hook.Result{Action: hook.Deny, Reason: "not asked"}, nil
	})}
	b := start(t, says(`text <call add>{"a":"1"}</call>`+imEnd, 4), hooks(watch, changes("fix", swap(`"a":"1"`, `"a":1`), hook.ToolCall)),
		func(o *gateway.Options, m *gateway.Model) { o.ObserverQueue = 2 })
	s := b.session(t)
	require.Equal(t, 200, post(t, s, ask("hello", true, addTool)).status, "a stuck observer holds nothing up")
	for range 3 {
		post(t, s, ask("again", true, addTool))
	}
	dropped := b.Dropped()["watch"]
	assert.GreaterOrEqual(t, dropped, 12-3)
	close(gate)
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == 12-dropped }, 15*time.Second, time.Millisecond)
	assert.Contains(t, seen[0], "request {")
	assert.Contains(t, seen[1], `tool_call {`)
	assert.Contains(t, seen[1], `{"a":1}`)
	assert.NotEqual(t, trace.CallDenied, b.store.all()[0].Status)
}
