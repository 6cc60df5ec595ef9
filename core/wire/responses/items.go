package responses

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/penstock-dev/penstock/core/wire/callargs"
	"github.com/penstock-dev/penstock/core/wire/openai"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// items collects the canonical messages of a request.
type items struct {
	out []chat.Message
	// calls are the names of the calls so far by id; results are named after
	// them.
	calls map[string]string
}

// say adds a message.
func (m *items) say(role chat.Role, parts []chat.Part) {
	m.out = append(m.out, chat.Message{Role: role, Parts: parts})
}

// turn adds parts to the assistant's turn that is going on, or opens one.
func (m *items) turn(parts ...chat.Part) {
	if n := len(m.out); n > 0 && m.out[n-1].Role == chat.Assistant {
		m.out[n-1].Parts = append(m.out[n-1].Parts, parts...)
		return
	}
	m.say(chat.Assistant, parts)
}

// item holds the fields of one item of the input.
type item struct {
	typ, role, content, callID, name, namespace rawjson.Value
	arguments, input, output, summary, sealed   rawjson.Value
}

func readItem(v rawjson.Value) (it item) {
	for name, f := range v.Fields() {
		switch string(name) {
		case "type":
			it.typ = f
		case "role":
			it.role = f
		case "content":
			it.content = f
		case "call_id":
			it.callID = f
		case "name":
			it.name = f
		case "namespace":
			it.namespace = f
		case "arguments":
			it.arguments = f
		case "input":
			it.input = f
		case "output":
			it.output = f
		case "summary":
			it.summary = f
		case "encrypted_content":
			it.sealed = f
		}
	}
	return it
}

// add maps one item of the input.
func (m *items) add(v rawjson.Value) error {
	if v.Kind() != '{' {
		return rawjson.Errorf("must be an object")
	}
	it := readItem(v)
	kind := "message"
	if it.typ.Given() {
		var err error
		if kind, err = it.typ.Str(); err != nil {
			return rawjson.In("type", err)
		}
	}
	switch kind {
	case "message":
		return m.message(it)
	case "reasoning":
		p, err := it.reasoning()
		if err == nil {
			m.turn(p)
		}
		return err
	case "function_call", "custom_tool_call":
		return m.call(it, kind == "custom_tool_call")
	case "function_call_output", "custom_tool_call_output":
		return m.result(it)
	}
	return rawjson.Errorf("an item of type %q can't be mapped", kind)
}

func (m *items) message(it item) error {
	who, err := rawjson.Required(it.role, "role")
	if err != nil {
		return err
	}
	var role chat.Role
	switch who {
	case "system", "developer":
		role = chat.System
	case "user":
		role = chat.User
	case "assistant":
		role = chat.Assistant
	default:
		return rawjson.In("role", rawjson.Errorf("must be system, developer, user or assistant, not %q", who))
	}
	parts, err := content(it.content, "content", role)
	if err != nil {
		return err
	}
	if role == chat.Assistant {
		m.turn(parts...)
	} else {
		m.say(role, parts)
	}
	return nil
}

