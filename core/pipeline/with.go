package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// settings is what `with:` gives to one component.
type settings struct {
	config json.RawMessage
	input  *Template
	takes  *jsonschema.Schema // what input must fit; nil when it takes none
}

// part of a component's schemas that decides where a key of `with` goes.
type side struct {
	name   string
	raw    json.RawMessage
	schema *jsonschema.Schema
	typ    *Type
	open   bool // takes keys that it doesn't name
}

func (c *check) side(n *yaml.Node, d component.Descriptor, name string, raw json.RawMessage) *side {
	s := &side{name: name, raw: raw}
	if absent(raw) {
		return s
	}
	schema, err := c.schemas.compile(raw)
	if err != nil {
		c.f.errorf(c.f.at(n), "plugin", "the plugin's author has to mend it", "%s declares no valid %s schema: %s", d.ID(), name, err)
		return s
	}
	s.schema = schema
	s.typ = c.typeOf(raw)
	s.open = s.typ.base != tObject || s.typ.rest != nil
	return s
}

func (s *side) has(key string) bool { return s.typ != nil && s.typ.field(key) != nil }

func (s *side) names() []string {
	if s.typ == nil {
		return nil
	}
	return s.typ.names()
}

// settings splits the `with` of holder by the component's schemas and checks
// both halves. Findings about what is missing point to `with`, or to at when
// there is none. sc is nil where no expression may stand.
func (c *check) settings(at, holder *yaml.Node, d component.Descriptor, sc *scope, stage string) settings {
	f := c.f
	config := c.side(at, d, "config", d.Config)
	input := c.side(at, d, "input", d.Input)
	if sc == nil {
		input = &side{name: "input"}
	}
	key, with := lookup(holder, "with")
	uses := at
	if key != nil {
		at = key
	}
	if with != nil && with.Kind != yaml.MappingNode && with.Tag != "!!null" {
		f.errorf(f.at(with), "wrong-kind", "", "'with' is an object, this is %s", kindName(with))
		return settings{}
	}
	spare := &side{name: "spare", raw: config.raw, schema: config.schema, typ: config.typ}
	halves := map[*side]*yaml.Node{config: c.half(with), input: c.half(with), spare: c.half(with)}
	if with != nil {
		for i := 0; i+1 < len(with.Content); i += 2 {
			key, value := with.Content[i], with.Content[i+1]
			to := input
			switch {
			case config.has(key.Value) && c.ofOtherMode(holder, &d, key.Value):
				halves[spare].Content = append(halves[spare].Content, key, value)
				continue
			case config.has(key.Value):
				to = config
			case input.has(key.Value):
			case input.open:
			case config.open:
				to = config
			default:
				known := append(config.names(), input.names()...)
				c.unknownSetting(key, d, known)
				for _, half := range halves {
					f.means(half, nearest(key.Value, known))
				}
				continue
			}
			halves[to].Content = append(halves[to].Content, key, value)
		}
	}
	for v := range spare.formatted(halves[spare], "secret") {
		c.secret(v, "a secret")
	}
	c.findPrograms(uses, halves[config], config, d)
	c.findPrograms(uses, halves[input], input, d)
	out := settings{config: c.config(at, halves[config], config, d), takes: input.schema}
	c.known(at, out.config, d)
	out.input = c.input(at, halves[input], input, d, sc, stage)
	return out
}

func (c *check) half(with *yaml.Node) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1, Column: 1}
	if with != nil {
		n.Line, n.Column = with.Line, with.Column
		if src := c.f.origin[with]; src != nil {
			c.f.origin[n] = src
		}
	}
	return n
}

func (c *check) unknownSetting(key *yaml.Node, d component.Descriptor, known []string) {
	hint := suggest("it takes: ", key.Value, known)
	if len(known) == 0 {
		hint = "it takes no settings"
	}
	c.f.errorf(c.f.at(key), "unknown-setting", hint, "%s has no setting '%s'", d.ID(), key.Value)
}

