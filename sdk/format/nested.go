package format

import (
	"bytes"
	"slices"
)

// nestedGrammar is a NestedSpec, ready to match.
type nestedGrammar struct {
	mark  []byte
	open  *tag
	close []byte
	item  string
}

func newNestedGrammar(s *NestedSpec) *nestedGrammar {
	return &nestedGrammar{mark: []byte(s.Mark), open: newTag(s.Mark + s.Open), close: []byte(s.Close), item: s.Item}
}

// element is an element that isn't text alone, until it ends.
type element struct {
	name     string
	text     []byte
	children []*element
}

// nestedState is the state of a call of nested elements.
type nestedState struct {
	stack  []*element // open elements, the parameter first
	stream bool       // the parameter is text and goes out as it comes
	whole  []*element // elements of one name, which together may be a list
	loose  []byte     // text outside of parameters
	from   int        // where it begins
}

// nestedAt looks for the tag of a call at i.
func (p *parser) nestedAt(i int) match {
	m, how := p.g.nested.open.at(p.rest(i))
	if how != full {
		return how
	}
	if len(m.name) == 0 {
		return no
	}
	p.call.name = string(m.name)
	p.look, p.step = i+m.end, (*parser).stepNestedHead
	return full
}

// stepNestedHead begins the call whose tag was found.
func (p *parser) stepNestedHead() bool {
	if !p.begin(p.call.name) {
		p.reject(p.look)
		return true
	}
	p.elem = nestedState{stack: p.elem.stack[:0], whole: p.elem.whole[:0], loose: p.elem.loose[:0]}
	p.pos, p.scan = p.look, p.look
	p.step = (*parser).stepNested
	return true
}

// stepNested reads text up to a mark, and the tag behind it.
func (p *parser) stepNested() bool {
	g := p.g.nested
	for {
		b := p.buf[:p.limit]
		k := bytes.Index(b[p.pos:], g.mark)
		if k < 0 {
			end := p.limit
			if !p.final {
				end -= partial(b[p.pos:], g.mark)
			}
			p.nestedText(end)
			if p.final {
				p.endNested(p.limit, true)
			}
			return p.final
		}
		i := p.pos + k
		p.nestedText(i)
		name, end, how := nestedTag(b, i+len(g.mark))
		switch {
		case how == part && !p.final:
			return false
		case how == part:
			p.endNested(p.limit, true)
			return true
		case how == no: // a mark without a tag is text
			p.nestedText(i + len(g.mark))
			continue
		}
		if p.nestedEdge(b, i, end) {
			return true
		}
		p.nestedElement(name, i, end)
		p.pos = end
	}
}

// partial is how many bytes at the end of b are the beginning of text.
func partial(b, text []byte) int {
	for n := min(len(b), len(text)-1); n > 0; n-- {
		if bytes.Equal(b[len(b)-n:], text[:n]) {
			return n
		}
	}
	return 0
}

// nestedTag reads the tag at i: its name, with a slash in front where it
// closes.
func nestedTag(b []byte, i int) (string, int, match) {
	if i == len(b) {
		return "", i, part
	}
	if b[i] != '<' {
		return "", i, no
	}
	k := bytes.IndexAny(b[i:min(len(b), i+maxTag)], ">\n")
	switch {
	case k > 0 && b[i+k] == '>':
		return string(b[i+1 : i+k]), i + k + 1, full
	case k < 0 && len(b)-i < maxTag:
		return "", i, part
	}
	return "", i, no
}

// nestedEdge ends the call where the tag at i belongs to its envelope.
func (p *parser) nestedEdge(b []byte, i, end int) bool {
	g := p.g.nested
	text := b[i+len(g.mark) : end]
	switch {
	case bytes.Equal(text, g.close):
		p.pos = i
		p.endNested(end, false)
		return true
	case slices.ContainsFunc(p.g.edges, func(e []byte) bool { return bytes.Equal(e, b[i:end]) }):
	default:
		if _, how := g.open.at(b[i:]); how != full {
			return false
		}
	}
	p.pos = i
	p.warn("missing_item_close", i, i)
	p.endNested(i, false)
	return true
}

// nestedText takes text up to end.
func (p *parser) nestedText(end int) {
	n := &p.elem
	text := p.buf[p.pos:end]
	switch {
	case n.stream:
		p.args = appendQuoted(p.args, text)
	case len(n.stack) > 0:
		top := n.stack[len(n.stack)-1]
		top.text = append(top.text, text...)
	default:
		if len(n.loose) == 0 {
			n.from = p.base + p.pos
		}
		n.loose = append(n.loose, text...)
	}
	p.pos = end
}

func (p *parser) nestedElement(name string, i, end int) {
	n := &p.elem
	closing := len(name) > 0 && name[0] == '/'
	switch {
	case !closing && n.stream:
		// A text parameter that was not closed.
		p.warn("missing_param_close", i, i)
		p.closeElement()
		p.openElement(name)
	case !closing && len(n.stack) < maxDepth:
		p.openElement(name)
	case !closing:
		p.warn("nested_too_deep", i, end)
	case len(n.stack) == 0 && len(bytes.TrimSpace(n.loose)) > 0:
		// The tag that opens the first parameter is left out now and then.
		p.warn("missing_param_open", i, i)
		text := bytes.TrimLeft(n.loose, "\r\n")
		e := &element{name: name[1:], text: slices.Clone(text)}
		n.loose = n.loose[:0]
		p.addWhole(e)
	default:
		k := len(n.stack) - 1
		for k >= 0 && n.stack[k].name != name[1:] {
			k--
		}
		if k < 0 {
			p.warn("stray_param_close", i, end)
			return
		}
		if k < len(n.stack)-1 {
			p.warn("missing_param_close", i, i)
		}
		for len(n.stack) > k {
			p.closeElement()
		}
	}
}

