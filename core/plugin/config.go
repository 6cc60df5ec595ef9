package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// ValidateConfig checks a config against the schema that the component
// describes. The error is a *schema.Error with the JSON Pointer of the first
// value at fault, which is the key itself where a key is unknown. A component
// without a schema takes no config.
func ValidateConfig(d component.Descriptor, config json.RawMessage) error {
	return validate(d.Config, config, "config")
}

// ValidateInput checks an input, with all of its expressions put in, in the
// same way.
func ValidateInput(d component.Descriptor, input json.RawMessage) error {
	return validate(d.Input, input, "input")
}

const nothing = `{"type":"object","additionalProperties":false}`

func validate(rules, value json.RawMessage, what string) error {
	if len(rules) == 0 {
		rules = json.RawMessage(nothing)
	}
	if len(bytes.TrimSpace(value)) == 0 || string(bytes.TrimSpace(value)) == "null" {
		value = json.RawMessage("{}")
	}
	compiled, properties, err := compile(rules, what)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return &schema.Error{Message: fmt.Sprintf("the %s is not JSON: %v", what, err)}
	}
	err = compiled.Validate(v)
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		return explain(deepest(invalid), properties)
	}
	return err
}

// compile compiles a schema and lists the property names of its root.
func compile(rules json.RawMessage, what string) (*jsonschema.Schema, []string, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(rules))
	if err != nil {
		return nil, nil, fmt.Errorf("its %s schema is not JSON: %w", what, err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource("plugin:///schema", parsed); err != nil {
		return nil, nil, fmt.Errorf("its %s schema: %w", what, err)
	}
	s, err := c.Compile("plugin:///schema")
	if err != nil {
		return nil, nil, fmt.Errorf("its %s schema: %w", what, err)
	}
	var names []string
	for name := range s.Properties {
		names = append(names, name)
	}
	sort.Strings(names)
	return s, names, nil
}

// noLoader keeps a plugin's schema from reading files or the network.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a plugin's schema refers to %s, it must stand alone", url)
}

// checkSchemas reports a descriptor whose schemas can't be used: one that
// isn't a schema, or a name that config and input share.
func checkSchemas(d component.Descriptor) error {
	names := map[string]bool{}
	for _, s := range []struct {
		what  string
		rules json.RawMessage
	}{{"config", d.Config}, {"input", d.Input}, {"output", d.Output}} {
		if len(s.rules) == 0 {
			continue
		}
		_, properties, err := compile(s.rules, s.what)
		if err != nil {
			return err
		}
		for _, p := range properties {
			if s.what == "input" && names[p] {
				return fmt.Errorf("%q is a name of both its config and its input", p)
			}
			if s.what == "config" {
				names[p] = true
			}
		}
	}
	return nil
}

// deepest follows the first cause down to where there is no other. An unknown
// field goes first among causes, as a missing one may be what was mistyped.
func deepest(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(e.Causes) > 0 {
		next := e.Causes[0]
		for _, c := range e.Causes {
			if _, unknown := c.ErrorKind.(*kind.AdditionalProperties); unknown {
				next = c
				break
			}
		}
		e = next
	}
	return e
}

func explain(e *jsonschema.ValidationError, root []string) *schema.Error {
	var pointer strings.Builder
	for _, token := range e.InstanceLocation {
		pointer.WriteString("/" + doc.Escape(token))
	}
	text := e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		sort.Strings(k.Properties)
		name := k.Properties[0]
		pointer.WriteString("/" + doc.Escape(name))
		text = "unknown field"
		if len(e.InstanceLocation) == 0 {
			if near := nearest(name, root); near != "" {
				text += fmt.Sprintf(", did you mean %q?", near)
			}
		}
	case *kind.Required:
		text = "missing " + strings.Join(k.Missing, ", ")
	case *kind.Type:
		text = fmt.Sprintf("is %s, want %s", k.Got, strings.Join(k.Want, " or "))
	}
	return &schema.Error{Pointer: pointer.String(), Message: text}
}

// nearest is the name that differs least from a mistyped one, "" if none is
// near enough to be meant.
func nearest(name string, names []string) string {
	best, limit := "", len(name)/3+1
	for _, n := range names {
		if d := distance(name, n); d <= limit {
			best, limit = n, d-1
		}
	}
	return best
}

// distance is the Levenshtein distance of two short strings.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		left := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := left
			if a[i-1] != b[j-1] {
				cost++
			}
			left = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
