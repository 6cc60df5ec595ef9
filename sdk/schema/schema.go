// Package schema makes JSON Schemas from Go structs and decodes JSON into
// them strictly. It is small enough for a WASM guest, and the only reflector
// in the house, so that a plugin has the same schema on every transport.
//
// A field is described by its tags:
//
//	Scale int `json:"scale,omitempty" desc:"digits kept" enum:"0,2,4" default:"2"`
//
// The format "name-or-file" says of a text in a config that it may be a path,
// when it begins with ./, ../ or / or ends in .yaml: the host makes it absolute
// and keeps the file's hash.
//
// The format "secret" says of a text in a config that it may only come from
// ${env:NAME} or ${file:PATH}: it is never kept with a run.
//
// The tag min is the least number, the fewest items of a list, or the shortest
// length of a text. The format
// "names-differ" says of a list that no two of its objects have one name.
//
// A field without omitempty (or omitzero) is required. A pointer may be null.
// A json.RawMessage or an any may hold any value.
//
// A program that the component has started is an Argv. In its schema it has
// the format "program", which tells the host two things: a relative path
// starts at the folder of the pipeline file, and a program that isn't there is
// an error before anything runs. What begins with $ is left to the component.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Error is a value that a schema does not allow, with the JSON Pointer of the
// value.
type Error struct {
	Pointer string
	Message string
}

func (e *Error) Error() string {
	if e.Pointer == "" {
		return e.Message
	}
	return e.Pointer + ": " + e.Message
}

type property struct {
	name   string
	schema []byte
}

// Of returns the JSON Schema of T, which is a struct, as an object schema
// without unknown properties.
func Of[T any]() json.RawMessage { return json.RawMessage(of(reflect.TypeFor[T](), nil)) }

var (
	rawType      = reflect.TypeFor[json.RawMessage]()
	durationType = reflect.TypeFor[time.Duration]()
	argvType     = reflect.TypeFor[Argv]()
)

// Argv is a program and its arguments. In JSON it is a list, or a text that is
// the program alone, spaces and all.
type Argv []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *Argv) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil && string(data) != "null" {
		*a = Argv{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

func of(t reflect.Type, tag *reflect.StructTag) []byte {
	switch {
	case t == rawType, t.Kind() == reflect.Interface:
		return object(describe(tag, nil))
	case t == durationType:
		return object(describe(tag, []property{{"type", []byte(`"string"`)}, {"format", []byte(`"duration"`)}}))
	case t == argvType:
		return object(describe(tag, []property{{"type", []byte(`["array","string"]`)}, {"items", []byte(`{"type":"string"}`)}, {"minItems", []byte("1")}, {"minLength", []byte("1")}, {"format", []byte(`"program"`)}}))
	case t.Kind() == reflect.Pointer:
		return nullable(of(t.Elem(), tag))
	}
	var ps []property
	kind := func(k string) { ps = append(ps, property{"type", quote(k)}) }
	switch t.Kind() {
	case reflect.Bool:
		kind("boolean")
	case reflect.String:
		kind("string")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		kind("integer")
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		kind("integer")
		ps = append(ps, property{"minimum", []byte("0")})
	case reflect.Float32, reflect.Float64:
		kind("number")
	case reflect.Slice, reflect.Array:
		kind("array")
		ps = append(ps, property{"items", of(t.Elem(), nil)})
	case reflect.Map:
		kind("object")
		ps = append(ps, property{"additionalProperties", of(t.Elem(), nil)})
	case reflect.Struct:
		kind("object")
		ps = append(ps, fields(t)...)
	default:
		panic(fmt.Sprintf("schema: %s has no JSON form", t))
	}
	return object(describe(tag, ps))
}

func fields(t reflect.Type) []property {
	var props []property
	var required []string
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Anonymous && f.Type.Kind() == reflect.Struct && f.Tag.Get("json") == "" {
				walk(f.Type)
				continue
			}
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || name == "-" {
				continue
			}
			if name == "" {
				name = f.Name
			}
			if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
				required = append(required, name)
			}
			props = append(props, property{name, of(f.Type, &f.Tag)})
		}
	}
	walk(t)
	out := []property{{"properties", object(props)}, {"additionalProperties", []byte("false")}}
	if len(required) > 0 {
		out = append(out, property{"required", list(required)})
	}
	return out
}

func describe(tag *reflect.StructTag, ps []property) []property {
	if tag == nil {
		return ps
	}
	if d := tag.Get("desc"); d != "" {
		ps = append(ps, property{"description", quote(d)})
	}
	text := len(ps) == 0 || bytes.Equal(ps[0].schema, []byte(`"string"`))
	if e := tag.Get("enum"); e != "" {
		values := strings.Split(e, ",")
		if text {
			ps = append(ps, property{"enum", list(values)})
		} else {
			ps = append(ps, property{"enum", []byte("[" + e + "]")})
		}
	}
	if f := tag.Get("format"); f != "" {
		ps = append(ps, property{"format", quote(f)})
	}
	if m := tag.Get("min"); m != "" {
		least := "minimum"
		switch {
		case text:
			least = "minLength"
		case bytes.Equal(ps[0].schema, []byte(`"array"`)):
			least = "minItems"
		}
		ps = append(ps, property{least, []byte(m)})
	}
	if d, ok := tag.Lookup("default"); ok {
		v := []byte(d)
		if text {
			v = quote(d)
		}
		ps = append(ps, property{"default", v})
	}
	return ps
}

// nullable adds null to the types of a schema; one without a type allows it.
func nullable(s []byte) []byte {
	const typed = `{"type":"`
	if !bytes.HasPrefix(s, []byte(typed)) {
		return s
	}
	end := len(typed) + bytes.IndexByte(s[len(typed):], '"')
	return append([]byte(`{"type":["`+string(s[len(typed):end])+`","null"]`), s[end+1:]...)
}

func object(ps []property) []byte {
	b := []byte{'{'}
	for i, p := range ps {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, quote(p.name)...), ':'), p.schema...)
	}
	return append(b, '}')
}

func list(values []string) []byte {
	b := []byte{'['}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quote(v)...)
	}
	return append(b, ']')
}

func quote(s string) []byte {
	b, _ := json.Marshal(s) // a string always has a JSON form
	return b
}

// Decode decodes a JSON object into v strictly: an unknown field, a wrong
// type and trailing bytes are a *Error. Empty data decodes as {}.
func Decode(data []byte, v any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("trailing data after the JSON value")
	}
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return &Error{"/" + strings.ReplaceAll(wrong.Field, ".", "/"), fmt.Sprintf("is %s, want %s", wrong.Value, jsonName(wrong.Type))}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &Error{"/" + strings.Trim(name, `"`), "unknown field"}
	}
	return &Error{"", strings.TrimPrefix(err.Error(), "json: ")}
}

// Plain says what is wrong with JSON from outside in the words of JSON: the
// pointer of a value of a wrong kind, what it is and what is wanted.
func Plain(err error) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("it is %s, want %s", wrong.Value, jsonName(wrong.Type))
	case errors.As(err, &wrong):
		return fmt.Errorf("/%s is %s, want %s", strings.ReplaceAll(wrong.Field, ".", "/"), wrong.Value, jsonName(wrong.Type))
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Map, reflect.Struct:
		return "object"
	case reflect.Float32, reflect.Float64:
		return "number"
	default:
		return "integer"
	}
}
