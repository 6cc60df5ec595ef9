package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
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

// provider is an upstream that renders and parses by itself.
type provider struct {
	engine
	info  upstream.Info
	count func(r *upstream.Request) (int, error)
}

func (p *provider) Info() upstream.Info { return p.info }

func (p *provider) Count(_ context.Context, r *upstream.Request) (int, error) {
	if p.count == nil {
		return 0, upstream.ErrNoCount
	}
	return p.count(r)
}

// replies is a provider of a dialect that always replies with these chunks.
func replies(dialect string, list ...upstream.Chunk) *provider {
	p := &provider{info: upstream.Info{Server: "test", Parses: true, Dialect: dialect}}
	p.reply = func(context.Context, *upstream.Request) (upstream.Stream, error) { return &chunks{list: list}, nil }
	return p
}

// fronting puts a provider behind the gateway.
func fronting(t testing.TB, p *provider, settings ...setting) *bench {
	t.Helper()
	return start(t, &p.engine, append([]setting{func(_ *gateway.Options, m *gateway.Model) {
		m.Upstream, m.Format, m.FormatName, m.Tokenizer, m.Capture = p, nil, "upstream", nil, gateway.CaptureText
	}}, settings...)...)
}

// Two pieces of a stream as a provider sends it, with things in it that no
// version of ours knows, and its end.
const (
	rawStart = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_theirs\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"theirs\",\"content\":[],\"novel\":1,\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n"
	rawBlock = "event: content_block_start\ndata: { \"type\":\"content_block_start\", \"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n"
	rawEnd   = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
)

var finished = upstream.Finish{Raw: "tool_use", Reason: chat.FinishToolCalls}

// theirs is the reply of these pieces: signed thinking, hidden thinking, text
// and a call.
func theirs(raw bool) []upstream.Chunk {
	list := []upstream.Chunk{
		{Raw: []byte(rawStart), PromptTokens: 7},
		{Raw: []byte(rawBlock), Deltas: []chat.Delta{
			{Type: chat.DeltaReasoning, Text: "hm"}, {Type: chat.DeltaSignature, Text: "sig-"}, {Type: chat.DeltaSignature, Text: "ned"}, {Type: chat.DeltaPartEnd},
			{Type: chat.DeltaRedacted, Part: 1, Text: "hidden"}, {Type: chat.DeltaPartEnd, Part: 1},
			{Type: chat.DeltaText, Part: 2, Text: "I "}, {Type: chat.DeltaText, Part: 2, Text: "add."}, {Type: chat.DeltaPartEnd, Part: 2},
			{Type: chat.DeltaCallStart, Part: 3, ID: "toolu_1", Name: "add"}, {Type: chat.DeltaCallArgs, Part: 3, Text: `{"a":`}, {Type: chat.DeltaCallArgs, Part: 3, Text: ` 1}`},
		}},
		{Raw: []byte(rawEnd), Deltas: []chat.Delta{{Type: chat.DeltaPartEnd, Part: 3}}, Finish: finished, PromptTokens: 7, CachedTokens: 5, OutputTokens: 9},
	}
	if !raw {
		for i := range list {
			list[i].Raw = nil
		}
	}
	return list
}

// want is what is recorded of it, but for the id of the call.
func want(id string) []chat.Part {
	return []chat.Part{
		{Type: chat.Reasoning, Text: "hm", Signature: "sig-ned"}, {Type: chat.Reasoning, Data: "hidden"},
		{Type: chat.Text, Text: "I add."}, {Type: chat.ToolCall, ID: id, Name: "add", Arguments: json.RawMessage(`{"a": 1}`)},
	}
}

