package gemini

import (
	"encoding/json"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// fields are the top-level fields by their spellings; the ones with an empty
// name have no place in the canonical form.
var fields = map[string]string{
	"contents": "contents", "systemInstruction": "system", "system_instruction": "system",
	"tools": "tools", "toolConfig": "choice", "tool_config": "choice",
	"generationConfig": "config", "generation_config": "config", "model": "model",
	"cachedContent": "cached", "cached_content": "cached",
	"safetySettings": "", "safety_settings": "", "labels": "", "serviceTier": "",
}

// request holds the top-level fields of a body by our names.
type request map[string]rawjson.Value

// Decode implements wire.Dialect. Model and Stream are in the path.
func (dialect) Decode(body []byte) (*wire.Request, error) {
	top, err := parse(body)
	if err != nil {
		return nil, err
	}
	return decode(top)
}

// DecodeCount implements wire.TokenCounter. The request may be wrapped.
func (dialect) DecodeCount(body []byte) (*wire.Request, error) {
	top, err := parse(body)
	if err != nil {
		return nil, err
	}
	if inner := either(top, "generateContentRequest", "generate_content_request"); inner.Kind() == '{' {
		top = inner
	}
	return decode(top)
}

func parse(body []byte) (rawjson.Value, error) {
	top, err := rawjson.Parse(body, maxDepth)
	if err != nil {
		return top, wire.Errorf(wire.Invalid, "The request body is not valid JSON: %v", err)
	}
	if top.Kind() != '{' {
		return top, wire.Errorf(wire.Invalid, "The request body must be a JSON object")
	}
	return top, nil
}

// either is the field that has one of two spellings.
func either(v rawjson.Value, camel, snake string) rawjson.Value {
	if f := v.Get(camel); !f.Absent() {
		return f
	}
	return v.Get(snake)
}

func decode(top rawjson.Value) (*wire.Request, error) {
	f := make(request, 8)
	out := &wire.Request{}
	for name, v := range top.Fields() {
		ours, known := fields[string(name)]
		switch {
		case !known:
			out.Unknown = append(out.Unknown, string(name))
		case ours != "":
			f[ours] = v
		}
	}
	if err := f.fill(out); err != nil {
		return nil, &wire.Error{Kind: wire.Invalid, Message: err.Error()}
	}
	out.Envelope = top.Replace(f["contents"], "[]")
	return out, nil
}

func (f request) fill(out *wire.Request) error {
	if f["cached"].Given() {
		return rawjson.In("cachedContent", rawjson.Errorf("there is no cache here; send the whole contents"))
	}
	if err := decodeConfig(f["config"], out); err != nil {
		return rawjson.In("generationConfig", err)
	}
	c := contents{out: make([]chat.Message, 0, 16)}
	if v := f["system"]; v.Given() {
		if err := c.system(v); err != nil {
			return rawjson.In("systemInstruction", err)
		}
	}
	list := f["contents"]
	switch list.Kind() {
	case '[':
	case 0, 'n':
		return rawjson.In("contents", rawjson.ErrRequired)
	default:
		return rawjson.In("contents", rawjson.Errorf("must be a list"))
	}
	for i, v := range list.Items() {
		out.Messages = append(out.Messages, json.RawMessage(v.Raw()))
		if err := c.add(v); err != nil {
			return rawjson.In(rawjson.Index("contents", i), err)
		}
	}
	if len(out.Messages) == 0 {
		return rawjson.In("contents", rawjson.Errorf("at least one is required"))
	}
	out.Chat.Messages = c.out
	var err error
	if out.Chat.Tools, err = decodeTools(f["tools"]); err != nil {
		return err
	}
	out.Chat.ToolChoice, err = decodeChoice(f["choice"], out.Chat.Tools)
	return err
}

// decodeConfig maps the generation's configuration.
func decodeConfig(v rawjson.Value, out *wire.Request) (err error) {
	s := &out.Chat.Sampling
	for key, f := range v.Fields() {
		name := string(key)
		switch name {
		case "temperature":
			s.Temperature, err = rawjson.OptionalFloat(f)
		case "topP", "top_p":
			s.TopP, err = rawjson.OptionalFloat(f)
		case "topK", "top_k":
			s.TopK, err = rawjson.OptionalInt(f, 0)
		case "maxOutputTokens", "max_output_tokens":
			s.MaxTokens, err = rawjson.OptionalInt(f, 1)
		case "seed":
			if f.Given() {
				var seed int64
				seed, err = f.Int()
				s.Seed = &seed
			}
		case "stopSequences", "stop_sequences":
			if f.Given() {
				s.Stop, err = f.Strings()
			}
		case "candidateCount", "candidate_count":
			if f.Given() && string(f.Raw()) != "1" {
				err = rawjson.Errorf("only 1 is supported")
			}
		case "thinkingConfig", "thinking_config":
			out.Chat.Thinking, err = decodeThinking(f)
		case "responseMimeType", "response_mime_type":
			if f.Given() && f.Text() != "text/plain" {
				out.Needs = append(out.Needs, "generationConfig.responseMimeType")
			}
		case "responseSchema", "responseJsonSchema", "responseLogprobs", "logprobs", "speechConfig", "responseModalities":
			if asks(name, f) {
				out.Needs = append(out.Needs, "generationConfig."+name)
			}
		default:
			out.Unknown = append(out.Unknown, "generationConfig."+name)
		}
		if err != nil {
			return rawjson.In(name, err)
		}
	}
	return nil
}

// asks reports whether a field asks for more than text.
func asks(name string, v rawjson.Value) bool {
	if name != "responseModalities" {
		return v.Given() && string(v.Raw()) != "false" && string(v.Raw()) != "0"
	}
	for _, m := range v.Items() {
		if m.Text() != "TEXT" {
			return true
		}
	}
	return false
}

// decodeThinking reads whether reasoning is wanted: a budget of 0 says no.
func decodeThinking(v rawjson.Value) (*bool, error) {
	on := false
	said := false
	if budget := either(v, "thinkingBudget", "thinking_budget"); budget.Given() {
		n, err := budget.Int()
		if err != nil {
			return nil, rawjson.In("thinkingBudget", err)
		}
		on, said = n != 0, true
	} else if level := either(v, "thinkingLevel", "thinking_level"); level.Given() {
		on, said = true, true
	} else if show := either(v, "includeThoughts", "include_thoughts"); show.Given() {
		shown, err := show.Bool()
		if err != nil {
			return nil, rawjson.In("includeThoughts", err)
		}
		on, said = shown, shown
	}
	if !said {
		return nil, nil
	}
	return &on, nil
}
