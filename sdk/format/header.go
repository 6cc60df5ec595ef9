package format

import (
	"bytes"
	"strings"
)

// headerGrammar is a HeaderSpec, ready to match.
type headerGrammar struct {
	open, close []byte
	seps        [][]byte
	typ         []byte
	id          []byte
	fence       bool
	prefix      string
	index       string
}

func newHeaderGrammar(s *HeaderSpec) *headerGrammar {
	return &headerGrammar{
		open: []byte(s.Open), close: []byte(s.Close), seps: texts(s.Sep), typ: []byte(s.Type),
		id: []byte(s.ID), fence: s.Fence, prefix: s.NamePrefix, index: s.NameIndex,
	}
}

// headerAt looks for a header at i. When there is one it sets step to what
// reads on.
func (p *parser) headerAt(i int) match {
	h := p.g.header
	n := 0
	if len(h.open) > 0 {
		how := compare(p.rest(i), h.open)
		if how != full {
			return how
		}
		n = len(h.open)
	} else if c := p.buf[i]; c == '{' || c == '[' {
		return no
	}
	if len(h.typ) > 0 {
		switch compare(p.rest(i+n), h.typ) {
		case full:
			n += len(h.typ)
		case part:
			return part
		}
	}
	return p.headerName(i, i+n)
}

// headerName reads the header's text from j up to a separator.
func (p *parser) headerName(item, j int) match {
	h := p.g.header
	b := p.rest(j)
	for k := 0; k < len(b) && k < maxTag; k++ {
		n, how := compareAny(b[k:], h.seps, p.final)
		if how == part {
			return part
		}
		stop := len(h.close) > 0 && compare(b[k:], h.close) == full
		if how == full && len(bytes.TrimSpace(b[:k])) == 0 && b[k] == '\n' {
			continue
		}
		if how != full && !stop {
			continue
		}
		if !p.setHeader(b[:k]) {
			return no
		}
		if how == full && b[k] == '{' {
			n = 0
		}
		p.call.item = item
		p.look, p.step = j+k+n, (*parser).stepHeaderBody
		return full
	}
	if len(b) >= maxTag {
		return no
	}
	return part
}

// setHeader takes name and id from a header.
func (p *parser) setHeader(text []byte) bool {
	h := p.g.header
	p.head.id = ""
	if len(h.id) > 0 {
		if name, id, ok := bytes.Cut(text, h.id); ok {
			text = name
			p.head.id = string(bytes.TrimSpace(id))
		}
	}
	name := string(bytes.TrimSpace(text))
	if h.index != "" {
		k := strings.LastIndex(name, h.index)
		if k > 0 && k+len(h.index) < len(name) && strings.Trim(name[k+len(h.index):], "0123456789") == "" {
			p.head.id, name = name, name[:k]
		}
	}
	name = strings.TrimPrefix(name, h.prefix)
	p.call.name = name
	return name != "" && !strings.ContainsAny(name, " \n\t<>{}")
}

// stepHeaderBody reads the body of a call with a header.
func (p *parser) stepHeaderBody() bool {
	h := p.g.header
	i := space(p.buf[:p.limit], p.look)
	p.look = i
	if i == p.limit && !p.final {
		return false
	}
	if h.fence {
		n, how := compareAny(p.rest(i), fences, p.final)
		if how == part && i < p.limit && !p.final {
			return false
		}
		if how == full && n > 0 {
			p.look = i + n
			return true
		}
	}
	how := no
	if len(h.close) > 0 {
		how = compare(p.rest(i), h.close)
	}
	if how == part && i < p.limit && !p.final {
		return false
	}
	if i < p.limit && p.buf[i] != '{' && p.buf[i] != '"' && how != full {
		if _, edge := compareAny(p.rest(i), p.g.edges, p.final); edge == part && !p.final {
			return false
		} else if edge != full {
			p.reject(i)
			return true
		}
	}
	id := p.head.id
	p.head = headState{saved: p.head.saved[:0], id: id}
	if !p.begin(p.call.name) {
		p.reject(i)
		return true
	}
	p.head.begun = true
	p.advance(i)
	if i < p.limit && p.buf[i] == '{' {
		p.startBody(i, (*parser).stepHeaderEnd)
		return true
	}
	if i < p.limit && p.buf[i] == '"' {
		return p.readInto(&p.head.saved, (*parser).stepBodyString)
	}
	p.args = append(p.args, "{}"...)
	p.call.cut = i == p.limit
	p.step = (*parser).stepHeaderEnd
	return true
}

var fences = [][]byte{[]byte("```json"), []byte("```")}

// stepBodyString ends a body that was a JSON string.
func (p *parser) stepBodyString() bool {
	saved := bytes.TrimSpace(p.head.saved)
	if out, ok := coerceContainer(nil, saved, typeObject); ok {
		saved = out
	}
	p.args = append(p.args, saved...)
	p.step = (*parser).stepHeaderEnd
	return true
}

// stepHeaderEnd reads the fence and the marker that close a call.
func (p *parser) stepHeaderEnd() bool {
	h := p.g.header
	i := space(p.buf[:p.limit], p.look)
	if i == p.limit && !p.final {
		return false
	}
	if h.fence {
		n, how := compareAny(p.rest(i), fences[1:], p.final)
		if how == part && i < p.limit && !p.final {
			return false
		}
		if how == full {
			p.look = i + n
			return true
		}
	}
	if len(h.close) == 0 {
		p.goAfter(p.look)
		return true
	}
	switch how := compare(p.rest(i), h.close); {
	case how == full:
		p.goAfter(i + len(h.close))
	case how == part && i < p.limit && !p.final:
		return false
	default:
		p.warn("missing_item_close", p.look, p.look)
		p.goAfter(p.look)
	}
	return true
}
