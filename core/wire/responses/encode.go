package responses

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/penstock-dev/penstock/core/wire/openai"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// EncodeOptions is what a request holds beside the conversation.
type EncodeOptions struct {
	Model  string
	Stream bool
	// Reasoning is the reasoning configuration, such as {"effort":"low"}.
	Reasoning json.RawMessage
}

// EncodeRequest writes a conversation as the body of a request. System
// messages are developer messages; a namespace's tools are functions with
// their flat names. That a tool result is an error has no form here; its
// content says so.
func EncodeRequest(c *chat.Conversation, o EncodeOptions) ([]byte, error) {
	b := append(make([]byte, 0, 4096), `{"model":`...)
	b = sse.AppendString(b, o.Model)
	b = append(b, `,"input":[`...)
	e := encoder{custom: map[string]bool{}}
	for _, t := range c.Tools {
		if t.Type == "" && rawjson.Of(t.Raw).Get("type").Text() == "custom" && rawjson.Of(t.Raw).Get("name").Text() == t.Name {
			e.custom[t.Name] = true
		}
	}
	for i, m := range c.Messages {
		if err := e.message(m); err != nil {
			return nil, fmt.Errorf("write messages[%d]: %w", i, err)
		}
	}
	b = append(append(b, e.b...), ']')
	b, err := e.appendTools(b, c.Tools)
	if err != nil {
		return nil, err
	}
	b = e.appendChoice(b, c.ToolChoice)
	b = openai.AppendSampling(b, c.Sampling, "max_output_tokens")
	if len(o.Reasoning) > 0 {
		b = append(append(b, `,"reasoning":`...), o.Reasoning...)
	} else if c.Thinking != nil && !*c.Thinking {
		b = append(b, `,"reasoning":{"effort":"none"}`...)
	}
	b = append(b, `,"store":false,"include":["reasoning.encrypted_content"]`...)
	if o.Stream {
		b = append(b, `,"stream":true`...)
	}
	return append(b, '}'), nil
}

// encoder builds the items of the input.
type encoder struct {
	b      []byte
	custom map[string]bool // the custom tools
	// called are the custom calls by id; their results have a form of their
	// own.
	called map[string]bool
}

// next opens an item of a type.
func (e *encoder) next(kind string) {
	if len(e.b) > 0 {
		e.b = append(e.b, ',')
	}
	e.b = append(e.b, `{"type":"`...)
	e.b = append(e.b, kind...)
	e.b = append(e.b, '"')
}

func (e *encoder) field(name, text string) {
	e.b = append(e.b, `,"`...)
	e.b = append(e.b, name...)
	e.b = append(e.b, `":`...)
	e.b = sse.AppendString(e.b, text)
}

func (e *encoder) message(m chat.Message) error {
	switch m.Role {
	case chat.Assistant:
		return e.assistant(m.Parts)
	case chat.ToolRole:
		for i, p := range m.Parts {
			if p.Type != chat.ToolResult {
				return fmt.Errorf("part %d: a part of type %q can't be in a tool message", i, p.Type)
			}
			if err := e.result(p); err != nil {
				return fmt.Errorf("part %d: %w", i, err)
			}
		}
		return nil
	case chat.System:
		return e.said("developer", "input_text", m.Parts, false)
	}
	return e.said("user", "input_text", m.Parts, true)
}

// said appends a message item.
func (e *encoder) said(role, kind string, parts []chat.Part, images bool) (err error) {
	e.next("message")
	e.field("role", role)
	e.b = append(e.b, `,"content":`...)
	if e.b, err = appendContent(e.b, kind, parts, images); err != nil {
		return err
	}
	e.b = append(e.b, '}')
	return nil
}

func appendContent(b []byte, kind string, parts []chat.Part, images bool) ([]byte, error) {
	b = append(b, '[')
	for i, p := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case p.Type == chat.Text:
			b = append(b, `{"type":"`...)
			b = append(b, kind...)
			b = append(b, `","text":`...)
			b = append(sse.AppendString(b, p.Text), '}')
		case p.Type == chat.Image && images:
			b = append(b, `{"type":"input_image","image_url":`...)
			b = append(sse.AppendString(b, openai.ImageURL(p)), '}')
		default:
			return nil, fmt.Errorf("part %d: a part of type %q can't be here", i, p.Type)
		}
	}
	return append(b, ']'), nil
}

