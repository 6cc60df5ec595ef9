package format

import (
	"encoding/json"
	"reflect"
)

// choices are the values of keys that take one of a few.
var choices = map[string][]string{
	"ids":      {"", "random", "alnum9", "header", "sequence"},
	"bare":     {"", "line", "start", "anywhere"},
	"trim":     {"", "none", "newline", "pair"},
	"end":      {"", "lookahead", "first"},
	"thinking": {"", "on", "off"},
	"keep":     {"", "all", "none", "last_query", "with_tools"},

	"unknown_tools": {"", "pass", "text"},
}

// SchemaJSON is the JSON schema of a format file, for editors.
func SchemaJSON() ([]byte, error) {
	s := schemaOf(reflect.TypeFor[Spec](), "")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "A penstock format"
	s["required"] = []string{"name"}
	return json.MarshalIndent(s, "", "  ")
}

func schemaOf(t reflect.Type, key string) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		s := schemaOf(t.Elem(), key)
		s["type"] = []string{"object", "null"}
		return s
	case reflect.Struct:
		properties := map[string]any{}
		for i := range t.NumField() {
			name := t.Field(i).Tag.Get("yaml")
			properties[name] = schemaOf(t.Field(i).Type, name)
		}
		return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	case reflect.Slice:
		item := schemaOf(t.Elem(), "")
		if t.Elem().Kind() == reflect.String { // one alone is a list of one
			return map[string]any{"type": []string{"array", "string", "null"}, "items": item}
		}
		return map[string]any{"type": []string{"array", "null"}, "items": item}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), "")}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	}
	s := map[string]any{"type": []string{"string", "null"}}
	if list, ok := choices[key]; ok {
		s = map[string]any{"enum": list}
	}
	return s
}
