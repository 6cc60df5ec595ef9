package format

import "slices"

// taggedGrammar is a TaggedSpec, ready to match.
type taggedGrammar struct {
	open, param       *tag
	close, paramClose []byte
	closeStem         []byte // paramClose without its last byte, for broken ones
	lead              byte   // the first byte of all of them
	second            [256]bool
	trim, pair, first bool
	attr              string
	typeAttr, idAttr  string
	textTypes         []string
	entities          bool
	variants          []*taggedGrammar // only their tags are set
}

// token is a structural tag.
type token uint8

const (
	tokNone token = iota
	tokPart       // may become one
	tokParam
	tokParamBad
	tokParamClose
	tokBadClose // a parameter's closing tag with a fault in it
	tokClose
	tokWrapClose
	tokWrapOpen
	tokOpen
	tokCut // the beginning of a closing tag that the end of the text cuts
	tokEnd // the end of the text
)

func (t token) closes() bool { return t == tokParamClose || t == tokClose || t == tokWrapClose }

// classify says which tag begins at i, and where it ends.
func (p *parser) classify(i int) (token, tagMatch) {
	t, b := p.g.tagged, p.rest(i)
	if len(b) == 0 {
		return tokEnd, tagMatch{end: i}
	}
	if b[0] != t.lead || len(b) > 1 && !t.second[b[1]] {
		return tokNone, tagMatch{}
	}
	found, how := tokNone, no
	var end int
	try := func(lit []byte, tok token) {
		switch m := compare(b, lit); {
		case len(lit) == 0:
		case m == full && len(lit) > end:
			found, end, how = tok, len(lit), full
		case m == part && how != full:
			found, how = tok, part
		}
	}
	for _, lit := range p.g.closes {
		try(lit, tokWrapClose)
	}
	for _, lit := range p.g.opens {
		try(lit, tokWrapOpen)
	}
	try(t.close, tokClose)
	try(t.paramClose, tokParamClose)
	for _, v := range t.variants {
		try(v.close, tokClose)
		try(v.paramClose, tokParamClose)
	}
	if how == full {
		return found, tagMatch{end: i + end}
	}
	tok, m := t.classifyTag(i, b)
	for _, v := range t.variants {
		if tok == tokNone {
			tok, m = v.classifyTag(i, b)
		}
	}
	if tok != tokNone && tok != tokPart {
		return tok, m
	} else if tok == tokPart && how == no {
		found, how = tokPart, part
	}
	if how == part {
		if p.final && found.closes() && len(b) > 2 {
			return tokCut, tagMatch{end: i + len(b)}
		}
		return tokPart, tagMatch{}
	}
	return p.badClose(i, b)
}

func (t *taggedGrammar) classifyTag(i int, b []byte) (token, tagMatch) {
	m, how := t.param.at(b)
	m.end += i
	switch how {
	case full:
		return tokParam, m
	case bad:
		return tokParamBad, m
	case part:
		return tokPart, m
	}
	if t.open.inline {
		return tokNone, m
	}
	m, how = t.open.at(b)
	m.end += i
	switch how {
	case full:
		return tokOpen, m
	case part:
		return tokPart, m
	}
	return tokNone, m
}

// maxBadClose is how many wrong bytes a broken closing tag may have.
const maxBadClose = 8

// badClose finds a closing tag such as </parameter/> or </parameter1>, or one
// whose last byte is missing before a line's end.
func (p *parser) badClose(i int, b []byte) (token, tagMatch) {
	stem := p.g.tagged.closeStem
	if len(stem) < 4 || compare(b, stem) != full {
		return tokNone, tagMatch{}
	}
	for k := len(stem); k <= len(stem)+maxBadClose; k++ {
		if k == len(b) {
			return tokPart, tagMatch{}
		}
		switch c := b[k]; {
		case c == '>':
			return tokBadClose, tagMatch{end: i + k + 1}
		case c == '<' || isSpace(c):
			return tokBadClose, tagMatch{end: i + k}
		}
	}
	return tokNone, tagMatch{}
}

// stepTaggedHead looks at what follows the tag that opens a call: only
// structure makes it a call.
func (p *parser) stepTaggedHead() bool {
	i, ok := p.space(p.look)
	p.look = i
	if !ok {
		return false
	}
	tok, _ := p.classify(i)
	switch {
	case tok == tokPart && !p.final:
		return false
	case tok == tokEnd && p.g.tagged.open.inline && !paramsOf(p.tools, p.call.name).known:
		p.reject(i)
		return true
	case tok == tokNone && p.g.json != nil && p.buf[i] == '{', tok > tokPart && tok != tokBadClose:
		if !p.begin(p.call.name) {
			p.reject(i)
			return true
		}
		p.pos, p.look, p.step = i, i, (*parser).stepParams
		return true
	}
	p.reject(i)
	return true
}

// inlineAtEnd takes a name at the end of the text, whose call has no more than
// that.
func (p *parser) inlineAtEnd(i int) match {
	name := string(p.rest(i))
	if !paramsOf(p.tools, name).known {
		return no
	}
	p.call.name, p.look, p.step = name, p.limit, (*parser).stepTaggedHead
	return full
}

