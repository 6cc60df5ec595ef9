package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// DefaultMaxTokens is asked for when the conversation sets no limit, because
// the protocol demands one.
const DefaultMaxTokens = 8192

// EncodeOptions is what a request holds beside the conversation.
type EncodeOptions struct {
	Model  string
	Stream bool
	// Thinking is the thinking configuration. Without it a conversation that
	// wants reasoning gets {"type":"adaptive"}.
	Thinking json.RawMessage
}

// EncodeRequest writes a conversation as the body of a request. The system
// messages that come first, when there is one, go to the system field, later
// ones stay in the list. Tool results go into one user message with the user
// message that follows them.
func EncodeRequest(c *chat.Conversation, o EncodeOptions) ([]byte, error) {
	b := append(make([]byte, 0, encodedSize(c)), `{"model":`...)
	b = sse.AppendString(b, o.Model)
	b = append(b, `,"max_tokens":`...)
	limit := DefaultMaxTokens
	if c.Sampling.MaxTokens != nil {
		limit = *c.Sampling.MaxTokens
	}
	b = strconv.AppendInt(b, int64(limit), 10)
	b = appendSampling(b, c.Sampling)
	b = appendThinking(b, c.Thinking, o.Thinking)
	rest := c.Messages
	var err error
	if len(rest) > 0 && rest[0].Role == chat.System {
		b = append(b, `,"system":`...)
		if b, err = appendParts(b, rest[0].Parts, systemParts); err != nil {
			return nil, fmt.Errorf("write messages[0]: %w", err)
		}
		rest = rest[1:]
	}
	if b, err = appendMessages(b, rest, len(c.Messages)-len(rest)); err != nil {
		return nil, err
	}
	if b, err = appendTools(b, c.Tools, c.ToolChoice); err != nil {
		return nil, err
	}
	if o.Stream {
		b = append(b, `,"stream":true`...)
	}
	return append(b, '}'), nil
}

