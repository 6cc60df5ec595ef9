package openaichat

import (
	"github.com/penstock-dev/penstock/core/wire/callargs"
	"github.com/penstock-dev/penstock/core/wire/openai"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// messages collects the canonical messages of a request.
type messages struct {
	out []chat.Message
	// calls are the names of the calls so far by id; results are named after
	// them.
	calls map[string]string
}

// message holds the fields of one item of the list.
type message struct {
	role, content, toolCalls, toolCallID rawjson.Value
	reasoningContent, reasoning, refusal rawjson.Value
	functionCall, audio                  rawjson.Value
}

func readMessage(v rawjson.Value) (m message) {
	for name, f := range v.Fields() {
		switch string(name) {
		case "role":
			m.role = f
		case "content":
			m.content = f
		case "tool_calls":
			m.toolCalls = f
		case "tool_call_id":
			m.toolCallID = f
		case "reasoning_content":
			m.reasoningContent = f
		case "reasoning":
			m.reasoning = f
		case "refusal":
			m.refusal = f
		case "function_call":
			m.functionCall = f
		case "audio":
			m.audio = f
		}
	}
	return m
}

// add maps one item of the list of messages.
func (m *messages) add(v rawjson.Value) error {
	if v.Kind() != '{' {
		return rawjson.Errorf("must be an object")
	}
	f := readMessage(v)
	role, err := rawjson.Required(f.role, "role")
	if err != nil {
		return err
	}
	var out chat.Message
	switch role {
	case "system", "developer":
		out.Role = chat.System
		out.Parts, err = content(f.content, chat.System)
	case "user":
		out.Role = chat.User
		out.Parts, err = content(f.content, chat.User)
	case "assistant":
		out.Role = chat.Assistant
		out.Parts, err = m.assistant(f)
	case "tool":
		out.Role = chat.ToolRole
		out.Parts, err = m.result(f)
	default:
		err = rawjson.In("role", rawjson.Errorf("must be system, developer, user, assistant or tool, not %q", role))
	}
	if err != nil {
		return err
	}
	m.out = append(m.out, out)
	return nil
}

// content maps the content of a message: a string or a list of parts.
func content(v rawjson.Value, role chat.Role) ([]chat.Part, error) {
	switch v.Kind() {
	case '"':
		return []chat.Part{{Type: chat.Text, Text: v.Text()}}, nil
	case '[':
	case 0, 'n':
		return nil, rawjson.In("content", rawjson.ErrRequired)
	default:
		return nil, rawjson.In("content", rawjson.Errorf("must be a string or a list of parts"))
	}
	parts := []chat.Part{}
	for i, item := range v.Items() {
		p, err := part(item, role)
		if err != nil {
			return nil, rawjson.In(rawjson.Index("content", i), err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// part maps one part of a message's content.
func part(v rawjson.Value, role chat.Role) (p chat.Part, err error) {
	kind, err := rawjson.Required(v.Get("type"), "type")
	if err != nil {
		return p, err
	}
	switch {
	case kind == "text":
		p.Type = chat.Text
		p.Text, err = rawjson.Required(v.Get("text"), "text")
	case kind == "refusal" && role == chat.Assistant:
		p.Type = chat.Text
		p.Text, err = rawjson.Required(v.Get("refusal"), "refusal")
	case kind == "image_url" && (role == chat.User || role == chat.ToolRole):
		p, err = image(v.Get("image_url"))
		if err != nil {
			err = rawjson.In("image_url", err)
		}
	default:
		err = rawjson.Errorf("a part of type %q can't be mapped in a message of role %s", kind, role)
	}
	return p, err
}

// image maps an image's URL, which some clients write without its object.
func image(v rawjson.Value) (chat.Part, error) {
	if v.Kind() == '"' {
		return openai.Image(v.Text()), nil
	}
	url, err := rawjson.Required(v.Get("url"), "url")
	return openai.Image(url), err
}

// assistant maps what an assistant said: reasoning, text, calls.
func (m *messages) assistant(f message) ([]chat.Part, error) {
	if f.functionCall.Given() {
		return nil, rawjson.In("function_call", rawjson.Errorf("can't be mapped; use tool_calls"))
	}
	if f.audio.Given() {
		return nil, rawjson.In("audio", rawjson.Errorf("can't be mapped"))
	}
	parts := []chat.Part{}
	thought, name := f.reasoningContent, "reasoning_content"
	if !thought.Given() {
		thought, name = f.reasoning, "reasoning"
	}
	if thought.Given() {
		text, err := thought.Str()
		if err != nil {
			return nil, rawjson.In(name, err)
		}
		parts = append(parts, chat.Part{Type: chat.Reasoning, Text: text})
	}
	if f.content.Given() {
		said, err := content(f.content, chat.Assistant)
		if err != nil {
			return nil, err
		}
		parts = append(parts, said...)
	}
	if f.refusal.Given() {
		text, err := f.refusal.Str()
		if err != nil {
			return nil, rawjson.In("refusal", err)
		}
		parts = append(parts, chat.Part{Type: chat.Text, Text: text})
	}
	if f.toolCalls.Given() && f.toolCalls.Kind() != '[' {
		return nil, rawjson.In("tool_calls", rawjson.Errorf("must be a list"))
	}
	for i, v := range f.toolCalls.Items() {
		p, err := m.call(v)
		if err != nil {
			return nil, rawjson.In(rawjson.Index("tool_calls", i), err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func (m *messages) call(v rawjson.Value) (p chat.Part, err error) {
	p.Type = chat.ToolCall
	if kind := v.Get("type"); kind.Given() && kind.Text() != "function" {
		return p, rawjson.Errorf("a call of type %s can't be mapped", kind.Raw())
	}
	if p.ID, err = rawjson.Required(v.Get("id"), "id"); err != nil {
		return p, err
	}
	function := v.Get("function")
	if p.Name, err = rawjson.Required(function.Get("name"), "name"); err != nil {
		return p, rawjson.In("function", err)
	}
	switch args := function.Get("arguments"); args.Kind() {
	case '"':
		p.Arguments, p.ArgumentsRaw = callargs.Parse(args.Text())
	case '{':
		p.Arguments = args.Raw()
	case 0, 'n':
	default:
		return p, rawjson.In("function.arguments", rawjson.Errorf("must be a string"))
	}
	if m.calls == nil {
		m.calls = map[string]string{}
	}
	m.calls[p.ID] = p.Name
	return p, nil
}

func (m *messages) result(f message) ([]chat.Part, error) {
	id, err := rawjson.Required(f.toolCallID, "tool_call_id")
	if err != nil {
		return nil, err
	}
	parts, err := content(f.content, chat.ToolRole)
	if err != nil {
		return nil, err
	}
	return []chat.Part{{Type: chat.ToolResult, ID: id, Name: m.calls[id], Content: parts}}, nil
}
