package formats_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

func tool(name, properties string) []chat.Tool {
	return []chat.Tool{{Name: name, Parameters: json.RawMessage(`{"type":"object","properties":` + properties + `}`)}}
}

// run checks a text whole and under splits.
func run(t *testing.T, name string, c cases.Case) {
	t.Helper()
	c.ID, c.Format = t.Name(), name
	assert.NoError(t, cases.Run(t.Context(), open(t, name), c, 50), "%s: %q", name, c.Text)
}

func want(content string, calls ...string) cases.Want {
	w := cases.Want{Content: content}
	for _, c := range calls {
		name, args, _ := strings.Cut(c, " ")
		w.Calls = append(w.Calls, cases.Call{Name: name, Arguments: json.RawMessage(args)})
	}
	return w
}

// parseWhole parses a text in one piece.
func parseWhole(t *testing.T, name string, o format.ParseOptions, text string) format.Result {
	t.Helper()
	events, err := cases.Parse(t.Context(), open(t, name), o, []string{text})
	require.NoError(t, err)
	return format.Collect(events)
}

// Fault A9, vllm-project/vllm#57699: the last parameter's closing tag is
// missing. The argument is kept, the same for every split, what streams is
// JSON equal to it, and the repair is reported.
func TestFaultA9LastParameterWithoutClosingTag(t *testing.T) {
	tools := tool("aircon_control", `{"body":{"type":"object"}}`)
	text := "<tool_call>\n<function=aircon_control>\n<parameter=body>\n{\"mode\": \"CLEAN\"}\n</function>\n</tool_call>"
	for _, name := range []string{"qwen3_coder", "qwen3p5"} {
		run(t, name, cases.Case{Tools: tools, Text: text, Want: want("", `aircon_control {"body":{"mode":"CLEAN"}}`)})
		r := parseWhole(t, name, format.ParseOptions{Tools: tools}, text)
		require.Len(t, r.Warnings, 1)
		assert.Equal(t, "missing_param_close", r.Warnings[0].Kind)
		assert.Equal(t, format.Span{Start: 0, End: len(text)}, r.Calls[0].Span)
		assert.False(t, r.Calls[0].Incomplete)

		streamed := tool("aircon_control", `{"body":{"type":"string"}}`)
		run(t, name, cases.Case{Tools: streamed, Text: text, Want: want("", `aircon_control {"body":"{\"mode\": \"CLEAN\"}"}`)})
	}
}

// Seed case 15: values are typed by the schema, and text arrives unchanged.
func TestSeed15ValuesAreTypedBySchema(t *testing.T) {
	tools := tool("write", `{"text":{"type":"string"},"n":{"type":"integer"},"on":{"type":"boolean"},"list":{"type":"array"},"opt":{"type":["string","null"]},"num":{"type":["number","null"]}}`)
	call := func(key, value string) string {
		return "<tool_call>\n<function=write>\n<parameter=" + key + ">\n" + value + "\n</parameter>\n</function>\n</tool_call>"
	}
	for _, c := range [][3]string{
		{"text", "123", `"123"`}, {"text", "null", `"null"`}, {"text", "{\"a\": 1}", `"{\"a\": 1}"`},
		{"text", "  two leading spaces", `"  two leading spaces"`}, {"text", "ends in a newline\n", `"ends in a newline\n"`},
		{"text", "\n\n", `"\n\n"`}, {"text", "true", `"true"`},
		{"n", "42", `42`}, {"n", "9007199254740993", `9007199254740993`}, {"n", "forty", `"forty"`}, {"n", "5.0", `5`},
		{"on", "True", `true`}, {"on", "false", `false`}, {"on", "yes", `"yes"`},
		{"list", "[1, \"2\", null]", `[1,"2",null]`}, {"list", "('a', None)", `["a",null]`},
		{"opt", "null", `null`}, {"opt", "None", `null`}, {"opt", "nullify", `"nullify"`}, {"opt", "", `""`},
		{"num", "", `null`}, {"num", "1e-3", `0.001`}, {"num", "NaN", `"NaN"`},
	} {
		run(t, "qwen3_coder", cases.Case{Tools: tools, Text: call(c[0], c[1]), Want: want("", `write {"`+c[0]+`":`+c[2]+`}`)})
	}
}

