package anthropic

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
	"github.com/penstock-dev/penstock/sdk/chat"
)

func refused(format string, a ...any) error {
	return &upstream.StatusError{Status: 400, Type: "invalid_request_error", Message: fmt.Sprintf(format, a...)}
}

// body writes a request from the canonical conversation.
func (s *server) body(r *upstream.Request, count bool) ([]byte, error) {
	system, messages, err := conversation(r.Chat)
	if err != nil {
		return nil, err
	}
	o := exchange.NewObject(len(system) + len(messages) + 4096)
	o.String("model", s.model(r))
	if system != nil {
		o.Raw("system", system)
	}
	o.Raw("messages", messages)
	if err := tools(o, r.Chat); err != nil {
		return nil, err
	}
	most := s.o.MaxTokens
	if r.Sampling.MaxTokens != nil {
		most = *r.Sampling.MaxTokens
	}
	thinks := s.thinking(o, r.Chat, most)
	if count {
		return o.Bytes(), nil
	}
	o.Int("max_tokens", int64(most))
	if v := r.Sampling.Temperature; v != nil && !thinks { // it has to be 1 then
		o.Float("temperature", min(*v, 1))
	}
	if v := r.Sampling.TopP; v != nil && !thinks {
		o.Float("top_p", *v)
	}
	if v := r.Sampling.TopK; v != nil && *v > 0 && !thinks {
		o.Int("top_k", int64(*v))
	}
	if len(r.Sampling.Stop) > 0 {
		o.Strings("stop_sequences", r.Sampling.Stop)
	}
	return o.Bool("stream", true).Bytes(), nil
}

// thinking asks for reasoning, if the client did and there is room for it.
func (s *server) thinking(o *exchange.Object, c *chat.Conversation, most int) bool {
	budget := min(s.o.ThinkingBudget, most-1)
	if c.Thinking == nil || !*c.Thinking || budget < 1024 {
		return false
	}
	o.Raw("thinking", fmt.Appendf(nil, `{"type":"enabled","budget_tokens":%d}`, budget))
	return true
}

