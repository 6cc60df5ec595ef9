package formats_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

// Where the request demands a call, the bare JSON of guided decoding is one,
// in every format, under every split; elsewhere it is an answer.
func TestBareJSONOfGuidedDecoding(t *testing.T) {
	tools := append(tool("write", `{"path":{"type":"string"},"name":{"type":"string"}}`), chat.Tool{Name: "now"})
	required := &chat.Choice{Mode: chat.ChoiceRequired}
	named := &chat.Choice{Mode: chat.ChoiceNamed, Name: "write"}
	for _, name := range names(t) {
		f := open(t, name)
		for _, c := range []struct {
			text   string
			choice *chat.Choice
			want   cases.Want
		}{
			{`[{"name": "write", "parameters": {"path": "a{b}]"}}, {"name": "now", "parameters": {}}]`, required, want("", `write {"path":"a{b}]"}`, `now {}`)},
			{` {"name": "write", "arguments": {"path": "a"}}`, required, want("", `write {"path":"a"}`)},
			{`{"path": "a", "name": "n"}`, named, want("", `write {"path":"a","name":"n"}`)},
			{`{}`, named, want("", `write {}`)},
			{`{"name": "write", "arguments": {"path": "a"}}`, named, want("", `write {"path":"a"}`)},
			{" { \"name\" :\n\"write\" , \"parameters\" : {\"path\": \"a\"} }", named, want("", `write {"path": "a"}`)},
			{`{"name": "write", "path": "a"}`, named, want("", `write {"name":"write","path":"a"}`)},
			{`[]`, required, want("[]")},
			{`No {"name": "now", "parameters": {}}`, required, want(`No {"name": "now", "parameters": {}}`)},
		} {
			o := format.ParseOptions{Tools: tools, Choice: c.choice}
			whole, err := cases.Parse(t.Context(), f, o, []string{c.text})
			require.NoError(t, err)
			if c.choice == named && name == "llama3_json" && strings.Contains(c.text, `"name"`) {
				continue // a name among the keys is read as the tool's
			}
			assert.Empty(t, cases.Compare(format.Collect(whole), c.want), "%s: %s", name, c.text)
			split, err := cases.Parse(t.Context(), f, o, cases.Bytes(c.text))
			require.NoError(t, err)
			assert.Equal(t, format.Join(whole), format.Join(split), "%s: %s", name, c.text)
		}
	}
	r := parseWhole(t, "qwen3_coder", format.ParseOptions{Tools: tools}, `[{"name": "now", "parameters": {}}]`)
	assert.Empty(t, r.Calls)
}
