package responses

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
)

// TestRecordedRequestsLoseNothing decodes requests of real clients and writes
// them again. What comes out must say what went in, but for ids and statuses
// of items, instructions instead of a developer message, namespaces instead of
// flat names, and the two ways to write one text.
func TestRecordedRequestsLoseNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/requests/*.json")
	require.NoError(t, err)
	require.Len(t, files, 6)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			body, err := os.ReadFile(file)
			require.NoError(t, err)
			r, err := New().Decode(body)
			require.NoError(t, err)
			assert.Empty(t, r.Unknown)
			assert.Empty(t, r.Needs)
			assert.True(t, r.Stream)

			reasoning := rawjson.Of(r.Envelope).Get("reasoning")
			again, err := EncodeRequest(&r.Chat, EncodeOptions{Model: r.Model, Stream: r.Stream, Reasoning: reasoning.Raw()})
			require.NoError(t, err)
			var in, out map[string]any
			require.NoError(t, json.Unmarshal(body, &in))
			require.NoError(t, json.Unmarshal(again, &out))
			if text, ok := in["instructions"].(string); ok {
				in["input"] = append([]any{map[string]any{"role": "developer", "content": text}}, in["input"].([]any)...)
			}
			in["tools"] = flat(in["tools"].([]any))
			for _, key := range []string{"input", "tools", "tool_choice", "max_output_tokens", "temperature", "top_p", "reasoning", "model", "store", "stream"} {
				assert.Equal(t, plain(in[key]), plain(out[key]), key)
			}
			second, err := New().Decode(again)
			require.NoError(t, err)
			assert.Equal(t, asJSON(t, r.Chat), asJSON(t, second.Chat))
		})
	}
}

// flat writes the tools of namespaces as functions.
func flat(tools []any) (out []any) {
	for _, tool := range tools {
		m := tool.(map[string]any)
		if m["type"] != "namespace" {
			out = append(out, m)
			continue
		}
		for _, inner := range m["tools"].([]any) {
			inner := inner.(map[string]any)
			inner["name"] = m["name"].(string) + "__" + inner["name"].(string)
			out = append(out, inner)
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
			case k == "id", k == "status":
			case k == "role" && f == "system":
				out[k] = "developer"
			case k == "content" && isText:
				out[k] = []any{map[string]any{"type": "input_text", "text": text}}
			default:
				out[k] = plain(f)
			}
		}
		if space, ok := out["namespace"].(string); ok {
			delete(out, "namespace")
			out["name"] = space + "__" + out["name"].(string)
		}
		if out["role"] != nil {
			out["type"] = "message"
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
