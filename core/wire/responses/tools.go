package responses

import (
	"encoding/json"

	"github.com/penstock-dev/penstock/core/wire/openai"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// flatName is the name of a namespace's tool among all tools.
func flatName(namespace, name string) string { return namespace + "__" + name }

// customParameters is the schema of the function that stands for a custom
// tool.
const customParameters = `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}`

func decodeTools(v rawjson.Value) ([]chat.Tool, error) {
	if !v.Given() {
		return nil, nil
	}
	if v.Kind() != '[' {
		return nil, rawjson.In("tools", rawjson.Errorf("must be a list"))
	}
	tools := []chat.Tool{}
	for i, tool := range v.Items() {
		t, err := decodeTool(tool)
		if err == nil && t.Type == "namespace" {
			t.Type = ""
			tools, err = appendNamespace(tools, tool, t.Name)
		} else if err == nil {
			tools = append(tools, t)
		}
		if err != nil {
			return nil, rawjson.In(rawjson.Index("tools", i), err)
		}
	}
	names := make(map[string]bool, len(tools))
	for _, t := range tools {
		if names[t.Name] {
			return nil, rawjson.In("tools", rawjson.Errorf("there are two tools called %q", t.Name))
		}
		names[t.Name] = true
	}
	return tools, nil
}

func appendNamespace(tools []chat.Tool, v rawjson.Value, namespace string) ([]chat.Tool, error) {
	for i, tool := range v.Get("tools").Items() {
		t, err := decodeTool(tool)
		if err == nil && t.Type != "" {
			err = rawjson.Errorf("a tool of type %q can't be in a namespace", t.Type)
		}
		if err != nil {
			return nil, rawjson.In(rawjson.Index("tools", i), err)
		}
		t.Name = flatName(namespace, t.Name)
		tools = append(tools, t)
	}
	return tools, nil
}

// decodeTool maps a tool. One that the provider runs keeps its type, which is
// its name too where it has none.
func decodeTool(v rawjson.Value) (t chat.Tool, err error) {
	if v.Kind() != '{' {
		return t, rawjson.Errorf("must be an object")
	}
	t.Raw = json.RawMessage(v.Raw())
	if t.Type, err = rawjson.Required(v.Get("type"), "type"); err != nil {
		return t, err
	}
	switch t.Type {
	case "function", "custom", "namespace":
		if t.Name, err = rawjson.Required(v.Get("name"), "name"); err != nil {
			return t, err
		}
	default:
		if t.Name = v.Get("name").Text(); t.Name == "" {
			t.Name = t.Type
		}
		return t, nil
	}
	if d := v.Get("description"); d.Given() {
		if t.Description, err = d.Str(); err != nil {
			return t, rawjson.In("description", err)
		}
	}
	switch t.Type {
	case "custom":
		t.Type, t.Parameters = "", json.RawMessage(customParameters)
	case "function":
		t.Type = ""
		if p := v.Get("parameters"); p.Given() {
			if p.Kind() != '{' {
				return t, rawjson.In("parameters", rawjson.Errorf("must be an object"))
			}
			t.Parameters = json.RawMessage(p.Raw())
		}
	}
	return t, nil
}

// choice maps tool_choice and parallel_tool_calls.
func (f request) choice(tools []chat.Tool) (*chat.Choice, error) {
	return openai.Choice(f["tool_choice"], f["parallel_tool_calls"], tools, chosen)
}

// chosen is the name of the tool that a choice names.
func chosen(v rawjson.Value) (string, error) {
	kind, err := rawjson.Required(v.Get("type"), "type")
	if err != nil {
		return "", err
	}
	if kind != "function" && kind != "custom" {
		return "", rawjson.Errorf("a choice of type %q can't be mapped", kind)
	}
	name, err := rawjson.Required(v.Get("name"), "name")
	if space := v.Get("namespace"); err == nil && space.Given() {
		name = flatName(space.Text(), name)
	}
	return name, err
}

// form is how calls of a tool are written, for tools that aren't plain
// functions.
type form struct {
	namespace, name string
	custom          bool
}

// toolForms are the forms of the tools of a request, by their names among all
// tools; nil when all are plain functions.
func toolForms(envelope []byte) map[string]form {
	var forms map[string]form
	note := func(namespace string, v rawjson.Value) {
		f := form{namespace: namespace, name: v.Get("name").Text(), custom: v.Get("type").Text() == "custom"}
		name := f.name
		if namespace != "" {
			name = flatName(namespace, name)
		} else if !f.custom {
			return
		}
		if forms == nil {
			forms = map[string]form{}
		}
		forms[name] = f
	}
	for _, v := range rawjson.Of(envelope).Get("tools").Items() {
		if v.Get("type").Text() != "namespace" {
			note("", v)
			continue
		}
		for _, tool := range v.Get("tools").Items() {
			note(v.Get("name").Text(), tool)
		}
	}
	return forms
}
