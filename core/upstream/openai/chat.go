package openai

import (
	"context"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// chat asks /v1/chat/completions.
func (s *server) chat(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
	streams := !(r.WantIDs && s.o.Kind == KindSGLang)
	body, err := s.chatBody(r, streams)
	if err != nil {
		return nil, err
	}
	p := s.progress(r, "/chat/completions")
	p.sent = nil // it renders itself
	request := s.post(r, s.api+"/chat/completions", body)
	if !streams {
		answer, err := s.c.Body(ctx, request)
		if err != nil {
			return nil, err
		}
		return p.whole(answer)
	}
	e, err := s.c.Events(ctx, request)
	if err != nil {
		return nil, err
	}
	return &stream{events: e, p: p, decode: (&reply{progress: p}).event}, nil
}

func (s *server) chatBody(r *upstream.Request, stream bool) ([]byte, error) {
	messages, err := s.messages(r.Chat)
	if err != nil {
		return nil, err
	}
	o := exchange.NewObject(len(messages) + 4096)
	o.String("model", s.model(r)).Raw("messages", messages)
	if err := s.tools(o, r.Chat); err != nil {
		return nil, err
	}
	if n := r.Sampling.MaxTokens; n != nil {
		o.Int(s.maxTokens(), int64(*n))
	}
	off := -1
	if s.o.Kind == KindLMDeploy {
		off = 0
	}
	s.sampling(o, r, "seed", off)
	if len(r.Sampling.Stop) > 0 {
		o.Strings("stop", r.Sampling.Stop)
	}
	if r.Chat.Thinking != nil && s.engine {
		o.Raw("chat_template_kwargs", fmt.Appendf(nil, `{"enable_thinking":%t}`, *r.Chat.Thinking))
	}
	if r.WantIDs {
		s.askIDs(o)
	}
	if o.Bool("stream", stream); stream {
		o.Raw("stream_options", []byte(`{"include_usage":true}`))
	}
	return o.Bytes(), nil
}

// askIDs asks a chat endpoint for ids and logprobs, each engine in its words.
func (s *server) askIDs(o *exchange.Object) {
	switch s.o.Kind {
	case KindSGLang:
		o.Bool("logprobs", true).Bool("return_meta_info", true).Bool("return_prompt_token_ids", true)
	case KindLMDeploy:
		o.Bool("return_token_ids", true).Bool("return_logprob", true).Bool("include_stop_str_in_output", true)
	default:
		o.Bool("logprobs", true).Int("top_logprobs", 0)
		o.Bool("return_token_ids", true).Bool("return_tokens_as_token_ids", true)
	}
}

// maxTokens is the name of the limit: OpenAI's newer models know but one.
func (s *server) maxTokens() string {
	if s.company {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

func refused(format string, a ...any) error {
	return &upstream.StatusError{Status: 400, Type: "invalid_request_error", Message: fmt.Sprintf(format, a...)}
}

// messages writes the conversation.
func (s *server) messages(c *chat.Conversation) ([]byte, error) {
	size := 64
	for i := range c.Messages {
		for j := range c.Messages[i].Parts {
			p := &c.Messages[i].Parts[j]
			size += 128 + len(p.Text)*9/8 + len(p.Data) + len(p.Arguments)*9/8
			for k := range p.Content {
				size += 64 + len(p.Content[k].Text)*9/8 + len(p.Content[k].Data)
			}
		}
	}
	b := append(make([]byte, 0, size), '[')
	var err error
	for i := range c.Messages {
		m := &c.Messages[i]
		switch m.Role {
		case chat.Assistant:
			b = s.assistant(next(b), m.Parts)
		case chat.ToolRole:
			for j := range m.Parts {
				if b, err = s.result(next(b), &m.Parts[j]); err != nil {
					return nil, err
				}
			}
		default:
			b = append(next(b), `{"role":"`...)
			b = append(b, m.Role...)
			b = append(b, `","content":`...)
			if b, err = content(b, m.Parts, m.Role == chat.User); err != nil {
				return nil, err
			}
			b = append(b, '}')
		}
	}
	return append(b, ']'), nil
}

// next separates an item from the one before.
func next(b []byte) []byte {
	if b[len(b)-1] != '[' {
		return append(b, ',')
	}
	return b
}

// content is a string where all parts are text, else a list.
func content(b []byte, parts []chat.Part, images bool) ([]byte, error) {
	text := true
	for i := range parts {
		text = text && parts[i].Type == chat.Text
	}
	if text && len(parts) <= 1 {
		return exchange.AppendString(b, chat.PlainText(parts)), nil
	}
	b = append(b, '[')
	for i := range parts {
		p := &parts[i]
		b = next(b)
		switch {
		case p.Type == chat.Text:
			b = append(b, `{"type":"text","text":`...)
			b = append(exchange.AppendString(b, p.Text), '}')
		case p.Type == chat.Image && images:
			url := p.URL
			if url == "" {
				url = "data:" + p.MediaType + ";base64," + p.Data
			}
			b = append(b, `{"type":"image_url","image_url":{"url":`...)
			b = append(exchange.AppendString(b, url), `}}`...)
		default:
			return nil, refused("a part of type %s can't be sent to this upstream here", p.Type)
		}
	}
	return append(b, ']'), nil
}

// assistant writes what a model said.
func (s *server) assistant(b []byte, parts []chat.Part) []byte {
	var text, thought strings.Builder
	for i := range parts {
		switch parts[i].Type {
		case chat.Text:
			text.WriteString(parts[i].Text)
		case chat.Reasoning:
			thought.WriteString(parts[i].Text)
		}
	}
	calls := chat.Calls(parts)
	b = append(b, `{"role":"assistant","content":`...)
	if text.Len() == 0 && len(calls) > 0 {
		b = append(b, `null`...)
	} else {
		b = exchange.AppendString(b, text.String())
	}
	if thought.Len() > 0 && !s.company {
		b = append(b, `,"reasoning_content":`...)
		b = exchange.AppendString(b, thought.String())
		if s.o.Kind == KindVLLM { // its newer name there
			b = append(b, `,"reasoning":`...)
			b = exchange.AppendString(b, thought.String())
		}
	}
	if len(calls) > 0 {
		b = append(b, `,"tool_calls":[`...)
		for i := range calls {
			b = append(next(b), `{"id":`...)
			b = exchange.AppendString(b, calls[i].ID)
			b = append(b, `,"type":"function","function":{"name":`...)
			b = exchange.AppendString(b, calls[i].Name)
			b = append(b, `,"arguments":`...)
			b = exchange.AppendString(b, rawArguments(&calls[i]))
			b = append(b, `}}`...)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// result writes the result of a call. Only engines take images there.
func (s *server) result(b []byte, p *chat.Part) ([]byte, error) {
	if p.Type != chat.ToolResult {
		return nil, refused("a part of type %s can't be sent as the result of a tool", p.Type)
	}
	b = append(b, `{"role":"tool","tool_call_id":`...)
	b = exchange.AppendString(b, p.ID)
	b = append(b, `,"content":`...)
	b, err := content(b, p.Content, s.o.Kind != KindOpenAI)
	return append(b, '}'), err
}

// tools adds the tools and what is to be done with them.
func (s *server) tools(o *exchange.Object, c *chat.Conversation) error {
	if len(c.Tools) == 0 {
		return nil
	}
	list, err := s.toolList(c.Tools)
	if err != nil {
		return err
	}
	o.Raw("tools", list)
	choice := c.ToolChoice
	if choice == nil {
		return nil
	}
	if choice.Mode == chat.ChoiceNamed {
		o.Raw("tool_choice", append(exchange.AppendString([]byte(`{"type":"function","function":{"name":`), choice.Name), `}}`...))
	} else if choice.Mode != "" {
		o.String("tool_choice", string(choice.Mode))
	}
	if choice.DisableParallel {
		o.Bool("parallel_tool_calls", false)
	}
	return nil
}

func (s *server) toolList(tools []chat.Tool) ([]byte, error) {
	b := []byte{'['}
	for i := range tools {
		t := &tools[i]
		if t.Type != "" {
			return nil, refused("tool %s: a tool of type %s is run by another provider and can't be sent to this upstream", t.Name, t.Type)
		}
		f := exchange.NewObject(256+len(t.Parameters)).String("name", t.Name)
		if t.Description != "" {
			f.String("description", t.Description)
		}
		if len(t.Parameters) > 0 {
			f.Raw("parameters", t.Parameters)
		}
		b = append(next(b), `{"type":"function","function":`...)
		b = append(append(b, f.Bytes()...), '}')
	}
	return append(b, ']'), nil
}

// countChat has vLLM count the tokens of a conversation.
func (s *server) countChat(ctx context.Context, r *upstream.Request) (int, error) {
	messages, err := s.messages(r.Chat)
	if err != nil {
		return 0, err
	}
	o := exchange.NewObject(len(messages)+1024).String("model", s.model(r)).Raw("messages", messages)
	if len(r.Chat.Tools) > 0 {
		list, err := s.toolList(r.Chat.Tools)
		if err != nil {
			return 0, err
		}
		o.Raw("tools", list)
	}
	if r.Chat.Thinking != nil {
		o.Raw("chat_template_kwargs", fmt.Appendf(nil, `{"enable_thinking":%t}`, *r.Chat.Thinking))
	}
	body, err := s.c.Body(ctx, s.post(r, s.root+"/tokenize", o.Bytes()))
	if err != nil {
		return 0, err
	}
	n := gjson.GetBytes(body, "count")
	if n.Type != gjson.Number {
		return 0, s.lacks("/tokenize", "count", "answered "+s.c.Excerpt(body))
	}
	return int(n.Int()), nil
}