// Seed case 16: values that hold markup, unicode, CRLF and a megabyte of text;
// two functions in a wrapper; a parameter that comes twice.
func TestSeed16ValuesHoldAnything(t *testing.T) {
	tools := tool("write", `{"text":{"type":"string"},"path":{"type":"string"}}`)
	for _, value := range []string{
		"a </parameter> b", "<tool_call>\n<function=x>\n</function>\n</tool_call>\nafter", "<![CDATA[ x ]]> & &lt;",
		"日本 👩‍👩‍👧 \u00a0", "one\r\ntwo\r\n", "x </function> y", "</think> <think> <|im_end|> <|im_start|>",
		strings.Repeat("a line of text\n", 1<<20/15),
	} {
		quoted, err := chat.Marshal(value)
		require.NoError(t, err)
		tagged := "<tool_call>\n<function=write>\n<parameter=text>\n" + value + "\n</parameter>\n</function>\n</tool_call>"
		wrapped := "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": " + string(quoted) + "}}\n</tool_call>"
		for name, text := range map[string]string{"qwen3_coder": tagged, "hermes": wrapped} {
			c := cases.Case{Tools: tools, Text: text, Want: want("", `write {"text":`+string(quoted)+`}`)}
			if len(text) > 10000 {
				r := parseWhole(t, name, format.ParseOptions{Tools: tools}, text)
				assert.Empty(t, cases.Compare(r, c.Want), name)
				continue
			}
			run(t, name, c)
		}
	}
	crlf := "<tool_call>\r\n<function=write>\r\n<parameter=text>\r\nv\r\n</parameter>\r\n</function>\r\n</tool_call>\r\n"
	run(t, "qwen3_coder", cases.Case{Tools: tools, Text: crlf, Want: want("", `write {"text":"v"}`)})

	two := "<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n</function>\n<function=write>\n<parameter=path>\nb\n</parameter>\n</function>\n</tool_call>"
	run(t, "qwen3_coder", cases.Case{Tools: tools, Text: two, Want: want("", `write {"path":"a"}`, `write {"path":"b"}`)})

	// The last one wins, as for the engines; it is reported.
	twice := "<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n<parameter=path>\nb\n</parameter>\n</function>\n</tool_call>"
	run(t, "qwen3_coder", cases.Case{Tools: tools, Text: twice, Want: want("", `write {"path":"b"}`)})
	r := parseWhole(t, "qwen3_coder", format.ParseOptions{Tools: tools}, twice)
	assert.Equal(t, "repeated_param", r.Warnings[0].Kind)
}

// Seed case 17: markup that reasoning merely mentions is no call; an empty
// block before an answer; tags that are missing.
func TestSeed17MarkupInReasoning(t *testing.T) {
	tools := tool("bash", `{"command":{"type":"string"}}`)
	for _, name := range []string{"qwen3p5", "hermes"} {
		reason := func(text string, opened bool, reasoning, content string) {
			t.Helper()
			w := cases.Want{Reasoning: reasoning, Content: content}
			run(t, name, cases.Case{Tools: tools, Text: text, ReasoningOpen: opened, Want: w})
		}
		reason("<think>\nI could use <tool_call> here.\n</think>\n\nNo.", false, "I could use <tool_call> here.", "No.")
		reason("Such as `<tool_call><function=bash></function></tool_call>`.\n</think>\n\nNo.", true, "Such as `<tool_call><function=bash></function></tool_call>`.", "No.")
		reason("Such as <tool_call><function=NAME></function></tool_call>\n</think>\n\nNo.", true, "Such as <tool_call><function=NAME></function></tool_call>", "No.")
		reason("Like <tool_call>{\"name\": \"NAME\", \"arguments\": {}}</tool_call>\n</think>\n\nNo.", true, "Like <tool_call>{\"name\": \"NAME\", \"arguments\": {}}</tool_call>", "No.")
		reason("<think>\n\n</think>\n\nAnswer.", false, "", "Answer.")
		reason("<think></think>Answer.", false, "", "Answer.")
		reason("\n</think>\n\nAnswer.", true, "", "Answer.")
		reason("<think>\nNever closed", false, "Never closed", "")
		reason("<think>\nTwice opened\n</think>\n\nA.", true, "Twice opened", "A.")
		reason("A stray end.\n</think>\n\nMore.", false, "", "A stray end.\n\nMore.")
		reason("Text, then <think> in it.", false, "", "Text, then <think> in it.")
		reason("", true, "", "")
	}
}

// Without tools, and with tool choice none, markup of calls is text. Reasoning
// is still told apart.
func TestWithoutToolsMarkupIsContent(t *testing.T) {
	call := "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"
	for _, o := range []format.ParseOptions{
		{}, {Tools: tool("bash", `{}`), Choice: &chat.Choice{Mode: chat.ChoiceNone}},
	} {
		r := parseWhole(t, "qwen3p5", o, "<think>\nHm.\n</think>\n\nSee:\n"+call+"<|im_end|>")
		assert.Equal(t, "Hm.", r.Reasoning)
		assert.Equal(t, "See:\n"+call, r.Content)
		assert.Empty(t, r.Calls)
	}
}

