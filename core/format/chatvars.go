package format

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/core/jinja"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// Where text of a prompt is from is kept as one number: the message, -1 for
// what belongs to none such as the tools, and whether it is reasoning.

func source(message int) jinja.Source { return jinja.Source(2*(message+1) + 1) }

func reasoningSource(message int) jinja.Source { return source(message) + 1 }

// messageOf is the message of a source.
func messageOf(s jinja.Source) int { return int(s-1)/2 - 1 }

// style is how a template expects what templates differ in.
type style struct {
	// argumentsText gives arguments as the text of their JSON.
	argumentsText bool
	// reasoning is the key of a message's reasoning; empty where the template
	// cuts it out of the content itself, between think tags.
	reasoning string
	// inContent puts reasoning into the content, for templates that look for it
	// there.
	inContent bool
}

// styleOf reads off a template what it calls a message's reasoning.
func styleOf(t *jinja.Template) style {
	switch {
	case t.Names("reasoning_content"):
		return style{reasoning: "reasoning_content"}
	case t.Names("thinking") && !t.Reads("thinking"):
		return style{reasoning: "thinking"}
	case t.Names("reasoning"):
		return style{reasoning: "reasoning"}
	case t.Names("</think>"):
		return style{inContent: true}
	}
	return style{}
}

// word is text that is ours, not the conversation's.
func word(s string) jinja.Text { return jinja.String(s, jinja.FromTemplate) }

// chatVars is the variables that chat templates are given.
func (f *templated) chatVars(c *chat.Conversation, st style) (map[string]jinja.Value, error) {
	messages, err := f.messageValues(c.Messages, st)
	if err != nil {
		return nil, err
	}
	vars := map[string]jinja.Value{"messages": messages, "tools": nil, "add_generation_prompt": true}
	if len(c.Tools) > 0 {
		if vars["tools"], err = toolValues(c.Tools); err != nil {
			return nil, err
		}
	}
	if c.Thinking != nil {
		vars["enable_thinking"], vars["thinking"] = *c.Thinking, *c.Thinking
	}
	for name, token := range f.file.Special {
		vars[name] = word(token)
	}
	return vars, nil
}

func (f *templated) messageValues(messages []chat.Message, st style) (*jinja.List, error) {
	out := &jinja.List{}
	names, ids := map[string]string{}, map[string]string{}
	if f.native != nil {
		ids = f.native.NativeIDs(messages)
	}
	shown := func(id string) string {
		if native, ok := ids[id]; ok {
			return native
		}
		return id
	}
	var system []string
	for i, m := range messages {
		from := source(i)
		if err := withoutImages(m, i); err != nil {
			return nil, err
		}
		if m.Role == chat.System && len(out.Items) == 0 {
			// Templates know one message of the system, at the start.
			system = append(system, plainText(m.Parts, "\n\n"))
			if i+1 < len(messages) && messages[i+1].Role == chat.System {
				continue
			}
			out.Items = append(out.Items, message("system", jinja.String(strings.Join(system, "\n\n"), source(0))))
			continue
		}
		switch m.Role {
		case chat.System, chat.User:
			sep := map[chat.Role]string{chat.System: "\n\n", chat.User: "\n"}[m.Role]
			out.Items = append(out.Items, message(string(m.Role), jinja.String(plainText(m.Parts, sep), from)))
		case chat.Assistant:
			for _, p := range chat.Calls(m.Parts) {
				names[p.ID] = p.Name
			}
			v, err := assistantValue(m, i, st, shown)
			if err != nil {
				return nil, err
			}
			out.Items = append(out.Items, v)
		case chat.ToolRole:
			out.Items = append(out.Items, resultValues(m, from, names, shown)...)
		default:
			return nil, fmt.Errorf("message %d has role %q", i, m.Role)
		}
	}
	return out, nil
}

func message(role string, content jinja.Value) *jinja.Dict {
	return jinja.NewDict(jinja.FromTemplate).Put("role", word(role)).Put("content", content)
}

func withoutImages(m chat.Message, i int) error {
	for _, p := range m.Parts {
		if p.Type == chat.Image {
			return fmt.Errorf("message %d has an image, which chat templates can't render here", i)
		}
		for _, c := range p.Content {
			if c.Type == chat.Image {
				return fmt.Errorf("the tool result in message %d has an image, which chat templates can't render here", i)
			}
		}
	}
	return nil
}

