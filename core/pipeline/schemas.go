package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	errkind "github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// schemaSet compiles the schemas of plugins, each once.
type schemaSet struct{ compiled map[string]*jsonschema.Schema }

type noLoader struct{}

// Load implements jsonschema.URLLoader: a plugin's schema stands alone.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s, which is outside of it", url)
}

func (s *schemaSet) compile(raw json.RawMessage) (*jsonschema.Schema, error) {
	if c := s.compiled[string(raw)]; c != nil {
		return c, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.AssertFormat()
	c.RegisterFormat(&jsonschema.Format{Name: "duration", Validate: goDuration})
	for _, name := range []string{"name-or-file", "secret"} { // see sdk/schema
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(any) error { return nil }})
	}
	c.RegisterFormat(&jsonschema.Format{Name: "names-differ", Validate: namesDiffer})
	const url = "plugin.json"
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	out, err := c.Compile(url)
	if err != nil {
		return nil, schemaError(err)
	}
	if s.compiled == nil {
		s.compiled = map[string]*jsonschema.Schema{}
	}
	s.compiled[string(raw)] = out
	return out, nil
}

// namesDiffer is the format "names-differ" of the sdk's schemas: of a list, no two
// objects have one name. An empty one may stand in for an expression.
func namesDiffer(v any) error {
	list, _ := v.([]any)
	seen := map[string]bool{}
	for _, item := range list {
		object, _ := item.(map[string]any)
		name, _ := object["name"].(string)
		if name != "" && seen[name] {
			return fmt.Errorf("the name '%s' is given twice", name)
		}
		seen[name] = true
	}
	return nil
}

// goDuration is the format "duration" of the sdk's schemas: 30s, 10m.
func goDuration(v any) error {
	s, ok := v.(string)
	if !ok {
		return nil
	}
	_, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want a duration such as 30s or 10m")
	}
	return nil
}

// violation is one thing that a schema doesn't allow, at a place of the value.
type violation struct {
	at      []string
	message string
	hint    string
	unknown string   // the property, when it is an unknown one
	among   []string // the properties that there are
	missing string   // the property, when one is missing
	want    []string // the kinds, when the value is of another
	// blunt says that the violation is of the value as a whole, such as of
	// oneOf.
	blunt bool
}

// violations flattens what the validator says.
func violations(s *jsonschema.Schema, v any) []violation {
	var e *jsonschema.ValidationError
	err := s.Validate(v)
	if err == nil {
		return nil
	}
	if !errors.As(err, &e) {
		return []violation{{message: err.Error()}}
	}
	var out []violation
	flatten(e, s, &out)
	return out
}

var printer = message.NewPrinter(language.English)

func flatten(e *jsonschema.ValidationError, root *jsonschema.Schema, out *[]violation) {
	switch k := e.ErrorKind.(type) {
	case *errkind.AnyOf, *errkind.OneOf:
		if d := deepest(e, len(e.InstanceLocation)); d != nil {
			flatten(d, root, out)
			return
		}
		*out = append(*out, violation{at: e.InstanceLocation, message: "the value is of none of the allowed forms", blunt: true})
		return
	case *errkind.AdditionalProperties:
		for _, p := range k.Properties {
			*out = append(*out, violation{at: e.InstanceLocation, unknown: p, among: propertiesAt(root, e.InstanceLocation)})
		}
		return
	case *errkind.Required:
		for _, p := range k.Missing {
			at := append(e.InstanceLocation[:len(e.InstanceLocation):len(e.InstanceLocation)], p)
			*out = append(*out, violation{at: e.InstanceLocation, missing: p, hint: settingHint(root, at, nil)})
		}
		return
	}
	if len(e.Causes) > 0 {
		for _, c := range e.Causes {
			flatten(c, root, out)
		}
		return
	}
	v := violation{at: e.InstanceLocation}
	v.message, v.hint = explain(e.ErrorKind)
	if t, ok := e.ErrorKind.(*errkind.Type); ok {
		v.want, v.hint = t.Want, settingHint(root, e.InstanceLocation, t.Want)
	}
	*out = append(*out, v)
}

