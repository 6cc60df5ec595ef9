package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/anthropic"
	"github.com/penstock-dev/penstock/core/upstream/openai"
	"github.com/penstock-dev/penstock/core/wire"
	wireanthropic "github.com/penstock-dev/penstock/core/wire/anthropic"
	"github.com/penstock-dev/penstock/core/wire/openaichat"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// TestSeed10aCase26EveryOutcomeIsARecord: whatever becomes of a call, there is
// a record of it that says so, with all that was sampled by then.
func TestSeed10aCase26EveryOutcomeIsARecord(t *testing.T) {
	e := &engine{}
	e.reply = func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		switch {
		case strings.Contains(r.Prompt, "refused"):
			return nil, &upstream.StatusError{Status: 500, Message: "oops"}
		case strings.Contains(r.Prompt, "cut"):
			s := stream("half of it", 5)
			s.wait = func(i int) error {
				if i == 1 {
					return errors.New("connection reset")
				}
				return nil
			}
			return s, nil
		case strings.Contains(r.Prompt, "no markup"):
			return stream(`<call add>{"a":`, 5), nil
		}
		return stream("fine"+imEnd, 5), nil
	}
	deny := hookFunc(func(_ context.Context, e *hook.Event) (hook.Result, error) {
		if strings.Contains(e.Subject().String(""), "forbidden") {
			return hook.Result{Action: hook.Deny, Reason: "it is forbidden"}, nil
		}
		return hook.Pass(), nil
	})
	b := start(t, e, hooks(changes("deny", deny, hook.Request)))
	s := b.session(t, func(spec *gateway.SessionSpec) { spec.Budget.Calls = 4 })
	for _, text := range []string{"hello", "refused", "cut", "no markup", "forbidden", "hello again", "one too many"} {
		post(t, s, ask(text, true, addTool))
	}
	post(t, s, "{")
	post(t, s, strings.Replace(ask("hello", true), "policy", "other", 1))
	type outcome struct {
		status string
		raw    string
		http   int
	}
	var got []outcome
	for i, c := range b.store.all() {
		got = append(got, outcome{c.Status, c.Raw, c.HTTPStatus})
		assert.Equal(t, i+1, c.Seq, "in order of arrival")
		assert.Equal(t, c.Status != trace.CallOK, c.Error != nil, c.ID)
		assert.False(t, c.Received.IsZero() || c.Done.Before(c.Received), c.ID)
	}
	assert.Equal(t, []outcome{
		{trace.CallOK, "fine" + imEnd, 200},
		{trace.CallError, "", 502},
		{trace.CallError, "half ", 200},
		{trace.CallOK, `<call add>{"a":`, 200},
		{trace.CallDenied, "", 403},
		{trace.CallOK, "fine" + imEnd, 200},
		{trace.CallBudget, "", 403},
		{trace.CallInvalid, "", 400},
		{trace.CallInvalid, "", 404},
	}, got)
}

// TestRefusedTokensLookAlike: who guesses tokens learns nothing from how one
// is refused.
func TestRefusedTokensLookAlike(t *testing.T) {
	b := start(t, says("hi", 10))
	s, closed := b.session(t), b.session(t)
	require.NoError(t, closed.Close(t.Context()))
	bodies := map[string]bool{}
	for _, token := range []string{"", "x", "pst-wrong", s.Token()[:len(s.Token())-1], s.Token() + "0", closed.Token(), s.ID()} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL()+"/v1/messages", strings.NewReader(ask("hello", false)))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("X-Api-Key", token)
		}
		a := do(t, r)
		assert.Equal(t, 401, a.status)
		bodies[strings.ReplaceAll(a.body, a.header.Get("Request-Id"), "ID")] = true
	}
	assert.Len(t, bodies, 1, "%v", bodies)
	assert.Empty(t, b.store.all())
}

