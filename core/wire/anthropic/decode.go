package anthropic

import (
	"encoding/json"
	"fmt"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// request holds the top-level fields of a body that mean something here.
type request struct {
	model, messages, system, tools, toolChoice      rawjson.Value
	maxTokens, stream, thinking, thread             rawjson.Value
	temperature, topP, topK, stopSequences, version rawjson.Value
}

// passing are known top-level fields that have no place in the canonical
// form. They stay in the envelope.
var passing = map[string]bool{
	"metadata": true, "context_management": true, "output_config": true, "output_format": true,
	"service_tier": true, "cache_control": true, "anthropic_beta": true, "inference_geo": true, "speed": true,
}

// decode reads a body. A request to count tokens needs no max_tokens.
func decode(body []byte, count bool) (*wire.Request, error) {
	top, err := rawjson.Parse(body, maxDepth)
	if err != nil {
		return nil, wire.Errorf(wire.Invalid, "The request body is not valid JSON: %v", err)
	}
	if top.Kind() != '{' {
		return nil, wire.Errorf(wire.Invalid, "The request body must be a JSON object")
	}
	var f request
	out := &wire.Request{}
	for name, v := range top.Fields() {
		if slot := f.slot(name); slot != nil {
			*slot = v
		} else if !passing[string(name)] {
			out.Unknown = append(out.Unknown, string(name))
		}
	}
	if f.thread.Given() {
		return nil, noThreads()
	}
	if err := f.fill(out, count); err != nil {
		return nil, &wire.Error{Kind: wire.Invalid, Message: err.Error()}
	}
	out.Envelope = top.Replace(f.messages, "[]")
	return out, nil
}

// slot is where the field called name is kept, nil for another.
func (f *request) slot(name []byte) *rawjson.Value {
	switch string(name) {
	case "model":
		return &f.model
	case "messages":
		return &f.messages
	case "system":
		return &f.system
	case "tools":
		return &f.tools
	case "tool_choice":
		return &f.toolChoice
	case "max_tokens":
		return &f.maxTokens
	case "stream":
		return &f.stream
	case "thinking":
		return &f.thinking
	case "temperature":
		return &f.temperature
	case "top_p":
		return &f.topP
	case "top_k":
		return &f.topK
	case "stop_sequences":
		return &f.stopSequences
	case "anthropic_version":
		return &f.version
	case "thread":
		return &f.thread
	}
	return nil
}

// noThreads refuses a request that leaves the conversation so far to the
// server. In a reply to it the model would have seen the newest message only.
// The details are those on which Anthropic's SDK sends the whole conversation
// instead, from then on.
func noThreads() *wire.Error {
	e := wire.Errorf(wire.Invalid, "thread: conversations are not kept here; send all messages")
	e.Details = json.RawMessage(`{"error_code":"thread_unsupported_request","unsupported":["thread"]}`)
	return e
}

// fill maps the fields. Requests of the Bedrock and Vertex forms, which
// anthropic_version marks, name their model in the path.
func (f *request) fill(out *wire.Request, count bool) (err error) {
	switch {
	case f.model.Given():
		if out.Model, err = f.model.Str(); err != nil {
			return rawjson.In("model", err)
		}
	case !f.version.Given():
		return rawjson.In("model", rawjson.ErrRequired)
	}
	if f.stream.Given() {
		if out.Stream, err = f.stream.Bool(); err != nil {
			return rawjson.In("stream", err)
		}
	}
	if err := f.sampling(&out.Chat.Sampling, count); err != nil {
		return err
	}
	if err := f.think(out); err != nil {
		return rawjson.In("thinking", err)
	}
	return f.conversation(out)
}

func (f *request) sampling(s *chat.Sampling, count bool) error {
	if !f.maxTokens.Given() && !count {
		return rawjson.In("max_tokens", rawjson.ErrRequired)
	}
	var err error
	if s.MaxTokens, err = rawjson.OptionalInt(f.maxTokens, 1); err != nil {
		return rawjson.In("max_tokens", err)
	}
	if s.TopK, err = rawjson.OptionalInt(f.topK, 0); err != nil {
		return rawjson.In("top_k", err)
	}
	if s.Temperature, err = rawjson.OptionalFloat(f.temperature); err != nil {
		return rawjson.In("temperature", err)
	}
	if s.TopP, err = rawjson.OptionalFloat(f.topP); err != nil {
		return rawjson.In("top_p", err)
	}
	if f.stopSequences.Given() {
		if s.Stop, err = f.stopSequences.Strings(); err != nil {
			return rawjson.In("stop_sequences", err)
		}
	}
	return nil
}

// think reads the thinking configuration. A type that isn't known yet asks
// for thinking in some way, and is reported as unknown.
func (f *request) think(out *wire.Request) error {
	if !f.thinking.Given() {
		return nil
	}
	kind, err := f.thinking.Get("type").Str()
	if err != nil {
		return rawjson.In("type", err)
	}
	on := kind != "disabled"
	if on && kind != "enabled" && kind != "adaptive" {
		out.Unknown = append(out.Unknown, "thinking.type="+kind)
	}
	out.Chat.Thinking = &on
	if n, err := rawjson.OptionalInt(f.thinking.Get("budget_tokens"), 1); on && err == nil && n != nil {
		out.LeastTokens = *n + 1 // the reply has to be longer than its thinking
	}
	return nil
}

// conversation maps system, messages and tools; the messages come first,
// because they say which deferred tools are loaded.
func (f *request) conversation(out *wire.Request) error {
	m := messages{out: make([]chat.Message, 0, 16)}
	if f.system.Given() {
		parts, err := textParts(f.system)
		if err != nil {
			return rawjson.In("system", err)
		}
		if len(parts) > 0 {
			m.out = append(m.out, chat.Message{Role: chat.System, Parts: parts})
		}
	}
	if f.messages.Absent() {
		return rawjson.In("messages", rawjson.ErrRequired)
	}
	if f.messages.Kind() != '[' {
		return rawjson.In("messages", rawjson.Errorf("must be a list"))
	}
	for i, raw := range f.messages.Items() {
		out.Messages = append(out.Messages, json.RawMessage(raw.Raw()))
		if err := m.add(raw); err != nil {
			return rawjson.In(rawjson.Index("messages", i), err)
		}
	}
	if len(out.Messages) == 0 {
		return rawjson.In("messages", rawjson.Errorf("at least one message is required"))
	}
	out.Chat.Messages = m.out
	choice, err := decodeChoice(f.toolChoice)
	if err != nil {
		return rawjson.In("tool_choice", err)
	}
	out.Chat.ToolChoice = choice
	if out.Chat.Tools, err = decodeTools(f.tools, m.loaded, choice); err != nil {
		return err
	}
	return checkChoice(choice, out.Chat.Tools)
}

// checkChoice refuses a choice that no tool of the request can satisfy.
func checkChoice(c *chat.Choice, tools []chat.Tool) error {
	if c == nil || c.Mode == chat.ChoiceAuto || c.Mode == chat.ChoiceNone {
		return nil
	}
	if len(tools) == 0 {
		return fmt.Errorf("tool_choice: a tool can't be required without tools")
	}
	if c.Mode == chat.ChoiceRequired {
		return nil
	}
	for _, t := range tools {
		if t.Name == c.Name {
			return nil
		}
	}
	return fmt.Errorf("tool_choice: Tool '%s' not found in provided tools", c.Name)
}