// encodedSize is about how long the body will be.
func encodedSize(c *chat.Conversation) int {
	n := 1024
	for _, m := range c.Messages {
		for _, p := range m.Parts {
			n += 160 + len(p.Text) + len(p.Data) + len(p.Arguments)
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

func appendSampling(b []byte, s chat.Sampling) []byte {
	if s.Temperature != nil {
		b = append(b, `,"temperature":`...)
		b = strconv.AppendFloat(b, *s.Temperature, 'g', -1, 64)
	}
	if s.TopP != nil {
		b = append(b, `,"top_p":`...)
		b = strconv.AppendFloat(b, *s.TopP, 'g', -1, 64)
	}
	if s.TopK != nil {
		b = append(b, `,"top_k":`...)
		b = strconv.AppendInt(b, int64(*s.TopK), 10)
	}
	if s.Stop == nil {
		return b
	}
	b = append(b, `,"stop_sequences":[`...)
	for i, stop := range s.Stop {
		if i > 0 {
			b = append(b, ',')
		}
		b = sse.AppendString(b, stop)
	}
	return append(b, ']')
}

func appendThinking(b []byte, want *bool, config json.RawMessage) []byte {
	switch {
	case len(config) > 0:
		return append(append(b, `,"thinking":`...), config...)
	case want == nil:
		return b
	case *want:
		return append(b, `,"thinking":{"type":"adaptive"}`...)
	}
	return append(b, `,"thinking":{"type":"disabled"}`...)
}

// appendMessages appends the list of messages. The first is message number
// from of the conversation, for errors.
func appendMessages(b []byte, messages []chat.Message, from int) (_ []byte, err error) {
	b = append(b, `,"messages":[`...)
	for i := 0; i < len(messages); {
		if i > 0 {
			b = append(b, ',')
		}
		next := turnEnd(messages, i)
		role, place := messages[i].Role, userParts
		switch role {
		case chat.ToolRole:
			role = chat.User
		case chat.Assistant:
			place = assistantParts
		case chat.System:
			place = systemParts
		}
		b = append(b, `{"role":"`...)
		b = append(b, role...)
		b = append(b, `","content":`...)
		var parts []chat.Part
		if next == i+1 {
			parts = messages[i].Parts
		} else {
			for _, m := range messages[i:next] {
				parts = append(parts, m.Parts...)
			}
		}
		if b, err = appendParts(b, parts, place); err != nil {
			return nil, fmt.Errorf("write messages[%d]: %w", from+i, err)
		}
		b = append(b, '}')
		i = next
	}
	return append(b, ']'), nil
}

// turnEnd is the end of the run of messages that go out as one.
func turnEnd(messages []chat.Message, i int) int {
	if messages[i].Role != chat.ToolRole {
		return i + 1
	}
	for i++; i < len(messages) && messages[i].Role == chat.ToolRole; i++ {
	}
	if i < len(messages) && messages[i].Role == chat.User {
		i++
	}
	return i
}

// place is where parts stand; it says which types can stand there.
type place string

const (
	systemParts    place = "a system message"
	userParts      place = "a user message"
	assistantParts place = "an assistant message"
	resultParts    place = "a tool result"
)

// allows reports whether a part of type t can stand there.
func (p place) allows(t chat.PartType) bool {
	switch t {
	case chat.Text:
		return true
	case chat.Image:
		return p == userParts || p == resultParts
	case chat.ToolResult:
		return p == userParts
	case chat.Reasoning, chat.ToolCall:
		return p == assistantParts
	}
	return false
}

func appendParts(b []byte, parts []chat.Part, where place) (_ []byte, err error) {
	b = append(b, '[')
	for i, p := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		if !where.allows(p.Type) {
			return nil, fmt.Errorf("part %d: a part of type %q can't be in %s", i, p.Type, where)
		}
		switch {
		case p.Type == chat.Image:
			b = appendImage(b, p)
		case p.Type == chat.ToolResult:
			if b, err = appendResult(b, p); err != nil {
				return nil, fmt.Errorf("part %d: %w", i, err)
			}
		case p.Type == chat.Text && p.Name != "" && p.Text == referencePrefix+p.Name:
			b = append(b, `{"type":"tool_reference","tool_name":`...)
			b = append(sse.AppendString(b, p.Name), '}')
		default:
			b = appendBlock(b, p)
		}
	}
	return append(b, ']'), nil
}

func appendImage(b []byte, p chat.Part) []byte {
	if p.URL != "" {
		b = append(b, `{"type":"image","source":{"type":"url","url":`...)
		b = sse.AppendString(b, p.URL)
		return append(b, `}}`...)
	}
	b = append(b, `{"type":"image","source":{"type":"base64","media_type":`...)
	b = sse.AppendString(b, p.MediaType)
	b = append(b, `,"data":`...)
	b = sse.AppendString(b, p.Data)
	return append(b, `}}`...)
}

func appendResult(b []byte, p chat.Part) (_ []byte, err error) {
	b = append(b, `{"type":"tool_result","tool_use_id":`...)
	b = sse.AppendString(b, p.ID)
	if p.Content != nil {
		b = append(b, `,"content":`...)
		if b, err = appendParts(b, p.Content, resultParts); err != nil {
			return nil, err
		}
	}
	if p.IsError {
		b = append(b, `,"is_error":true`...)
	}
	return append(b, '}'), nil
}

// appendTools appends tools and the choice among them. A tool that came in
// this dialect and wasn't changed goes out as it came.
func appendTools(b []byte, tools []chat.Tool, c *chat.Choice) ([]byte, error) {
	if tools != nil {
		b = append(b, `,"tools":[`...)
		for i, t := range tools {
			if i > 0 {
				b = append(b, ',')
			}
			switch {
			case unchanged(t):
				b = append(b, t.Raw...)
			case t.Type != "":
				return nil, fmt.Errorf("write tools[%d]: a tool of type %q has no form here", i, t.Type)
			default:
				b = appendTool(b, t)
			}
		}
		b = append(b, ']')
	}
	if c == nil {
		return b, nil
	}
	b = append(b, `,"tool_choice":{"type":"`...)
	switch c.Mode {
	case chat.ChoiceRequired:
		b = append(b, `any"`...)
	case chat.ChoiceNone:
		b = append(b, `none"`...)
	case chat.ChoiceNamed:
		b = append(b, `tool","name":`...)
		b = sse.AppendString(b, c.Name)
	default:
		b = append(b, `auto"`...)
	}
	if c.DisableParallel {
		b = append(b, `,"disable_parallel_tool_use":true`...)
	}
	return append(b, '}'), nil
}

func appendTool(b []byte, t chat.Tool) []byte {
	b = append(b, `{"name":`...)
	b = sse.AppendString(b, t.Name)
	if t.Description != "" {
		b = append(b, `,"description":`...)
		b = sse.AppendString(b, t.Description)
	}
	b = append(b, `,"input_schema":`...)
	if len(t.Parameters) == 0 {
		return append(b, `{"type":"object","properties":{}}}`...)
	}
	return append(append(b, t.Parameters...), '}')
}

// unchanged reports whether the definition as the client wrote it is one of
// this dialect and still says what the tool says.
func unchanged(t chat.Tool) bool {
	raw := rawjson.Of(t.Raw)
	if raw.Get("name").Text() != t.Name || raw.Get("description").Text() != t.Description {
		return false
	}
	return t.Type != "" || t.Parameters != nil && bytes.Equal(raw.Get("input_schema").Raw(), t.Parameters)
}
