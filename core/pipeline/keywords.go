package pipeline

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	errkind "github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
)

// invalidSchema says what in a schema is wrong, and where.
type invalidSchema struct{ faults []violation }

func (e *invalidSchema) Error() string {
	var parts []string
	for _, v := range e.faults {
		text := v.message
		if v.hint != "" {
			text += ", " + v.hint
		}
		parts = append(parts, pointer(v.at)+": "+text)
	}
	return strings.Join(parts, "; ")
}

// schemaError is why a schema doesn't compile, in words about the schema alone.
func schemaError(err error) error {
	var invalid *jsonschema.SchemaValidationError
	var e *jsonschema.ValidationError
	if !errors.As(err, &invalid) || !errors.As(invalid.Err, &e) {
		return errors.New(withoutURL(firstLine(err.Error())))
	}
	var all []violation
	schemaFaults(e, &all)
	var out []violation
	for _, v := range all {
		if !slices.ContainsFunc(out, func(o violation) bool { return slices.Equal(o.at, v.at) }) {
			out = append(out, v)
		}
	}
	return &invalidSchema{out}
}

// withoutURL leaves out the name that a schema has inside of the library.
func withoutURL(text string) string {
	before, after, ok := strings.Cut(text, "file://")
	if !ok {
		return text
	}
	if _, fragment, ok := strings.Cut(after, "plugin.json"); ok {
		return before + fragment
	}
	return text
}

// schemaFaults collects the innermost causes. Of what may have several forms the
// one counts that names the values that there are.
func schemaFaults(e *jsonschema.ValidationError, out *[]violation) {
	causes := e.Causes
	switch e.ErrorKind.(type) {
	case *errkind.AnyOf, *errkind.OneOf:
		if i := slices.IndexFunc(causes, fitsEnum); i >= 0 {
			causes = causes[i : i+1]
		} else if d := deepest(e, len(e.InstanceLocation)); d != nil {
			causes = []*jsonschema.ValidationError{d}
		}
	}
	if len(causes) == 0 {
		message, hint := explain(e.ErrorKind)
		if !strings.HasPrefix(hint, "did you mean") { // the message lists them
			hint = ""
		}
		*out = append(*out, violation{at: e.InstanceLocation, message: message, hint: hint})
	}
	for _, c := range causes {
		schemaFaults(c, out)
	}
}

// fitsEnum says whether a text was compared with the texts that there are.
func fitsEnum(e *jsonschema.ValidationError) bool {
	if k, ok := e.ErrorKind.(*errkind.Enum); ok {
		_, text := k.Got.(string)
		return text
	}
	return slices.ContainsFunc(e.Causes, fitsEnum)
}

// badSchema reports what is wrong with a schema of the file, each fault where it
// stands.
func (f *File) badSchema(schema *yaml.Node, err error) {
	var invalid *invalidSchema
	if !errors.As(err, &invalid) {
		f.errorf(f.at(schema), "output", "", "this is no JSON Schema: %s", err)
		return
	}
	for _, v := range invalid.faults {
		f.errorf(f.at(descend(schema, v.at)), "output", v.hint, "this is no JSON Schema: at %s of it %s", place(v.at), v.message)
	}
}

// place is a JSON pointer, "/" being the whole.
func place(at []string) string {
	if len(at) == 0 {
		return "/"
	}
	return pointer(at)
}

// descend is the node at a place of a value, or the last one on the way that is
// there.
func descend(n *yaml.Node, at []string) *yaml.Node {
	for _, name := range at {
		next := (*yaml.Node)(nil)
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		switch n.Kind {
		case yaml.MappingNode:
			_, next = lookup(n, name)
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(n.Content) {
				next = n.Content[i]
			}
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// What the keywords of a schema hold: other schemas, by name or in a list, one
// schema, or what is no schema.
var (
	keywordsNamed = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	keywordsInner = []string{
		"items", "prefixItems", "additionalItems", "contains", "additionalProperties", "propertyNames", "unevaluatedItems",
		"unevaluatedProperties", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "contentSchema",
	}
	keywordsPlain = []string{
		"$schema", "$id", "$anchor", "$ref", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary", "$comment", "id",
		"type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern",
		"maxItems", "minItems", "uniqueItems", "maxContains", "minContains", "maxProperties", "minProperties", "required", "dependentRequired",
		"dependencies", "format", "contentEncoding", "contentMediaType",
		"title", "description", "default", "deprecated", "readOnly", "writeOnly", "examples", "example", "nullable", "discriminator", "externalDocs", "xml",
	}
)

// misspelt warns of the keywords of a schema that are none: JSON Schema passes
// over them, so that what they were meant to demand is not demanded.
func (c *check) misspelt(schema *yaml.Node, raw json.RawMessage, at []string) {
	var object map[string]json.RawMessage
	var list []json.RawMessage
	switch {
	case len(at) > maxDepth:
	case json.Unmarshal(raw, &list) == nil:
		for i, item := range list {
			c.misspelt(schema, item, append(at[:len(at):len(at)], strconv.Itoa(i)))
		}
	case json.Unmarshal(raw, &object) == nil:
		for _, name := range slices.Sorted(maps.Keys(object)) {
			c.keyword(schema, name, object[name], at)
		}
	}
}

func (c *check) keyword(schema *yaml.Node, name string, raw json.RawMessage, at []string) {
	inner := append(at[:len(at):len(at)], name)
	switch {
	case slices.Contains(keywordsPlain, name) || strings.HasPrefix(name, "x-"):
	case slices.Contains(keywordsInner, name):
		c.misspelt(schema, raw, inner)
	case slices.Contains(keywordsNamed, name):
		var of map[string]json.RawMessage
		if json.Unmarshal(raw, &of) != nil {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(of)) {
			c.misspelt(schema, of[key], append(inner[:len(inner):len(inner)], key))
		}
	default:
		k, _ := lookup(descend(schema, at), name)
		if k == nil {
			k = schema
		}
		hint := suggest("", name, slices.Concat(keywordsNamed, keywordsInner, keywordsPlain))
		if hint == "" {
			hint = "leave it out, or call it x-" + name
		}
		c.f.warnf(c.f.at(k), "output", hint, "JSON Schema has no keyword '%s', so that it demands nothing", name)
	}
}
