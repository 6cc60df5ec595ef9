package pipeline

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// base is the kind of value that a Type holds.
type base int

const (
	tAny base = iota
	tNull
	tBool
	tInteger
	tNumber
	tString
	tList
	tObject
)

// Type is the type of an expression. A value may be null when Nullable. It
// may be missing when Optional, and then has to be read with ?. or ??.
type Type struct {
	base     base
	nullable bool
	optional bool
	why      string  // why it may be null or missing
	elem     *Type   // of a list; nil = any
	orText   bool    // a list that may also be given as its only text
	fields   []Field // of an object
	index    map[string]int
	rest     *Type // type of an object's other fields; nil = there are none
	enum     []string
	isEnum   bool
}

// Field is one field of an object.
type Field struct {
	Name string
	Type *Type
}

var (
	anyType     = &Type{base: tAny}
	nullType    = &Type{base: tNull, nullable: true}
	boolType    = &Type{base: tBool}
	integerType = &Type{base: tInteger}
	numberType  = &Type{base: tNumber}
	stringType  = &Type{base: tString}
)

func listOf(elem *Type) *Type { return &Type{base: tList, elem: elem} }

func objectOf(rest *Type, fields ...Field) *Type {
	t := &Type{base: tObject, fields: fields, rest: rest, index: make(map[string]int, len(fields))}
	for i, f := range fields {
		t.index[f.Name] = i
	}
	return t
}

func enumOf(values ...string) *Type { return &Type{base: tString, enum: values, isEnum: true} }

func (t *Type) field(name string) *Type {
	if i, ok := t.index[name]; ok {
		return t.fields[i].Type
	}
	return nil
}

func (t *Type) names() []string {
	out := make([]string, len(t.fields))
	for i, f := range t.fields {
		out[i] = f.Name
	}
	return out
}

func (t *Type) with(change func(*Type)) *Type {
	c := *t
	change(&c)
	return &c
}

// asOptional is t that may be missing.
func (t *Type) asOptional(why string) *Type {
	return t.with(func(c *Type) { c.optional, c.why = true, why })
}

// orNull is t that may be null.
func (t *Type) orNull(why string) *Type {
	if t.nullable && !t.optional {
		return t
	}
	return t.with(func(c *Type) {
		c.nullable, c.optional = true, false
		if c.why == "" {
			c.why = why
		}
	})
}

// present is t without null.
func (t *Type) present() *Type {
	if !t.nullable && !t.optional {
		return t
	}
	if t.base == tNull {
		return anyType
	}
	return t.with(func(c *Type) { c.nullable, c.optional, c.why = false, false, "" })
}

// String names the type as messages do.
func (t *Type) String() string {
	s := ""
	switch t.base {
	case tAny:
		return "any"
	case tNull:
		return "nil"
	case tBool:
		s = "boolean"
	case tInteger:
		s = "integer"
	case tNumber:
		s = "number"
	case tString:
		s = "string"
		if t.isEnum && len(t.enum) > 0 && len(t.enum) <= 6 {
			s = quoteAll(t.enum, " | ")
		}
	case tObject:
		s = "object"
	case tList:
		s = "list"
		if t.elem != nil && t.elem.base != tAny {
			s = "list of " + t.elem.String()
		}
		if t.orText {
			s += " or string"
		}
	}
	if t.nullable || t.optional {
		s += " or nil"
	}
	return s
}

// a names the type with its article, as sentences do.
func (t *Type) a() string {
	s := t.String()
	switch {
	case t.base == tAny:
		return "a value of any type"
	case t.base == tNull, s[0] == '"':
		return s
	case t.base == tInteger, t.base == tObject:
		return "an " + s
	}
	return "a " + s
}

func quoteAll(values []string, sep string) string {
	q := make([]string, len(values))
	for i, v := range values {
		q[i] = `"` + v + `"`
	}
	return strings.Join(q, sep)
}

