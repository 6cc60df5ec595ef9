package gemini

import (
	"encoding/json"
	"strings"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// decodeTools maps the tools. One that the provider runs has the name of its
// field as type and name.
func decodeTools(v rawjson.Value) ([]chat.Tool, error) {
	if !v.Given() {
		return nil, nil
	}
	if v.Kind() != '[' {
		return nil, rawjson.In("tools", rawjson.Errorf("must be a list"))
	}
	tools := []chat.Tool{}
	for i, item := range v.Items() {
		for key, f := range item.Fields() {
			name := string(key)
			if name != "functionDeclarations" && name != "function_declarations" {
				tools = append(tools, chat.Tool{Type: name, Name: name, Raw: json.RawMessage(item.Raw())})
				continue
			}
			for j, d := range f.Items() {
				t, err := decodeTool(d)
				if err != nil {
					return nil, rawjson.In(rawjson.Index("tools", i), rawjson.In(rawjson.Index("functionDeclarations", j), err))
				}
				tools = append(tools, t)
			}
		}
	}
	return tools, nil
}

func decodeTool(v rawjson.Value) (t chat.Tool, err error) {
	t.Raw = json.RawMessage(v.Raw())
	if t.Name, err = rawjson.Required(v.Get("name"), "name"); err != nil {
		return t, err
	}
	t.Description = v.Get("description").Text()
	field := "parametersJsonSchema"
	schema := either(v, field, "parameters_json_schema")
	if !schema.Given() {
		field = "parameters"
		schema = v.Get(field)
	}
	if !schema.Given() {
		return t, nil
	}
	if schema.Kind() != '{' {
		return t, rawjson.In(field, rawjson.Errorf("must be an object"))
	}
	t.Parameters = json.RawMessage(schema.Raw())
	if field == "parameters" {
		t.Parameters = appendSchema(nil, schema)
	}
	return t, nil
}

// schemaTypes are the names of types in the provider's own schemas.
var schemaTypes = map[string]bool{
	"STRING": true, "NUMBER": true, "INTEGER": true, "BOOLEAN": true, "ARRAY": true, "OBJECT": true, "NULL": true,
}

// appendSchema appends a schema with its types in lower case; a schema that
// has none to change keeps its bytes.
func appendSchema(b []byte, v rawjson.Value) []byte {
	at := len(b)
	changed := false
	switch v.Kind() {
	case '{':
		b = append(b, '{')
		for name, f := range v.Fields() {
			if len(b) > at+1 {
				b = append(b, ',')
			}
			b = appendName(b, name)
			switch key := string(name); {
			case key == "type" && schemaTypes[f.Text()]:
				changed = true
				b = append(b, '"')
				b = append(b, strings.ToLower(f.Text())...)
				b = append(b, '"')
			case key == "enum" || key == "default" || key == "example" || key == "const":
				b = append(b, f.Raw()...)
			default:
				from := len(b)
				b = appendSchema(b, f)
				changed = changed || string(b[from:]) != string(f.Raw())
			}
		}
		b = append(b, '}')
	case '[':
		b = append(b, '[')
		for i, f := range v.Items() {
			if i > 0 {
				b = append(b, ',')
			}
			from := len(b)
			b = appendSchema(b, f)
			changed = changed || string(b[from:]) != string(f.Raw())
		}
		b = append(b, ']')
	}
	if !changed {
		return append(b[:at], v.Raw()...)
	}
	return b
}

func appendName(b, name []byte) []byte {
	return append(sse.AppendString(b, string(name)), ':')
}

// decodeChoice maps the mode of function calling.
func decodeChoice(v rawjson.Value, tools []chat.Tool) (*chat.Choice, error) {
	config := either(v, "functionCallingConfig", "function_calling_config")
	if !config.Given() {
		return nil, nil
	}
	c := &chat.Choice{}
	switch mode := config.Get("mode"); strings.ToUpper(mode.Text()) {
	case "AUTO", "VALIDATED", "MODE_UNSPECIFIED", "":
		c.Mode = chat.ChoiceAuto
	case "NONE":
		c.Mode = chat.ChoiceNone
	case "ANY":
		c.Mode = chat.ChoiceRequired
	default:
		return nil, rawjson.In("toolConfig.functionCallingConfig.mode", rawjson.Errorf("must be AUTO, ANY, NONE or VALIDATED, not %q", mode.Text()))
	}
	names, err := either(config, "allowedFunctionNames", "allowed_function_names").Strings()
	if err != nil || len(names) == 0 {
		return c, nil
	}
	if c.Mode != chat.ChoiceRequired || len(names) > 1 {
		return nil, rawjson.In("toolConfig.functionCallingConfig.allowedFunctionNames", rawjson.Errorf("only one name, with mode ANY, can be mapped"))
	}
	c.Mode, c.Name = chat.ChoiceNamed, names[0]
	for _, t := range tools {
		if t.Name == c.Name {
			return c, nil
		}
	}
	return nil, rawjson.In("toolConfig.functionCallingConfig.allowedFunctionNames", rawjson.Errorf("there is no tool %q in tools", c.Name))
}
