package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/judger"
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
		f.badSchema(schema, err)
		return nil, nil
	}
	c.misspelt(schema, raw, nil)
	if t := c.typeOf(raw); t.base != tObject {
		f.errorf(f.at(schema), "output", "type: object", "the output of a stage is an object")
		return nil, nil
	}
	return raw, compiled
}

// compat reads the old names of properties.
func (c *check) compat(n *yaml.Node, schema json.RawMessage) map[string]string {
	f := c.f
	v := f.get(n, "compat")
	if v == nil || schema == nil {
		return nil
	}
	out := map[string]string{}
	t := c.typeOf(schema)
	for i := 0; i+1 < len(v.Content); i += 2 {
		old, now := v.Content[i], v.Content[i+1]
		switch {
		case f.bad[now]:
		case t.field(old.Value) != nil:
			f.errorf(f.at(old), "output", "leave it out", "'%s' is a property of the schema itself, so that it is no old name", old.Value)
		case t.field(now.Value) == nil:
			f.errorf(f.at(now), "output", suggest("it has: ", now.Value, t.names()), "the schema has no property '%s' that '%s' could be the old name of", now.Value, old.Value)
		default:
			out[old.Value] = now.Value
		}
	}
	return out
}

// Rename gives the properties of an output the names that they have in the
// file's schema, and says which had an old one. Where both names are there,
// neither is touched: which of them counts is not for us to choose.
func (s *Stage) Rename(output json.RawMessage) (json.RawMessage, []string, error) {
	if len(s.Compat) == 0 {
		return output, nil, nil
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(output, &m); err != nil {
		return output, nil, nil // the schema says what is wrong with it
	}
	var renamed []string
	for _, old := range slices.Sorted(maps.Keys(s.Compat)) {
		now := s.Compat[old]
		if m[old] == nil || m[now] != nil {
			continue
		}
		m[now] = m[old]
		delete(m, old)
		renamed = append(renamed, old)
	}
	if renamed == nil {
		return output, nil, nil
	}
	out, err := chat.Marshal(m)
	if err != nil {
		return nil, nil, fmt.Errorf("rename properties of the output: %w", err)
	}
	return out, renamed, nil
}

// unread warns of required outputs, declared in the file, that nobody reads, and
// of findings in a loop that nobody reads: its next pass would be blind.
func (c *check) unread() {
	f := c.f
	nobody := map[string][]string{}
	for _, p := range c.flat {
		s := p.stage
		if s.ID == "" {
			continue
		}
		declared := s.Output != nil
		props := f.get(f.get(f.get(p.node, "output"), "schema"), "properties")
		for _, field := range c.ownOutput(s) {
			blind := field.Name == "findings" && c.looped(s)
			if field.Type.optional && !blind || c.isRead(s.ID, field.Name) {
				continue
			}
			nobody[s.ID] = append(nobody[s.ID], field.Name)
			switch k, _ := lookup(props, field.Name); {
			case declared && !field.Type.optional:
				f.warnf(f.at(k), "unread", "read it in a later stage, or take it out of 'required'", "nothing reads %s.output.%s, though it is required", s.ID, field.Name)
			case blind:
				f.warnf(f.at(f.get(p.node, "uses")), "unread", "tell them to a stage of the loop, such as in its prompt: ${{ "+s.ID+".output?.findings ?? [] | join('; ') }}",
					"nothing reads %s.output.findings, so that the next pass would not know what to do better", s.ID)
			}
		}
	}
	c.meant(nobody)
}

// ownOutput are the fields of an output that the file declares, or else those
// that the component has beside what its kind always has.
func (c *check) ownOutput(s *Stage) []Field {
	if s.Output != nil {
		return c.typeOf(s.Output).fields
	}
	if s.Kind != component.Judger || absent(s.Descriptor.Output) {
		return nil
	}
	every := c.typeOf(judger.Output)
	return slices.DeleteFunc(slices.Clone(c.typeOf(s.Descriptor.Output).fields), func(f Field) bool { return every.field(f.Name) != nil })
}

// looped says whether a stage is in the body of a loop.
func (c *check) looped(s *Stage) bool {
	return slices.ContainsFunc(c.flat, func(p placed) bool { return p.stage.Loop != nil && slices.Contains(p.stage.Loop.Stages, s) })
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