// union is the type of a value that is one or the other.
func union(a, b *Type) *Type {
	nullable, optional := a.nullable || b.nullable, a.optional || b.optional
	why := a.why
	if why == "" {
		why = b.why
	}
	var t *Type
	switch {
	case a.base == tNull:
		t = b
	case b.base == tNull:
		t = a
	case a.base == b.base:
		t = a.with(func(c *Type) {
			c.isEnum = a.isEnum && b.isEnum
			c.enum = append(append([]string(nil), a.enum...), b.enum...)
			if a.base == tList {
				c.elem = unionElem(a.elem, b.elem)
			}
			if a.base == tObject && len(a.fields)+len(b.fields) > 0 && !sameFields(a, b) {
				*c = *objectOf(anyType)
			}
		})
	case a.base == tInteger && b.base == tNumber, a.base == tNumber && b.base == tInteger:
		t = numberType
	default:
		t = anyType
	}
	return t.with(func(c *Type) { c.nullable, c.optional, c.why = nullable && t.base != tAny, optional, why })
}

func unionElem(a, b *Type) *Type {
	if a == nil || b == nil {
		return nil
	}
	return union(a, b)
}

func sameFields(a, b *Type) bool {
	if len(a.fields) != len(b.fields) {
		return false
	}
	for _, f := range a.fields {
		if o := b.field(f.Name); o == nil || o.base != f.Type.base {
			return false
		}
	}
	return true
}

// misfit says why a value of type from can't be given where to is wanted, or
// "". What is known only at run time fits.
func misfit(from, to *Type) string {
	if to.base == tAny {
		return ""
	}
	if (from.nullable || from.base == tNull) && !to.nullable {
		return fmt.Sprintf("this may be nil%s, want %s", because(from), to.a())
	}
	if from.base == tNull || from.base == tAny {
		return ""
	}
	switch {
	case from.base == to.base:
	case from.base == tInteger && to.base == tNumber:
	case from.base == tString && to.base == tList && to.orText:
		return ""
	default:
		return fmt.Sprintf("this is %s, want %s", from.present().a(), to.a())
	}
	switch to.base {
	case tString:
		if from.isEnum && to.isEnum {
			for _, v := range from.enum {
				if !contains(to.enum, v) {
					return fmt.Sprintf("this may be %q, want %s", v, to)
				}
			}
		}
	case tList:
		if from.elem != nil && to.elem != nil {
			if m := misfit(from.elem, to.elem); m != "" {
				return "of the list's items: " + m
			}
		}
	case tObject:
		return objectMisfit(from, to)
	}
	return ""
}

func objectMisfit(from, to *Type) string {
	for _, want := range to.fields {
		have := from.field(want.Name)
		switch {
		case have == nil && !want.Type.optional && from.rest == nil:
			return fmt.Sprintf("the object has no field %q", want.Name)
		case have == nil:
		case have.optional && !want.Type.optional:
			return fmt.Sprintf("the object's field %q may be missing%s", want.Name, because(have))
		default:
			if m := misfit(have.with(func(c *Type) { c.optional = false }), want.Type); m != "" {
				return fmt.Sprintf("field %q: %s", want.Name, m)
			}
		}
	}
	if to.rest == nil {
		for _, have := range from.fields {
			if to.field(have.Name) == nil {
				return fmt.Sprintf("the object has the field %q, which is not known here", have.Name)
			}
		}
	}
	return ""
}