// stepParams reads what is between the parameters of a call.
func (p *parser) stepParams() bool {
	i, ok := p.space(p.look)
	p.look = i
	if !ok {
		return false
	}
	tok, m := p.classify(i)
	if tok != tokNone && (tok != tokPart || p.final) {
		p.junk(i)
	}
	switch tok {
	case tokPart:
		if !p.final {
			return false
		}
		p.call.cut = true
		p.look = p.limit
		p.junk(p.limit)
	case tokParam:
		if p.val.body {
			p.look, p.step = i+len(p.g.tagged.param.before), (*parser).stepBadParam
			return true
		}
		p.openValue(string(m.name), string(m.attrs), m.end)
	case tokParamBad:
		p.look, p.step = i+len(p.g.tagged.param.before), (*parser).stepBadParam
	case tokParamClose, tokBadClose:
		p.warn("stray_param_close", i, m.end)
		p.pos, p.look = m.end, m.end
	case tokClose:
		p.closeArgs()
		p.goAfter(m.end)
	case tokWrapClose, tokWrapOpen, tokOpen, tokEnd:
		if len(p.g.tagged.close) > 0 {
			p.warn("missing_item_close", i, i)
			p.call.cut = p.call.cut || tok == tokEnd && len(p.call.given) == 0
		}
		p.closeArgs()
		p.goAfter(p.pos)
	case tokCut:
		p.closeArgs()
		p.goAfter(m.end)
	default:
		if p.g.json != nil && p.buf[i] == '{' && len(p.call.given) == 0 && p.onlyNoise(p.pos, i) {
			p.call.given = append(p.call.given, "")
			p.val.body = true
			p.startBody(i, (*parser).stepParams)
			return true
		}
		return p.skipJunk(i)
	}
	return true
}

// onlyNoise reports whether there is nothing but whitespace and noise from i to
// end.
func (p *parser) onlyNoise(i, end int) bool {
	for i = space(p.buf[:end], i); i < end; i = space(p.buf[:end], i) {
		n, how := compareAny(p.buf[i:end], p.g.noise, true)
		if how != full {
			return false
		}
		i += n
	}
	return true
}

// junk reports the text between pos and i that isn't whitespace.
func (p *parser) junk(i int) {
	from := space(p.buf[:i], p.pos)
	if from < i && !p.onlyNoise(from, i) {
		p.warn("text_in_call", from, i)
	}
	p.pos = i
}

// skipJunk goes over text that has no place between parameters.
func (p *parser) skipJunk(i int) bool {
	for i++; i < p.limit && p.buf[i] != p.g.tagged.lead; i++ {
	}
	p.look = i
	return i < p.limit || p.final
}

// stepBadParam leaves out a parameter whose tag is broken: up to its closing
// tag, or to the next structure.
func (p *parser) stepBadParam() bool {
	for i := p.look; ; i++ {
		for i < p.limit && p.buf[i] != p.g.tagged.lead {
			i++
		}
		p.look = i
		if i == p.limit && !p.final {
			return false
		}
		tok, m := p.classify(i)
		switch {
		case tok == tokPart && !p.final:
			return false
		case tok == tokParamClose:
			p.warn("broken_param", p.pos, m.end)
			p.pos, p.look, p.step = m.end, m.end, (*parser).stepParams
			return true
		case tok > tokPart:
			p.warn("broken_param", p.pos, i)
			p.pos, p.look, p.step = i, i, (*parser).stepParams
			return true
		}
	}
}

// openValue starts a parameter whose value begins at i.
func (p *parser) openValue(key, attrs string, i int) {
	c, v := &p.call, &p.val
	if p.g.tagged.entities {
		key = entities(key)
	}
	if slices.Contains(c.given, key) {
		p.warn("repeated_param", p.pos, i)
	}
	if len(c.given) == 0 {
		p.args = append(p.args, '{')
	} else {
		p.args = append(p.args, ", "...)
	}
	c.given = append(c.given, key)
	p.args = append(p.args, '"')
	p.args = append(appendQuoted(p.args, key), `": `...)
	*v = valueState{types: c.params.types(key), run: -1, stack: v.stack[:0]}
	if a := p.g.tagged.typeAttr; a != "" {
		if t := attr([]byte(attrs), a); slices.Contains(p.g.tagged.textTypes, t) {
			v.types = typeString
		} else if t != "" {
			v.types, v.any = 0, true
		}
	}
	if a := p.g.tagged.attr; a != "" {
		switch attr([]byte(attrs), a) {
		case "true":
			v.types = typeString
		case "false":
			v.types, v.any = 0, true
		}
	}
	switch {
	case v.any:
		v.mode = valueBuffered
	case v.types == typeString:
		v.mode = valueStreamed
		p.args = append(p.args, '"')
	case v.types == typeString|typeNull:
		v.mode = valueUndecided
	default:
		v.mode = valueBuffered
	}
	p.pos, p.look, p.scan = i, i, i
	p.step = (*parser).stepValueStart
}

// closeArgs ends the arguments' object.
func (p *parser) closeArgs() {
	switch {
	case p.val.body:
		p.val.body = false
	case len(p.call.given) == 0:
		p.args = append(p.args, "{}"...)
	default:
		p.args = append(p.args, '}')
	}
}