// assistant appends a turn as the items that it is made of; neighbouring texts
// are one message.
func (e *encoder) assistant(parts []chat.Part) error {
	for i := 0; i < len(parts); {
		p := parts[i]
		switch p.Type {
		case chat.Text:
			end := i
			for end < len(parts) && parts[end].Type == chat.Text {
				end++
			}
			if err := e.said("assistant", "output_text", parts[i:end], false); err != nil {
				return err
			}
			i = end
			continue
		case chat.Reasoning:
			e.reasoning(p)
		case chat.ToolCall:
			e.call(p)
		default:
			return fmt.Errorf("part %d: a part of type %q can't be in an assistant message", i, p.Type)
		}
		i++
	}
	return nil
}

func (e *encoder) reasoning(p chat.Part) {
	sealed := p.Signature
	if p.Data != "" {
		sealed = p.Data
	}
	if sealed == "" {
		sealed = seal(sse.Clean(p.Text))
	}
	e.next("reasoning")
	e.b = append(e.b, `,"summary":[`...)
	if p.Text != "" {
		e.b = appendSummary(e.b, p.Text)
	}
	e.b = append(e.b, ']')
	e.field("encrypted_content", sealed)
	e.b = append(e.b, '}')
}

func (e *encoder) call(p chat.Part) {
	if e.custom[p.Name] {
		if e.called == nil {
			e.called = map[string]bool{}
		}
		e.called[p.ID] = true
		e.next("custom_tool_call")
		e.field("call_id", p.ID)
		e.field("name", p.Name)
		e.field("input", customInput(p.Arguments))
	} else {
		e.next("function_call")
		e.field("call_id", p.ID)
		e.field("name", p.Name)
		e.field("arguments", argumentsText(p))
	}
	e.b = append(e.b, '}')
}

// argumentsText is the string that a client sent for arguments, or would.
func argumentsText(p chat.Part) string {
	switch {
	case len(p.Arguments) == 0:
		return "{}"
	case p.ArgumentsRaw:
		return rawjson.Of(p.Arguments).Text()
	}
	return string(p.Arguments)
}

func (e *encoder) result(p chat.Part) (err error) {
	kind := "function_call_output"
	if e.called[p.ID] {
		kind = "custom_tool_call_output"
	}
	e.next(kind)
	e.field("call_id", p.ID)
	e.b = append(e.b, `,"output":`...)
	switch {
	case len(p.Content) == 0:
		e.b = append(e.b, `""`...)
	case len(p.Content) == 1 && p.Content[0].Type == chat.Text:
		e.b = sse.AppendString(e.b, p.Content[0].Text)
	default:
		if e.b, err = appendContent(e.b, "input_text", p.Content, true); err != nil {
			return err
		}
	}
	e.b = append(e.b, '}')
	return nil
}

func (e *encoder) appendTools(b []byte, tools []chat.Tool) ([]byte, error) {
	return openai.AppendTools(b, tools, e.unchanged, func(b []byte, t chat.Tool) []byte {
		b = append(b, `{"type":"function","name":`...)
		b = sse.AppendString(b, t.Name)
		if t.Description != "" {
			b = append(b, `,"description":`...)
			b = sse.AppendString(b, t.Description)
		}
		b = append(b, `,"parameters":`...)
		if len(t.Parameters) == 0 {
			b = append(b, `null`...)
		}
		b = append(b, t.Parameters...)
		return append(b, `,"strict":false}`...)
	})
}

// unchanged reports whether the definition as the client wrote it is one of
// this dialect and still says what the tool says.
func (e *encoder) unchanged(t chat.Tool) bool {
	raw := rawjson.Of(t.Raw)
	kind := raw.Get("type").Text()
	if t.Type != "" {
		return kind == t.Type && (raw.Get("name").Absent() || raw.Get("name").Text() == t.Name)
	}
	if raw.Get("name").Text() != t.Name || raw.Get("description").Text() != t.Description {
		return false
	}
	return e.custom[t.Name] || kind == "function" && bytes.Equal(raw.Get("parameters").Raw(), t.Parameters)
}

func (e *encoder) appendChoice(b []byte, c *chat.Choice) []byte {
	return openai.AppendChoice(b, c, func(b []byte, name string) []byte {
		kind := `{"type":"function","name":`
		if e.custom[name] {
			kind = `{"type":"custom","name":`
		}
		return append(sse.AppendString(append(b, kind...), name), '}')
	})
}
