package gateway_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

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
	}, {
		"vertex", "/v1/projects/p/locations/l/publishers/anthropic/models/policy:rawPredict", "/v1/projects/p/locations/l/publishers/anthropic/models/policy:streamRawPredict",
		`{"anthropic_version":"vertex-2023-10-16",%s"max_tokens":1000,"messages":[{"role":"user","content":"hello"}],"tools":[{"name":"add","input_schema":{"type":"object"}}]}`,
		`"input":{"a":1}`, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
	}, {
		"bedrock", "/model/policy/invoke", "/model/policy/invoke-with-response-stream",
		`{"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["x"],%s"max_tokens":1000,"messages":[{"role":"user","content":"hello"}],"tools":[{"name":"add","input_schema":{"type":"object"}}]}`,
		`"input":{"a":1}`, `{"type":"message_stop"}`,
	},
}

func (d spoken) request(streamed bool) (path, body string) {
	field := ""
	if d.name != "gemini" && d.name != "bedrock" {
		field = fmt.Sprintf(`"stream":%v,`, streamed)
	}
	if path = d.whole; streamed {
		path = d.streamed
	}
	return path, fmt.Sprintf(d.body, field)
}

// text is a streamed reply of the dialect as text.
func (d spoken) text(t *testing.T, body string) string {
	t.Helper()
	if d.name != "bedrock" {
		return body
	}
	var out strings.Builder
	decoder := eventstream.NewDecoder()
	for r := strings.NewReader(body); r.Len() > 0; {
		m, err := decoder.Decode(r, nil)
		require.NoError(t, err, "frames are whole")
		data := m.Payload
		if m.Headers.Get(":message-type").String() == "event" {
			data, err = base64.StdEncoding.DecodeString(gjson.GetBytes(m.Payload, "bytes").String())
			require.NoError(t, err)
		}
		fmt.Fprintf(&out, "%s\n", data)
	}
	return out.String()
}

// refusal is the message of an error in the dialect's shape.
func (d spoken) refusal(t *testing.T, body string) any {
	t.Helper()
	e := decoded(t, body)
	switch d.name {
	case "bedrock":
		assert.NotEmpty(t, e["__type"])
		return e["message"]
	case "anthropic", "vertex":
		assert.Equal(t, "error", e["type"])
	default:
		assert.NotEqual(t, "error", e["type"])
	}
	return at(e, "error", "message")
}

// lastError is the message of the error that a cut stream ends with.
func (d spoken) lastError(t *testing.T, body string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(d.text(t, body)), "\n")
	data := strings.TrimPrefix(lines[len(lines)-1], "data: ")
	for _, path := range []string{"error.message", "response.error.message", "message"} {
		if m := gjson.Get(data, path).String(); m != "" {
			return m
		}
	}
	return ""
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
			assert.Contains(t, d.text(t, a.body), d.end)
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
				assert.NotEmpty(t, d.refusal(t, a.body), "the shape is that of the dialect")
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
			if a.status == 200 {
				assert.NotContains(t, d.text(t, a.body), d.end)
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
		got := d.text(t, a.body)
		assert.Contains(t, got, d.end)
		want := map[string]string{"anthropic": ": keep-alive", "vertex": ": keep-alive", "bedrock": `{"type":"ping"}`, "openaichat": ": keep-alive", "responses": `"type":"keepalive"`, "gemini": "data: {}"}[d.name]
		assert.Contains(t, got, want)
		begin := map[string]string{"responses": `"type":"response.created"`, "bedrock": `"type":"message_start"`}[d.name]
		if begin != "" { // it goes out ahead of the first keep-alive
			assert.Equal(t, 1, strings.Count(got, begin))
			assert.Less(t, strings.Index(got, begin), strings.Index(got, want))
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
	for _, version := range []string{"v1", "v1alpha", "v1beta"} {
		count := send(t, s, "POST", "/"+version+"/models/policy:countTokens", `{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}`)
		assert.Equal(t, 24.0, decoded(t, count.body)["totalTokens"], count.body)
	}
	assert.Equal(t, 404, send(t, s, "POST", "/v2/models/policy:countTokens", "{}").status)
}

// TestWebSocketsAreRefused with the status on which Codex goes on over HTTP.
func TestWebSocketsAreRefused(t *testing.T) {
	b := start(t, says("hi", 10))
	a := send(t, b.session(t), "GET", "/v1/responses", "", "Connection", "Upgrade", "Upgrade", "websocket")
	assert.Equal(t, 426, a.status)
}

// TestCloudRoutes: what is not one of Bedrock's and Vertex's own paths is not
// served, and a count names its model in the body.
func TestCloudRoutes(t *testing.T) {
	b := start(t, says("hi"+imEnd, 10))
	s := b.session(t)
	for _, path := range []string{"/model/policy", "/model//invoke", "/model/policy/converse", "/v1/projects/p/publishers/google/models/policy:rawPredict", "/v1/projects/p/publishers/anthropic/models/policy:predict"} {
		assert.Equal(t, 404, send(t, s, "POST", path, `{}`).status, path)
	}
	assert.Equal(t, 404, send(t, s, "GET", "/inference-profiles?type=SYSTEM_DEFINED", "").status)
	count := send(t, s, "POST", "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict",
		`{"anthropic_version":"vertex-2023-10-16","model":"policy","messages":[{"role":"user","content":"hello"}]}`)
	assert.Equal(t, 24.0, decoded(t, count.body)["input_tokens"], count.body)
	arn := "/model/arn:aws:bedrock:us-east-1:1:inference-profile%2Fpolicy/invoke"
	a := send(t, s, "POST", arn, `{"anthropic_version":"bedrock-2023-05-31","max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`)
	assert.Equal(t, 404, a.status, "it is no model of the session")
	assert.Contains(t, a.body, "model: arn:aws:bedrock:us-east-1:1:inference-profile/policy")
	bedrock := dialects[len(dialects)-1]
	_, body := bedrock.request(true)
	a = send(t, s, "POST", bedrock.streamed, body)
	assert.Equal(t, "application/vnd.amazon.eventstream", a.header.Get("Content-Type"))
}
