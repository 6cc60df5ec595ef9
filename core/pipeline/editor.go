package pipeline

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
)

// Schema is the JSON Schema of a pipeline file, for editors: the tables of the
// decoder, with the settings of every component of the catalog by `uses`. It
// has those Features that are enabled.
func Schema(cat Catalog, enable ...string) ([]byte, error) {
	t := newTables()
	t.file.enable(enable, map[*shape]bool{})
	root := t.file.jsonSchema()
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "penstock pipeline"
	root["required"] = []string{"penstock", "stages"}
	stage := t.stage.definition()
	root["$defs"] = map[string]any{t.stage.def: stage}
	var uses []string
	var rules []any
	for _, kind := range stageKinds {
		for _, name := range cat.Names(kind) {
			d, err := cat.Describe(kind, name)
			if err != nil {
				return nil, fmt.Errorf("describe %s/%s: %w", kind, name, err)
			}
			d.Kind, d.Name = kind, name
			uses = append(uses, d.ID())
			rule, err := usesRule(d, kind)
			if err != nil {
				return nil, err
			}
			rules = append(rules, rule)
		}
	}
	stage["allOf"] = rules
	suggestValues(stage, "uses", uses)
	model := root["properties"].(map[string]any)["models"].(map[string]any)["additionalProperties"].(map[string]any)
	suggestValues(model, "format", append(cat.Names(component.Format), "upstream"))
	b, err := chat.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return indented(b)
}

// enable makes features of a shape, and of what is in it, plain parts of it.
func (s *shape) enable(features []string, seen map[*shape]bool) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	for choice, feature := range s.later {
		if slices.Contains(features, feature) {
			delete(s.later, choice)
		}
	}
	for i := range s.fields {
		if slices.Contains(features, s.fields[i].feature) {
			s.fields[i].feature = ""
		}
		s.fields[i].shape.enable(features, seen)
	}
	s.of.enable(features, seen)
	for _, alt := range s.alts {
		alt.enable(features, seen)
	}
}

func indented(b []byte) ([]byte, error) {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	return json.MarshalIndent(v, "", "  ")
}

// suggestValues lets an editor complete a property without forbidding others,
// such as those of plugins that the file brings itself.
func suggestValues(object map[string]any, name string, values []string) {
	p := object["properties"].(map[string]any)
	s := p[name].(map[string]any)
	p[name] = map[string]any{"description": s["description"], "anyOf": []any{map[string]any{"enum": values}, map[string]any{"type": "string"}}}
}

// usesRule says what `with` and `model` are for one component.
func usesRule(d component.Descriptor, kind string) (any, error) {
	with := map[string]any{"type": "object", "description": d.Summary}
	props, required := map[string]any{}, []string{}
	open := false
	for _, half := range []struct {
		raw   json.RawMessage
		exprs bool
	}{{d.Config, false}, {d.Input, true}} {
		if absent(half.raw) {
			continue
		}
		var s map[string]any
		if err := json.Unmarshal(half.raw, &s); err != nil {
			return nil, fmt.Errorf("read schema of %s: %w", d.ID(), err)
		}
		own, _ := s["properties"].(map[string]any)
		for name, p := range own {
			if half.exprs {
				p = orExpression(p)
			}
			props[name] = p
		}
		for _, r := range anySlice(s["required"]) {
			required = append(required, fmt.Sprint(r))
		}
		open = open || typeOf(half.raw).base != tObject || typeOf(half.raw).rest != nil
	}
	with["properties"] = props
	with["additionalProperties"] = open
	if len(required) > 0 {
		with["required"] = required
	}
	then := map[string]any{"properties": map[string]any{"with": with}}
	var keys []string
	if len(required) > 0 {
		keys = append(keys, "with")
	}
	direct := slices.ContainsFunc(slices.Collect(maps.Values(d.Modes)), func(m component.Mode) bool { return m.Direct })
	if d.Want("model") && !direct { // by a mode that is direct it has none
		keys = append(keys, "model")
	}
	if len(keys) > 0 {
		then["required"] = keys
	}
	return map[string]any{
		"if":   map[string]any{"properties": map[string]any{"uses": map[string]any{"const": d.ID()}}, "required": []string{"uses"}},
		"then": then,
	}, nil
}

