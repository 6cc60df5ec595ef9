package pipeline

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// outputSchema reads the schema that the file gives for a stage's output.
func (c *check) outputSchema(n *yaml.Node) (json.RawMessage, *jsonschema.Schema) {
	f := c.f
	schema := f.get(n, "schema")
	if schema == nil {
		return nil, nil
	}
	raw, err := f.toJSON(schema, nil)
	if err != nil {
		c.jsonError(err)
		return nil, nil
	}
	compiled, err := c.schemas.compile(raw)
	if err != nil {
		f.errorf(f.at(schema), "output", "", "this is no JSON Schema: %s", err)
		return nil, nil
	}
	if t := c.typeOf(raw); t.base != tObject {
		f.errorf(f.at(schema), "output", "type: object", "the output of a stage is an object")
		return nil, nil
	}
	return raw, compiled
}

// unread warns of required outputs, declared in the file, that nobody reads.
func (c *check) unread() {
	f := c.f
	nobody := map[string][]string{}
	for _, p := range c.flat {
		if p.stage.Output == nil || p.stage.ID == "" {
			continue
		}
		schema := f.get(f.get(p.node, "output"), "schema")
		props := f.get(schema, "properties")
		for _, field := range c.typeOf(p.stage.Output).fields {
			if !field.Type.optional && !c.isRead(p.stage.ID, field.Name) {
				k, _ := lookup(props, field.Name)
				nobody[p.stage.ID] = append(nobody[p.stage.ID], field.Name)
				f.warnf(f.at(k), "unread", "read it in a later stage, or take it out of 'required'", "nothing reads %s.output.%s, though it is required", p.stage.ID, field.Name)
			}
		}
	}
	c.meant(nobody)
}

// meant adds to what is said of an unknown output the one that the reader most
// likely meant: the only one of that stage that nobody reads.
func (c *check) meant(nobody map[string][]string) {
	for stage, fields := range nobody {
		for i := range c.f.found {
			d := &c.f.found[i]
			if len(fields) == 1 && d.Code == "unknown-field" && strings.HasPrefix(d.Message, stage+".output has no field") && !strings.HasPrefix(d.Hint, "did you mean") {
				d.Hint = "did you mean '" + fields[0] + "', which nothing reads? " + d.Hint
			}
		}
	}
}

func (c *check) isRead(stage, field string) bool {
	whole := stage + ".output." + field
	for _, r := range c.reads {
		if r.Value == stage || r.Value == stage+".output" || r.Value == whole || len(r.Value) > len(whole) && r.Value[:len(whole)+1] == whole+"." {
			return true
		}
	}
	return false
}

// CheckOutput validates what a stage wrote against the schema of the file;
// without one everything will do.
func (s *Stage) CheckOutput(output json.RawMessage) error {
	if s.output == nil {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(output))
	if err != nil {
		return &OutputError{"it is no JSON: " + err.Error()}
	}
	if s.output.Validate(v) != nil {
		return &OutputError{violationText(s.output, v)}
	}
	return nil
}

// OutputError says what of a stage's output the file's schema doesn't allow.
type OutputError struct{ What string }

func (e *OutputError) Error() string { return "the output doesn't fit the file's schema: " + e.What }