// deepest is the cause that lies deeper in the value than its parent: the form
// that was most likely meant.
func deepest(e *jsonschema.ValidationError, than int) *jsonschema.ValidationError {
	var best *jsonschema.ValidationError
	for _, c := range e.Causes {
		d := c
		if len(c.InstanceLocation) <= than && len(c.Causes) > 0 {
			d = deepest(c, than)
		}
		if d != nil && len(d.InstanceLocation) > than && (best == nil || len(d.InstanceLocation) > len(best.InstanceLocation)) {
			best = d
		}
	}
	return best
}

func explain(k jsonschema.ErrorKind) (text, hint string) {
	switch t := k.(type) {
	case *errkind.Type:
		return fmt.Sprintf("this is %s, want %s", article(t.Got), strings.Join(articles(t.Want), " or ")), ""
	case *errkind.Enum:
		var want []string
		for _, w := range t.Want {
			if s, ok := w.(string); ok {
				want = append(want, s)
			}
		}
		if got, ok := t.Got.(string); ok && len(want) == len(t.Want) {
			return fmt.Sprintf("'%s' is not one of %s", got, quoteAll(want, ", ")), suggest("", got, want)
		}
		return fmt.Sprintf("%v is not one of %v", t.Got, t.Want), ""
	case *errkind.MinItems:
		return fmt.Sprintf("the list has %d items, want at least %d", t.Got, t.Want), ""
	case *errkind.MinLength:
		if t.Got == 0 {
			return "the text is empty", ""
		}
	case *errkind.Format:
		if _, ok := t.Got.([]any); ok {
			return t.Err.Error(), ""
		}
		return fmt.Sprintf("'%v': %v", t.Got, t.Err), ""
	}
	return k.LocalizedString(printer), ""
}

func article(kind string) string {
	switch kind {
	case "null":
		return "null"
	case "array":
		return "a list"
	case "integer", "object":
		return "an " + kind
	}
	return "a " + kind
}

func articles(kinds []string) []string {
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = article(k)
	}
	return out
}

// schemaAt is what a schema says of a place, nil if nothing.
func schemaAt(s *jsonschema.Schema, at []string) *jsonschema.Schema {
	for _, name := range at {
		for s != nil && s.Ref != nil {
			s = s.Ref
		}
		if s == nil {
			return nil
		}
		switch p := s.Properties[name]; {
		case p != nil:
			s = p
		default:
			s = itemSchema(s)
		}
	}
	for s != nil && s.Ref != nil {
		s = s.Ref
	}
	return s
}

// propertiesAt lists the properties that a schema knows at a place.
func propertiesAt(s *jsonschema.Schema, at []string) []string {
	if s = schemaAt(s, at); s == nil {
		return nil
	}
	var out []string
	for name := range s.Properties {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

func itemSchema(s *jsonschema.Schema) *jsonschema.Schema {
	if a, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
		return a
	}
	if s.Items2020 != nil {
		return s.Items2020
	}
	i, _ := s.Items.(*jsonschema.Schema)
	return i
}

// withoutMeant leaves out what is missing where an unknown name beside it
// likely stands for it.
func withoutMeant(all []violation) []violation {
	meant := map[string]bool{}
	for _, v := range all {
		if v.unknown != "" {
			meant[pointer(append(v.at[:len(v.at):len(v.at)], nearest(v.unknown, v.among)))] = true
		}
	}
	return slices.DeleteFunc(all, func(v violation) bool {
		return v.missing != "" && meant[pointer(append(v.at[:len(v.at):len(v.at)], v.missing))]
	})
}

func (v violation) text() string {
	switch {
	case v.unknown != "":
		text := fmt.Sprintf("unknown field '%s'", v.unknown)
		if hint := suggest("it has: ", v.unknown, v.among); hint != "" {
			text += ", " + hint
		}
		return text
	case v.missing != "":
		return fmt.Sprintf("'%s' is missing", v.missing)
	}
	return v.message
}

// violationText is what a validator's error says, in a line.
func violationText(s *jsonschema.Schema, v any) string {
	var parts []string
	for _, x := range violations(s, v) {
		at := "/" + strings.Join(x.at, "/")
		parts = append(parts, at+": "+x.text())
	}
	return strings.Join(parts, "; ")
}