func anySlice(v any) []any {
	s, _ := v.([]any)
	return s
}

const exprPattern = `\$\{\{`

// orExpression lets an input be an expression, deep down too: below the first
// level anything goes, because penstock itself checks it.
func orExpression(p any) any {
	s, ok := p.(map[string]any)
	if !ok {
		return p
	}
	if s["type"] == "string" && s["enum"] == nil {
		return orFile(s)
	}
	out := map[string]any{"anyOf": []any{s, map[string]any{"type": "string", "pattern": exprPattern}}}
	if s["type"] == "object" || s["type"] == "array" {
		out = map[string]any{"anyOf": []any{map[string]any{"type": s["type"]}, map[string]any{"type": "string", "pattern": exprPattern}}}
	}
	if d, ok := s["description"]; ok {
		out["description"] = d
	}
	return out
}

// orFile lets a text be the content of a file.
func orFile(s map[string]any) any {
	out := map[string]any{"anyOf": []any{s, map[string]any{
		"type": "object", "required": []string{"file"}, "additionalProperties": false,
		"properties": map[string]any{"file": map[string]any{"type": "string", "description": "a file whose content is the text, with ${{ }} in it"}},
	}}}
	if d, ok := s["description"]; ok {
		out["description"] = d
	}
	return out
}

// jsonSchema is a shape as a JSON Schema.
func (s *shape) jsonSchema() map[string]any {
	if s.def != "" {
		return map[string]any{"$ref": "#/$defs/" + s.def}
	}
	return s.definition()
}

// definition is the schema itself where jsonSchema may only refer to it.
func (s *shape) definition() map[string]any {
	out := map[string]any{}
	if s.doc != "" {
		out["description"] = s.doc
	}
	switch s.kind {
	case kText:
		out["type"] = "string"
	case kInteger:
		out["type"], out["minimum"] = "integer", s.min
	case kNumber:
		out["type"], out["minimum"] = "number", 0
	case kBoolean:
		out["type"] = "boolean"
	case kDuration:
		out["type"], out["pattern"] = "string", `^([0-9.]+(ns|us|µs|ms|s|m|h))+$`
	case kSize:
		out["type"], out["pattern"] = "string", `^[0-9.]+ *(B|KiB|MiB|GiB|KB|MB|GB)$`
	case kChoice:
		out["enum"] = s.choices
	case kExpr:
		out["type"], out["pattern"] = "string", exprPattern
	case kList:
		out["type"], out["items"] = "array", s.of.jsonSchema()
	case kDict:
		out["type"], out["additionalProperties"] = "object", s.of.jsonSchema()
	case kEither:
		var alts []any
		for _, a := range s.alts {
			alts = append(alts, a.jsonSchema())
		}
		out["anyOf"] = alts
	case kObject:
		s.objectSchema(out)
	}
	return out
}

// objectSchema leaves out what isn't built yet, so that editors don't offer it.
func (s *shape) objectSchema(out map[string]any) {
	props := map[string]any{}
	var required []string
	for _, f := range s.fields {
		if f.feature != "" {
			continue
		}
		p := f.shape.jsonSchema()
		if f.shape.kind == kChoice && len(f.shape.later) > 0 {
			built := []string{}
			for _, c := range f.shape.choices {
				if f.shape.later[c] == "" {
					built = append(built, c)
				}
			}
			p["enum"] = built
		}
		props[f.name] = p
		if f.required {
			required = append(required, f.name)
		}
	}
	out["type"], out["properties"], out["additionalProperties"] = "object", props, s.rest
	if len(required) > 0 {
		out["required"] = required
	}
}
