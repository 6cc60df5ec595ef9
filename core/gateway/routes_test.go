package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/upstream"
)

// plain sends a request to the gateway's root with no key but those given.
func plain(t *testing.T, b *bench, method, path, body string, header ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return do(t, r)
}

// TestModelRoutes: the list of models and one model, as the SDKs of each
// dialect ask for them.
func TestModelRoutes(t *testing.T) {
	b := start(t, says("hi", 10), func(_ *gateway.Options, m *gateway.Model) { m.ServeAs, m.Aliases = "qwen3:8b", []string{"org/alias"} })
	key := b.session(t).Token()
	anthropic := []string{"X-Api-Key", key, "Anthropic-Version", "2023-06-01"}
	openai := []string{"Authorization", "Bearer " + key}
	gemini := []string{"X-Goog-Api-Key", key}
	for _, c := range []struct {
		path   string
		header []string
		status int
		field  string
		value  string
	}{
		{"/v1/models", openai, 200, "data.1.id", "org/alias"},
		{"/v1/models/qwen3:8b", openai, 200, "object", "model"},
		{"/v1/models/qwen3:8b", openai, 200, "id", "qwen3:8b"},
		{"/v1/models/org/alias", openai, 200, "id", "org/alias"},
		{"/v1/models/org%2Falias", openai, 200, "id", "org/alias"},
		{"/v1/models/qwen3:8b", anthropic, 200, "type", "model"},
		{"/v1/models/qwen3:8b", anthropic, 200, "display_name", "qwen3:8b"},
		{"/v1/models/qwen3:8b", gemini, 200, "name", "models/qwen3:8b"},
		{"/v1beta/models/qwen3:8b", gemini, 200, "name", "models/qwen3:8b"},
		{"/v1beta/models/qwen3:8b", openai, 200, "name", "models/qwen3:8b"},
		{"/v1/models/strange", openai, 404, "error.code", "model_not_found"},
		{"/v1/models/strange", anthropic, 404, "error.type", "not_found_error"},
		{"/v1beta/models/strange", gemini, 404, "error.status", "NOT_FOUND"},
		{"/v1beta/models/qwen3:8b", nil, 401, "error.status", "UNAUTHENTICATED"},
	} {
		a := plain(t, b, "GET", c.path, "", c.header...)
		assert.Equal(t, c.status, a.status, "%s %s", c.path, a.body)
		assert.Equal(t, c.value, gjson.Get(a.body, c.field).String(), "%s %s", c.path, a.body)
	}
	for _, path := range []string{"/v1/models", "/v1/models/qwen3:8b", "/v1beta/models"} {
		a := plain(t, b, "POST", path, "{}", openai...)
		assert.Equal(t, 405, a.status, a.body)
		assert.Equal(t, "GET, HEAD", a.header.Get("Allow"))
	}
	assert.Empty(t, b.store.all(), "none of these is a call")
}

// TestWhatIsNotThere: what isn't served is not found, which is no word about a
// model.
func TestWhatIsNotThere(t *testing.T) {
	b := start(t, says("hi", 10))
	key := b.session(t).Token()
	for _, path := range []string{"/v1/responses/resp_123", "/v1/embeddings", "/v1/chat/completions/x"} {
		a := plain(t, b, "GET", path, "", "Authorization", "Bearer "+key)
		assert.Equal(t, 404, a.status)
		assert.Equal(t, "invalid_request_error", gjson.Get(a.body, "error.type").String(), a.body)
		assert.Equal(t, gjson.Null, gjson.Get(a.body, "error.code").Type, a.body)
	}
	assert.Contains(t, plain(t, b, "GET", "/v1/responses/resp_123", "").body, "aren't stored")
	for _, path := range []string{"/v1beta/nothing", "/v1beta/models/policy:embedContent", "/v1/models/policy:batchEmbedContents", "/v1alpha/files"} {
		a := plain(t, b, "POST", path, "{}")
		assert.Equal(t, 404, a.status)
		assert.Equal(t, "NOT_FOUND", gjson.Get(a.body, "error.status").String(), "%s %s", path, a.body)
	}
}

