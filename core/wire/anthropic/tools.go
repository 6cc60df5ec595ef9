package anthropic

import (
	"encoding/json"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// decodeTools maps the tools. A deferred tool that neither the conversation
// nor the choice names is left out.
func decodeTools(v rawjson.Value, loaded map[string]bool, choice *chat.Choice) ([]chat.Tool, error) {
	if !v.Given() {
		return nil, nil
	}
	if v.Kind() != '[' {
		return nil, rawjson.In("tools", rawjson.Errorf("must be a list"))
	}
	tools := []chat.Tool{}
	for i, item := range v.Items() {
		t, deferred, err := decodeTool(item)
		if err != nil {
			return nil, rawjson.In(rawjson.Index("tools", i), err)
		}
		chosen := choice != nil && choice.Mode == chat.ChoiceNamed && choice.Name == t.Name
		if !deferred || loaded[t.Name] || chosen {
			tools = append(tools, t)
		}
	}
	return tools, nil
}

func decodeTool(v rawjson.Value) (t chat.Tool, deferred bool, err error) {
	if v.Kind() != '{' {
		return t, false, rawjson.Errorf("must be an object")
	}
	t.Raw = json.RawMessage(v.Raw())
	var typ, name, description, schema, deferring rawjson.Value
	for n, f := range v.Fields() {
		switch string(n) {
		case "type":
			typ = f
		case "name":
			name = f
		case "description":
			description = f
		case "input_schema":
			schema = f
		case "defer_loading":
			deferring = f
		}
	}
	if typ.Given() {
		if t.Type, err = rawjson.Required(typ, "type"); err != nil {
			return t, false, err
		}
		if t.Type == "custom" {
			t.Type = ""
		}
	}
	if t.Name, err = rawjson.Required(name, "name"); err != nil {
		return t, false, err
	}
	if description.Given() {
		if t.Description, err = rawjson.Required(description, "description"); err != nil {
			return t, false, err
		}
	}
	if schema.Given() {
		if schema.Kind() != '{' {
			return t, false, rawjson.In("input_schema", rawjson.Errorf("must be an object"))
		}
		t.Parameters = json.RawMessage(schema.Raw())
	}
	if deferring.Given() {
		if deferred, err = deferring.Bool(); err != nil {
			return t, false, rawjson.In("defer_loading", err)
		}
	}
	return t, deferred, nil
}

func decodeChoice(v rawjson.Value) (*chat.Choice, error) {
	if !v.Given() {
		return nil, nil
	}
	if v.Kind() != '{' {
		return nil, rawjson.Errorf("must be an object")
	}
	kind, err := rawjson.Required(v.Get("type"), "type")
	if err != nil {
		return nil, err
	}
	c := &chat.Choice{}
	switch kind {
	case "auto":
		c.Mode = chat.ChoiceAuto
	case "any":
		c.Mode = chat.ChoiceRequired
	case "none":
		c.Mode = chat.ChoiceNone
	case "tool":
		c.Mode = chat.ChoiceNamed
		if c.Name, err = rawjson.Required(v.Get("name"), "name"); err != nil {
			return nil, err
		}
	default:
		return nil, rawjson.In("type", rawjson.Errorf("must be auto, any, tool or none, not %q", kind))
	}
	if d := v.Get("disable_parallel_tool_use"); d.Given() {
		if c.DisableParallel, err = d.Bool(); err != nil {
			return nil, rawjson.In("disable_parallel_tool_use", err)
		}
	}
	return c, nil
}
