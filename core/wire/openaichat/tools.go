package openaichat

import (
	"encoding/json"

	"github.com/penstock-dev/penstock/core/wire/openai"
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

// choice maps tool_choice and parallel_tool_calls.
func (f request) choice(tools []chat.Tool) (*chat.Choice, error) {
	return openai.Choice(f["tool_choice"], f["parallel_tool_calls"], tools, func(v rawjson.Value) (string, error) {
		kind, err := rawjson.Required(v.Get("type"), "type")
		if err != nil {
			return "", err
		}
		if kind != "function" {
			return "", rawjson.Errorf("a choice of type %q can't be mapped", kind)
		}
		return rawjson.Required(v.Get("function").Get("name"), "function.name")
	})
}
