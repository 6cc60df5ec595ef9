package gemini

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

type response struct {
	Candidates []struct {
		Content struct {
			Role  string           `json:"role"`
			Parts []map[string]any `json:"parts"`
		} `json:"content"`
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
	UsageMetadata map[string]any `json:"usageMetadata"`
	ModelVersion  string         `json:"modelVersion"`
	ResponseID    string         `json:"responseId"`
}

// joined puts neighbouring texts of one kind together, as clients do, and
// leaves out empty ones.
func joined(parts []map[string]any) (out []map[string]any) {
	for _, p := range parts {
		text, isText := p["text"].(string)
		if isText && text == "" && p["thoughtSignature"] == nil {
			continue
		}
		if n := len(out); isText && n > 0 && out[n-1]["text"] != nil && out[n-1]["thought"] == p["thought"] && out[n-1]["thoughtSignature"] == nil {
			out[n-1]["text"] = out[n-1]["text"].(string) + text
			if p["thoughtSignature"] != nil {
				out[n-1]["thoughtSignature"] = p["thoughtSignature"]
			}
			continue
		}
		out = append(out, p)
	}
	return out
}

func reassemble(t *testing.T, stream []byte) *response {
	t.Helper()
	var parts []map[string]any
	var last response
	for _, chunk := range strings.Split(strings.TrimSuffix(string(stream), "\n\n"), "\n\n") {
		require.Empty(t, last.UsageMetadata, "a chunk after the last")
		data, ok := strings.CutPrefix(chunk, "data: ")
		require.True(t, ok, chunk)
		last = response{}
		require.NoError(t, json.Unmarshal([]byte(data), &last), data)
		parts = append(parts, last.Candidates[0].Content.Parts...)
	}
	require.NotEmpty(t, last.Candidates[0].FinishReason)
	last.Candidates[0].Content.Parts = joined(parts)
	return &last
}

func streamed(t *testing.T, r *chat.Reply, step int) []byte {
	t.Helper()
	var b bytes.Buffer
	s := New().Stream()
	require.NoError(t, s.Start(&b, r))
	pieces := func(kind chat.DeltaType, part int, text string) {
		for i := 0; i < len(text); i += step {
			require.NoError(t, s.Delta(&b, chat.Delta{Type: kind, Part: part, Text: text[i:min(i+step, len(text))]}))
		}
	}
	for i, p := range r.Parts {
		switch p.Type {
		case chat.Text:
			pieces(chat.DeltaText, i, p.Text)
		case chat.Reasoning:
			pieces(chat.DeltaReasoning, i, p.Text)
			pieces(chat.DeltaSignature, i, p.Signature)
		case chat.ToolCall:
			require.NoError(t, s.Delta(&b, chat.Delta{Type: chat.DeltaCallStart, Part: i, ID: p.ID, Name: p.Name}))
			pieces(chat.DeltaCallArgs, i, string(p.Arguments))
		}
		require.NoError(t, s.Delta(&b, chat.Delta{Type: chat.DeltaPartEnd, Part: i}))
	}
	assert.NotContains(t, b.String(), "finishReason")
	require.NoError(t, s.Finish(&b, r))
	return b.Bytes()
}

func TestWholeAndStreamedRepliesAgree(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		text := func() string {
			bits := []string{"a", " ", "\n", "é", "漢", "😀", "\"", "\\", "\x00", "\xff", "\xe6\xbc"}
			var b strings.Builder
			for range rnd.IntN(9) {
				b.WriteString(bits[rnd.IntN(len(bits))])
			}
			return b.String()
		}
		finishes := []chat.Finish{chat.FinishStop, chat.FinishLength, chat.FinishToolCalls, chat.FinishRefusal}
		r := &chat.Reply{ID: "resp-1", Model: "m", Finish: finishes[rnd.IntN(4)], Usage: chat.Usage{Input: 10, Cached: 4, Output: 3}}
		for range rnd.IntN(6) {
			switch rnd.IntN(5) {
			case 0:
				r.Parts = append(r.Parts, chat.Part{Type: chat.Reasoning, Text: text()})
			case 1:
				r.Parts = append(r.Parts, chat.Part{Type: chat.Reasoning, Text: text(), Signature: "c2ln"})
			case 2:
				r.Parts = append(r.Parts, chat.Part{Type: chat.ToolCall, ID: "call_a", Name: "t", Arguments: []byte(`{"z":null, "a":1}`)})
			case 3:
				r.Parts = append(r.Parts, chat.Part{Type: chat.ToolCall, ID: "call_b", Name: "t", Arguments: sse.AppendString(nil, text()), ArgumentsRaw: true})
			default:
				r.Parts = append(r.Parts, chat.Part{Type: chat.Text, Text: text()})
			}
		}
		var want response
		require.NoError(t, json.Unmarshal(New().Reply(r), &want))
		want.Candidates[0].Content.Parts = joined(want.Candidates[0].Content.Parts)
		for _, step := range []int{1, 3, 1000} {
			assert.Equal(t, &want, reassemble(t, streamed(t, r, step)))
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, r)
		}
	}
}

