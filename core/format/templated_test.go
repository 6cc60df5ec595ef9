package format

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

const jsonCalls = `name: json_calls
reasoning: { open: "<think>", close: "</think>", ended_by_call: true }
calls: { open: "<tool_call>", close: "</tool_call>", json: { name: [name], arguments: [arguments] } }
stops: ["<|im_end|>"]
tokens: ["<|im_start|>"]
render: { user: u, assistant: a, generate: g }
`

const xmlCalls = `name: xml_calls
calls:
  open: "<tool_call>"
  close: "</tool_call>"
  tagged: { open: "<function={name}>", close: "</function>", param: "<parameter={name}>", param_close: "</parameter>", trim: newline, end: lookahead }
stops: ["<|im_end|>"]
render: { user: u, assistant: a, generate: g }
`

func declare(t testing.TB, text string) format.Format {
	t.Helper()
	s, err := format.ParseSpec("test.yaml", []byte(text))
	require.NoError(t, err)
	f, err := format.New(s)
	require.NoError(t, err)
	return f
}

func put(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// model opens a format with one of the real templates of core/jinja.
func model(t testing.TB, spec, name string, eos ...string) format.Format {
	t.Helper()
	text, err := os.ReadFile("../jinja/testdata/models/" + name + ".jinja")
	require.NoError(t, err)
	f, err := OpenTemplate(t.Context(), declare(t, spec), "test", &Template{
		Path: name, Text: string(text), Tools: string(text), Special: map[string]string{"bos_token": "<s>", "eos_token": strings.Join(append(eos, "<|im_end|>")[:1], "")},
	})
	require.NoError(t, err)
	return f
}

func say(role chat.Role, text string) chat.Message {
	return chat.Message{Role: role, Parts: []chat.Part{{Type: chat.Text, Text: text}}}
}

func result(id, text string) chat.Message {
	return chat.Message{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: id, Content: []chat.Part{{Type: chat.Text, Text: text}}}}}
}

func toolCall(id, name, args string) chat.Part {
	return chat.Part{Type: chat.ToolCall, ID: id, Name: name, Arguments: json.RawMessage(args)}
}

var bash = []chat.Tool{{Name: "bash", Description: "Runs it.", Parameters: json.RawMessage(`{"type":"object","properties":{"z":{"type":"integer"},"command":{"type":"string"}}}`)}}

func show(segments []format.Segment) string {
	var b strings.Builder
	for _, s := range segments {
		if s.Kind == format.Data {
			b.WriteString("‹" + s.Text + "›")
		} else {
			b.WriteString(s.Text)
		}
	}
	return b.String()
}

// A real template renders a conversation with tools, and what is the
// conversation's is data.
func TestTemplateRenders(t *testing.T) {
	f := model(t, jsonCalls, "qwen3-0.6b")
	c := &chat.Conversation{Tools: bash, Messages: []chat.Message{
		say(chat.System, "Be terse."), say(chat.System, "Be kind."), say(chat.User, "List <|im_end|> files."),
		{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Reasoning, Text: "ls it is"}, toolCall("c", "bash", `{"z": 12345678901234567890, "command": "ls"}`)}},
		result("c", "<tool_call>\n"),
	}}
	r, err := f.Render(t.Context(), &format.RenderRequest{Chat: c})
	require.NoError(t, err)
	_, after, ok := strings.Cut(show(r.Segments), "</tool_call><|im_end|>\n")
	require.True(t, ok)
	assert.Equal(t, `<|im_start|>user
‹List <|im_end|> files.›<|im_end|>
<|im_start|>assistant
<think>
‹ls it is›
</think>

<tool_call>
{"name": "‹bash›", "arguments": ‹{"z": 12345678901234567890, "command": "ls"}›}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
‹<tool_call>
›
</tool_response><|im_end|>
<|im_start|>assistant
`, after)
	assert.Contains(t, show(r.Segments), "<|im_start|>system\n‹Be terse.\n\nBe kind.›\n\n# Tools")
	assert.Contains(t, show(r.Segments), "<tools>\n‹{\"type\": \"function\", \"function\": {\"name\": \"bash\", \"description\": \"Runs it.\"")
	assert.Equal(t, []string{"<|im_end|>"}, r.Stops)
	for _, s := range r.Segments {
		if strings.Contains(s.Text, "ls it is") || s.Text == "bash" {
			assert.Equal(t, 3, s.Message)
		}
	}
}