// TestPassedOn: an upstream of the client's dialect gets the client's bytes, and
// the client those of the reply; the record has what they say.
func TestPassedOn(t *testing.T) {
	p := replies("anthropic", theirs(true)...)
	b := fronting(t, p)
	body := ask("hello", true, `"future":{"x":[1, 2]}`, addTool, `"tool_choice":{"type":"any"}`)
	s := b.session(t)
	r := request(t, s, body)
	r.Header.Set("Anthropic-Beta", "things-1")
	a := do(t, r)
	require.NoError(t, a.err)
	assert.Equal(t, rawStart+rawBlock+rawEnd, a.body)
	assert.Equal(t, "text/event-stream; charset=utf-8", a.header.Get("Content-Type"))
	sent := p.seen()[0]
	require.NotNil(t, sent.Raw)
	assert.Equal(t, body, string(sent.Raw.Body))
	assert.Equal(t, "anthropic", sent.Raw.Dialect)
	assert.Equal(t, "beta=true", sent.Raw.Query)
	assert.Equal(t, "things-1", sent.Raw.Header.Get("Anthropic-Beta"))
	assert.True(t, sent.Raw.Stream)
	assert.Zero(t, sent.Raw.Changed)
	assert.Empty(t, sent.Prompt)
	assert.Equal(t, "hello", chat.PlainText(sent.Chat.Messages[0].Parts))
	c := b.store.only(t)
	assert.Equal(t, rawStart+rawBlock+rawEnd, string(c.RawReply), "what came is the truth, what is parsed stands beside it")
	assert.Equal(t, want("toolu_1"), c.Parsed.Parts)
	assert.Equal(t, want("toolu_1"), c.Served.Parts)
	assert.Equal(t, chat.FinishToolCalls, c.Served.Finish)
	assert.Equal(t, chat.Usage{Input: 7, Output: 9, Cached: 5}, c.Usage)
	assert.Equal(t, "upstream", c.Format)
	assert.Equal(t, trace.CallOK, c.Status)
}

// TestPassedOnWhole: the same where nothing is streamed.
func TestPassedOnWhole(t *testing.T) {
	whole := `{"id":"msg_theirs", "content":[{"type":"text","text":"hi"}], "novel":true}`
	b := fronting(t, replies("anthropic", upstream.Chunk{
		Raw: []byte(whole), Deltas: []chat.Delta{{Type: chat.DeltaText, Text: "hi"}, {Type: chat.DeltaPartEnd}}, Finish: finished, OutputTokens: 1,
	}))
	a := post(t, b.session(t), ask("hello", false))
	assert.Equal(t, whole, a.body)
	assert.Equal(t, "application/json", a.header.Get("Content-Type"))
	assert.Equal(t, "hi", chat.PlainText(b.store.only(t).Served.Parts))
	assert.Equal(t, whole, string(b.store.only(t).RawReply))
}

// TestEndIsHeld: the end of a reply that is passed on goes out once the call is
// in the store, and never when it isn't.
func TestEndIsHeld(t *testing.T) {
	b := fronting(t, replies("anthropic", theirs(true)...), func(o *gateway.Options, _ *gateway.Model) {
		o.Calls = &full{CallStore: o.Calls}
	})
	a := post(t, b.session(t), ask("hello", true))
	assert.Contains(t, a.body, rawBlock)
	assert.NotContains(t, a.body, "message_stop")
	assert.Contains(t, a.body, "event: error")
	assert.Error(t, a.err, "the connection is cut")
}

// full is a store that takes no calls.
type full struct{ gateway.CallStore }

func (f *full) PutCall(context.Context, *trace.Call) error { return io.ErrShortWrite }

// TestTranslated: what an upstream parsed reaches a client of another dialect,
// and of the same one where no bytes came, as a stand-in's don't.
func TestTranslated(t *testing.T) {
	for _, dialect := range []string{"", "openaichat", "anthropic"} {
		p := replies(dialect, theirs(false)...)
		b := fronting(t, p)
		a := post(t, b.session(t), ask("hello", true, addTool))
		require.NoError(t, a.err)
		m := joined(t, eventsOf(t, a))
		c := b.store.only(t)
		id := c.Served.Parts[3].ID
		assert.Equal(t, want(id), c.Served.Parts)
		assert.Equal(t, []any{
			map[string]any{"type": "thinking", "thinking": "hm", "signature": "sig-ned"},
			map[string]any{"type": "redacted_thinking", "data": "hidden"},
			map[string]any{"type": "text", "text": "I add."},
			map[string]any{"type": "tool_use", "id": id, "name": "add", "input": map[string]any{"a": 1.0}},
		}, m["content"], dialect)
		assert.Empty(t, c.RawReply)
		assert.Equal(t, "policy", m["model"], "the name that the client knows")
		assert.Equal(t, dialect == "anthropic", p.seen()[0].Raw != nil, dialect)
	}
}

