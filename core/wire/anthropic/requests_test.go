package anthropic

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
)

// TestRecordedRequestsLoseNothing decodes requests of real clients and writes
// them again. What comes out must say what went in, but for cache_control, the
// two ways to write one text, and an is_error that is false.
func TestRecordedRequestsLoseNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/requests/*.json")
	require.NoError(t, err)
	require.Len(t, files, 22)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			body, err := os.ReadFile(file)
			require.NoError(t, err)
			r, err := New().Decode(body)
			require.NoError(t, err)
			assert.Empty(t, r.Unknown)
			assert.Equal(t, value(t, body), recordedAs(t, r), "the record says all that the body did")

			thinking := rawjson.Of(r.Envelope).Get("thinking")
			again, err := EncodeRequest(&r.Chat, EncodeOptions{Model: r.Model, Stream: r.Stream, Thinking: json.RawMessage(thinking.Raw())})
			require.NoError(t, err)
			var in, out map[string]any
			require.NoError(t, json.Unmarshal(body, &in))
			require.NoError(t, json.Unmarshal(again, &out))
			for _, key := range []string{"messages", "system", "tools", "tool_choice", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "thinking"} {
				if key == "tools" {
					in[key] = withoutPlaceholder(in[key])
				}
				assert.Equal(t, plain(in[key]), plain(out[key]), key)
			}
			second, err := New().Decode(again)
			require.NoError(t, err)
			assert.Equal(t, asJSON(t, r.Chat), asJSON(t, second.Chat))
		})
	}
}

// withoutPlaceholder leaves out the one deferred tool that no recorded
// conversation loads.
func withoutPlaceholder(tools any) any {
	list, ok := tools.([]any)
	if !ok {
		return tools
	}
	out := []any{}
	for _, tool := range list {
		if tool.(map[string]any)["name"] != "DeferredToolPlaceholder" {
			out = append(out, tool)
		}
	}
	return out
}

// plain brings a value to one of the equivalent ways to write it.
func plain(v any) any {
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, item := range v {
			out = append(out, plain(item))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, f := range v {
			text, isText := f.(string)
			switch {
			case k == "cache_control", k == "is_error" && f == false:
			case k == "content" && isText:
				out[k] = []any{map[string]any{"type": "text", "text": text}}
			default:
				out[k] = plain(f)
			}
		}
		return out
	}
	return v
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestMessagesAndEnvelopeKeepTheirBytes(t *testing.T) {
	body := []byte(` {"model":"m", "max_tokens" : 5,"messages" : [ {"role":"user","content":"a\u00e9"} , {"content":[{"text":"]}","type":"text"}],"role":"assistant"}],"z":1.50,"metadata":{"b":null,"a":1}} `)
	r, err := New().Decode(body)
	require.NoError(t, err)
	require.Len(t, r.Messages, 2)
	assert.Equal(t, `{"role":"user","content":"a\u00e9"}`, string(r.Messages[0]))
	assert.Equal(t, `{"content":[{"text":"]}","type":"text"}],"role":"assistant"}`, string(r.Messages[1]))
	assert.Equal(t, `{"model":"m", "max_tokens" : 5,"messages" : [],"z":1.50,"metadata":{"b":null,"a":1}}`, string(r.Envelope))
	assert.Equal(t, []string{"z"}, r.Unknown)
}

// recordedAs is a request as the record has it: the envelope and the messages.
func recordedAs(t *testing.T, r *wire.Request) any {
	t.Helper()
	out := value(t, r.Envelope).(map[string]any)
	list := []any{}
	for _, m := range r.Messages {
		list = append(list, value(t, m))
	}
	assert.Empty(t, out["messages"])
	out["messages"] = list
	return out
}

func value(t *testing.T, raw []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	return v
}
