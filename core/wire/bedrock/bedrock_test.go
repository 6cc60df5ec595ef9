package bedrock

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/anthropic"
	"github.com/penstock-dev/penstock/sdk/chat"
)

func TestMatch(t *testing.T) {
	for path, want := range map[string][3]any{
		"/model/m/invoke":                             {"m", false, true},
		"/model/m:0/invoke-with-response-stream":      {"m:0", true, true},
		"/model/arn:aws:bedrock:r:1:profile/p/invoke": {"arn:aws:bedrock:r:1:profile/p", false, true},
		"/model//invoke":                              {"", false, false},
		"/model/invoke":                               {"", false, false},
		"/model/m/converse":                           {"", false, false},
		"/models/m/invoke":                            {"", false, false},
	} {
		model, stream, ok := Match(path)
		assert.Equal(t, want, [3]any{model, stream, ok}, path)
	}
	const at = "/v1/projects/p/locations/l/publishers/anthropic/models/"
	for path, want := range map[string][4]any{
		at + "m:rawPredict":            {"m", false, false, true},
		at + "m@1:streamRawPredict":    {"m@1", true, false, true},
		at + "count-tokens:rawPredict": {"", false, true, true},
		at + "m:predict":               {"", false, false, false},
		at + ":rawPredict":             {"", false, false, false},
		"/v1/projects/p/publishers/google/models/m:rawPredict": {"", false, false, false},
		"/publishers/anthropic/models/m:rawPredict":            {"", false, false, false},
	} {
		model, stream, count, ok := MatchVertex(path)
		assert.Equal(t, want, [4]any{model, stream, count, ok}, path)
	}
}

// frames reads a stream with the codec of AWS: the kind of each frame and what
// is in it.
func frames(t *testing.T, body []byte) (kinds, payloads []string) {
	t.Helper()
	decoder := eventstream.NewDecoder()
	for r := bytes.NewReader(body); r.Len() > 0; {
		m, err := decoder.Decode(r, nil)
		require.NoError(t, err)
		assert.Equal(t, "application/json", m.Headers.Get(":content-type").String())
		kind := m.Headers.Get(":message-type").String()
		if kind == "exception" {
			kinds = append(kinds, m.Headers.Get(":exception-type").String())
			payloads = append(payloads, string(m.Payload))
			continue
		}
		assert.Equal(t, "event", kind)
		assert.Equal(t, "chunk", m.Headers.Get(":event-type").String())
		var p struct{ Bytes string }
		require.NoError(t, json.Unmarshal(m.Payload, &p))
		data, err := base64.StdEncoding.DecodeString(p.Bytes)
		require.NoError(t, err)
		kinds, payloads = append(kinds, "chunk"), append(payloads, string(data))
	}
	return kinds, payloads
}

// TestFramesHoldTheSameEvents: what the frames hold is what package anthropic
// writes, event for event.
func TestFramesHoldTheSameEvents(t *testing.T) {
	write := func(s wire.Stream) []byte {
		var b bytes.Buffer
		r := &chat.Reply{ID: "msg_1", Model: "m", Finish: chat.FinishToolCalls, Usage: chat.Usage{Input: 7, Output: 9}}
		require.NoError(t, s.KeepAlive(&b))
		require.NoError(t, s.Start(&b, r))
		require.NoError(t, s.KeepAlive(&b))
		for _, d := range []chat.Delta{
			{Type: chat.DeltaReasoning, Text: "Hm.\n\n\ndata: not a line"}, {Part: 1, Type: chat.DeltaText, Text: "日本 <&>"},
			{Part: 2, Type: chat.DeltaCallStart, ID: "c", Name: "n"}, {Part: 2, Type: chat.DeltaCallArgs, Text: `{"a":"event: error"}`},
		} {
			require.NoError(t, s.Delta(&b, d))
		}
		require.NoError(t, s.Finish(&b, r))
		return b.Bytes()
	}
	var want []string
	for line := range strings.Lines(string(write(anthropic.New().Stream()))) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			want = append(want, strings.TrimSuffix(data, "\n"))
		}
	}
	kinds, got := frames(t, write(New().Stream()))
	assert.Equal(t, want, got)
	assert.NotContains(t, kinds, "modelStreamErrorException")
	assert.Contains(t, got, `{"type":"ping"}`)
	assert.Contains(t, got[0], "message_start", "nothing comes before it")
}

func TestErrors(t *testing.T) {
	var b bytes.Buffer
	s := New().Stream()
	require.NoError(t, s.Start(&b, &chat.Reply{ID: "msg_1", Model: "m"}))
	require.NoError(t, s.Error(&b, wire.Errorf(wire.Upstream, "cut")))
	kinds, payloads := frames(t, b.Bytes())
	assert.Equal(t, []string{"chunk", "modelStreamErrorException"}, kinds)
	assert.JSONEq(t, `{"__type":"modelStreamErrorException","message":"cut"}`, payloads[1])

	for kind, want := range map[wire.ErrorKind]struct {
		status int
		name   string
	}{
		wire.Invalid: {400, "ValidationException"}, wire.RateLimited: {429, "ThrottlingException"}, wire.Forbidden: {403, "AccessDeniedException"},
		wire.Overloaded: {503, "ServiceUnavailableException"}, "strange": {500, "InternalServerException"},
	} {
		status, body := New().Error(wire.Errorf(kind, "no"))
		assert.Equal(t, want.status, status)
		assert.JSONEq(t, `{"__type":"`+want.name+`","message":"no"}`, string(body))
	}
	_, body := New().Error(&wire.Error{Kind: wire.ContextOverflow, Tokens: 9, Limit: 8})
	assert.Contains(t, string(body), "prompt is too long: 9 tokens > 8 maximum", "clients compact on these words")
	_, body = NewVertex().Error(wire.Errorf(wire.Invalid, "no"))
	assert.JSONEq(t, `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`, string(body))
}
