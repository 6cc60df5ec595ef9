package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/component"
)

// builder makes a template of a tree, and beside it a value in which each
// expression is replaced by one of its type, for the schema to check.
type builder struct {
	c     *check
	d     component.Descriptor
	sc    *scope
	stage string
	key   string // of the file, that holds the tree
	// exprs are the places of expressions, as JSON Pointers.
	exprs []string
	ok    bool
}

// input checks what is given with each call.
func (c *check) input(at, n *yaml.Node, s *side, d component.Descriptor, sc *scope, stage string) *Template {
	if s.schema == nil && len(n.Content) == 0 {
		return nil
	}
	b := &builder{c: c, d: d, sc: sc, stage: stage, key: "with", ok: true}
	root, probe := b.build(n, s.typ, nil)
	if s.schema != nil && root != nil {
		b.validate(at, n, s, probe)
	}
	if root == nil {
		return nil
	}
	t := &Template{root: root, where: where(c.f.at(at))}
	if len(b.exprs) > 0 {
		t.schema = s.schema
	} else if b.ok {
		raw, err := root.append(nil, Env{})
		if err == nil {
			t.root = &part{literal: raw}
		}
	}
	return t
}

func (b *builder) validate(at, n *yaml.Node, s *side, probe []byte) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(probe))
	if err != nil {
		b.c.f.errorf(b.c.f.at(at), "setting", "", "read the settings of %s: %s", b.d.ID(), err)
		return
	}
	for _, x := range withoutMeant(violations(s.schema, v)) {
		if !b.stems(x) {
			b.c.violation(at, n, x, b.d)
		}
	}
}

// stems reports whether a violation may come only from the stand-in of an
// expression, whose own type is checked elsewhere.
func (b *builder) stems(x violation) bool {
	at := pointer(x.at)
	for _, e := range b.exprs {
		if at == e || strings.HasPrefix(at, e+"/") || x.blunt && strings.HasPrefix(e, at+"/") {
			return true
		}
	}
	return false
}

func pointer(at []string) string {
	var b strings.Builder
	for _, s := range at {
		b.WriteString("/" + s)
	}
	return b.String()
}

func (b *builder) build(n *yaml.Node, want *Type, at []string) (*part, []byte) {
	if text, ok := b.textFile(n, want); ok {
		if text == nil {
			return nil, nil
		}
		n = text
	}
	switch n.Kind {
	case yaml.MappingNode:
		return b.object(n, want, at)
	case yaml.SequenceNode:
		return b.list(n, want, at)
	}
	if isText(n) {
		return b.text(n, want, at)
	}
	raw, err := scalarJSON(n, nil)
	if err != nil {
		b.c.jsonError(&nodeError{n, err})
		return nil, nil
	}
	return &part{literal: raw}, raw
}

func (b *builder) object(n *yaml.Node, want *Type, at []string) (*part, []byte) {
	p := &part{object: true}
	probe := []byte{'{'}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		var sub *Type
		if want != nil && want.base == tObject {
			if sub = want.field(name); sub == nil {
				sub = want.rest
			}
		}
		item, v := b.build(n.Content[i+1], sub, append(at[:len(at):len(at)], name))
		if item == nil {
			b.ok = false
			b.exprs = append(b.exprs, pointer(append(at[:len(at):len(at)], name)))
			item, v = &part{literal: json.RawMessage("null")}, []byte("null")
		}
		p.keys, p.items = append(p.keys, name), append(p.items, item)
		if len(probe) > 1 {
			probe = append(probe, ',')
		}
		probe = append(append(append(probe, quoted(name)...), ':'), v...)
	}
	return p, append(probe, '}')
}

func (b *builder) list(n *yaml.Node, want *Type, at []string) (*part, []byte) {
	p := &part{}
	probe := []byte{'['}
	var sub *Type
	if want != nil && want.base == tList {
		sub = want.elem
	}
	for i, c := range n.Content {
		place := append(at[:len(at):len(at)], strconv.Itoa(i))
		item, v := b.build(c, sub, place)
		if item == nil {
			b.ok = false
			b.exprs = append(b.exprs, pointer(place))
			item, v = &part{literal: json.RawMessage("null")}, []byte("null")
		}
		p.items = append(p.items, item)
		if len(probe) > 1 {
			probe = append(probe, ',')
		}
		probe = append(probe, v...)
	}
	return p, append(probe, ']')
}