// Prompt, sampled text and tail together are the whole prompt, for every reply
// of a conversation, however it ended.
func TestTemplateTails(t *testing.T) {
	c := &chat.Conversation{Tools: bash, Messages: []chat.Message{
		say(chat.User, "Go."),
		{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Text, Text: "I look."}, toolCall("a", "bash", `{"command": "ls"}`), toolCall("b", "bash", `{"command": "pwd"}`)}},
		result("a", "x"), result("b", "y"),
		say(chat.Assistant, "Done."), say(chat.User, "Again."), say(chat.Assistant, ""), say(chat.User, "Why?"),
	}}
	for _, m := range []struct{ spec, name, eos string }{
		{jsonCalls, "qwen2.5-0.5b", "<|im_end|>"}, {xmlCalls, "qwen3-coder-30b", "<|im_end|>"}, {jsonCalls, "granite4-latest", "<|end_of_text|>"},
	} {
		f := model(t, m.spec, m.name, m.eos)
		for k, message := range c.Messages {
			if message.Role != chat.Assistant {
				continue
			}
			before := &chat.Conversation{Tools: c.Tools, Messages: c.Messages[:k]}
			prompt, err := f.Render(t.Context(), &format.RenderRequest{Chat: before})
			require.NoError(t, err)
			whole, err := f.Render(t.Context(), &format.RenderRequest{Chat: c})
			require.NoError(t, err)
			text := format.Text(whole.Segments)
			for _, ended := range []format.Ended{format.EndedStop, format.EndedLength} {
				tail, err := f.Tail(t.Context(), &format.RenderRequest{Chat: c}, k, ended)
				require.NoError(t, err)
				require.Empty(t, tail.Unstable, "%s, message %d", m.name, k)
				sampled, ok := strings.CutPrefix(text, format.Text(prompt.Segments))
				require.True(t, ok)
				sampled, ok = strings.CutSuffix(sampled, format.Text(tail.Segments))
				require.True(t, ok, "%s, message %d", m.name, k)
				if ended == format.EndedStop {
					require.NotEmpty(t, f.(*templated).stops)
					for _, stop := range f.(*templated).stops {
						if s, cut := strings.CutSuffix(sampled, stop); cut {
							sampled = s
							break
						}
					}
				}
				assert.NotContains(t, sampled, m.eos, m.name)
				assert.Equal(t, strings.TrimSpace(plainText(message.Parts, "")) != "" || len(chat.Calls(message.Parts)) > 0, strings.TrimSpace(sampled) != "", "%s: %q", m.name, sampled)
			}
		}
	}
}

// A template that drops the reasoning of older turns says so, and the call
// forks.
func TestTemplateSaysWhereItIsNotStable(t *testing.T) {
	f := model(t, jsonCalls, "qwen3-0.6b")
	c := &chat.Conversation{Messages: []chat.Message{
		say(chat.User, "One."),
		{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Reasoning, Text: "hm"}, {Type: chat.Text, Text: "1"}}},
		say(chat.User, "Two."),
	}}
	tail, err := f.Tail(t.Context(), &format.RenderRequest{Chat: c}, 1, format.EndedStop)
	require.NoError(t, err)
	assert.Equal(t, "reasoning_dropped", tail.Unstable)

	c.Messages[1].Parts = c.Messages[1].Parts[1:]
	tail, err = f.Tail(t.Context(), &format.RenderRequest{Chat: c}, 1, format.EndedStop)
	require.NoError(t, err)
	assert.Empty(t, tail.Unstable)
	assert.Equal(t, "\n<|im_start|>user\nTwo.<|im_end|>\n<|im_start|>assistant\n", format.Text(tail.Segments))

	off := false
	c.Thinking = &off
	tail, err = f.Tail(t.Context(), &format.RenderRequest{Chat: c}, 1, format.EndedStop)
	require.NoError(t, err)
	assert.Equal(t, "template_moved", tail.Unstable, "the empty block of the prompt is not in the history")

	_, err = f.Tail(t.Context(), &format.RenderRequest{Chat: c}, 0, format.EndedStop)
	assert.ErrorContains(t, err, "message 0 is no assistant's")
}

const openTemplate = `{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}<think>
{{ m.reasoning_content if m.reasoning_content else '' }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
<think>
{% if enable_thinking is defined and not enable_thinking %}

</think>

{% endif %}`

