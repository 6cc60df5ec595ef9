package openaichat

import (
	"encoding/json"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// request holds the top-level fields of a body by name.
type request map[string]rawjson.Value

// handling says what becomes of a top-level field.
type handling uint8

const (
	unknown  handling = iota
	mapped            // has a place in the canonical form
	passing           // changes nothing that the model sees or says
	sampling          // has no place; 0, null and empty ask for nothing
	need              // asks for what the canonical form can't say
	legacy            // an older form that isn't mapped
)

var fields = map[string]handling{
	"model": mapped, "messages": mapped, "tools": mapped, "tool_choice": mapped, "parallel_tool_calls": mapped,
	"max_tokens": mapped, "max_completion_tokens": mapped, "temperature": mapped, "top_p": mapped, "top_k": mapped,
	"seed": mapped, "stop": mapped, "n": mapped, "stream": mapped, "stream_options": mapped, "response_format": mapped,
	"reasoning_effort": mapped, "enable_thinking": mapped, "chat_template_kwargs": mapped, "modalities": mapped,

	"store": passing, "metadata": passing, "user": passing, "service_tier": passing, "prompt_cache_key": passing,
	"prompt_cache_retention": passing, "safety_identifier": passing, "verbosity": passing, "prediction": passing,

	"frequency_penalty": sampling, "presence_penalty": sampling, "logit_bias": sampling,

	"logprobs": need, "top_logprobs": need, "audio": need, "web_search_options": need,

	"functions": legacy, "function_call": legacy,
}

// Decode implements wire.Dialect.
func (dialect) Decode(body []byte) (*wire.Request, error) {
	top, err := rawjson.Parse(body, maxDepth)
	if err != nil {
		return nil, wire.Errorf(wire.Invalid, "The request body is not valid JSON: %v", err)
	}
	if top.Kind() != '{' {
		return nil, wire.Errorf(wire.Invalid, "The request body must be a JSON object")
	}
	f := make(request, 16)
	out := &wire.Request{}
	for name, v := range top.Fields() {
		if err := f.take(out, string(name), v); err != nil {
			return nil, &wire.Error{Kind: wire.Invalid, Message: err.Error()}
		}
	}
	if err := f.fill(out); err != nil {
		return nil, &wire.Error{Kind: wire.Invalid, Message: err.Error()}
	}
	out.Envelope = top.Replace(f["messages"], "[]")
	return out, nil
}

// take notes one top-level field.
func (f request) take(out *wire.Request, name string, v rawjson.Value) error {
	switch fields[name] {
	case mapped:
		f[name] = v
	case unknown:
		out.Unknown = append(out.Unknown, name)
	case sampling:
		if asks(v) {
			out.Unknown = append(out.Unknown, name)
		}
	case need:
		if asks(v) {
			out.Needs = append(out.Needs, name)
		}
	case legacy:
		if v.Given() {
			return rawjson.In(name, rawjson.Errorf("can't be mapped; use tools and tool_choice"))
		}
	}
	return nil
}

// asks reports whether a value differs from the ones that ask for nothing.
func asks(v rawjson.Value) bool {
	switch string(v.Raw()) {
	case "", "null", "false", "{}", "[]":
		return false
	}
	n, err := v.Float()
	return err != nil || n != 0
}

func (f request) fill(out *wire.Request) (err error) {
	if out.Model, err = rawjson.Required(f["model"], "model"); err != nil {
		return err
	}
	if n := f["n"]; n.Given() && string(n.Raw()) != "1" {
		return rawjson.In("n", rawjson.Errorf("only 1 is supported"))
	}
	if v := f["stream"]; v.Given() {
		if out.Stream, err = v.Bool(); err != nil {
			return rawjson.In("stream", err)
		}
	}
	if v := f["stream_options"].Get("include_usage"); v.Given() {
		if out.WantUsage, err = v.Bool(); err != nil {
			return rawjson.In("stream_options.include_usage", err)
		}
	}
	if err := f.sampling(&out.Chat.Sampling); err != nil {
		return err
	}
	if err := f.format(out); err != nil {
		return err
	}
	if err := f.think(out); err != nil {
		return err
	}
	return f.conversation(out)
}

func (f request) sampling(s *chat.Sampling) (err error) {
	limit := "max_completion_tokens"
	if !f[limit].Given() {
		limit = "max_tokens"
	}
	if s.MaxTokens, err = rawjson.OptionalInt(f[limit], 1); err != nil {
		return rawjson.In(limit, err)
	}
	if s.TopK, err = rawjson.OptionalInt(f["top_k"], -1); err != nil {
		return rawjson.In("top_k", err)
	}
	if s.Temperature, err = rawjson.OptionalFloat(f["temperature"]); err != nil {
		return rawjson.In("temperature", err)
	}
	if s.TopP, err = rawjson.OptionalFloat(f["top_p"]); err != nil {
		return rawjson.In("top_p", err)
	}
	if v := f["seed"]; v.Given() {
		seed, err := v.Int()
		if err != nil {
			return rawjson.In("seed", err)
		}
		s.Seed = &seed
	}
	switch v := f["stop"]; v.Kind() {
	case 0, 'n':
	case '"':
		s.Stop = []string{v.Text()}
	default:
		if s.Stop, err = v.Strings(); err != nil {
			return rawjson.In("stop", err)
		}
	}
	return nil
}

// format notes the demands on what comes out.
func (f request) format(out *wire.Request) error {
	if v := f["response_format"]; v.Given() {
		kind, err := rawjson.Required(v.Get("type"), "type")
		if err != nil {
			return rawjson.In("response_format", err)
		}
		if kind != "text" {
			out.Needs = append(out.Needs, "response_format")
		}
	}
	for _, v := range f["modalities"].Items() {
		if v.Text() != "text" {
			out.Needs = append(out.Needs, "modalities")
			break
		}
	}
	return nil
}

// think reads whether the client wants reasoning, as OpenAI or the engines
// spell it.
func (f request) think(out *wire.Request) error {
	if v := f["reasoning_effort"]; v.Given() {
		effort, err := v.Str()
		if err != nil {
			return rawjson.In("reasoning_effort", err)
		}
		on := effort != "none"
		out.Chat.Thinking = &on
	}
	switched := f["enable_thinking"]
	if v := f["chat_template_kwargs"].Get("enable_thinking"); v.Given() {
		switched = v
	}
	if switched.Given() {
		on, err := switched.Bool()
		if err != nil {
			return rawjson.In("enable_thinking", err)
		}
		out.Chat.Thinking = &on
	}
	for name := range f["chat_template_kwargs"].Fields() {
		if string(name) != "enable_thinking" {
			out.Unknown = append(out.Unknown, "chat_template_kwargs."+string(name))
		}
	}
	return nil
}

func (f request) conversation(out *wire.Request) error {
	list := f["messages"]
	if list.Absent() {
		return rawjson.In("messages", rawjson.ErrRequired)
	}
	if list.Kind() != '[' {
		return rawjson.In("messages", rawjson.Errorf("must be a list"))
	}
	m := messages{out: make([]chat.Message, 0, 16)}
	for i, v := range list.Items() {
		out.Messages = append(out.Messages, json.RawMessage(v.Raw()))
		if err := m.add(v); err != nil {
			return rawjson.In(rawjson.Index("messages", i), err)
		}
	}
	if len(m.out) == 0 {
		return rawjson.In("messages", rawjson.Errorf("at least one message is required"))
	}
	out.Chat.Messages = m.out
	var err error
	if out.Chat.Tools, err = decodeTools(f["tools"]); err != nil {
		return err
	}
	out.Chat.ToolChoice, err = f.choice(out.Chat.Tools)
	return err
}