// TestHooksOverPassing: a hook that changes part of a request has that part
// written anew, one that changes replies has these encoded here, and one that
// watches changes nothing.
func TestHooksOverPassing(t *testing.T) {
	change := func(p hook.Point, from, to string) setting {
		return func(_ *gateway.Options, m *gateway.Model) {
			m.Hooks = []gateway.Hook{{Name: "hook/change", Changes: []hook.Point{p}, Hook: hookFunc(func(_ context.Context, e *hook.Event) (hook.Result, error) {
				text := strings.ReplaceAll(e.Subject().String(""), from, to)
				return hook.Result{Action: hook.Replace, Value: json.RawMessage(text)}, nil
			})}}
		}
	}
	for name, v := range map[string]struct {
		setting setting
		changed upstream.Changed
		passed  bool
	}{
		"messages": {change(hook.Request, "hello", "goodbye"), upstream.Changed{Messages: true}, true},
		"tools":    {change(hook.Request, "Adds.", "Adds up."), upstream.Changed{Tools: true}, true},
		"sampling": {change(hook.Request, "1000", "900"), upstream.Changed{Sampling: true}, true},
		"nothing":  {change(hook.Request, "nowhere", ""), upstream.Changed{}, true},
		"calls":    {change(hook.ToolCall, `"a": 1`, `"a": 2`), upstream.Changed{}, false},
		"reply":    {change(hook.Reply, "I add.", "You add."), upstream.Changed{}, false},
	} {
		p := replies("anthropic", theirs(true)...)
		b := fronting(t, p, v.setting)
		a := post(t, b.session(t), ask("hello", true, addTool))
		require.NoError(t, a.err, name)
		sent := p.seen()[0].Raw
		assert.Equal(t, v.changed, sent.Changed, name)
		assert.Equal(t, ask("hello", true, addTool), string(sent.Body), name)
		assert.Equal(t, v.passed, a.body == rawStart+rawBlock+rawEnd, name)
		assert.Equal(t, rawStart+rawBlock+rawEnd, string(b.store.only(t).RawReply), name)
		if !v.passed {
			assert.Contains(t, a.body, `"signature":"sig-ned"`, name)
		}
	}
}

// TestNeeds: what only the client's own bytes can say is taken where these go
// out, and refused elsewhere.
func TestNeeds(t *testing.T) {
	format := `{"model":"policy","messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object"}}`
	to := func(s *gateway.Session, body string) answer {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.BaseURL()+"/v1/chat/completions", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		return do(t, r)
	}
	for dialect, status := range map[string]int{"openaichat": 200, "anthropic": 400, "": 400} {
		p := replies(dialect, upstream.Chunk{Deltas: []chat.Delta{{Type: chat.DeltaText, Text: "{}"}}, Finish: finished})
		a := to(fronting(t, p).session(t), format)
		assert.Equal(t, status, a.status, a.body)
		if status == 200 {
			assert.Equal(t, []string{"response_format"}, p.seen()[0].Raw.Needs)
		}
	}
}