// conversation writes the system prompt, nil for none, and the messages.
func conversation(c *chat.Conversation) (system, messages []byte, err error) {
	w := &writer{out: []byte{'['}}
	for i := range c.Messages {
		m := &c.Messages[i]
		if m.Role == chat.System && w.role == "" {
			system, err = texts(system, m.Parts)
		} else {
			err = w.message(m)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	w.close()
	if system != nil {
		system = append(system, ']')
	}
	return system, append(w.out, ']'), nil
}

// texts appends the text blocks of a system message to a list.
func texts(list []byte, parts []chat.Part) ([]byte, error) {
	for i := range parts {
		if parts[i].Type != chat.Text {
			return nil, refused("a part of type %s can't be sent in a system message", parts[i].Type)
		}
		if parts[i].Text == "" {
			continue // is refused by the provider
		}
		if list == nil {
			list = []byte{'['}
		}
		list = appendText(next(list), parts[i].Text)
	}
	return list, nil
}

// writer joins the messages of each side.
type writer struct {
	out  []byte
	role string // of the open message
	// results go ahead of what else a user says, as the protocol wants it.
	results, rest []byte
}

func (w *writer) message(m *chat.Message) error {
	role := "user"
	if m.Role == chat.Assistant {
		role = "assistant"
	}
	if role != w.role {
		w.close()
		w.role = role
	}
	for i := range m.Parts {
		if err := w.part(m.Role, &m.Parts[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) part(role chat.Role, p *chat.Part) error {
	var err error
	switch {
	case p.Type == chat.Text:
		if p.Text != "" { // is refused by the provider
			w.rest = appendText(next(w.rest), p.Text)
		}
	case p.Type == chat.ToolResult && role == chat.ToolRole:
		w.results, err = appendResult(next(w.results), p)
	case p.Type == chat.Image && role == chat.User:
		w.rest = appendImage(next(w.rest), p)
	case p.Type == chat.ToolCall && role == chat.Assistant:
		w.rest = appendCall(next(w.rest), p)
	case p.Type == chat.Reasoning && role == chat.Assistant:
		switch {
		case p.Data != "":
			w.rest = append(next(w.rest), `{"type":"redacted_thinking","data":`...)
			w.rest = append(exchange.AppendString(w.rest, p.Data), '}')
		case p.Signature != "":
			w.rest = append(next(w.rest), `{"type":"thinking","thinking":`...)
			w.rest = exchange.AppendString(w.rest, p.Text)
			w.rest = append(w.rest, `,"signature":`...)
			w.rest = append(exchange.AppendString(w.rest, p.Signature), '}')
		}
	default:
		err = refused("a part of type %s can't be sent in a message of role %s", p.Type, role)
	}
	return err
}

// close writes the open message. One without content isn't written.
func (w *writer) close() {
	if len(w.results)+len(w.rest) > 0 {
		w.out = append(next(w.out), `{"role":"`...)
		w.out = append(w.out, w.role...)
		w.out = append(w.out, `","content":[`...)
		w.out = append(w.out, w.results...)
		if len(w.results) > 0 && len(w.rest) > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(append(w.out, w.rest...), `]}`...)
	}
	w.results, w.rest = w.results[:0], w.rest[:0]
}

// next separates an item from the one before.
func next(b []byte) []byte {
	if len(b) > 0 && b[len(b)-1] != '[' {
		return append(b, ',')
	}
	return b
}

func appendText(b []byte, text string) []byte {
	b = append(b, `{"type":"text","text":`...)
	return append(exchange.AppendString(b, text), '}')
}

func appendImage(b []byte, p *chat.Part) []byte {
	b = append(b, `{"type":"image","source":`...)
	if p.URL != "" {
		b = append(b, `{"type":"url","url":`...)
		b = exchange.AppendString(b, p.URL)
	} else {
		b = append(b, `{"type":"base64","media_type":`...)
		b = exchange.AppendString(b, p.MediaType)
		b = append(b, `,"data":`...)
		b = exchange.AppendString(b, p.Data)
	}
	return append(b, `}}`...)
}

func appendResult(b []byte, p *chat.Part) ([]byte, error) {
	b = append(b, `{"type":"tool_result","tool_use_id":`...)
	b = exchange.AppendString(b, p.ID)
	b = append(b, `,"content":[`...)
	for i := range p.Content {
		switch c := &p.Content[i]; c.Type {
		case chat.Text:
			if c.Text != "" {
				b = appendText(next(b), c.Text)
			}
		case chat.Image:
			b = appendImage(next(b), c)
		default:
			return nil, refused("a part of type %s can't be sent in the result of a tool", c.Type)
		}
	}
	b = append(b, ']')
	if p.IsError {
		b = append(b, `,"is_error":true`...)
	}
	return append(b, '}'), nil
}

func appendCall(b []byte, p *chat.Part) []byte {
	b = append(b, `{"type":"tool_use","id":`...)
	b = exchange.AppendString(b, p.ID)
	b = append(b, `,"name":`...)
	b = exchange.AppendString(b, p.Name)
	b = append(b, `,"input":`...)
	return append(appendInput(b, p), '}')
}

// appendInput appends arguments, which have to be an object there. Others are
// wrapped in the form in which clients send them.
func appendInput(b []byte, p *chat.Part) []byte {
	args := p.Arguments
	if len(args) == 0 || string(args) == "null" {
		return append(b, `{}`...)
	}
	if args[0] == '{' && json.Valid(args) {
		return append(b, args...)
	}
	text := string(args)
	if p.ArgumentsRaw {
		_ = json.Unmarshal(args, &text) // stays as it is if it is no string
	}
	b = append(b, `{"__unparsedToolInput":{"raw":`...)
	b = exchange.AppendString(b, text)
	b = append(b, `,"len":`...)
	b = strconv.AppendInt(b, int64(len(utf16.Encode([]rune(text)))), 10)
	return append(b, `}}`...)
}

// tools adds the tools and what is to be done with them.
func tools(o *exchange.Object, c *chat.Conversation) error {
	if len(c.Tools) == 0 {
		return nil
	}
	list := []byte{'['}
	for i := range c.Tools {
		t := &c.Tools[i]
		list = next(list)
		if t.Type != "" {
			if len(t.Raw) == 0 {
				return refused("tool %s of type %s can't be sent without its definition", t.Name, t.Type)
			}
			list = append(list, t.Raw...)
			continue
		}
		d := exchange.NewObject(256+len(t.Parameters)).String("name", t.Name)
		if t.Description != "" {
			d.String("description", t.Description)
		}
		if len(t.Parameters) > 0 {
			d.Raw("input_schema", t.Parameters)
		} else {
			d.Raw("input_schema", []byte(`{"type":"object"}`))
		}
		list = append(list, d.Bytes()...)
	}
	o.Raw("tools", append(list, ']'))
	choice := c.ToolChoice
	if choice == nil || choice.Mode == "" {
		return nil
	}
	kind := map[chat.ChoiceMode]string{chat.ChoiceRequired: "any", chat.ChoiceNamed: "tool"}[choice.Mode]
	if kind == "" {
		kind = string(choice.Mode)
	}
	d := exchange.NewObject(64).String("type", kind)
	if choice.Mode == chat.ChoiceNamed {
		d.String("name", choice.Name)
	}
	if choice.DisableParallel && choice.Mode != chat.ChoiceNone {
		d.Bool("disable_parallel_tool_use", true)
	}
	o.Raw("tool_choice", d.Bytes())
	return nil
}
