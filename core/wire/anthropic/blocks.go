package anthropic

import (
	"encoding/json"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// messages collects the canonical messages of a request.
type messages struct {
	out []chat.Message
	// calls are the names of the calls so far by id; results are named after
	// them. loaded are the tools that the conversation names.
	calls  map[string]string
	loaded map[string]bool
}

// block holds the fields of one content block.
type block struct {
	typ, text, id, name, input, toolUseID, content, isError rawjson.Value
	thinking, signature, data, source, toolName             rawjson.Value
}

func readBlock(v rawjson.Value) (b block, kind string, err error) {
	if v.Kind() != '{' {
		return b, "", rawjson.Errorf("must be an object")
	}
	for name, f := range v.Fields() {
		switch string(name) {
		case "type":
			b.typ = f
		case "text":
			b.text = f
		case "id":
			b.id = f
		case "name":
			b.name = f
		case "input":
			b.input = f
		case "tool_use_id":
			b.toolUseID = f
		case "content":
			b.content = f
		case "is_error":
			b.isError = f
		case "thinking":
			b.thinking = f
		case "signature":
			b.signature = f
		case "data":
			b.data = f
		case "source":
			b.source = f
		case "tool_name":
			b.toolName = f
		}
	}
	kind, err = rawjson.Required(b.typ, "type")
	return b, kind, err
}

// add maps one item of the list of messages.
func (m *messages) add(v rawjson.Value) error {
	if v.Kind() != '{' {
		return rawjson.Errorf("must be an object")
	}
	var role, content rawjson.Value
	for name, f := range v.Fields() {
		switch string(name) {
		case "role":
			role = f
		case "content":
			content = f
		}
	}
	who, err := rawjson.Required(role, "role")
	if err != nil {
		return err
	}
	switch r := chat.Role(who); r {
	case chat.System:
		if !content.Given() {
			return rawjson.In("content", rawjson.ErrRequired)
		}
		parts, err := textParts(content)
		if err != nil {
			return rawjson.In("content", err)
		}
		m.out = append(m.out, chat.Message{Role: r, Parts: parts})
		return nil
	case chat.User, chat.Assistant:
		return m.addTurn(r, content)
	}
	return rawjson.In("role", rawjson.Errorf("must be user, assistant or system, not %q", who))
}

// addTurn maps the content of a user or an assistant. Tool results cut a
// user's content into several messages.
func (m *messages) addTurn(role chat.Role, content rawjson.Value) error {
	var parts []chat.Part
	switch content.Kind() {
	case '"':
		parts = []chat.Part{{Type: chat.Text, Text: content.Text()}}
	case '[':
		parts = []chat.Part{}
	case 0, 'n':
		return rawjson.In("content", rawjson.ErrRequired)
	default:
		return rawjson.In("content", rawjson.Errorf("must be a string or a list of blocks"))
	}
	cut := false
	for i, v := range content.Items() {
		p, err := m.part(role, v)
		if err != nil {
			return rawjson.In(rawjson.Index("content", i), err)
		}
		if p.Type != chat.ToolResult {
			parts = append(parts, p)
			continue
		}
		if len(parts) > 0 {
			m.out = append(m.out, chat.Message{Role: role, Parts: parts})
			parts = nil
		}
		cut = true
		m.out = append(m.out, chat.Message{Role: chat.ToolRole, Parts: []chat.Part{p}})
	}
	if len(parts) > 0 || !cut {
		m.out = append(m.out, chat.Message{Role: role, Parts: parts})
	}
	return nil
}

// part maps one block of a user or an assistant.
func (m *messages) part(role chat.Role, v rawjson.Value) (p chat.Part, err error) {
	b, kind, err := readBlock(v)
	if err != nil {
		return p, err
	}
	switch kind {
	case "text":
		return b.textPart()
	case "image", "tool_result", "tool_reference":
		if role == chat.Assistant {
			return p, rawjson.Errorf("a block of type %q can't be in a message of the assistant", kind)
		}
	case "tool_use", "thinking", "redacted_thinking":
		if role != chat.Assistant {
			return p, rawjson.Errorf("a block of type %q can only be in a message of the assistant", kind)
		}
	default:
		return p, rawjson.Errorf("a block of type %q can't be mapped", kind)
	}
	switch kind {
	case "image":
		return b.imagePart()
	case "tool_reference":
		return m.reference(b)
	case "tool_result":
		return m.result(b)
	case "tool_use":
		return m.call(b)
	case "redacted_thinking":
		p.Type = chat.Reasoning
		p.Data, err = rawjson.Required(b.data, "data")
		return p, err
	default:
		return b.thinkingPart()
	}
}

func (b *block) textPart() (chat.Part, error) {
	text, err := rawjson.Required(b.text, "text")
	return chat.Part{Type: chat.Text, Text: text}, err
}

func (b *block) thinkingPart() (p chat.Part, err error) {
	p.Type = chat.Reasoning
	if p.Text, err = rawjson.Required(b.thinking, "thinking"); err != nil {
		return p, err
	}
	if b.signature.Given() {
		if p.Signature, err = rawjson.Required(b.signature, "signature"); err != nil {
			return p, err
		}
	}
	if p.Signature != "" && p.Signature == Signature(p.Text) {
		p.Signature = ""
	}
	return p, nil
}

func (b *block) imagePart() (p chat.Part, err error) {
	p.Type = chat.Image
	if b.source.Kind() != '{' {
		return p, rawjson.In("source", rawjson.Errorf("must be an object"))
	}
	kind, err := rawjson.Required(b.source.Get("type"), "type")
	if err == nil {
		switch kind {
		case "base64":
			if p.MediaType, err = rawjson.Required(b.source.Get("media_type"), "media_type"); err == nil {
				p.Data, err = rawjson.Required(b.source.Get("data"), "data")
			}
		case "url":
			p.URL, err = rawjson.Required(b.source.Get("url"), "url")
		default:
			err = rawjson.Errorf("an image of type %q can't be mapped", kind)
		}
	}
	if err != nil {
		return p, rawjson.In("source", err)
	}
	return p, nil
}

// load notes that the conversation names a tool.
func (m *messages) load(tool string) {
	if m.loaded == nil {
		m.loaded = map[string]bool{}
	}
	m.loaded[tool] = true
}

func (m *messages) reference(b block) (p chat.Part, err error) {
	if p.Name, err = rawjson.Required(b.toolName, "tool_name"); err != nil {
		return p, err
	}
	m.load(p.Name)
	p.Type, p.Text = chat.Text, referencePrefix+p.Name
	return p, nil
}

func (m *messages) call(b block) (p chat.Part, err error) {
	p.Type = chat.ToolCall
	if p.ID, err = rawjson.Required(b.id, "id"); err != nil {
		return p, err
	}
	if p.Name, err = rawjson.Required(b.name, "name"); err != nil {
		return p, err
	}
	p.Arguments, p.ArgumentsRaw = decodeInput(b.input)
	m.load(p.Name)
	if m.calls == nil {
		m.calls = map[string]string{}
	}
	m.calls[p.ID] = p.Name
	return p, nil
}

// decodeInput maps the input of a tool_use to arguments. It undoes what
// appendInput does for arguments that aren't an object or a list.
func decodeInput(input rawjson.Value) (args json.RawMessage, raw bool) {
	switch input.Kind() {
	case 0:
		return json.RawMessage(`{}`), false
	case '"':
		return json.RawMessage(input.Raw()), true
	case '{':
		kept := input.Get(unparsedKey).Get("raw")
		if kept.Kind() != '"' {
			break
		}
		text := kept.Text()
		if v := []byte(text); isScalar(v) {
			return v, false
		}
		return sse.AppendString(nil, text), true
	}
	return json.RawMessage(input.Raw()), false
}

// isScalar reports whether text is a JSON number or boolean.
func isScalar(text []byte) bool {
	v, err := rawjson.Parse(text, 1)
	return err == nil && (v.Kind() == '0' || v.Kind() == 't')
}

func (m *messages) result(b block) (p chat.Part, err error) {
	p.Type = chat.ToolResult
	if p.ID, err = rawjson.Required(b.toolUseID, "tool_use_id"); err != nil {
		return p, err
	}
	p.Name = m.calls[p.ID]
	if b.isError.Given() {
		if p.IsError, err = b.isError.Bool(); err != nil {
			return p, rawjson.In("is_error", err)
		}
	}
	switch b.content.Kind() {
	case 0, 'n':
	case '"':
		p.Content = []chat.Part{{Type: chat.Text, Text: b.content.Text()}}
	case '[':
		p.Content = []chat.Part{}
		for i, v := range b.content.Items() {
			c, err := m.resultContent(v)
			if err != nil {
				return p, rawjson.In(rawjson.Index("content", i), err)
			}
			p.Content = append(p.Content, c)
		}
	default:
		return p, rawjson.In("content", rawjson.Errorf("must be a string or a list of blocks"))
	}
	return p, nil
}

// resultContent maps one block inside a tool_result.
func (m *messages) resultContent(v rawjson.Value) (p chat.Part, err error) {
	b, kind, err := readBlock(v)
	if err != nil {
		return p, err
	}
	switch kind {
	case "text":
		return b.textPart()
	case "image":
		return b.imagePart()
	case "tool_reference":
		return m.reference(b)
	}
	return p, rawjson.Errorf("a block of type %q can't be mapped inside a tool_result", kind)
}

// textParts maps content that is a string or a list of text blocks.
func textParts(v rawjson.Value) ([]chat.Part, error) {
	switch v.Kind() {
	case '"':
		return []chat.Part{{Type: chat.Text, Text: v.Text()}}, nil
	case '[':
	default:
		return nil, rawjson.Errorf("must be a string or a list of text blocks")
	}
	parts := []chat.Part{}
	for i, item := range v.Items() {
		b, kind, err := readBlock(item)
		if err == nil && kind != "text" {
			err = rawjson.Errorf("a block of type %q can't be mapped here, only text", kind)
		}
		var p chat.Part
		if err == nil {
			p, err = b.textPart()
		}
		if err != nil {
			return nil, rawjson.In(rawjson.Index("", i), err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}
