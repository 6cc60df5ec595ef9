package responses

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
	unknown handling = iota
	mapped           // has a place in the canonical form
	passing          // changes nothing that the model sees or says
	stored           // refers to what only a provider keeps
)

var fields = map[string]handling{
	"model": mapped, "input": mapped, "instructions": mapped, "tools": mapped, "tool_choice": mapped,
	"parallel_tool_calls": mapped, "max_output_tokens": mapped, "temperature": mapped, "top_p": mapped,
	"stream": mapped, "reasoning": mapped, "text": mapped, "include": mapped, "top_logprobs": mapped,

	"store": passing, "metadata": passing, "prompt_cache_key": passing, "prompt_cache_retention": passing,
	"client_metadata": passing, "user": passing, "service_tier": passing, "safety_identifier": passing,
	"stream_options": passing,

	"previous_response_id": stored, "conversation": stored, "prompt": stored, "background": stored,
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
		switch fields[string(name)] {
		case mapped:
			f[string(name)] = v
		case unknown:
			out.Unknown = append(out.Unknown, string(name))
		case stored:
			if v.Given() && string(v.Raw()) != "false" {
				return nil, wire.Errorf(wire.Invalid, "%s: responses are not stored here; send the whole input", name)
			}
		}
	}
	if err := f.fill(out); err != nil {
		return nil, &wire.Error{Kind: wire.Invalid, Message: err.Error()}
	}
	out.Envelope = top.Replace(f["input"], "[]")
	return out, nil
}

func (f request) fill(out *wire.Request) (err error) {
	if out.Model, err = rawjson.Required(f["model"], "model"); err != nil {
		return err
	}
	if v := f["stream"]; v.Given() {
		if out.Stream, err = v.Bool(); err != nil {
			return rawjson.In("stream", err)
		}
	}
	s := &out.Chat.Sampling
	if s.MaxTokens, err = rawjson.OptionalInt(f["max_output_tokens"], 1); err != nil {
		return rawjson.In("max_output_tokens", err)
	}
	if s.Temperature, err = rawjson.OptionalFloat(f["temperature"]); err != nil {
		return rawjson.In("temperature", err)
	}
	if s.TopP, err = rawjson.OptionalFloat(f["top_p"]); err != nil {
		return rawjson.In("top_p", err)
	}
	if v := f["reasoning"].Get("effort"); v.Given() {
		effort, err := v.Str()
		if err != nil {
			return rawjson.In("reasoning.effort", err)
		}
		on := effort != "none"
		out.Chat.Thinking = &on
	}
	f.needs(out)
	return f.conversation(out)
}

// needs notes what the canonical form can't say.
func (f request) needs(out *wire.Request) {
	if kind := f["text"].Get("format").Get("type"); kind.Given() && kind.Text() != "text" {
		out.Needs = append(out.Needs, "text.format")
	}
	if v := f["top_logprobs"]; v.Given() && string(v.Raw()) != "0" {
		out.Needs = append(out.Needs, "top_logprobs")
	}
	for _, v := range f["include"].Items() {
		if v.Text() == "message.output_text.logprobs" {
			out.Needs = append(out.Needs, "include message.output_text.logprobs")
		}
	}
}

func (f request) conversation(out *wire.Request) error {
	m := items{out: make([]chat.Message, 0, 16)}
	if v := f["instructions"]; v.Given() {
		text, err := v.Str()
		if err != nil {
			return rawjson.In("instructions", err)
		}
		m.say(chat.System, []chat.Part{{Type: chat.Text, Text: text}})
	}
	input := f["input"]
	switch input.Kind() {
	case '"':
		out.Messages = []json.RawMessage{input.Raw()}
		m.say(chat.User, []chat.Part{{Type: chat.Text, Text: input.Text()}})
	case '[':
		for i, v := range input.Items() {
			out.Messages = append(out.Messages, json.RawMessage(v.Raw()))
			if err := m.add(v); err != nil {
				return rawjson.In(rawjson.Index("input", i), err)
			}
		}
	case 0, 'n':
		return rawjson.In("input", rawjson.ErrRequired)
	default:
		return rawjson.In("input", rawjson.Errorf("must be a string or a list"))
	}
	if len(out.Messages) == 0 {
		return rawjson.In("input", rawjson.Errorf("at least one item is required"))
	}
	out.Chat.Messages = m.out
	var err error
	if out.Chat.Tools, err = decodeTools(f["tools"]); err != nil {
		return err
	}
	out.Chat.ToolChoice, err = f.choice(out.Chat.Tools)
	return err
}