func because(t *Type) string {
	if t.why == "" {
		return ""
	}
	return " (" + t.why + ")"
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// schemaNode is the part of JSON Schema that types are read from.
type schemaNode struct {
	Type        json.RawMessage            `json:"type"`
	Format      string                     `json:"format"`
	Default     json.RawMessage            `json:"default"`
	Enum        []any                      `json:"enum"`
	Const       *any                       `json:"const"`
	Properties  map[string]json.RawMessage `json:"properties"`
	Required    []string                   `json:"required"`
	Additional  json.RawMessage            `json:"additionalProperties"`
	Items       json.RawMessage            `json:"items"`
	OneOf       []json.RawMessage          `json:"oneOf"`
	AnyOf       []json.RawMessage          `json:"anyOf"`
	AllOf       []json.RawMessage          `json:"allOf"`
	Ref         string                     `json:"$ref"`
	Defs        map[string]json.RawMessage `json:"$defs"`
	Definitions map[string]json.RawMessage `json:"definitions"`
}

// schemaReader turns JSON Schemas into types.
type schemaReader struct {
	root  schemaNode
	depth int
}

// typeOf is the type of the values that a JSON Schema allows; any where the
// schema says more than a type can. Without a schema it is nil.
func typeOf(schema json.RawMessage) *Type {
	if absent(schema) {
		return nil
	}
	r := &schemaReader{}
	if json.Unmarshal(schema, &r.root) != nil {
		return anyType
	}
	return r.read(schema)
}

// maxDepth bounds schemas that refer to themselves.
const maxDepth = 24

func (r *schemaReader) read(raw json.RawMessage) *Type {
	var s schemaNode
	if r.depth >= maxDepth || json.Unmarshal(raw, &s) != nil {
		return anyType // true and false are schemas too
	}
	r.depth++
	defer func() { r.depth-- }()
	if s.Ref != "" {
		return r.ref(s.Ref)
	}
	if alts := append(s.OneOf, s.AnyOf...); len(alts) > 0 && len(s.Properties) == 0 {
		return r.alternatives(alts)
	}
	if len(s.AllOf) > 0 {
		return anyType
	}
	if s.Const != nil {
		s.Enum = []any{*s.Const}
	}
	kinds, ok := schemaKinds(s)
	if !ok {
		return anyType
	}
	if s.Format == programFormat && contains(kinds, "array") && contains(kinds, "string") {
		return r.kind("array", s).with(func(c *Type) { c.orText = true })
	}
	var out *Type
	for _, k := range kinds {
		t := r.kind(k, s)
		if out == nil {
			out = t
		} else {
			out = union(out, t)
		}
	}
	return out
}

func (r *schemaReader) alternatives(alts []json.RawMessage) *Type {
	out := r.read(alts[0])
	for _, a := range alts[1:] {
		out = union(out, r.read(a))
	}
	return out
}

func (r *schemaReader) ref(ref string) *Type {
	for prefix, defs := range map[string]map[string]json.RawMessage{"#/$defs/": r.root.Defs, "#/definitions/": r.root.Definitions} {
		if name, ok := strings.CutPrefix(ref, prefix); ok && defs[name] != nil {
			return r.read(defs[name])
		}
	}
	return anyType
}

func schemaKinds(s schemaNode) ([]string, bool) {
	var one string
	var many []string
	switch {
	case json.Unmarshal(s.Type, &one) == nil:
		return []string{one}, true
	case json.Unmarshal(s.Type, &many) == nil && len(many) > 0:
		return many, true
	case len(s.Properties) > 0:
		return []string{"object"}, true
	}
	seen := map[string]bool{}
	for _, v := range s.Enum {
		switch v.(type) {
		case string:
			seen["string"] = true
		case nil:
			seen["null"] = true
		default:
			return nil, false
		}
	}
	var kinds []string
	for k := range seen {
		kinds = append(kinds, k)
	}
	sort.Strings(kinds)
	return kinds, len(kinds) > 0
}

func (r *schemaReader) kind(kind string, s schemaNode) *Type {
	switch kind {
	case "null":
		return nullType
	case "boolean":
		return boolType
	case "integer":
		return integerType
	case "number":
		return numberType
	case "string":
		if len(s.Enum) == 0 {
			return stringType
		}
		t := enumOf()
		for _, v := range s.Enum {
			if text, ok := v.(string); ok {
				t.enum = append(t.enum, text)
			}
		}
		return t
	case "array":
		if absent(s.Items) {
			return listOf(nil)
		}
		return listOf(r.read(s.Items))
	case "object":
		return r.object(s)
	}
	return anyType
}

// object is closed when it declares properties and doesn't say otherwise.
func (r *schemaReader) object(s schemaNode) *Type {
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	sort.Strings(names)
	fields := make([]Field, 0, len(names))
	for _, name := range names {
		t := r.read(s.Properties[name])
		if !contains(s.Required, name) {
			t = t.asOptional("it is an optional field")
		}
		fields = append(fields, Field{name, t})
	}
	var rest *Type
	switch extra := strings.TrimSpace(string(s.Additional)); extra {
	case "false":
	case "":
		if len(fields) == 0 {
			rest = anyType
		}
	case "true":
		rest = anyType
	default:
		rest = r.read(s.Additional)
	}
	return objectOf(rest, fields...)
}