// TestDepthOfRequests: JSON at the limit of depth is read, one level more is
// refused in the dialect's shape, and recorded.
func TestDepthOfRequests(t *testing.T) {
	const limit = 200
	for _, d := range dialects {
		for levels, status := range map[int]int{limit: 200, limit + 1: 400, 100_000: 400} {
			b := start(t, says("hi"+imEnd, 10))
			path, body := d.request(false)
			nested := strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1)
			body = strings.TrimSuffix(body, "}") + `,"metadata_of_ours":` + nested + "}"
			a := send(t, b.session(t), "POST", path, body)
			assert.Equal(t, status, a.status, "%s at %d: %.200s", d.name, levels, a.body)
			if c := b.store.only(t); status != 200 {
				assert.Equal(t, trace.CallInvalid, c.Status)
				assert.NotEmpty(t, d.refusal(t, a.body))
			}
		}
	}
}

// deltasOf is all that an upstream streams of a reply.
func deltasOf(t *testing.T, u upstream.Upstream) (out []chat.Delta, last upstream.Chunk) {
	t.Helper()
	s, err := u.Generate(t.Context(), &upstream.Request{Model: "m", Chat: &chat.Conversation{
		Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "hi"}}}}}})
	require.NoError(t, err)
	defer s.Close()
	for {
		c, err := s.Next()
		if err == io.EOF {
			return out, last
		}
		require.NoError(t, err)
		out, last = append(out, c.Deltas...), c
	}
}

// streamed writes deltas in a dialect.
func streamed(t *testing.T, d wire.Dialect, deltas []chat.Delta) string {
	t.Helper()
	var b bytes.Buffer
	s := wire.StreamFor(d, &wire.Request{Stream: true, Model: "m"})
	r := &chat.Reply{ID: "r", Model: "m", Finish: chat.FinishToolCalls}
	require.NoError(t, s.Start(&b, r))
	for _, d := range deltas {
		require.NoError(t, s.Delta(&b, d))
	}
	require.NoError(t, s.Finish(&b, r))
	return b.String()
}

// TestA10NothingIsGluedToArguments is fault A10: the input of a block begins as
// {} and comes in fragments. Turned into the other dialect and back, it is one
// JSON object; that of a tool without arguments is {} once.
func TestA10NothingIsGluedToArguments(t *testing.T) {
	for name, fragments := range map[string][]string{
		`{"location":"San Francisco, CA"}`: {"", `{"lo`, `cation":`, ` "San`, ` Francisco`, `, CA"}`},
		`{}`:                               nil,
	} {
		var events strings.Builder
		event := func(kind, fields string) {
			fmt.Fprintf(&events, "event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, fields)
		}
		event("message_start", `,"message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}`)
		event("content_block_start", `,"index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"get_weather","input":{}}`)
		for _, f := range fragments {
			event("content_block_delta", `,"index":0,"delta":{"type":"input_json_delta","partial_json":`+quoted(f)+`}`)
		}
		event("content_block_stop", `,"index":0`)
		event("message_delta", `,"delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}`)
		event("message_stop", "")
		one := httptest.NewServer(writing(events.String(), nil))
		defer one.Close()
		from, err := anthropic.New(t.Context(), anthropic.Options{BaseURL: one.URL, APIKey: "k", NoProbe: true})
		require.NoError(t, err)
		defer from.Close()
		deltas, last := deltasOf(t, from)
		assert.Equal(t, chat.FinishToolCalls, last.Finish.Reason)

		chunks := streamed(t, openaichat.New(), deltas)
		var arguments string
		for line := range strings.Lines(chunks) {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				arguments += gjson.Get(data, "choices.0.delta.tool_calls.0.function.arguments").Str
			}
		}
		assert.JSONEq(t, name, arguments)
		assert.True(t, json.Valid([]byte(arguments)))

		other := httptest.NewServer(writing(chunks, nil))
		defer other.Close()
		back, err := openai.New(t.Context(), openai.Options{Kind: openai.KindOpenAI, BaseURL: other.URL, NoProbe: true})
		require.NoError(t, err)
		defer back.Close()
		deltas, _ = deltasOf(t, back)
		message := joined(t, eventsOf(t, answer{body: streamed(t, wireanthropic.New(), deltas)}))
		assert.JSONEq(t, name, quoted(at(message, "content", 0, "input")))
		assert.Equal(t, "get_weather", at(message, "content", 0, "name"))
	}
}
