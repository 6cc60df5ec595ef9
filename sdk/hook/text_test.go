package hook

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// mask is what the demo's hook does.
func mask(role chat.Role, text string) string {
	if role == chat.Assistant {
		return text
	}
	return strings.ReplaceAll(text, "kumquat", "[masked]")
}

func TestEditTextTouchesTextsAndNothingElse(t *testing.T) {
	raw := `{ "kumquat": "kumquat", "messages": [
		{"role":"system","parts":[{"type":"text","text":"no kumquat\u0073, \"kumquat\" <b>\n"}]},
		{"parts":[{"text":"a kumquat","type":"text"},{"type":"image","data":"kumquat","text":"kumquat"}],"role":"user"},
		{"role":"assistant","parts":[{"type":"text","text":"my kumquat"},{"type":"tool_call","id":"kumquat","name":"kumquat","arguments":{"text":"kumquat","content":[{"type":"text","text":"kumquat"}],"n":9007199254740993}}]},
		{"role":"tool","parts":[{"type":"tool_result","id":"kumquat","name":"kumquat","content":[{"type":"text","text":"kumquat!"},{"type":"text","text":"none"}]}]}
	], "tools": [{"name":"kumquat","description":"kumquat","parameters":{"text":"kumquat"}}], "sampling": {} }`
	got, err := EditText([]byte(raw), mask)
	require.NoError(t, err)
	want := strings.NewReplacer(
		`"no kumquat\u0073, \"kumquat\" <b>\n"`, `"no [masked]s, \"[masked]\" <b>\n"`,
		`"a kumquat"`, `"a [masked]"`,
		`"kumquat!"`, `"[masked]!"`).Replace(raw)
	assert.Equal(t, want, string(got))
}

func TestEditTextOfNothingToChangeIsNil(t *testing.T) {
	for _, raw := range []string{`{}`, `{"messages":[]}`, `{"messages":null}`, `{"messages":[{"role":"user","parts":[{"type":"text","text":""},{"type":"text","text":"é\u00e9"}]}]}`, `[]`} {
		got, err := EditText([]byte(raw), mask)
		require.NoError(t, err, raw)
		assert.Nil(t, got, raw)
	}
}

func TestEditTextRefusesWhatIsNoJSON(t *testing.T) {
	for _, raw := range []string{``, `{`, `{"messages":[`, `{"messages":[{"role":1}]}`, `{"a" 1}`, `{} {}`, `{"messages":[{"parts":[{"type":"text","text":"x]}]}`, `{"a":}`, `{"a":1,}`, `]`} {
		_, err := EditText([]byte(raw), mask)
		require.Error(t, err, raw)
	}
}

func FuzzEditText(f *testing.F) {
	f.Add(`{"messages":[{"role":"user","parts":[{"type":"text","text":"kumquat"}]}]}`)
	f.Add(`{"messages":[{"role":"tool","parts":[{"type":"tool_result","content":[{"type":"text","text":"\ud83dkumquat"}]}]}]}`)
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := EditText([]byte(raw), mask)
		if err == nil && got != nil && json.Valid([]byte(raw)) {
			assert.True(t, json.Valid(got))
		}
	})
}

func BenchmarkEditText(b *testing.B) {
	message := `{"role":"user","parts":[{"type":"text","text":"` + strings.Repeat("all work and no play \\n", 40) + `"}]}`
	raw := []byte(`{"messages":[` + strings.TrimSuffix(strings.Repeat(message+",", 250), ",") + `]}`)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := EditText(raw, mask); err != nil {
			b.Fatal(err)
		}
	}
}
