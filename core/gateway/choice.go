package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// A request may demand a call: of any tool, or of one that it names. An engine
// that can is held to it by a JSON schema of what it may sample; every reply
// that our format parses is checked, and nothing of it is streamed before its
// first call has begun, so that a client never gets half an answer in place of
// the call that it was promised.

// demands reports whether a choice demands a call.
func demands(c *chat.Choice) bool {
	return c != nil && (c.Mode == chat.ChoiceRequired || c.Mode == chat.ChoiceNamed)
}

// allowed refuses a demand that nothing here can hold the model to.
func (c *call) allowed() *failure {
	t := c.req.Chat.ToolChoice
	switch {
	case !demands(t):
		return nil
	case c.s.info.Parses:
		return nil // who parses is who enforces
	case len(c.req.Chat.Tools) == 0:
		return fail(trace.CallInvalid, wire.Invalid, "tool_choice: a call is demanded, and the request has no tools")
	case t.Mode == chat.ChoiceNamed && toolNamed(c.req.Chat.Tools, t.Name) == nil:
		return fail(trace.CallInvalid, wire.Invalid, "tool_choice: there is no tool %q", t.Name)
	}
	return nil
}

func toolNamed(tools []chat.Tool, name string) *chat.Tool {
	for i := range tools {
		if tools[i].Name == name {
			return &tools[i]
		}
	}
	return nil
}

// checked reports whether the reply is held against a demand here.
func (c *call) checked() bool { return demands(c.conv.ToolChoice) && c.m.Format != nil }

// guide is the schema that holds an engine to the demanded call, nil where
// there is none: a schema holds from the first token on, and so can't be had
// where the prompt has opened reasoning.
func (c *call) guide() json.RawMessage {
	if !c.checked() || c.prompt.State.ReasoningOpen {
		return nil
	}
	schema, err := choiceSchema(c.conv.Tools, c.conv.ToolChoice)
	if err != nil {
		c.g.log.Debug("tool choice is not guided", "call", c.rec.ID, "why", err)
		return nil
	}
	return schema
}

// choiceSchema is the JSON schema of what guided decoding samples: the
// arguments of the named tool, or an array of {name, parameters}.
func choiceSchema(tools []chat.Tool, choice *chat.Choice) (json.RawMessage, error) {
	if choice.Mode == chat.ChoiceNamed {
		t := toolNamed(tools, choice.Name)
		if t == nil {
			return nil, fmt.Errorf("there is no tool %q", choice.Name)
		}
		return parameters(t), nil
	}
	defs := map[string]json.RawMessage{}
	var one []json.RawMessage
	for i := range tools {
		p, err := hoist(&tools[i], defs)
		if err != nil {
			return nil, err
		}
		one = append(one, chatJSON(map[string]any{
			"type": "object", "required": []string{"name", "parameters"},
			"properties": map[string]any{
				"name":       map[string]any{"type": "string", "enum": []string{tools[i].Name}},
				"parameters": p,
			},
		}))
	}
	schema := map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"type": "object", "anyOf": one}}
	if choice.DisableParallel {
		schema["maxItems"] = 1
	}
	if len(defs) > 0 {
		schema["$defs"] = defs
	}
	return chatJSON(schema), nil
}

// parameters is a tool's schema, that of an object where it has none.
func parameters(t *chat.Tool) json.RawMessage {
	if len(bytes.TrimSpace(t.Parameters)) == 0 || string(t.Parameters) == "null" {
		return json.RawMessage(`{"type":"object"}`)
	}
	return t.Parameters
}

// hoist moves a schema's definitions to where its references find them once it
// is part of another one.
func hoist(t *chat.Tool, defs map[string]json.RawMessage) (json.RawMessage, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(parameters(t), &top); err != nil {
		return nil, fmt.Errorf("read parameters of tool %q: %w", t.Name, err)
	}
	if _, old := top["definitions"]; old || bytes.Contains(t.Parameters, []byte(`"$ref":"#"`)) {
		return nil, fmt.Errorf("the schema of tool %q refers to its own root", t.Name)
	}
	raw, ok := top["$defs"]
	if !ok {
		return parameters(t), nil
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(raw, &own); err != nil {
		return nil, fmt.Errorf("read parameters of tool %q: %w", t.Name, err)
	}
	for name, def := range own {
		if other, taken := defs[name]; taken && !bytes.Equal(other, def) {
			return nil, fmt.Errorf("tool %q defines %q in another way than a tool before it", t.Name, name)
		}
		defs[name] = def
	}
	delete(top, "$defs")
	return chatJSON(top), nil
}

// chatJSON encodes maps of JSON, which can't fail.
func chatJSON(v any) json.RawMessage {
	b, err := chat.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// kept fails a reply that doesn't hold to the demand. One that was cut by its
// length says so itself.
func (g *generation) kept() *failure {
	c := g.c
	if !c.checked() || g.last.Finish.Reason == chat.FinishLength {
		return nil
	}
	calls := chat.Calls(g.parsed.parts)
	if len(calls) == 0 {
		return fail(trace.CallError, wire.Upstream, "tool_choice demands a call, and the model answered without one")
	}
	if want := c.conv.ToolChoice; want.Mode == chat.ChoiceNamed {
		for _, p := range calls {
			if p.Name != want.Name {
				return fail(trace.CallError, wire.Upstream, "tool_choice demands a call of %q, and the model called %q", want.Name, p.Name)
			}
		}
	}
	return nil
}