const geminiAsk = `{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}`

// TestGeminiKeyInTheQuery: the key may stand in the query, and is in no record.
func TestGeminiKeyInTheQuery(t *testing.T) {
	b := start(t, says("hi"+imEnd, 10), func(o *gateway.Options, _ *gateway.Model) { o.OperatorToken = "operator-secret" })
	key := b.session(t).Token()
	for _, path := range []string{"/v1beta/models/policy:generateContent?x=1&key=", "/v1beta/models/policy:streamGenerateContent?alt=sse&key=", "/v1/models/policy:generateContent?again=" + key + "&key="} {
		a := plain(t, b, "POST", path+key, geminiAsk)
		require.Equal(t, 200, a.status, a.body)
		assert.Contains(t, a.body, `"text":"hi"`)
	}
	assert.Equal(t, "models/policy", gjson.Get(plain(t, b, "GET", "/v1/models?key="+key, "").body, "models.0.name").String())
	assert.Equal(t, 200, plain(t, b, "GET", "/v1beta/models/policy?key="+key, "").status)
	calls := b.store.all()
	require.Len(t, calls, 3)
	for _, c := range calls {
		record, err := json.Marshal(c)
		require.NoError(t, err)
		assert.NotContains(t, string(record), key)
	}
	assert.Equal(t, "/v1beta/models/policy:generateContent?x=1", calls[0].Path)
	for _, path := range []string{"/v1beta/models/policy:generateContent?key=pst-wrong", "/v1beta/models/policy:generateContent?key=", "/v1/messages?key=" + key} {
		assert.Equal(t, 401, plain(t, b, "POST", path, geminiAsk).status, path)
	}
	assert.Equal(t, 401, plain(t, b, "GET", "/sessions?key=operator-secret", "").status, "the operator's token is for headers")
}

// TestGeminiStreamsAnArray: without alt=sse a stream is one JSON array, which
// keep-alives don't break; with it, events.
func TestGeminiStreamsAnArray(t *testing.T) {
	e := &engine{reply: func(context.Context, *upstream.Request) (upstream.Stream, error) {
		s := stream("one two"+imEnd, 4)
		s.wait = func(int) error { time.Sleep(50 * time.Millisecond); return nil }
		return s, nil
	}}
	b := start(t, e, func(o *gateway.Options, _ *gateway.Model) { o.KeepAlive = 5 * time.Millisecond })
	key := b.session(t).Token()
	const path = "/v1beta/models/policy:streamGenerateContent"
	for _, query := range []string{"", "?alt=json"} {
		a := plain(t, b, "POST", path+query, geminiAsk, "X-Goog-Api-Key", key)
		require.Equal(t, 200, a.status, a.body)
		assert.Equal(t, "application/json; charset=utf-8", a.header.Get("Content-Type"))
		require.True(t, json.Valid([]byte(a.body)), a.body)
		chunks := gjson.Parse(a.body).Array()
		require.Greater(t, len(chunks), 2, a.body)
		text := ""
		for _, c := range chunks {
			text += c.Get("candidates.0.content.parts.0.text").String()
		}
		assert.Equal(t, "one two", text)
		assert.Equal(t, "STOP", chunks[len(chunks)-1].Get("candidates.0.finishReason").String())
		assert.Contains(t, a.body, "\n\n", "silence was bridged with blanks")
	}
	a := plain(t, b, "POST", path+"?alt=sse", geminiAsk, "X-Goog-Api-Key", key)
	assert.Equal(t, "text/event-stream; charset=utf-8", a.header.Get("Content-Type"))
	assert.True(t, strings.HasPrefix(a.body, "data: {"), a.body)
	for _, c := range b.store.all() {
		assert.Equal(t, "gemini", c.Dialect)
		assert.True(t, c.Stream)
	}
	a = plain(t, b, "POST", path, `{"contents":3}`, "X-Goog-Api-Key", key)
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "INVALID_ARGUMENT", gjson.Get(a.body, "error.status").String(), a.body)
}
