package anthropic

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

// event is one server-sent event as a client reads it.
type event struct {
	Type         string          `json:"type"`
	Index        *int            `json:"index"`
	Message      *message        `json:"message"`
	ContentBlock map[string]any  `json:"content_block"`
	Delta        map[string]any  `json:"delta"`
	Usage        json.RawMessage `json:"usage"`
	Error        map[string]any  `json:"error"`
}

type message struct {
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	Role         string           `json:"role"`
	Model        string           `json:"model"`
	Content      []map[string]any `json:"content"`
	StopReason   any              `json:"stop_reason"`
	StopSequence any              `json:"stop_sequence"`
	Usage        json.RawMessage  `json:"usage"`
}

// readEvents splits a stream into events. Every event has an event line that
// repeats its type; comments are skipped.
func readEvents(t *testing.T, stream []byte) (events []event) {
	t.Helper()
	require.True(t, bytes.HasSuffix(stream, []byte("\n\n")), "the stream ends within an event")
	for _, text := range strings.Split(strings.TrimSuffix(string(stream), "\n\n"), "\n\n") {
		if strings.HasPrefix(text, ":") {
			continue
		}
		name, data, ok := strings.Cut(text, "\n")
		require.True(t, ok, text)
		require.True(t, strings.HasPrefix(name, "event: ") && strings.HasPrefix(data, "data: "), text)
		require.NotContains(t, data, "\n")
		var e event
		require.NoError(t, json.Unmarshal([]byte(data[len("data: "):]), &e), data)
		require.Equal(t, e.Type, name[len("event: "):])
		events = append(events, e)
	}
	return events
}

// reassemble builds the message from a stream as the official SDK and Claude
// Code do, and checks the protocol's order.
func reassemble(t *testing.T, stream []byte) *message {
	t.Helper()
	var m *message
	var open *int
	var input strings.Builder
	stopped := false
	for _, e := range readEvents(t, stream) {
		require.False(t, stopped, "an event after message_stop")
		if e.Type == "message_start" {
			require.Nil(t, m, "a second message_start")
			m = e.Message
			continue
		}
		if e.Type == "ping" {
			continue
		}
		require.NotNil(t, m, "%s before message_start", e.Type)
		switch e.Type {
		case "content_block_start":
			require.Nil(t, open, "a block opened in another")
			require.Equal(t, len(m.Content), *e.Index)
			open = e.Index
			input.Reset()
			m.Content = append(m.Content, e.ContentBlock)
		case "content_block_delta":
			require.NotNil(t, open)
			require.Equal(t, *open, *e.Index)
			b := m.Content[*open]
			switch e.Delta["type"] {
			case "text_delta":
				b["text"] = b["text"].(string) + e.Delta["text"].(string)
			case "thinking_delta":
				require.Empty(t, b["signature"], "thinking after its signature")
				b["thinking"] = b["thinking"].(string) + e.Delta["thinking"].(string)
			case "signature_delta":
				b["signature"] = e.Delta["signature"]
			case "input_json_delta":
				input.WriteString(e.Delta["partial_json"].(string))
			default:
				require.Fail(t, "a delta of an unknown type", "%v", e.Delta)
			}
		case "content_block_stop":
			require.Equal(t, *open, *e.Index)
			if b := m.Content[*open]; b["type"] == "tool_use" {
				b["input"] = clientInput(input.String())
			}
			open = nil
		case "message_delta":
			require.Nil(t, open, "message_delta in a block")
			m.StopReason, m.StopSequence, m.Usage = e.Delta["stop_reason"], e.Delta["stop_sequence"], e.Usage
		case "message_stop":
			stopped = true
		default:
			require.Fail(t, "an event of an unknown type", e.Type)
		}
	}
	require.True(t, stopped, "no message_stop")
	return m
}

// clientInput is what Claude Code makes of streamed arguments.
func clientInput(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	kept, _ := json.Marshal(map[string]any{unparsedKey: map[string]any{"raw": text, "len": len(utf16.Encode([]rune(text)))}})
	return kept
}

// whole reads a whole reply.
func whole(t *testing.T, body []byte) *message {
	t.Helper()
	var m message
	d := json.NewDecoder(bytes.NewReader(body))
	require.NoError(t, d.Decode(&m), "%s", body)
	for i, b := range m.Content {
		if b["type"] != "tool_use" {
			continue
		}
		var raw struct {
			Content []struct {
				Input json.RawMessage `json:"input"`
			} `json:"content"`
		}
		require.NoError(t, json.Unmarshal(body, &raw))
		b["input"] = raw.Content[i].Input
	}
	return &m
}
