package openaichat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/penstock-dev/penstock/core/wire/openai"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// EncodeOptions is what a request holds beside the conversation.
type EncodeOptions struct {
	Model  string
	Stream bool // asks for the usage too
	// CompletionTokens writes the limit as max_completion_tokens, which
	// OpenAI's reasoning models demand and older servers don't know.
	CompletionTokens bool
	// Fields are further top-level fields, such as {"return_token_ids", true}
	// or how the server spells whether to think.
	Fields []Field
}

// Field is a top-level field of a request.
type Field struct {
	Name  string
	Value json.RawMessage
}

// EncodeRequest writes a conversation as the body of a request. That a tool
// result is an error has no form here; its content says so.
func EncodeRequest(c *chat.Conversation, o EncodeOptions) ([]byte, error) {
	b := append(make([]byte, 0, encodedSize(c)), `{"model":`...)
	b = sse.AppendString(b, o.Model)
	b = append(b, `,"messages":[`...)
	var err error
	for i, m := range c.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendMessage(b, m); err != nil {
			return nil, fmt.Errorf("write messages[%d]: %w", i, err)
		}
	}
	b = append(b, ']')
	if b, err = appendTools(b, c.Tools); err != nil {
		return nil, err
	}
	b = appendChoice(b, c.ToolChoice)
	b = appendSampling(b, c.Sampling, o.CompletionTokens)
	if o.Stream {
		b = append(b, `,"stream":true,"stream_options":{"include_usage":true}`...)
	}
	for _, f := range o.Fields {
		b = append(b, ',')
		b = sse.AppendString(b, f.Name)
		b = append(b, ':')
		b = append(b, f.Value...)
	}
	return append(b, '}'), nil
}

// encodedSize is about how long the body will be.
func encodedSize(c *chat.Conversation) int {
	n := 1024
	for _, m := range c.Messages {
		for _, p := range m.Parts {
			n += 160 + len(p.Text) + len(p.Data) + 2*len(p.Arguments)
			for _, q := range p.Content {
				n += 64 + len(q.Text) + len(q.Data)
			}
		}
	}
	for _, t := range c.Tools {
		n += 64 + len(t.Description) + len(t.Parameters) + len(t.Raw)
	}
	return n + n/8
}

func appendMessage(b []byte, m chat.Message) (_ []byte, err error) {
	b = append(b, `{"role":"`...)
	b = append(b, m.Role...)
	b = append(b, '"')
	content := m.Parts
	switch m.Role {
	case chat.Assistant:
		return appendAssistant(b, m.Parts)
	case chat.ToolRole:
		if len(m.Parts) != 1 || m.Parts[0].Type != chat.ToolResult {
			return nil, fmt.Errorf("a tool message must be exactly one tool result")
		}
		b = append(b, `,"tool_call_id":`...)
		b = sse.AppendString(b, m.Parts[0].ID)
		content = m.Parts[0].Content
	}
	b = append(b, `,"content":`...)
	if b, err = appendContent(b, content, m.Role != chat.System); err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

// appendAssistant appends what an assistant said. Parts of one kind keep their
// order; reasoning is joined.
func appendAssistant(b []byte, parts []chat.Part) (_ []byte, err error) {
	var text, calls []chat.Part
	thought := false
	for i, p := range parts {
		switch p.Type {
		case chat.Text:
			text = append(text, p)
		case chat.ToolCall:
			calls = append(calls, p)
		case chat.Reasoning:
			thought = thought || p.Data == ""
		default:
			return nil, fmt.Errorf("part %d: a part of type %q can't be in an assistant message", i, p.Type)
		}
	}
	b = append(b, `,"content":`...)
	if len(text) == 0 {
		b = append(b, `null`...)
	} else if b, err = appendContent(b, text, false); err != nil {
		return nil, err
	}
	if thought {
		b = append(b, `,"reasoning_content":`...)
		b = sse.AppendString(b, joined(parts, chat.Reasoning))
	}
	if len(calls) > 0 {
		b = append(b, `,"tool_calls":[`...)
		for i, p := range calls {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendCall(b, p, argumentsText(p))
		}
		b = append(b, ']')
	}
	return append(b, '}'), nil
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

// appendContent appends parts as a string where one text is all, else as a
// list.
func appendContent(b []byte, parts []chat.Part, images bool) ([]byte, error) {
	if len(parts) == 0 {
		return append(b, `""`...), nil
	}
	if len(parts) == 1 && parts[0].Type == chat.Text {
		return sse.AppendString(b, parts[0].Text), nil
	}
	b = append(b, '[')
	for i, p := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case p.Type == chat.Text:
			b = append(b, `{"type":"text","text":`...)
			b = append(sse.AppendString(b, p.Text), '}')
		case p.Type == chat.Image && images:
			b = append(b, `{"type":"image_url","image_url":{"url":`...)
			b = append(sse.AppendString(b, openai.ImageURL(p)), `}}`...)
		default:
			return nil, fmt.Errorf("part %d: a part of type %q can't be here", i, p.Type)
		}
	}
	return append(b, ']'), nil
}

func appendTools(b []byte, tools []chat.Tool) ([]byte, error) {
	return openai.AppendTools(b, tools, unchanged, func(b []byte, t chat.Tool) []byte {
		b = append(b, `{"type":"function","function":{"name":`...)
		b = sse.AppendString(b, t.Name)
		if t.Description != "" {
			b = append(b, `,"description":`...)
			b = sse.AppendString(b, t.Description)
		}
		if len(t.Parameters) > 0 {
			b = append(b, `,"parameters":`...)
			b = append(b, t.Parameters...)
		}
		return append(b, `}}`...)
	})
}

// unchanged reports whether the definition as the client wrote it is one of
// this dialect and still says what the tool says.
func unchanged(t chat.Tool) bool {
	kind := t.Type
	if kind == "" {
		kind = "function"
	}
	raw := rawjson.Of(t.Raw)
	f := raw.Get(kind)
	if raw.Get("type").Text() != kind || f.Get("name").Text() != t.Name || f.Get("description").Text() != t.Description {
		return false
	}
	return t.Type != "" || bytes.Equal(f.Get("parameters").Raw(), t.Parameters)
}

func appendChoice(b []byte, c *chat.Choice) []byte {
	return openai.AppendChoice(b, c, func(b []byte, name string) []byte {
		b = append(b, `{"type":"function","function":{"name":`...)
		return append(sse.AppendString(b, name), `}}`...)
	})
}

func appendSampling(b []byte, s chat.Sampling, completionTokens bool) []byte {
	limit := "max_tokens"
	if completionTokens {
		limit = "max_completion_tokens"
	}
	b = openai.AppendSampling(b, s, limit)
	if s.TopK != nil {
		b = append(b, `,"top_k":`...)
		b = strconv.AppendInt(b, int64(*s.TopK), 10)
	}
	if s.Seed != nil {
		b = append(b, `,"seed":`...)
		b = strconv.AppendInt(b, *s.Seed, 10)
	}
	if s.Stop == nil {
		return b
	}
	b = append(b, `,"stop":[`...)
	for i, stop := range s.Stop {
		if i > 0 {
			b = append(b, ',')
		}
		b = sse.AppendString(b, stop)
	}
	return append(b, ']')
}