// content maps a string or a list of parts, of the field called name.
func content(v rawjson.Value, name string, role chat.Role) ([]chat.Part, error) {
	switch v.Kind() {
	case '"':
		return []chat.Part{{Type: chat.Text, Text: v.Text()}}, nil
	case '[':
	case 0, 'n':
		return nil, rawjson.In(name, rawjson.ErrRequired)
	default:
		return nil, rawjson.In(name, rawjson.Errorf("must be a string or a list of parts"))
	}
	parts := []chat.Part{}
	for i, part := range v.Items() {
		p, err := contentPart(part, role)
		if err != nil {
			return nil, rawjson.In(rawjson.Index(name, i), err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func contentPart(v rawjson.Value, role chat.Role) (p chat.Part, err error) {
	kind, err := rawjson.Required(v.Get("type"), "type")
	if err != nil {
		return p, err
	}
	p.Type = chat.Text
	switch {
	case kind == "input_text", kind == "output_text", kind == "text":
		p.Text, err = rawjson.Required(v.Get("text"), "text")
	case kind == "refusal" && role == chat.Assistant:
		p.Text, err = rawjson.Required(v.Get("refusal"), "refusal")
	case kind == "input_image" && (role == chat.User || role == chat.ToolRole):
		url, err := rawjson.Required(v.Get("image_url"), "image_url")
		return openai.Image(url), err
	default:
		err = rawjson.Errorf("a part of type %q can't be mapped in a message of role %s", kind, role)
	}
	return p, err
}

// sealPrefix begins what our encrypted_content holds. It isn't encrypted: it
// is the client's own conversation.
const sealPrefix = "penstock.1:"

// seal is the encrypted_content that carries reasoning whole.
func seal(text string) string {
	return base64.StdEncoding.EncodeToString([]byte(sealPrefix + text))
}

// unseal is the reasoning in an encrypted_content of ours.
func unseal(sealed string) (text string, ours bool) {
	b, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(b), sealPrefix)
}

// reasoning maps a reasoning item. Sealed reasoning of ours is whole; else the
// text itself comes before its summary, and the seal is kept as a signature.
func (it item) reasoning() (p chat.Part, err error) {
	p.Type = chat.Reasoning
	if it.sealed.Given() {
		if p.Signature, err = it.sealed.Str(); err != nil {
			return p, rawjson.In("encrypted_content", err)
		}
		if text, ours := unseal(p.Signature); ours {
			p.Text, p.Signature = text, ""
			return p, nil
		}
	}
	for _, list := range []struct {
		name  string
		value rawjson.Value
	}{{"content", it.content}, {"summary", it.summary}} {
		for i, v := range list.value.Items() {
			text, err := rawjson.Required(v.Get("text"), "text")
			if err != nil {
				return p, rawjson.In(rawjson.Index(list.name, i), err)
			}
			if i > 0 {
				p.Text += "\n\n"
			}
			p.Text += text
		}
		if p.Text != "" {
			break
		}
	}
	return p, nil
}

func (m *items) call(it item, custom bool) (err error) {
	p := chat.Part{Type: chat.ToolCall}
	if p.ID, err = rawjson.Required(it.callID, "call_id"); err != nil {
		return err
	}
	if p.Name, err = rawjson.Required(it.name, "name"); err != nil {
		return err
	}
	if it.namespace.Given() {
		space, err := it.namespace.Str()
		if err != nil {
			return rawjson.In("namespace", err)
		}
		p.Name = flatName(space, p.Name)
	}
	if custom {
		text, err := rawjson.Required(it.input, "input")
		if err != nil {
			return err
		}
		p.Arguments = customArguments(text)
	} else {
		text, err := rawjson.Required(it.arguments, "arguments")
		if err != nil {
			return err
		}
		p.Arguments, p.ArgumentsRaw = callargs.Parse(text)
	}
	if m.calls == nil {
		m.calls = map[string]string{}
	}
	m.calls[p.ID] = p.Name
	m.turn(p)
	return nil
}

// customArguments are the arguments that stand for a custom call's input.
func customArguments(input string) json.RawMessage {
	b := append(make([]byte, 0, len(input)+16), `{"input":`...)
	return append(sse.AppendString(b, input), '}')
}

// customInput is the inverse. Arguments of another form are the input as they
// are.
func customInput(args []byte) string {
	if v := rawjson.Of(args).Get("input"); v.Kind() == '"' && rawjson.Valid(args, maxDepth) {
		return sse.Clean(v.Text())
	}
	return callargs.Text(args)
}

func (m *items) result(it item) error {
	id, err := rawjson.Required(it.callID, "call_id")
	if err != nil {
		return err
	}
	parts, err := content(it.output, "output", chat.ToolRole)
	if err != nil {
		return err
	}
	m.say(chat.ToolRole, []chat.Part{{Type: chat.ToolResult, ID: id, Name: m.calls[id], Content: parts}})
	return nil
}