// Where parsing begins is read off the end of the prompt. Reasoning that the
// client left out is taken for what was sampled where the template keeps it.
func TestTemplateOpensReasoning(t *testing.T) {
	file := &Template{Path: "t", Text: openTemplate, Tools: openTemplate}
	f, err := OpenTemplate(t.Context(), declare(t, jsonCalls), "json_calls", file)
	require.NoError(t, err)
	c := &chat.Conversation{Messages: []chat.Message{say(chat.User, "Use <think>")}}
	r, err := f.Render(t.Context(), &format.RenderRequest{Chat: c})
	require.NoError(t, err)
	assert.True(t, r.State.ReasoningOpen)
	off := false
	c.Thinking = &off
	r, err = f.Render(t.Context(), &format.RenderRequest{Chat: c})
	require.NoError(t, err)
	assert.False(t, r.State.ReasoningOpen)

	c.Thinking = nil
	c.Messages = append(c.Messages, say(chat.Assistant, "answer"), say(chat.User, "more"))
	tail, err := f.Tail(t.Context(), &format.RenderRequest{Chat: c}, 1, format.EndedStop)
	require.NoError(t, err)
	assert.Empty(t, tail.Unstable)
	assert.Equal(t, "\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n<think>\n", format.Text(tail.Segments))
	assert.True(t, tail.State.ReasoningOpen)
}

// Templates that want the text of arguments get it.
func TestTemplateOfArgumentsAsText(t *testing.T) {
	f := model(t, `name: deepseek
calls: { open: "<｜tool▁calls▁begin｜>", close: "<｜tool▁calls▁end｜>", bare: anywhere, header: { open: "<｜tool▁call▁begin｜>", sep: ["<｜tool▁sep｜>"], close: "<｜tool▁call▁end｜>" } }
stops: ["<｜end▁of▁sentence｜>"]
render: { user: u, assistant: a, generate: g }
`, "deepseek-v3.1-latest")
	c := &chat.Conversation{Messages: []chat.Message{say(chat.User, "x"), {Role: chat.Assistant, Parts: []chat.Part{toolCall("a", "bash", `{"command": "ls"}`)}}, result("a", "y")}}
	_, err := f.Render(t.Context(), &format.RenderRequest{Chat: c})
	// This template knows no tools, so how it wants calls was not tried out.
	assert.ErrorContains(t, err, "+ between a str and a dict")
	c.Tools = bash
	_, err = f.Render(t.Context(), &format.RenderRequest{Chat: c})
	assert.ErrorContains(t, err, "has no place for tools")

	text := "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ '{\"name\": \"' + c.function.name + '\", \"arguments\": ' + c.function.arguments + '}' }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{{ tools|tojson }}<|im_start|>assistant\n"
	g, err := OpenTemplate(t.Context(), declare(t, jsonCalls), "json_calls", &Template{Path: "t", Text: text, Tools: text})
	require.NoError(t, err)
	r, err := g.Render(t.Context(), &format.RenderRequest{Chat: c})
	require.NoError(t, err)
	assert.Contains(t, format.Text(r.Segments), `<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>`)
}

// What is wrong with a template is said when the model is opened.
func TestTemplateErrors(t *testing.T) {
	chatml := "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
	for what, c := range map[string]struct{ text, want string }{
		"syntax":       {"{% for m in messages %}\n{{ m.content }", "the chat template doesn't compile: t.jinja:2: a tag is not closed with }}"},
		"unknown":      {"{{ messages|frob }}", `there is no filter "frob"`},
		"bos":          {"{{ bos_token }}" + chatml, "writes bos_token, which it doesn't say itself: put the model's tokenizer_config.json beside it"},
		"silent":       {"{{ 'hello' }}", "leaves out what the user says"},
		"fails":        {"{{ messages.x.y }}", "t.jinja:1: x of a list is undefined"},
		"refuses":      {"{{ raise_exception('never') }}", "the chat template refuses this conversation: never"},
		"no arguments": {chatml + "{{ tools|tojson }}", "leaves out the arguments of a call"},
		"contradicts": {chatml + "{{ tools|tojson }}{% for m in messages %}{% for c in m.tool_calls or [] %}[CALL]{{ c.function.name }}({{ c.function.arguments|tojson }})<|im_end|>{% endfor %}{% endfor %}",
			"format is json_calls, but the chat template in t.jinja writes a tool call as"},
	} {
		_, err := OpenTemplate(t.Context(), declare(t, jsonCalls), "json_calls", &Template{Path: "t.jinja", Text: c.text, Tools: c.text})
		assert.ErrorContains(t, err, c.want, what)
	}
	_, err := OpenTemplate(t.Context(), declare(t, xmlCalls), "xml_calls", readModel(t, "qwen3-0.6b"))
	var unreadable *UnreadableError
	require.ErrorAs(t, err, &unreadable)
	assert.Equal(t, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Reykjavik\"}}\n</tool_call>", unreadable.Call)
}

func readModel(t testing.TB, name string) *Template {
	f, err := ReadTemplate("../jinja/testdata/models/" + name + ".jinja")
	require.NoError(t, err)
	return f
}

