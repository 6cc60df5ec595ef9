package format

// literalState is the state of a list of calls that are written as a
// programming language writes them: [f(a="x", b=1), g()]. Outside a wrapper
// the whole reply has to be such a list, so it is checked to its end first
// and read again for its calls.
type literalState struct {
	check bool // nothing is emitted yet
	whole bool // the list was found to be the whole reply
	start int  // where the list begins
	key   string
}

// literalAt looks for name( at i, in a list or without one. When there is one
// it sets step to what reads on.
func (p *parser) literalAt(i int) match {
	start := i
	if p.buf[i] == '[' && !p.call.array {
		if i = space(p.buf[:p.limit], i+1); i == p.limit {
			return part
		}
	} else if !p.call.array && !p.call.wrapped {
		return no
	}
	end, how := p.word(i, true)
	if how != full {
		return how
	}
	at := space(p.buf[:p.limit], end)
	if at == p.limit {
		return part
	}
	if p.buf[at] != '(' {
		return no
	}
	p.call.array = p.call.array || i > start
	p.call.name = string(p.buf[i:end])
	p.lit = literalState{check: !p.call.wrapped && !p.lit.whole, whole: p.lit.whole, start: start}
	if !p.lit.check {
		p.call.item = i
	}
	p.look, p.step = at+1, (*parser).stepLiteralHead
	return full
}

// word reads an identifier at i, with dots and dashes in it where it is the
// name of a tool.
func (p *parser) word(i int, name bool) (int, match) {
	k := i
	for ; k < p.limit && k-i <= maxTag; k++ {
		switch c := p.buf[k]; {
		case c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80:
		case k > i && (c >= '0' && c <= '9' || name && (c == '.' || c == '-')):
		case k == i:
			return k, no
		default:
			return k, full
		}
	}
	if k-i > maxTag {
		return k, no
	}
	return k, part
}

// literalSpace skips whitespace at look. It reports false when it has to wait;
// at the end of the text the list is cut.
func (p *parser) literalSpace() (int, bool) {
	i := space(p.buf[:p.limit], p.look)
	p.look = i
	return i, i < p.limit
}

// literalEnd ends a list that the text doesn't go on with at i.
func (p *parser) literalEnd(i int) bool {
	if i < p.limit || p.final {
		p.headFail(i)
		return true
	}
	return false
}

// stepLiteralHead looks at what follows name(: only a keyword or the closing
// bracket make it a call.
func (p *parser) stepLiteralHead() bool {
	p.head = headState{saved: p.head.saved[:0]}
	i, ok := p.literalSpace()
	if !ok {
		return p.literalEnd(i)
	}
	if p.buf[i] != ')' {
		if how := p.keyword(i); how != full {
			if how == part && !p.final {
				return false
			}
			p.reject(i)
			return true
		}
	}
	if !p.lit.check {
		if !p.begin(p.call.name) {
			p.reject(i)
			return true
		}
		p.head.begun = true
		p.advance(i)
	}
	p.literalArg("{")
	p.step = (*parser).stepLiteralKey
	return true
}

func (p *parser) literalArg(text string) {
	if !p.lit.check {
		p.args = append(p.args, text...)
	}
}

// keyword compares what is at i with key=.
func (p *parser) keyword(i int) match {
	end, how := p.word(i, false)
	if how != full {
		return how
	}
	at := space(p.buf[:p.limit], end)
	if at+1 >= p.limit {
		if at < p.limit && p.buf[at] != '=' {
			return no
		}
		return part
	}
	if p.buf[at] != '=' || p.buf[at+1] == '=' {
		return no
	}
	p.lit.key = string(p.buf[i:end])
	p.head.from = at + 1
	return full
}

// stepLiteralKey reads key= or the bracket that closes a call.
func (p *parser) stepLiteralKey() bool {
	i, ok := p.literalSpace()
	if !ok {
		return p.literalEnd(i)
	}
	if p.buf[i] == ')' {
		p.literalArg("}")
		p.advance(i + 1)
		p.look = i + 1
		p.step = (*parser).stepLiteralNext
		if !p.lit.check {
			p.goAfter(i + 1)
		}
		return true
	}
	if how := p.keyword(i); how != full {
		if how == part && !p.final {
			return false
		}
		return p.headFail(i)
	}
	if !p.lit.check {
		p.args = appendQuoted(append(p.args, '"'), p.lit.key)
		p.args = append(p.args, `": `...)
	}
	p.look, p.step = p.head.from, (*parser).stepLiteralValue
	return true
}

// stepLiteralValue reads a value: JSON, or a Python literal.
func (p *parser) stepLiteralValue() bool {
	i, ok := p.literalSpace()
	if !ok {
		return p.literalEnd(i)
	}
	p.advance(i)
	to := &p.args
	if p.lit.check {
		to = nil
	}
	p.readInto(to, (*parser).stepLiteralComma)
	p.json.python = true
	return true
}

// stepLiteralComma reads what follows a value.
func (p *parser) stepLiteralComma() bool {
	i, ok := p.literalSpace()
	if !ok {
		return p.literalEnd(i)
	}
	switch p.buf[i] {
	case ')':
	case ',':
		i = space(p.buf[:p.limit], i+1)
		if i == p.limit && !p.final {
			return false
		}
		if i == p.limit || p.buf[i] == ')' {
			break
		}
		p.literalArg(", ")
	default:
		return p.headFail(i)
	}
	p.look, p.step = i, (*parser).stepLiteralKey
	return true
}

// stepLiteralNext goes on with a check behind a call: another one, or the end
// of the list, which has to be the end of the text.
func (p *parser) stepLiteralNext() bool {
	i, ok := p.literalSpace()
	if !ok {
		return p.literalEnd(i)
	}
	switch p.buf[i] {
	case ',':
		i = space(p.buf[:p.limit], i+1)
		if i == p.limit && !p.final {
			return false
		}
		end, how := p.word(i, true)
		if how == part && !p.final {
			return false
		}
		at := space(p.buf[:p.limit], end)
		if how == full && at == p.limit && !p.final {
			return false
		}
		if how != full || at == p.limit || p.buf[at] != '(' {
			p.reject(i)
			return true
		}
		p.look, p.step = at+1, (*parser).stepLiteralHead
		return true
	case ']':
		p.look, p.step = i+1, (*parser).stepLiteralWhole
		return true
	}
	p.reject(i)
	return true
}

// stepLiteralWhole reads the calls of a list that was found to be the whole
// reply.
func (p *parser) stepLiteralWhole() bool {
	i, ok := p.literalSpace()
	if ok {
		p.reject(i)
		return true
	}
	if !p.final {
		return false
	}
	start := p.lit.start
	p.call.array, p.lit.whole = false, true
	p.literalAt(start)
	return true
}