// config checks the settings that are given once, at the start.
func (c *check) config(at, n *yaml.Node, s *side, d component.Descriptor) json.RawMessage {
	f := c.f
	failed := false
	files := s.formatted(n, "name-or-file")
	for v := range s.formatted(n, "secret") {
		c.secret(v, "a secret")
	}
	raw, err := f.toJSON(n, func(leaf *yaml.Node) []byte {
		if files[leaf] {
			before := len(f.found)
			path := c.pathOrName(leaf, ".yaml", ".yml")
			failed = failed || len(f.found) > before
			return quoted(path)
		}
		if i := strings.Index(leaf.Value, opening); i >= 0 {
			failed = true
			hint := ""
			if names := c.inputNames(d); len(names) > 0 {
				hint = "these take one: " + list3(names)
			}
			f.errorf(f.within(leaf, len([]rune(leaf.Value[:i]))), "config", hint,
				"this is a setting of %s, given once at the start: it takes no ${{ }}", d.ID())
		}
		return quoted(c.value(leaf))
	})
	if err != nil {
		c.jsonError(err)
		return nil
	}
	if s.schema == nil || failed {
		return raw
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		f.errorf(f.at(at), "config", "", "read the settings of %s: %s", d.ID(), err)
		return nil
	}
	found := violations(s.schema, v)
	for _, x := range withoutMeant(found) {
		c.violation(at, n, x, d)
	}
	if opener, ok := c.cat.(ConfigChecker); ok && len(found) == 0 {
		c.refused(at, n, d, opener.CheckConfig(d.Kind, d.Name, raw))
	}
	return raw
}

// refused reports what a component itself says of its config.
func (c *check) refused(at, n *yaml.Node, d component.Descriptor, err error) {
	if err == nil {
		return
	}
	var field *schema.Error
	if errors.As(err, &field) && field.Pointer != "" {
		c.violation(at, n, violation{at: strings.Split(strings.TrimPrefix(field.Pointer, "/"), "/"), message: field.Message}, d)
		return
	}
	c.f.errorf(c.f.at(at), "setting", "", "%s can't be used so: %s", d.ID(), err)
}

// formatted are the texts under n to which the schema gives a format of ours; see
// sdk/schema.
func (s *side) formatted(n *yaml.Node, format string) map[*yaml.Node]bool {
	if s.schema == nil {
		return nil
	}
	var out map[*yaml.Node]bool
	for name, p := range s.schema.Properties {
		if p.Format == nil || p.Format.Name != format {
			continue
		}
		if _, v := lookup(n, name); v != nil && isText(v) && !strings.Contains(v.Value, opening) {
			if out == nil {
				out = map[*yaml.Node]bool{}
			}
			out[v] = true
		}
	}
	return out
}

func (c *check) inputNames(d component.Descriptor) []string {
	if t := c.typeOf(d.Input); t != nil {
		return t.names()
	}
	return nil
}

func list3(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (c *check) jsonError(err error) {
	var at *nodeError
	if errors.As(err, &at) {
		c.f.errorf(c.f.at(at.node), "wrong-kind", "", "%s", at)
	}
}

// violation reports what a schema says of the value under n.
func (c *check) violation(at, n *yaml.Node, x violation, d component.Descriptor) {
	key, node := nodeAt(n, x.at)
	path := strings.Join(x.at, ".")
	switch {
	case x.missing != "" && len(x.at) == 0 && c.f.meant[n][x.missing]:
	case x.missing != "":
		p := c.f.at(at)
		if len(x.at) > 0 && node != nil {
			p = c.f.at(node)
			path += "."
		} else {
			path = ""
		}
		c.f.errorf(p, "missing-setting", x.hint, "%s needs '%s%s'", d.ID(), path, x.missing)
	case x.unknown != "":
		k, _ := lookup(node, x.unknown)
		if k == nil {
			k = at
		}
		c.f.errorf(c.f.at(k), "unknown-setting", suggest("it takes: ", x.unknown, x.among), "%s has no setting '%s'", d.ID(), strings.Join(append(x.at, x.unknown), "."))
	default:
		if node == nil || len(x.at) == 0 {
			node = at
		}
		if hint := mended(node, path, x.want); hint != "" {
			x.hint = hint
		}
		if got := jsonKind(node); got != "" {
			x.message = strings.Replace(x.message, "this is "+got, "this is "+strings.Replace(got, "a ", "the ", 1)+" "+shown(node), 1)
		}
		if node.Kind == yaml.MappingNode && key != nil {
			node = key
		}
		c.f.errorf(c.f.at(node), "setting", x.hint, "'%s' of %s: %s", path, d.ID(), x.message)
	}
}

// nodeAt follows a path of names and indexes; key is the key of the last.
func nodeAt(n *yaml.Node, at []string) (key, value *yaml.Node) {
	for _, name := range at {
		if n == nil {
			return nil, nil
		}
		switch n.Kind {
		case yaml.MappingNode:
			key, n = lookup(n, name)
		case yaml.SequenceNode:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(n.Content) {
				return nil, nil
			}
			key, n = nil, n.Content[i]
		default:
			return nil, nil
		}
	}
	return key, n
}