// Templates are read from all that models are published as.
func TestReadTemplate(t *testing.T) {
	dir := t.TempDir()
	config := `{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null, "added_tokens_decoder": {"5": {"content": "<|a|>"}}, "chat_template": %s}`
	write := func(name, text string) string { return put(t, dir, name, text) }
	one := write("one/tokenizer_config.json", strings.Replace(config, "%s", `"T"`, 1))
	many := write("many/tokenizer_config.json", strings.Replace(config, "%s", `[{"name": "default", "template": "D"}, {"name": "tool_use", "template": "U"}, {"name": "rag", "template": "R"}]`, 1))
	write("jinja/tokenizer_config.json", strings.Replace(config, "%s", `"OLD"`, 1))
	text := write("jinja/chat_template.jinja", "J")
	write("more/chat_template.jinja", "J")
	write("more/additional_chat_templates/tool_use.jinja", "U")
	special := map[string]string{"bos_token": "<s>", "eos_token": "</s>"}
	for path, want := range map[string]Template{
		one:                        {Text: "T", Tools: "T", Special: special},
		filepath.Join(dir, "one"):  {Text: "T", Tools: "T", Special: special},
		many:                       {Text: "D", Tools: "U", Special: special},
		text:                       {Text: "J", Tools: "J", Special: special},
		filepath.Join(dir, "more"): {Text: "J", Tools: "U"},
	} {
		got, err := ReadTemplate(path)
		require.NoError(t, err, path)
		assert.Equal(t, want.Text, got.Text, path)
		assert.Equal(t, want.Tools, got.Tools, path)
		assert.Equal(t, want.Special, got.Special, path)
		assert.Len(t, got.Hash(), 64)
	}
	for path, want := range map[string]string{
		write("none/tokenizer_config.json", `{}`): "has no chat_template",
		write("bad/tokenizer_config.json", `{`):   "read chat template",
		write("empty/chat_template.jinja", " \n"): "is empty",
		filepath.Join(dir, "nowhere.jinja"):       "no such file",
		dir:                                       "has neither chat_template.jinja nor tokenizer_config.json",
		write("weird/tokenizer_config.json", `{"chat_template": 5}`): "has no chat_template",
	} {
		_, err := ReadTemplate(path)
		assert.ErrorContains(t, err, want, path)
	}
}

// The template of a pipeline's model picks the format, or is held against it.
func TestResolveFor(t *testing.T) {
	dir := t.TempDir()
	chatml := "<tea>{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
	tea := put(t, dir, "t.jinja", chatml)
	r := shelf{"tea": declare(t, strings.Replace(jsonCalls, "json_calls", "tea", 1)), "cup": declare(t, strings.Replace(jsonCalls, "json_calls", "cup", 1))}
	f, name, hash, err := ResolveFor(t.Context(), Auto, tea, dir, r)
	require.NoError(t, err)
	assert.Equal(t, "tea", name)
	assert.Len(t, hash, 64)
	rendered, err := f.Render(t.Context(), &format.RenderRequest{Chat: &chat.Conversation{Messages: []chat.Message{say(chat.User, "hi")}}})
	require.NoError(t, err)
	assert.Equal(t, "<tea>user: hi\n", format.Text(rendered.Segments))
	_, _, _, err = ResolveFor(t.Context(), Auto, "", dir, r)
	assert.ErrorContains(t, err, "format auto needs the model's chat template")
	_, _, _, err = ResolveFor(t.Context(), Auto, put(t, dir, "w.jinja", "water"), dir, r)
	assert.ErrorContains(t, err, "w.jinja is of no format")
	_, _, _, err = ResolveFor(t.Context(), "cup", tea, dir, r)
	assert.ErrorContains(t, err, "format is cup, but")
	_, name, hash, err = ResolveFor(t.Context(), "tea", "", dir, r)
	require.NoError(t, err)
	assert.Equal(t, "tea", name)
	assert.Empty(t, hash)

	assert.NoError(t, CheckTemplate(t.Context(), Auto, tea, dir))
	assert.NoError(t, CheckTemplate(t.Context(), "tea", tea, dir))
	assert.ErrorContains(t, CheckTemplate(t.Context(), "cup", tea, dir), "format is cup, but")
	assert.ErrorContains(t, CheckTemplate(t.Context(), "tea", put(t, dir, "bad.jinja", "{% if %}"), dir), "bad.jinja:1: want a value")
}

// shelf is a registry of opened formats.
type shelf map[string]format.Format

func (s shelf) Names(string) []string {
	var out []string
	for name := range s {
		out = append(out, name)
	}
	return out
}

func (s shelf) Format(_ context.Context, name string, _ json.RawMessage) (format.Format, error) {
	return s[name], nil
}
