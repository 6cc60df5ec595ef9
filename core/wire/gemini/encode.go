package gemini

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// EncodeRequest writes a conversation as the body of a request; the path names
// the model. The first system message is the instruction; later ones are
// content of the user, because there is no other place. Results go into one
// content with the user message that follows them.
func EncodeRequest(c *chat.Conversation) ([]byte, error) {
	b := append(make([]byte, 0, 4096), '{')
	rest := c.Messages
	var err error
	if len(rest) > 0 && rest[0].Role == chat.System {
		b = append(b, `"systemInstruction":{"parts":[`...)
		if b, err = appendParts(b, rest[0]); err != nil {
			return nil, fmt.Errorf("write messages[0]: %w", err)
		}
		b = append(b, `]},`...)
		rest = rest[1:]
	}
	b = append(b, `"contents":[`...)
	for i := 0; i < len(rest); {
		if i > 0 {
			b = append(b, ',')
		}
		end := turnEnd(rest, i)
		role := "user"
		if rest[i].Role == chat.Assistant {
			role = "model"
		}
		b = append(b, `{"role":"`...)
		b = append(b, role...)
		b = append(b, `","parts":[`...)
		for j := i; j < end; j++ {
			if j > i && len(rest[j].Parts) > 0 {
				b = append(b, ',')
			}
			if b, err = appendParts(b, rest[j]); err != nil {
				return nil, fmt.Errorf("write messages[%d]: %w", len(c.Messages)-len(rest)+j, err)
			}
		}
		b = append(b, `]}`...)
		i = end
	}
	b = append(b, ']')
	if b, err = appendTools(b, c.Tools); err != nil {
		return nil, err
	}
	b = appendChoice(b, c.ToolChoice)
	return append(appendConfig(b, c), '}'), nil
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

// appendParts appends the parts of one message.
func appendParts(b []byte, m chat.Message) ([]byte, error) {
	for i, p := range m.Parts {
		if i > 0 {
			b = append(b, ',')
		}
		assistant := m.Role == chat.Assistant
		switch {
		case p.Type == chat.Text,
			p.Type == chat.ToolCall && assistant,
			p.Type == chat.Reasoning && assistant && p.Data == "":
			b = appendPart(b, p)
		case p.Type == chat.Image && m.Role == chat.User:
			b = appendImage(b, p)
		case p.Type == chat.ToolResult && m.Role == chat.ToolRole:
			b = appendResult(b, p)
		default:
			return nil, fmt.Errorf("part %d: a part of type %q can't be in a message of role %s", i, p.Type, m.Role)
		}
	}
	return b, nil
}

func appendImage(b []byte, p chat.Part) []byte {
	media := p.MediaType
	if media == "" {
		media = "image/*"
	}
	if p.URL != "" {
		b = append(b, `{"fileData":{"mimeType":`...)
		b = sse.AppendString(b, media)
		b = append(b, `,"fileUri":`...)
		b = sse.AppendString(b, p.URL)
	} else {
		b = append(b, `{"inlineData":{"mimeType":`...)
		b = sse.AppendString(b, media)
		b = append(b, `,"data":`...)
		b = sse.AppendString(b, p.Data)
	}
	return append(b, `}}`...)
}

// appendResult appends a functionResponse. Several texts are lines of one.
func appendResult(b []byte, p chat.Part) []byte {
	var texts []string
	var images []chat.Part
	for _, c := range p.Content {
		if c.Type == chat.Image {
			images = append(images, c)
		} else {
			texts = append(texts, c.Text)
		}
	}
	field := `{"output":`
	if p.IsError {
		field = `{"error":`
	}
	b = append(b, `{"functionResponse":{"id":`...)
	b = sse.AppendString(b, p.ID)
	b = append(b, `,"name":`...)
	b = sse.AppendString(b, p.Name)
	b = append(b, `,"response":`...)
	b = append(b, field...)
	b = append(sse.AppendString(b, strings.Join(texts, "\n")), '}')
	for i, image := range images {
		if i == 0 {
			b = append(b, `,"parts":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendImage(b, image)
	}
	if len(images) > 0 {
		b = append(b, ']')
	}
	return append(b, `}}`...)
}

// appendTools appends the functions, then the tools that the provider runs. A
// tool that came in this dialect and wasn't changed goes out as it came.
func appendTools(b []byte, tools []chat.Tool) ([]byte, error) {
	if len(tools) == 0 {
		return b, nil
	}
	var functions, own []byte
	for i, t := range tools {
		switch {
		case t.Type != "" && rawjson.Of(t.Raw).Get(t.Type).Given():
			own = append(append(append(own, `,{"`...), t.Type...), `":`...)
			own = append(append(own, rawjson.Of(t.Raw).Get(t.Type).Raw()...), '}')
		case t.Type != "":
			return nil, fmt.Errorf("write tools[%d]: a tool of type %q has no form here", i, t.Type)
		default:
			functions = append(functions, ',')
			functions = appendFunction(functions, t)
		}
	}
	b = append(b, `,"tools":[`...)
	if len(functions) > 0 {
		b = append(b, `{"functionDeclarations":[`...)
		b = append(append(b, functions[1:]...), `]}`...)
		return append(append(b, own...), ']'), nil
	}
	return append(append(b, own[1:]...), ']'), nil
}

func appendFunction(b []byte, t chat.Tool) []byte {
	if unchanged(t) {
		return append(b, t.Raw...)
	}
	b = append(b, `{"name":`...)
	b = sse.AppendString(b, t.Name)
	b = append(b, `,"description":`...)
	b = sse.AppendString(b, t.Description)
	if len(t.Parameters) > 0 {
		b = append(b, `,"parametersJsonSchema":`...)
		b = append(b, t.Parameters...)
	}
	return append(b, '}')
}

// unchanged reports whether the definition as the client wrote it is one of
// this dialect and still says what the tool says.
func unchanged(t chat.Tool) bool {
	raw := rawjson.Of(t.Raw)
	if !raw.Get("type").Absent() || !raw.Get("input_schema").Absent() {
		return false
	}
	was, err := decodeTool(raw)
	return err == nil && was.Name == t.Name && was.Description == t.Description && bytes.Equal(was.Parameters, t.Parameters)
}

func appendChoice(b []byte, c *chat.Choice) []byte {
	if c == nil {
		return b
	}
	b = append(b, `,"toolConfig":{"functionCallingConfig":{"mode":"`...)
	switch c.Mode {
	case chat.ChoiceNone:
		b = append(b, `NONE"`...)
	case chat.ChoiceRequired:
		b = append(b, `ANY"`...)
	case chat.ChoiceNamed:
		b = append(b, `ANY","allowedFunctionNames":[`...)
		b = append(sse.AppendString(b, c.Name), ']')
	default:
		b = append(b, `AUTO"`...)
	}
	return append(b, `}}`...)
}

// appendConfig appends the configuration, when it says anything.
func appendConfig(b []byte, c *chat.Conversation) []byte {
	s := c.Sampling
	at := len(b)
	field := func(name string) {
		if len(b) == at {
			b = append(b, `,"generationConfig":{"`...)
		} else {
			b = append(b, `,"`...)
		}
		b = append(append(b, name...), `":`...)
	}
	if s.Temperature != nil {
		field("temperature")
		b = strconv.AppendFloat(b, *s.Temperature, 'g', -1, 64)
	}
	if s.TopP != nil {
		field("topP")
		b = strconv.AppendFloat(b, *s.TopP, 'g', -1, 64)
	}
	if s.TopK != nil {
		field("topK")
		b = strconv.AppendInt(b, int64(*s.TopK), 10)
	}
	if s.MaxTokens != nil {
		field("maxOutputTokens")
		b = strconv.AppendInt(b, int64(*s.MaxTokens), 10)
	}
	if s.Seed != nil {
		field("seed")
		b = strconv.AppendInt(b, *s.Seed, 10)
	}
	if s.Stop != nil {
		field("stopSequences")
		b = append(b, '[')
		for i, stop := range s.Stop {
			if i > 0 {
				b = append(b, ',')
			}
			b = sse.AppendString(b, stop)
		}
		b = append(b, ']')
	}
	if c.Thinking != nil {
		field("thinkingConfig")
		if *c.Thinking {
			b = append(b, `{"includeThoughts":true}`...)
		} else {
			b = append(b, `{"thinkingBudget":0}`...)
		}
	}
	if len(b) > at {
		b = append(b, '}')
	}
	return b
}