// TestReportedIDs: the ids that an engine reports are the record's, and a prompt
// that doesn't begin with those of the turn before is said to fork.
func TestReportedIDs(t *testing.T) {
	prompts := [][]int32{{1, 2}, {1, 2, 3, 4, 5}, {9, 9}}
	p := replies("")
	p.reply = func(context.Context, *upstream.Request) (upstream.Stream, error) {
		n := len(p.seen()) - 1
		return &chunks{list: []upstream.Chunk{
			{PromptIDs: prompts[n], Deltas: []chat.Delta{{Type: chat.DeltaText, Text: "hi"}}, IDs: []int32{3}, Logprobs: []float64{-1}},
			{IDs: []int32{4}, Logprobs: []float64{-2}, Finish: upstream.Finish{Raw: "stop", Reason: chat.FinishStop}, PromptTokens: 99, OutputTokens: 2},
		}}, nil
	}
	b := fronting(t, p, func(_ *gateway.Options, m *gateway.Model) { m.Capture = gateway.CaptureReported })
	s := b.session(t)
	messages := `{"role":"user","content":"one"}`
	for range 3 {
		a := post(t, s, `{"model":"policy","max_tokens":9,`+addTool+`,"messages":[`+messages+`]}`)
		require.Equal(t, 200, a.status, a.body)
		messages += `,{"role":"assistant","content":"hi"},{"role":"user","content":"more"}`
	}
	calls := b.store.all()
	require.Len(t, calls, 3)
	for i, c := range calls {
		assert.Equal(t, prompts[i], c.PromptIDs)
		assert.Equal(t, []int32{3, 4}, c.SampledIDs)
		assert.Equal(t, []float64{-1, -2}, c.Logprobs)
		assert.Equal(t, chat.Usage{Input: len(prompts[i]), Output: 2}, c.Usage)
		assert.True(t, p.seen()[i].WantIDs)
	}
	assert.True(t, calls[1].Extends)
	assert.Empty(t, calls[1].Fork)
	assert.False(t, calls[2].Extends)
	assert.Equal(t, "not_extended", calls[2].Fork)
}

// TestNoIDsFromAProvider: a reply without the ids that were to be captured is no
// reply.
func TestNoIDsFromAProvider(t *testing.T) {
	for want, c := range map[string]upstream.Chunk{
		"no token ids":         {PromptIDs: []int32{1}},
		"no ids of the prompt": {IDs: []int32{1}, Logprobs: []float64{-1}},
	} {
		c.Deltas, c.Finish = []chat.Delta{{Type: chat.DeltaText, Text: "hi"}}, finished
		b := fronting(t, replies("", c), func(_ *gateway.Options, m *gateway.Model) { m.Capture = gateway.CaptureReported })
		a := post(t, b.session(t), ask("hello", false))
		assert.Equal(t, 502, a.status)
		assert.Contains(t, a.body, want)
	}
}

// TestCountedUpstream: where no tokenizer is known here, the upstream counts.
func TestCountedUpstream(t *testing.T) {
	count := func(b *bench) answer {
		r := request(t, b.session(t), `{"model":"policy","messages":[{"role":"user","content":"hi"}]}`)
		r.URL.Path += "/count_tokens"
		return do(t, r)
	}
	p := replies("anthropic")
	assert.Equal(t, 404, count(fronting(t, p)).status)
	p.count = func(r *upstream.Request) (int, error) { return len(r.Raw.Body), nil }
	assert.JSONEq(t, `{"input_tokens":62}`, count(fronting(t, p)).body)
	p.count = func(r *upstream.Request) (int, error) { return 0, &upstream.StatusError{Status: 529, Message: "busy"} }
	assert.Equal(t, 529, count(fronting(t, p)).status)
}

// TestKeepAliveWhilePassing: silence is bridged before and between the bytes
// that are passed on.
func TestKeepAliveWhilePassing(t *testing.T) {
	p := replies("anthropic")
	p.reply = func(context.Context, *upstream.Request) (upstream.Stream, error) {
		time.Sleep(60 * time.Millisecond) // as trying again takes
		s := &chunks{list: theirs(true)}
		s.wait = func(i int) error {
			if i == 1 {
				time.Sleep(60 * time.Millisecond)
			}
			return nil
		}
		return s, nil
	}
	b := fronting(t, p, func(o *gateway.Options, _ *gateway.Model) { o.KeepAlive = 20 * time.Millisecond })
	a := post(t, b.session(t), ask("hello", true))
	require.NoError(t, a.err)
	before, after, ok := strings.Cut(a.body, rawStart)
	require.True(t, ok, a.body)
	assert.True(t, strings.HasPrefix(before, ":"), "a comment, which no client reads: %q", before)
	assert.Contains(t, after, ":")
	assert.True(t, strings.HasSuffix(after, rawBlock+rawEnd), after)
}
