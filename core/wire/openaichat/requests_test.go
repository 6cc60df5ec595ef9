package openaichat

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire"
)

// TestRecordedRequestsLoseNothing decodes requests of real clients and writes
// them again. What comes out must say what went in, but for the two ways to
// write one text, a refusal that is null, and the two names of the limit.
func TestRecordedRequestsLoseNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/requests/*.json")
	require.NoError(t, err)
	require.Len(t, files, 15)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			body, err := os.ReadFile(file)
			require.NoError(t, err)
			r, err := New().Decode(body)
			require.NoError(t, err)
			assert.Empty(t, r.Unknown)
			assert.Equal(t, value(t, body), recordedAs(t, r), "the record says all that the body did")
			assert.Empty(t, r.Needs)
			assert.True(t, r.Stream)
			assert.True(t, r.WantUsage)

			var in, out map[string]any
			require.NoError(t, json.Unmarshal(body, &in))
			again, err := EncodeRequest(&r.Chat, EncodeOptions{Model: r.Model, Stream: r.Stream, CompletionTokens: in["max_completion_tokens"] != nil})
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(again, &out))
			for _, key := range []string{"store", "frequency_penalty", "presence_penalty"} {
				delete(in, key)
			}
			assert.Equal(t, plain(in), plain(out))
			second, err := New().Decode(again)
			require.NoError(t, err)
			assert.Equal(t, asJSON(t, r.Chat), asJSON(t, second.Chat))
		})
	}
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
			case k == "refusal" && f == nil:
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
