package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// sample is a value of a shape as it may be written, "" where there is no
// good one.
func (s *shape) sample() string {
	if s.example != "" {
		return s.example
	}
	switch s.kind {
	case kInteger:
		return fmt.Sprint(max(s.min, 2))
	case kNumber:
		return "0.5"
	case kBoolean:
		return "true"
	case kDuration:
		return "30s"
	case kSize:
		return "64MiB"
	case kChoice:
		return s.choices[0]
	case kExpr:
		return `"${{ ... }}"`
	case kList:
		if item := s.of.sample(); item != "" {
			return "[" + item + "]"
		}
	case kEither:
		for _, alt := range s.alts {
			if sample := alt.sample(); sample != "" {
				return sample
			}
		}
	case kObject:
		return s.objectSample()
	}
	return ""
}

// objectSample has the keys that must be there, or else one of the others.
func (s *shape) objectSample() string {
	var must []string
	one := ""
	for _, f := range s.fields {
		if !f.required && one != "" {
			continue
		}
		sample := f.shape.sample()
		switch {
		case sample == "":
		case f.required:
			must = append(must, f.name+": "+sample)
		default:
			one = f.name + ": " + sample
		}
	}
	if len(must) > 0 {
		one = strings.Join(must, ", ")
	}
	if one == "" {
		return ""
	}
	return "{ " + one + " }"
}

// suchAs is the hint that shows how a key is written, and what it means.
func suchAs(name string, s *shape) string {
	hint := ""
	if sample := s.sample(); sample != "" {
		hint = "such as " + key(name) + ": " + sample
	}
	return meaning(hint, s.doc)
}

// meaning adds to a hint what a key is for.
func meaning(hint, doc string) string {
	switch {
	case doc == "":
		return hint
	case hint == "":
		return doc
	}
	return hint + " (" + doc + ")"
}

// key is the last part of a name such as stages[0]; an item has none.
func key(name string) string {
	name, _, _ = strings.Cut(name, "[")
	return name
}

// unquotedHint is for a number or a truth value that was given as text.
func unquotedHint(n *yaml.Node, name string, s *shape) string {
	if n.Kind == yaml.ScalarNode && isText(n) {
		if t := bareTag(n); s.kind == kInteger && t == "!!int" || s.kind == kNumber && (t == "!!int" || t == "!!float") || s.kind == kBoolean && t == "!!bool" {
			return "without quotes: " + key(name) + ": " + n.Value
		}
		switch strings.ToLower(n.Value) {
		case "yes", "on":
			if s.kind == kBoolean {
				return "write true"
			}
		case "no", "off":
			if s.kind == kBoolean {
				return "write false"
			}
		}
	}
	return suchAs(name, s)
}

// bareTag is what a text would be without its quotes.
func bareTag(n *yaml.Node) string {
	bare := *n
	bare.Tag, bare.Style = "", 0
	return bare.ShortTag()
}

// listHint is for a list that was given as a text.
func listHint(n *yaml.Node, name string, s *shape) string {
	if n.Kind != yaml.ScalarNode {
		return suchAs(name, s)
	}
	words := strings.Fields(n.Value)
	switch {
	case !s.argv || len(words) < 2:
		return "write a list: [" + n.Value + "]"
	case strings.ContainsAny(n.Value, "|&;<>()$`\"'*?"):
		return "a command line is a list of words; a shell's is [sh, -c, '" + strings.ReplaceAll(n.Value, "'", "''") + "']"
	}
	return "a command line is a list of words: [" + strings.Join(words, ", ") + "]"
}

// samples are values by the name of their kind in JSON Schema.
var samples = map[string]string{
	"string": "some text", "integer": "3", "number": "0.5", "boolean": "true", "array": "[one, two]", "object": "{ ... }", "null": "null",
}

// settingHint shows how a setting of a plugin is written: with a value of one
// of the kinds, and what its schema says of it.
func settingHint(root *jsonschema.Schema, at []string, kinds []string) string {
	if len(at) == 0 {
		return ""
	}
	s := schemaAt(root, at)
	if s != nil && len(kinds) == 0 && s.Types != nil {
		kinds = s.Types.ToStrings()
	}
	hint := ""
	if name := at[len(at)-1]; len(kinds) > 0 && !isIndex(name) {
		kind := kinds[0]
		if slices.Contains(kinds, "array") {
			kind = "array"
		}
		hint = "such as " + name + ": " + settingSample(s, kind, 0)
	}
	if s == nil {
		return hint
	}
	return meaning(hint, s.Description)
}

// settingSample is a value of a kind as the schema has it: one of its choices, a
// list of what it lists, an object with the keys that it needs.
func settingSample(s *jsonschema.Schema, kind string, depth int) string {
	for s != nil && s.Ref != nil {
		s = s.Ref
	}
	if s == nil || depth > 3 {
		return samples[kind]
	}
	of := func(s *jsonschema.Schema) string {
		for s != nil && s.Ref != nil {
			s = s.Ref
		}
		if s == nil || s.Types == nil || len(s.Types.ToStrings()) == 0 {
			return samples["string"]
		}
		return settingSample(s, s.Types.ToStrings()[0], depth+1)
	}
	switch item := itemSchema(s); {
	case s.Enum != nil && len(s.Enum.Values) > 0 && s.Enum.Values[0] != nil && s.Enum.Values[0] != "":
		return fmt.Sprint(s.Enum.Values[0])
	case kind == "array" && item != nil && item.Types != nil && slices.Contains(item.Types.ToStrings(), "object"):
		return "[" + of(item) + "]"
	case kind == "object" && len(s.Required) > 0:
		var fields []string
		for _, name := range s.Required {
			fields = append(fields, name+": "+of(s.Properties[name]))
		}
		return "{ " + strings.Join(fields, ", ") + " }"
	}
	return samples[kind]
}

// mended is the hint for a value of a wrong kind that needs only other marks,
// "" for any other.
func mended(n *yaml.Node, name string, want []string) string {
	if n.Kind != yaml.ScalarNode || len(want) != 1 {
		return ""
	}
	name = name[strings.LastIndexByte(name, '.')+1:] + ": "
	if isIndex(strings.TrimSuffix(name, ": ")) {
		name = "" // an item of a list
	}
	switch tag := bareTag(n); {
	case want[0] == "array":
		return "write a list: " + name + "[" + n.Value + "]"
	case want[0] == "string":
		return "put it in quotes: " + name + `"` + n.Value + `"`
	case want[0] == "integer" && tag == "!!int", want[0] == "number" && (tag == "!!int" || tag == "!!float"), want[0] == "boolean" && tag == "!!bool":
		return "without quotes: " + name + n.Value
	}
	return ""
}

func isIndex(name string) bool { return name != "" && strings.Trim(name, "0123456789") == "" }
