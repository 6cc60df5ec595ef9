package formats_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

func extended(t testing.TB, text string) format.Format {
	t.Helper()
	s, err := format.ParseSpec("own.yaml", []byte(text))
	require.NoError(t, err)
	f, err := format.New(s)
	require.NoError(t, err)
	return f
}

// A call of a tool that wasn't offered is passed on with a warning; with
// unknown_tools: text its markup is text, whole, in every format and under
// every split. Calls of tools that were offered stay calls.
func TestUnknownTools(t *testing.T) {
	done := map[string]bool{}
	for _, c := range readCases(t) {
		if len(c.Want.Calls) == 0 || done[c.Format] || lookup(t, c.Format) == nil {
			continue
		}
		offered := c.Tools
		f := extended(t, "name: own\nextends: "+c.Format+"\ncalls: { unknown_tools: text }\n")
		o := format.ParseOptions{Tools: offered, State: format.State{ReasoningOpen: c.ReasoningOpen}}
		events, err := cases.Parse(t.Context(), f, o, []string{c.Text})
		require.NoError(t, err)
		known := true
		for _, call := range c.Want.Calls {
			known = known && hasTool(offered, call.Name)
		}
		if !known {
			continue
		}
		done[c.Format] = true
		assert.Empty(t, cases.Compare(format.Collect(events), c.Want), c.ID)

		o.Tools = []chat.Tool{{Name: "another"}}
		whole, err := cases.Parse(t.Context(), f, o, []string{c.Text})
		require.NoError(t, err)
		r := format.Collect(whole)
		assert.Empty(t, r.Calls, c.ID)
		assert.Contains(t, r.Content+r.Reasoning, c.Want.Calls[0].Name, "%s: the markup is not lost", c.ID)
		split, err := cases.Parse(t.Context(), f, o, cases.Bytes(c.Text))
		require.NoError(t, err)
		assert.Equal(t, format.Join(whole), format.Join(split), c.ID)

		whole, err = cases.Parse(t.Context(), open(t, c.Format), o, []string{c.Text})
		require.NoError(t, err)
		if r := format.Collect(whole); len(r.Calls) > 0 {
			assert.Contains(t, kinds(r.Warnings), "unknown_tool", c.ID)
		}
	}
	assert.Greater(t, len(done), 50)
	_, err := format.ParseSpec("own.yaml", []byte("name: own\nextends: hermes\ncalls: { unknown_tools: drop }\n"))
	assert.ErrorContains(t, err, `calls.unknown_tools is "drop", want one of "", "pass", "text"`)
}

func hasTool(tools []chat.Tool, name string) bool {
	for _, t := range tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

func kinds(notices []format.Notice) []string {
	var out []string
	for _, n := range notices {
		out = append(out, n.Kind)
	}
	return out
}

// XML that confused models write is text in every format, and calls only in
// the one that is for it.
func TestXMLInTextIsReadWhereItIsAskedFor(t *testing.T) {
	const text = "I'll look.\n\n<function_calls>\n<invoke name=\"bash\">\n<parameter name=\"command\">ls <dir></parameter>\n</invoke>\n</function_calls>"
	tools := tool("bash", `{"command":{"type":"string"}}`)
	for _, name := range []string{"hermes", "qwen3_coder", "qwen3p5", "kimi_k2", "glm47", "deepseek_v31", "harmony", "llama3_json"} {
		r := parseWhole(t, name, format.ParseOptions{Tools: tools}, text)
		assert.Empty(t, r.Calls, name)
		assert.Equal(t, text, strings.TrimSpace(r.Content), name)
	}
	r := parseWhole(t, "invoke_xml", format.ParseOptions{Tools: tools}, text)
	assert.Empty(t, cases.Compare(r, want("I'll look.", `bash {"command":"ls <dir>"}`)))
}

// Kimi K2.5 is shown its tools as TypeScript, in the order and with the
// comments of its own tokenizer; a schema that can't be said so is JSON.
func TestKimiToolsAreTypeScript(t *testing.T) {
	c := readChat(t, "testdata/kimi_tools.json")
	r, err := open(t, "kimi_k2p5").Render(t.Context(), &format.RenderRequest{Chat: c})
	require.NoError(t, err)
	wanted, err := os.ReadFile("testdata/kimi_tools.ts")
	require.NoError(t, err)
	assert.Contains(t, format.Text(r.Segments), "<|im_system|>tool_declare<|im_middle|>"+string(wanted)+"<|im_end|>")

	for _, schema := range []string{
		`{"type":"object","properties":{"a":{"title":"no type"}}}`, `{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}`,
		`{"type":"object","properties":{"a":{"enum":[1],"type":"string"}}}`,
	} {
		c.Tools = []chat.Tool{{Name: "f", Parameters: []byte(schema)}}
		r, err := open(t, "kimi_k2p5").Render(t.Context(), &format.RenderRequest{Chat: c})
		require.NoError(t, err)
		assert.Contains(t, format.Text(r.Segments), `tool_declare<|im_middle|>[{"function":{"name":"f","parameters":{"properties":{"a":`, schema)
	}
	c.Tools = []chat.Tool{{Name: "f", Parameters: []byte(`{"type":"object","properties":{"b":{"$ref":"#"},"a":{"type":"boolean"}},"required":["b"]}`)}}
	r, err = open(t, "kimi_k2p5").Render(t.Context(), &format.RenderRequest{Chat: c})
	require.NoError(t, err)
	assert.Contains(t, format.Text(r.Segments), "interface parameters {\n  a?: boolean,\n  b: parameters\n}\ntype f = (_: parameters) => any;\n")
}
