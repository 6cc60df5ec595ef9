package formatcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// shape is what `format render` reads, for its help and its errors.
const shape = `{"messages": [{"role": "system|user|assistant|tool", "content": TEXT or [PART, ...]}, ...],
 "tools": [{"name", "description", "parameters"}, ...], "thinking": true or false}
PART is {"type": "text", "text"}, {"type": "reasoning", "text"}, {"type": "tool_call", "id", "name", "arguments"},
{"type": "tool_result", "id", "name", "content": [PART, ...]} or {"type": "image", "media_type", "data"};
"parts" is another word for "content", and a tool may be written as OpenAI or Anthropic do.`

// givenTool is a tool in the words of chat, of OpenAI or of Anthropic.
type givenTool struct {
	chat.Tool
	InputSchema json.RawMessage `json:"input_schema"`
	Function    *chat.Tool      `json:"function"`
}

func (g *givenTool) tool() chat.Tool {
	t := g.Tool
	if g.Function != nil {
		t = *g.Function
	}
	if len(t.Parameters) == 0 {
		t.Parameters = g.InputSchema
	}
	return t
}

// readConversation reads a conversation that a person wrote. What it can't
// take over is refused: a prompt without it would look right.
func readConversation(data []byte) (*chat.Conversation, error) {
	var given struct {
		Messages []struct {
			Role    chat.Role       `json:"role"`
			Parts   []chat.Part     `json:"parts"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools      []givenTool   `json:"tools"`
		ToolChoice *chat.Choice  `json:"tool_choice"`
		Sampling   chat.Sampling `json:"sampling"`
		Thinking   *bool         `json:"thinking"`
	}
	if err := strictly(data, &given); err != nil {
		return nil, misshapen(err)
	}
	c := &chat.Conversation{ToolChoice: given.ToolChoice, Sampling: given.Sampling, Thinking: given.Thinking}
	for i := range given.Tools {
		c.Tools = append(c.Tools, given.Tools[i].tool())
	}
	for i, m := range given.Messages {
		parts, err := m.Parts, error(nil)
		switch {
		case m.Parts != nil && m.Content != nil:
			err = errors.New("it has both content and parts")
		case m.Parts == nil:
			parts, err = readContent(m.Content)
		}
		if err == nil {
			err = checkMessage(m.Role, parts)
		}
		if err != nil {
			return nil, misshapen(fmt.Errorf("messages[%d]: %w", i, err))
		}
		c.Messages = append(c.Messages, chat.Message{Role: m.Role, Parts: parts})
	}
	if len(c.Messages) == 0 {
		return nil, misshapen(errors.New("it has no messages"))
	}
	return c, nil
}

func misshapen(err error) error {
	return fmt.Errorf("read conversation: %w; it has to be\n%s", err, shape)
}

func readContent(content json.RawMessage) ([]chat.Part, error) {
	var text string
	if len(content) == 0 || string(content) == "null" {
		return nil, errors.New("it has no content")
	}
	if content[0] == '"' {
		err := json.Unmarshal(content, &text)
		return []chat.Part{{Type: chat.Text, Text: text}}, err
	}
	var parts []chat.Part
	err := strictly(content, &parts)
	return parts, err
}

// checkMessage finds words that no format knows, and would pass over.
func checkMessage(role chat.Role, parts []chat.Part) error {
	switch role {
	case chat.System, chat.User, chat.Assistant, chat.ToolRole:
		return checkParts(parts)
	case "":
		return errors.New("it has no role")
	}
	return fmt.Errorf("there is no role %q", role)
}

func checkParts(parts []chat.Part) error {
	for i := range parts {
		switch p := &parts[i]; p.Type {
		case chat.Text, chat.Reasoning, chat.Image, chat.ToolCall, chat.ToolResult:
			if err := checkParts(p.Content); err != nil {
				return err
			}
		default:
			return fmt.Errorf("there is no part of type %q", p.Type)
		}
	}
	return nil
}

// strictly decodes data, which may have no other keys than v has.
func strictly(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}