func TestServedCallsComeBackUnderTheirIDs(t *testing.T) {
	r := &chat.Reply{Parts: []chat.Part{
		{Type: chat.ToolCall, ID: "call_7f", Name: "t", Arguments: json.RawMessage(`{"a":1}`)},
		{Type: chat.ToolCall, ID: "call_80", Name: "t", Arguments: json.RawMessage(`"{\"a"`), ArgumentsRaw: true},
		{Type: chat.ToolCall, ID: "call_81", Name: "t", Arguments: json.RawMessage(`7`)},
	}}
	var served response
	require.NoError(t, json.Unmarshal(New().Reply(r), &served))
	for _, p := range served.Candidates[0].Content.Parts {
		p["functionCall"].(map[string]any)["id"] = "t_1700000000000_0"
	}
	content, err := json.Marshal(served.Candidates[0].Content)
	require.NoError(t, err)
	assert.Equal(t, r.Parts, decodeOK(t, telling(string(content))).Chat.Messages[0].Parts)
}

func TestFailuresAndKeepAlive(t *testing.T) {
	var b bytes.Buffer
	s := New().Stream()
	require.NoError(t, s.KeepAlive(&b))
	assert.Equal(t, "data: {}\n\n", b.String())
	b.Reset()
	require.NoError(t, s.Finish(&b, &chat.Reply{Finish: chat.FinishError}))
	assert.Equal(t, "data: {\"error\":{\"code\":502,\"message\":\"The reply was cut\",\"status\":\"UNAVAILABLE\"}}\n\n", b.String())
	assert.ErrorContains(t, s.Delta(io.Discard, chat.Delta{Type: chat.DeltaCallArgs, Part: 3}), "before its call_start")
	assert.ErrorContains(t, s.Delta(io.Discard, chat.Delta{Type: "odd"}), `type "odd"`)
}

func TestErrorsAndModels(t *testing.T) {
	for _, c := range []struct {
		err    *wire.Error
		status int
		body   string
	}{
		{wire.Errorf(wire.Invalid, "bad"), 400, `{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}`},
		{&wire.Error{Kind: wire.ContextOverflow, Tokens: 9, Limit: 8}, 400, `{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8).","status":"INVALID_ARGUMENT"}}`},
		{&wire.Error{Kind: wire.RateLimited, Message: "slow", RetryAfter: 7}, 429, `{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}]}}`},
		{wire.Errorf(wire.Forbidden, "no"), 403, `{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}`},
		{wire.Errorf("strange", "no"), 500, `{"error":{"code":500,"message":"no","status":"INTERNAL"}}`},
	} {
		status, body := New().Error(c.err)
		assert.Equal(t, c.status, status)
		assert.Equal(t, c.body, string(body))
	}
	assert.Equal(t, `{"models":[{"name":"models/a","displayName":"a","supportedGenerationMethods":["generateContent","countTokens"]}]}`, string(New().Models([]string{"a"})))
}

func TestArrayOfChunks(t *testing.T) {
	r := &chat.Reply{ID: "r", Model: "m", Finish: chat.FinishStop}
	write := func(steps ...func(w io.Writer, s wire.Stream) error) []map[string]any {
		var b bytes.Buffer
		s := NewArray().Stream()
		require.NoError(t, s.Start(&b, r))
		for _, step := range steps {
			require.NoError(t, s.KeepAlive(&b))
			require.NoError(t, step(&b, s))
		}
		var out []map[string]any
		require.NoError(t, json.Unmarshal(b.Bytes(), &out), b.String())
		return out
	}
	text := func(w io.Writer, s wire.Stream) error {
		return s.Delta(w, chat.Delta{Type: chat.DeltaText, Text: "a"})
	}
	finish := func(w io.Writer, s wire.Stream) error { return s.Finish(w, r) }
	refuse := func(w io.Writer, s wire.Stream) error { return s.Error(w, wire.Errorf(wire.Upstream, "no")) }
	assert.Len(t, write(finish), 1)
	assert.Len(t, write(text, text, finish), 3)
	got := write(text, refuse)
	require.Len(t, got, 2)
	assert.Contains(t, got[1], "error")
	assert.Len(t, write(refuse), 1)
}