func plainText(parts []chat.Part, sep string) string {
	var texts []string
	for _, p := range parts {
		if p.Type == chat.Text {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, sep)
}

// reasoningText is what can be read of a message's reasoning.
func reasoningText(parts []chat.Part) string {
	var texts []string
	for _, p := range parts {
		if p.Type == chat.Reasoning && p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func assistantValue(m chat.Message, i int, st style, shown func(string) string) (*jinja.Dict, error) {
	from := source(i)
	content := jinja.String(plainText(m.Parts, ""), from)
	reasoning := jinja.String(reasoningText(m.Parts), reasoningSource(i))
	if st.inContent && reasoning.String() != "" {
		content = jinja.Concat(word("<think>\n"), reasoning, word("\n</think>\n\n"), content)
	}
	out := message("assistant", content)
	if st.reasoning != "" && reasoning.String() != "" {
		out.Put(st.reasoning, reasoning)
	}
	var calls []jinja.Value
	for _, p := range chat.Calls(m.Parts) {
		arguments, err := argumentsValue(p, from, st)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		function := jinja.NewDict(jinja.FromTemplate).Put("name", jinja.String(p.Name, from)).Put("arguments", arguments)
		calls = append(calls, jinja.NewDict(jinja.FromTemplate).
			Put("id", jinja.String(shown(p.ID), from)).Put("type", word("function")).Put("function", function))
	}
	if len(calls) > 0 {
		out.Put("tool_calls", &jinja.List{Items: calls})
	}
	return out, nil
}

// argumentsValue is a call's arguments: an object, or text where they are none
// or the template wants that.
func argumentsValue(p chat.Part, from jinja.Source, st style) (jinja.Value, error) {
	raw := p.Arguments
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	v, err := format.ParseValue(raw)
	if err != nil {
		return nil, fmt.Errorf("read the arguments of %s: %w", p.Name, err)
	}
	if v.IsString() {
		text := v.Plain()
		inner, err := format.ParseValue([]byte(text))
		if err != nil || !inner.IsObject() {
			return jinja.String(text, from), nil
		}
		v = inner
	}
	if st.argumentsText {
		return jinja.String(v.JSON(), from), nil
	}
	return jsonValue(v, from), nil
}

func resultValues(m chat.Message, from jinja.Source, names map[string]string, shown func(string) string) []jinja.Value {
	var out []jinja.Value
	for _, p := range m.Parts {
		if p.Type != chat.ToolResult {
			continue
		}
		name := p.Name
		if name == "" {
			name = names[p.ID]
		}
		out = append(out, message("tool", jinja.String(format.ResultText(p), from)).
			Put("tool_call_id", jinja.String(shown(p.ID), from)).Put("name", jinja.String(name, from)))
	}
	if len(out) == 0 {
		out = append(out, message("tool", jinja.String(plainText(m.Parts, "\n"), from)))
	}
	return out
}

// toolValues is the definitions of tools, in OpenAI's form.
func toolValues(tools []chat.Tool) (*jinja.List, error) {
	from := source(-1)
	out := &jinja.List{From: from}
	for _, t := range tools {
		if t.Type != "" && t.Type != "function" {
			return nil, fmt.Errorf("tool %q has type %q, which only its provider can run", t.Name, t.Type)
		}
		function := jinja.NewDict(from).Put("name", jinja.String(t.Name, from))
		if t.Description != "" {
			function.Put("description", jinja.String(t.Description, from))
		}
		if len(t.Parameters) > 0 {
			v, err := format.ParseValue(t.Parameters)
			if err != nil {
				return nil, fmt.Errorf("read parameters of tool %q: %w", t.Name, err)
			}
			function.Put("parameters", jsonValue(v, from))
		}
		out.Items = append(out.Items, jinja.NewDict(from).Put("type", jinja.String("function", from)).Put("function", function))
	}
	return out, nil
}

// jsonValue is a JSON value of one source.
func jsonValue(v format.Value, from jinja.Source) jinja.Value {
	switch {
	case v.IsObject():
		d := jinja.NewDict(from)
		for _, m := range v.Members() {
			d.Set(jinja.String(m.Key, from), jsonValue(m.Value, from))
		}
		return d
	case v.IsArray():
		l := &jinja.List{From: from}
		for _, item := range v.Items() {
			l.Items = append(l.Items, jsonValue(item, from))
		}
		return l
	case v.IsString():
		return jinja.String(v.Plain(), from)
	case v.IsNull():
		return nil
	}
	switch text := v.Plain(); text {
	case "true", "false":
		return text == "true"
	default:
		return jinja.Number{Text: text, From: from}
	}
}