// text is a leaf: plain, one expression that keeps its type, or a mix.
func (b *builder) text(n *yaml.Node, want *Type, at []string) (*part, []byte) {
	f := b.c.f
	cut, where, err := spans(n.Value)
	if err != nil {
		f.errorf(f.within(n, where), "expression", "", "%s", err)
		return nil, nil
	}
	if len(cut) == 1 && !cut[0].expr {
		b.bareBraces(n)
		raw := quoted(b.c.value(n))
		return &part{literal: raw}, raw
	}
	r := reader{b.stage, b.key + "." + strings.Join(at, ".")}
	if len(cut) == 1 {
		e, t := b.c.compile(n, cut[0], b.sc, r)
		if e == nil {
			return nil, nil
		}
		if want != nil {
			if m := misfit(t, want.with(func(c *Type) { c.optional = false })); m != "" {
				f.errorf(b.c.exprStart(n, cut[0]), "type", b.c.fitHint(t, want, e), "'%s' of %s: %s", strings.Join(at, "."), b.d.ID(), m)
				return nil, nil
			}
		}
		b.exprs = append(b.exprs, pointer(at))
		return &part{expr: e, dir: b.c.programDir(n)}, standIn(want)
	}
	return b.mixed(n, cut, r, want, at)
}

var braces = regexp.MustCompile(`\{\{\s*([a-z][a-z0-9_]*)\.[^{}]*\}\}`)

// bareBraces warns of an expression that lost its $ and would go out as text.
func (b *builder) bareBraces(n *yaml.Node) {
	for _, m := range braces.FindAllStringSubmatchIndex(n.Value, -1) {
		name := n.Value[m[2]:m[3]]
		if m[0] > 0 && n.Value[m[0]-1] == '$' || b.sc.vars[name] == nil && !b.sc.later[name] {
			continue
		}
		b.c.f.warnf(b.c.f.within(n, utf8.RuneCountInString(n.Value[:m[0]])), "braces", "write ${{ }} to have it evaluated", "'%s' without $ is plain text", n.Value[m[0]:m[1]])
	}
}

func (b *builder) mixed(n *yaml.Node, cut []span, r reader, want *Type, at []string) (*part, []byte) {
	f := b.c.f
	b.bareBraces(n)
	p := &part{text: []piece{}, dir: b.c.programDir(n)}
	ok := true
	for _, s := range cut {
		if !s.expr {
			p.text = append(p.text, piece{text: f.resolve(n, s.text)})
			continue
		}
		e, t := b.c.compile(n, s, b.sc, r)
		if e == nil {
			ok = false
			continue
		}
		if t.nullable {
			f.errorf(b.c.exprStart(n, s), "nullable", fmt.Sprintf("give a value for that case: (%s ?? ...)", e.source),
				"this may be nil%s, which can't stand in text", because(t))
			ok = false
		}
		p.text = append(p.text, piece{expr: e})
	}
	if want != nil && ok {
		if m := misfit(stringType, want.with(func(c *Type) { c.optional = false })); m != "" {
			f.errorf(f.at(n), "type", "text around ${{ }} makes it a string", "'%s' of %s: %s", strings.Join(at, "."), b.d.ID(), m)
			ok = false
		}
	}
	if !ok {
		return nil, nil
	}
	b.exprs = append(b.exprs, pointer(at))
	return p, standIn(stringType)
}

// standIn is a JSON value of a type.
func standIn(t *Type) []byte {
	if t == nil {
		return []byte("null")
	}
	switch t.base {
	case tBool:
		return []byte("true")
	case tInteger, tNumber:
		return []byte("1")
	case tString:
		if t.isEnum && len(t.enum) > 0 {
			return quoted(t.enum[0])
		}
		return []byte(`""`)
	case tList:
		return []byte("[]")
	case tObject:
		return []byte("{}")
	}
	return []byte("null")
}
