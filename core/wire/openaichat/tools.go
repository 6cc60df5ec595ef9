package openaichat

import (
	"encoding/json"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/sdk/chat"
)

func decodeTools(v rawjson.Value) ([]chat.Tool, error) {
	if !v.Given() {
		return nil, nil
	}
	if v.Kind() != '[' {
		return nil, rawjson.In("tools", rawjson.Errorf("must be a list"))
	}
	tools := []chat.Tool{}
	for i, item := range v.Items() {
		t, err := decodeTool(item)
		if err != nil {
			return nil, rawjson.In(rawjson.Index("tools", i), err)
		}
		tools = append(tools, t)
	}
	return tools, nil
}

// decodeTool maps a tool. One that isn't a function keeps its type; its
// definition is under a key named like the type.
func decodeTool(v rawjson.Value) (t chat.Tool, err error) {
	if v.Kind() != '{' {
		return t, rawjson.Errorf("must be an object")
	}
	t.Raw = json.RawMessage(v.Raw())
	kind, err := rawjson.Required(v.Get("type"), "type")
	if err != nil {
		return t, err
	}
	f := v.Get(kind)
	if kind != "function" {
		t.Type = kind
		t.Name = f.Get("name").Text()
		t.Description = f.Get("description").Text()
		return t, nil
	}
	if t.Name, err = rawjson.Required(f.Get("name"), "name"); err != nil {
		return t, rawjson.In("function", err)
	}
	if d := f.Get("description"); d.Given() {
		if t.Description, err = d.Str(); err != nil {
			return t, rawjson.In("function.description", err)
		}
	}
	if p := f.Get("parameters"); p.Given() {
		if p.Kind() != '{' {
			return t, rawjson.In("function.parameters", rawjson.Errorf("must be an object"))
		}
		t.Parameters = json.RawMessage(p.Raw())
	}
	return t, nil
}

// choice maps tool_choice and parallel_tool_calls. A choice that no tool can
// satisfy is refused.
func (f request) choice(tools []chat.Tool) (*chat.Choice, error) {
	c := &chat.Choice{Mode: chat.ChoiceAuto}
	v := f["tool_choice"]
	switch v.Kind() {
	case 0, 'n':
	case '"':
		switch mode := v.Text(); mode {
		case "auto", "none", "required":
			c.Mode = chat.ChoiceMode(mode)
		default:
			return nil, rawjson.In("tool_choice", rawjson.Errorf("must be auto, none, required or a function, not %q", mode))
		}
	case '{':
		kind, err := rawjson.Required(v.Get("type"), "type")
		if err == nil && kind != "function" {
			err = rawjson.Errorf("a choice of type %q can't be mapped", kind)
		}
		if err == nil {
			c.Mode = chat.ChoiceNamed
			c.Name, err = rawjson.Required(v.Get("function").Get("name"), "function.name")
		}
		if err != nil {
			return nil, rawjson.In("tool_choice", err)
		}
	default:
		return nil, rawjson.In("tool_choice", rawjson.Errorf("must be a string or an object"))
	}
	if p := f["parallel_tool_calls"]; p.Given() {
		parallel, err := p.Bool()
		if err != nil {
			return nil, rawjson.In("parallel_tool_calls", err)
		}
		c.DisableParallel = !parallel
	}
	if !v.Given() && !c.DisableParallel {
		return nil, nil
	}
	return c, satisfiable(c, tools)
}

func satisfiable(c *chat.Choice, tools []chat.Tool) error {
	switch c.Mode {
	case chat.ChoiceRequired:
		if len(tools) == 0 {
			return rawjson.In("tool_choice", rawjson.Errorf("a tool can't be required without tools"))
		}
	case chat.ChoiceNamed:
		for _, t := range tools {
			if t.Name == c.Name {
				return nil
			}
		}
		return rawjson.In("tool_choice", rawjson.Errorf("there is no tool %q in tools", c.Name))
	}
	return nil
}