// Stop markers are dropped at the very end alone.
func TestStopsAreDroppedAtTheEnd(t *testing.T) {
	for text, content := range map[string]string{
		"Done.<|im_end|>":                   "Done.",
		"Done.<|im_end|>\n<|endoftext|>\n":  "Done.",
		"The token <|im_end|> ends a turn.": "The token <|im_end|> ends a turn.",
		"Cut <|im_e":                        "Cut <|im_e",
		"<|im_end|>":                        "",
	} {
		for _, name := range []string{"qwen3_coder", "hermes"} {
			run(t, name, cases.Case{Tools: tool("bash", `{}`), Text: text, Want: want(content)})
		}
	}
}

// Calls get unique ids, and the indices count from 0.
func TestCallsHaveIDsAndIndices(t *testing.T) {
	text := strings.Repeat("<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n", 3)
	p, err := open(t, "hermes").Open(t.Context(), &format.ParseOptions{Tools: tool("now", `{}`)})
	require.NoError(t, err)
	r := format.Collect(p.Finish(p.Feed(nil, []byte(text))))
	require.Len(t, r.Calls, 3)
	seen := map[string]bool{}
	for _, c := range r.Calls {
		assert.Regexp(t, `^call_[0-9a-f]{24}$`, c.ID)
		seen[c.ID] = true
	}
	assert.Len(t, seen, 3)
}

// What is cut off is reported: closed values are kept, nothing is made up.
func TestTruncatedCalls(t *testing.T) {
	tools := tool("bash", `{"command":{"type":"string"},"n":{"type":"integer"}}`)
	for _, c := range []struct{ format, text, args string }{
		{"qwen3_coder", "<tool_call>\n<function=bash>\n<parameter=n>\n3\n</parameter>\n<parameter=command>\nls -", `{"n": 3, "command": "ls -"}`},
		{"qwen3_coder", "<tool_call>\n<function=bash>\n<parameter=n>\n3\n</parameter>\n<parameter=comm", `{"n": 3}`},
		{"qwen3_coder", "<tool_call>\n<function=bash>\n", `{}`},
		{"hermes", "<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls -", `{"command": "ls -`},
		{"hermes", "<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"n\": }}\n</tool_call>", `{"n": `},
	} {
		r := parseWhole(t, c.format, format.ParseOptions{Tools: tools}, c.text)
		if assert.Len(t, r.Calls, 1, c.text) {
			assert.True(t, r.Calls[0].Incomplete, c.text)
			assert.Equal(t, c.args, r.Calls[0].Arguments)
			assert.Equal(t, format.Span{Start: 0, End: len(c.text)}, r.Calls[0].Span)
		}
	}
	for _, text := range []string{"<tool_call>\n<func", "<tool_call>\n{\"name\": \"ba", "<tool_call", "<tool_call>{\"nome\": \"bash\"}</tool_call>", "<tool_call>\n</tool_call>"} {
		for _, name := range []string{"qwen3_coder", "hermes"} {
			r := parseWhole(t, name, format.ParseOptions{Tools: tools}, text)
			assert.Equal(t, text, r.Content, name)
			assert.Empty(t, r.Calls, name)
		}
	}
}

// Elements that are broken don't take their neighbours along.
func TestBrokenElements(t *testing.T) {
	tools := tool("edit", `{"a":{"type":"string"},"b":{"type":"string"},"n":{"type":"integer"}}`)
	in := func(body string) string {
		return "<tool_call>\n<function=edit>\n" + body + "\n</function>\n</tool_call>"
	}
	for body, args := range map[string]string{
		"<parameter=command=create</parameter>\n<parameter=b>\ny\n</parameter>": `{"b":"y"}`,
		"<parameter=\n<parameter=b>\ny\n</parameter>":                           `{"b":"y"}`,
		"<parameter=a>\nx\n</parameter/>\n<parameter=b>\ny\n</parameter>":       `{"a":"x","b":"y"}`,
		"<parameter=a>\nx\n</parameter1>\n<parameter=b>\ny\n</parameter>":       `{"a":"x","b":"y"}`,
		"<parameter=a>\nx\n</parameter\n<parameter=b>\ny\n</parameter>":         `{"a":"x","b":"y"}`,
		"<parameter = a >x</parameter>\n<parameter=\"b\">y</parameter>":         `{"a":"x","b":"y"}`,
		"{\"a\": \"x\", \"n\": 2}":                                              `{"a":"x","n":2}`,
		"<parameter=a>\n<parameters>\n</parameters>\n</parameter>":              `{"a":"<parameters>\n</parameters>"}`,
		"<parameter=n>\n 7 \n</parameter>\n<parameter=a>\nx":                    `{"n":7,"a":"x"}`,
	} {
		run(t, "qwen3_coder", cases.Case{Tools: tools, Text: in(body), Want: want("", "edit "+args)})
	}
}