func (p *parser) openElement(name string) {
	n := &p.elem
	e := &element{name: name}
	if len(n.stack) == 0 {
		p.dropLoose()
		if len(n.whole) > 0 && n.whole[0].name != name {
			p.flushWhole()
		}
		if n.stream = p.call.params.types(name) == typeString; n.stream {
			p.nestedKey(name)
			p.args = append(p.args, '"')
		}
	}
	n.stack = append(n.stack, e)
}

func (p *parser) closeElement() {
	n := &p.elem
	e := n.stack[len(n.stack)-1]
	n.stack = n.stack[:len(n.stack)-1]
	switch {
	case n.stream:
		p.args = append(p.args, '"')
		n.stream = false
	case len(n.stack) > 0:
		top := n.stack[len(n.stack)-1]
		top.children = append(top.children, e)
	default:
		p.addWhole(e)
	}
}

func (p *parser) addWhole(e *element) {
	n := &p.elem
	if len(n.whole) > 0 && n.whole[0].name != e.name {
		p.flushWhole()
	}
	n.whole = append(n.whole, e)
	if p.call.params.types(e.name)&typeArray == 0 {
		p.flushWhole()
	}
}

// flushWhole writes a parameter that was kept until its end.
func (p *parser) flushWhole() {
	n := &p.elem
	if len(n.whole) == 0 {
		return
	}
	root := p.call.params.root
	schema := p.call.params.object.Get(n.whole[0].name)
	p.nestedKey(n.whole[0].name)
	if len(n.whole) == 1 {
		p.args = p.g.nested.append(p.args, n.whole[0], schema, root)
	} else {
		p.args = p.g.nested.appendList(p.args, n.whole, schema, root)
	}
	n.whole = n.whole[:0]
}

func (p *parser) nestedKey(name string) {
	if len(p.call.given) == 0 {
		p.args = append(p.args, '{')
	} else {
		p.args = append(p.args, ", "...)
	}
	if slices.Contains(p.call.given, name) {
		p.warn("repeated_param", p.pos, p.pos)
	}
	p.call.given = append(p.call.given, name)
	p.args = append(appendQuoted(append(p.args, '"'), name), `": `...)
}

// dropLoose reports text that has no place between parameters.
func (p *parser) dropLoose() {
	n := &p.elem
	if len(bytes.TrimSpace(n.loose)) > 0 {
		p.emit(Event{Kind: Warning, Text: "text_in_call", Span: Span{n.from, n.from + len(n.loose)}})
	}
	n.loose = n.loose[:0]
}

// endNested ends the call, whose markup ends at end.
func (p *parser) endNested(end int, cut bool) {
	n := &p.elem
	p.dropLoose()
	if len(n.stack) > 0 && !cut {
		p.warn("missing_param_close", p.pos, p.pos)
	}
	for len(n.stack) > 0 {
		p.closeElement()
	}
	p.flushWhole()
	p.call.cut = cut
	p.closeArgs()
	p.goAfter(end)
}

// append writes the JSON of an element, typed by its schema.
func (g *nestedGrammar) append(dst []byte, e *element, schema, root Value) []byte {
	schema = deref(schema, root)
	t := typesOf(schema, root, 0)
	switch {
	case len(e.children) == 0 && len(bytes.TrimSpace(e.text)) == 0 && t&typeString == 0 && t&(typeArray|typeObject) != 0:
		if t&typeObject != 0 {
			return append(dst, "{}"...)
		}
		return append(dst, "[]"...)
	case len(e.children) == 0:
		return coerce(dst, e.text, t)
	case t&typeArray != 0 && t&typeObject == 0,
		!slices.ContainsFunc(e.children, func(c *element) bool { return c.name != g.item }) && t&typeObject == 0:
		return g.appendList(dst, e.children, schema, root)
	}
	var names []string
	byName := map[string][]*element{}
	for _, c := range e.children {
		if byName[c.name] == nil {
			names = append(names, c.name)
		}
		byName[c.name] = append(byName[c.name], c)
	}
	dst = append(dst, '{')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(appendQuoted(append(dst, '"'), name), `": `...)
		field := deref(schema.Get("properties").Get(name), root)
		if same := byName[name]; len(same) > 1 {
			dst = g.appendList(dst, same, field, root)
		} else {
			dst = g.append(dst, same[0], field, root)
		}
	}
	return append(dst, '}')
}

func (g *nestedGrammar) appendList(dst []byte, list []*element, schema, root Value) []byte {
	dst = append(dst, '[')
	items := schema.Get("items")
	for i, e := range list {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = g.append(dst, e, items, root)
	}
	return append(dst, ']')
}

// deref follows a reference, and takes the member of a union that has
// structure.
func deref(s, root Value) Value {
	for range 16 {
		if ref := s.Get("$ref"); ref.IsString() {
			s = resolve(ref.text, root)
			continue
		}
		next := Value{}
		for _, union := range []string{"anyOf", "oneOf", "allOf"} {
			for _, m := range s.Get(union).items {
				if m.Get("$ref").Present() || m.Get("properties").Present() || m.Get("items").Present() {
					next = m
				}
			}
		}
		if !next.Present() {
			return s
		}
		if s.Get("properties").Present() || s.Get("items").Present() {
			return s
		}
		s = next
	}
	return s
}
