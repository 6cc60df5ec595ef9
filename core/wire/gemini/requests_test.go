package gemini

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecordedRequestsLoseNothing decodes requests of real clients and writes
// them again. What comes out must say what went in, but for the instruction's
// role, ids that a client left out, and how thinking is spelled.
func TestRecordedRequestsLoseNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/requests/*.json")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			body, err := os.ReadFile(file)
			require.NoError(t, err)
			r, err := New().Decode(body)
			require.NoError(t, err)
			assert.Empty(t, r.Unknown)
			assert.Empty(t, r.Needs)

			again, err := EncodeRequest(&r.Chat)
			require.NoError(t, err)
			var in, out map[string]any
			require.NoError(t, json.Unmarshal(body, &in))
			require.NoError(t, json.Unmarshal(again, &out))
			delete(in["systemInstruction"].(map[string]any), "role")
			delete(in["generationConfig"].(map[string]any), "thinkingConfig")
			delete(out["generationConfig"].(map[string]any), "thinkingConfig")
			withoutIDs(in["contents"], out["contents"])
			assert.Equal(t, in, out)
			second, err := New().Decode(again)
			require.NoError(t, err)
			assert.Equal(t, asJSON(t, r.Chat), asJSON(t, second.Chat))
		})
	}
}

// withoutIDs takes the ids off the calls and results of b that have none in a.
func withoutIDs(a, b any) {
	switch a := a.(type) {
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				withoutIDs(a[i], b[i])
			}
		}
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return
		}
		if a["name"] != nil && a["id"] == nil {
			delete(b, "id")
		}
		for k := range a {
			withoutIDs(a[k], b[k])
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}