// JSON with the faults that models make is mended.
func TestMendedJSON(t *testing.T) {
	tools := tool("edit", `{}`)
	for body, args := range map[string]string{
		`{"name": "edit", "arguments": {'a': 'it"s', "b": True, "c": None,}}`:                 `{"a":"it\"s","b":true,"c":null}`,
		"{\"name\": \"edit\", \"arguments\": {\"a\": \"x\ty\nz\"}}":                           `{"a":"x\ty\nz"}`,
		`{"name": "edit", "arguments": {"a": "\_x\'"}}`:                                       `{"a":"\\_x'"}`,
		`{"name": "edit", "arguments": {a: [1, 2,], }}`:                                       `{"a":[1,2]}`,
		`{"name": "edit", "arguments": {"a": 1}}}`:                                            `{"a":1}`,
		`{"name": "edit", "arguments": null}`:                                                 `{}`,
		`{"name": "edit", "arguments": ""}`:                                                   `{}`,
		`{"id": 3, "name": "edit", "extra": {"name": "no"}, "arguments": {"a": 1}, "x": [1]}`: `{"a":1}`,
		`[{"name": "edit", "arguments": {"a": 1}}]`:                                           `{"a":1}`,
	} {
		run(t, "hermes", cases.Case{Tools: tools, Text: "<tool_call>\n" + body + "\n</tool_call>", Want: want("", "edit "+args)})
	}
	two := "<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"a\": 1}}\n{\"name\": \"edit\", \"arguments\": {\"a\": 2}}\n</tool_call>"
	run(t, "hermes", cases.Case{Tools: tools, Text: two, Want: want("", `edit {"a":1}`, `edit {"a":2}`)})
	after := "<tool_call>\n{\"name\": \"edit\", \"arguments\": {}}\nNow I wait.\n</tool_call>\nBye."
	run(t, "hermes", cases.Case{Tools: tools, Text: after, Want: want("Now I wait.\nBye.", `edit {}`)})
}

// Seed case 2: several results of a turn, one of them an error, each as a turn
// of its tool, in order; what the user wrote beside them follows.
func TestSeed2ToolResultsReachTheModel(t *testing.T) {
	result := func(id, text string, failed bool) chat.Message {
		return chat.Message{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: id, IsError: failed, Content: []chat.Part{{Type: chat.Text, Text: text}}}}}
	}
	c := &chat.Conversation{Messages: []chat.Message{
		{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "Go."}}},
		{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.ToolCall, ID: "a", Name: "bash"}, {Type: chat.ToolCall, ID: "b", Name: "bash"}}},
		result("a", "RESULT-A", false), result("b", "RESULT-B", true),
		{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "BESIDE"}}},
	}}
	for _, name := range names(t) {
		r, err := open(t, name).Render(t.Context(), &format.RenderRequest{Chat: c})
		require.NoError(t, err)
		text := format.Text(r.Segments)
		a, b, user := strings.Index(text, "RESULT-A"), strings.Index(text, "Error: RESULT-B"), strings.Index(text, "BESIDE")
		assert.True(t, a > 0 && a < b && b < user, "%s: %s", name, text)
	}
}

// Seed case 3: reasoning of the turns that go on is written back as the
// template writes it, and of older turns is not.
func TestSeed3ReasoningIsRenderedAsTheTemplateDoes(t *testing.T) {
	for _, name := range []string{"qwen3p5", "hermes"} {
		r, err := open(t, name).Render(t.Context(), &format.RenderRequest{Chat: readChat(t, "testdata/chats/thinking.json")})
		require.NoError(t, err)
		text := format.Text(r.Segments)
		assert.Contains(t, text, "<|im_start|>assistant\n<think>\nI look first.\n</think>\n\nLooking.")
		assert.NotContains(t, text, "Old thought.")
	}
}

// Seed case 9: key order, nulls and big numbers of schemas and arguments reach
// the prompt as they were, the same each time.
func TestSeed9OrderAndNullsReachThePrompt(t *testing.T) {
	c := readChat(t, "testdata/chats/nulls_and_order.json")
	for _, name := range []string{"qwen3p5", "hermes"} {
		first, err := open(t, name).Render(t.Context(), &format.RenderRequest{Chat: c})
		require.NoError(t, err)
		text := format.Text(first.Segments)
		assert.Contains(t, text, `"parameters": {"type": "object", "required": ["zeta"], "properties": {"zeta": {"default": null, "type": ["string", "null"], "examples": []}`)
		assert.Contains(t, text, `[true, null, {"b": 1, "a": false}]`)
		for range 5 {
			again, err := open(t, name).Render(t.Context(), &format.RenderRequest{Chat: c})
			require.NoError(t, err)
			assert.Equal(t, first, again)
		}
	}
}
