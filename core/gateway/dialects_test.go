package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
)

// spoken is a dialect's smallest request with a tool, and what its replies
// have.
type spoken struct {
	name, whole, streamed, body string // body has a place for "stream": bool
	args, end                   string // in the whole reply; at the end of the stream
}

var dialects = []spoken{
	{
		"anthropic", "/v1/messages", "/v1/messages",
		`{"model":"policy",%s"max_tokens":1000,"messages":[{"role":"user","content":"hello"}],"tools":[{"name":"add","input_schema":{"type":"object"}}]}`,
		`"input":{"a":1}`, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
	}, {
		"openaichat", "/v1/chat/completions", "/v1/chat/completions",
		`{"model":"policy",%s"messages":[{"role":"user","content":"hello"}],"tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}]}`,
		`"arguments":"{\"a\":1}"`, "data: [DONE]\n\n",
	}, {
		"responses", "/v1/responses", "/v1/responses",
		`{"model":"policy",%s"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}],"tools":[{"type":"function","name":"add","parameters":{"type":"object"}}]}`,
		`"arguments":"{\"a\":1}"`, `"type":"response.completed"`,
	}, {
		"gemini", "/v1beta/models/policy:generateContent", "/v1beta/models/policy:streamGenerateContent?alt=sse",
		`{%s"contents":[{"role":"user","parts":[{"text":"hello"}]}],"tools":[{"functionDeclarations":[{"name":"add","parametersJsonSchema":{"type":"object"}}]}]}`,
		`"args":{"a":1}`, `"finishReason":"STOP"`,
	},
}

func (d spoken) request(streamed bool) (path, body string) {
	field := ""
	if d.name != "gemini" {
		field = fmt.Sprintf(`"stream":%v,`, streamed)
	}
	if path = d.whole; streamed {
		path = d.streamed
	}
	return path, fmt.Sprintf(d.body, field)
}

// TestEveryDialect: one table entry a dialect, with all that the gateway does.
func TestEveryDialect(t *testing.T) {
	const text = `text <call add>{"a":1}</call>` + imEnd
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			b := start(t, says(text, 4))
			s := b.session(t)
			path, body := d.request(false)
			a := send(t, s, "POST", path, body)
			require.Equal(t, 200, a.status, a.body)
			assert.Contains(t, a.body, d.args)
			path, body = d.request(true)
			a = send(t, s, "POST", path, body)
			require.NoError(t, a.err)
			assert.Contains(t, a.body, d.end)
			for i, c := range b.store.all() {
				assert.Equal(t, d.name, c.Dialect)
				assert.Equal(t, i == 1, c.Stream)
				assert.Equal(t, "policy", c.ModelAsked)
				assert.Equal(t, trace.CallOK, c.Status)
			}
			require.Eventually(t, func() bool { return b.store.wasDelivered("s-1.2") }, 15*time.Second, time.Millisecond)

			for _, bad := range []struct {
				path, body string
				status     int
			}{{path, "{", 400}, {strings.Replace(path, "policy", "other", 1), strings.Replace(body, "policy", "other", 1), 404}} {
				a := send(t, s, "POST", bad.path, bad.body)
				assert.Equal(t, bad.status, a.status, a.body)
				assert.NotEmpty(t, at(decoded(t, a.body), "error", "message"))
				assert.Equal(t, d.name == "anthropic", decoded(t, a.body)["type"] == "error", "the shape is that of the dialect")
			}
		})
	}
}

// TestEveryDialectCutAtEachChunk: in no dialect does a cut reply have an end.
func TestEveryDialectCutAtEachChunk(t *testing.T) {
	const text = "one <call add>{\"a\":1}</call> two" + imEnd
	for _, d := range dialects {
		for at := range stream(text, 5).list {
			e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
				s := stream(text, 5)
				s.list = s.list[:at]
				return s, nil
			}}
			b := start(t, e)
			path, body := d.request(true)
			a := send(t, b.session(t), "POST", path, body)
			assert.Equal(t, trace.CallError, b.store.only(t).Status)
			assert.NotContains(t, a.body, d.end)
			if a.status == 200 {
				assert.Error(t, a.err, "%s: the connection is broken, not ended", d.name)
			} else {
				assert.Equal(t, 502, a.status)
			}
		}
	}
}

// TestEveryDialectKeepsAlive with what its clients count as a sign of life.
func TestEveryDialectKeepsAlive(t *testing.T) {
	for _, d := range dialects {
		e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
			s := stream("hi"+imEnd, 100)
			s.wait = func(int) error { time.Sleep(150 * time.Millisecond); return nil }
			return s, nil
		}}
		b := start(t, e, func(o *gateway.Options, m *gateway.Model) { o.KeepAlive = 20 * time.Millisecond })
		path, body := d.request(true)
		a := send(t, b.session(t), "POST", path, body)
		require.NoError(t, a.err)
		assert.Contains(t, a.body, d.end)
		want := map[string]string{"anthropic": ": keep-alive", "openaichat": ": keep-alive", "responses": `"type":"keepalive"`, "gemini": "data: {}"}[d.name]
		assert.Contains(t, a.body, want)
		if d.name == "responses" {
			assert.Equal(t, 1, strings.Count(a.body, `"type":"response.created"`))
		}
	}
}

// TestSharedRoutes are answered in the shape of who asks.
func TestSharedRoutes(t *testing.T) {
	b := start(t, says("hi", 10))
	s := b.session(t)
	for field, header := range map[string][]string{
		"has_more": {"Anthropic-Version", "2023-06-01"}, "object": {"Authorization", "Bearer " + s.Token()}, "models": {"X-Goog-Api-Key", s.Token()},
	} {
		list := decoded(t, send(t, s, "GET", "/v1/models", "", header...).body)
		assert.Contains(t, list, field)
		assert.Contains(t, quoted(list), "policy")
	}
	assert.Equal(t, 404, send(t, s, "POST", "/v1beta/models/policy:embedContent", "{}").status)
	count := send(t, s, "POST", "/v1beta/models/policy:countTokens", `{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}`)
	assert.Equal(t, 24.0, decoded(t, count.body)["totalTokens"], count.body)
}

// TestWebSocketsAreRefused with the status on which Codex goes on over HTTP.
func TestWebSocketsAreRefused(t *testing.T) {
	b := start(t, says("hi", 10))
	a := send(t, b.session(t), "GET", "/v1/responses", "", "Connection", "Upgrade", "Upgrade", "websocket")
	assert.Equal(t, 426, a.status)
}
