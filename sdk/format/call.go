package format

// callState is the state of the call that is read or looked for.
type callState struct {
	mark    int  // where its markup begins
	resume  int  // where text goes on if it is none
	item    int  // where the item begins
	end     int  // where its own markup ends
	wrapped bool // it is in a wrapper
	array   bool // it is in a JSON array

	index  int // of the open call
	count  int
	start  int // offset of its markup in the text
	name   string
	params params
	wasted int // bytes looked at in vain

	given []string // parameters so far
	cut   bool
}

// stepItem looks for the first item behind an opening marker.
func (p *parser) stepItem() bool {
	i, ok := p.space(p.look)
	p.look = i
	if !ok {
		return false
	}
	switch p.tryItem(i) {
	case full:
		return true
	case part:
		return false
	}
	p.reject(i)
	return true
}

// tryItem looks for the head of a call at i. When there is one it sets step to
// what reads on. part means that more is needed.
func (p *parser) tryItem(i int) match {
	if i >= p.limit {
		return no
	}
	wait := false
	p.call.item = i
	if t := p.g.tagged; t != nil && (p.call.wrapped || p.g.bareTagged) {
		m, how := t.open.at(p.rest(i))
		for _, v := range t.variants {
			if how == no {
				m, how = v.open.at(p.rest(i))
			}
		}
		switch {
		case how == full:
			p.call.name = string(m.name)
			if t.entities {
				p.call.name = entities(p.call.name)
			}
			if t.idAttr != "" {
				p.head.id = attr(m.attrs, t.idAttr)
			}
			p.look = i + m.end
			p.step = (*parser).stepTaggedHead
			return full
		case how == part && (!p.final || t.open.inline):
			wait = true
			if p.final && t.open.inline {
				return p.inlineAtEnd(i)
			}
		}
	}
	if p.g.nested != nil {
		if how := p.nestedAt(i); how == full {
			return full
		} else if how == part {
			wait = true
		}
	}
	if h := p.g.header; h != nil {
		if how := p.headerAt(i); how == full {
			return full
		} else if how == part {
			wait = true
		}
	}
	if p.g.literal {
		if how := p.literalAt(i); how == full {
			return full
		} else if how == part {
			wait = true
		}
	}
	if j := p.g.json; j != nil {
		switch c := p.buf[i]; {
		case c == '{':
			p.startHead(i)
			return full
		case c == '[' && !p.call.array:
			next, ok := p.space(i + 1)
			if !ok {
				return part
			}
			if next < p.limit && p.buf[next] == '{' {
				p.call.array = true
				p.startHead(next)
				return full
			}
		}
	}
	if wait && !p.final {
		return part
	}
	return no
}

// reject gives the markup back as text: it opened no call. Text is searched
// again from behind the marker, save when hostile text has made that happen
// too often; then from at, up to which it was looked at.
func (p *parser) reject(at int) {
	if p.named != "" && p.g.jsonFirst && p.call.count == 0 && p.call.resume == p.call.mark+1 && p.buf[p.call.mark] == '{' {
		p.namedBody(p.call.mark)
		return
	}
	p.call.wasted += at - p.call.resume
	if p.call.wasted > 1<<16+8*(p.base+at) {
		p.call.resume = max(at, p.call.resume)
	}
	p.text.unclosed = p.text.unclosed || p.text.last == CallEnd && p.call.wrapped
	p.text.solid, p.scan = p.call.resume, p.call.resume
	p.step = (*parser).stepText
}

// begin starts a call of this name. Inside reasoning it does so only for what
// is no mere mention of a call.
func (p *parser) begin(name string) bool {
	if name == "" {
		return false
	}
	params := paramsOf(p.tools, name)
	if !params.known && p.g.calls.UnknownTools == "text" {
		return false
	}
	if p.text.reasoning {
		if !params.known && !p.lineStart(p.call.mark) || p.before(p.call.mark) == '`' {
			return false
		}
		p.warn("call_in_reasoning", p.call.mark, p.call.item)
		p.text.reasoning = false
	}
	id := ""
	if p.g.nativeID {
		id = p.head.id
	}
	if id == "" {
		id = p.newID()
	}
	c := &p.call
	c.index, c.name, c.params, c.cut = c.count, name, params, false
	c.count++
	c.start = p.base + c.mark
	c.given = c.given[:0]
	p.text.strip, p.text.begun, p.text.last, p.text.unclosed = 0, true, CallStart, false
	p.emit(Event{Kind: CallStart, Index: c.index, ID: id, Name: name, Span: Span{c.start, c.start}})
	if !params.known {
		p.warn("unknown_tool", c.mark, c.item)
	}
	return true
}

// finish ends the open call. Its markup ends at end.
func (p *parser) finish(end int) {
	p.emit(Event{
		Kind: CallEnd, Index: p.call.index, Incomplete: p.call.cut,
		Span: Span{p.call.start, p.base + end},
	})
	p.text.last = CallEnd
}

// rest of the markup: stepAfter looks at what follows an item that has ended
// at call.end.
func (p *parser) goAfter(end int) {
	p.call.end = end
	p.pos, p.look, p.scan = end, end, end
	p.step = (*parser).stepAfter
}

func (p *parser) stepAfter() bool {
	i, ok := p.space(p.look)
	p.look = i
	if !ok {
		return false
	}
	n, how := compareAny(p.rest(i), p.g.closes, p.final)
	switch {
	case how == full:
		p.finish(i + n)
		p.text.unclosed = false
		p.jump(i + n)
		return true
	case how == part && i < p.limit && !p.final:
		return false
	case i == p.limit || how == part && p.limit-i > 1:
		if p.call.wrapped && len(p.g.closes) > 0 {
			p.warn("missing_call_close", p.call.end, p.limit)
		}
		if how == part && i < p.limit {
			p.call.end = p.limit
		}
		p.finish(p.call.end)
		p.jump(p.call.end)
		return true
	}
	return p.afterItem(i)
}

// afterItem looks for another item of the same wrapper at i, or leaves it.
func (p *parser) afterItem(i int) bool {
	next := i
	switch c := p.buf[i]; {
	case p.g.json != nil && c == '}':
		p.warn("extra_brace", i, i+1)
		p.call.end, p.look = i+1, i+1
		return true
	case p.call.array && c == ']':
		p.call.array = false
		p.call.end, p.look = i+1, i+1
		return true
	case (p.g.json != nil || p.g.literal) && (c == ',' || c == ';'):
		var ok bool
		if next, ok = p.space(i + 1); !ok {
			return false
		}
	}
	_, how := compareAny(p.rest(i), p.g.opens, p.final)
	if how == part && !p.final {
		return false
	}
	if how != full && next < p.limit {
		mark, item, name, look := p.call.mark, p.call.item, p.call.name, p.look
		switch p.tryItem(next) {
		case full:
			p.finish(p.call.end)
			p.pos = p.call.end
			p.text.solid = p.pos
			p.call.mark, p.call.resume = space(p.buf[:p.limit], p.call.end), next+1
			return true
		case part:
			return false
		}
		p.call.mark, p.call.item, p.call.name, p.look = mark, item, name, look
	}
	p.finish(p.call.end)
	if p.call.wrapped && len(p.g.closes) > 0 {
		p.text.unclosed = true
		p.warn("missing_call_close", p.call.end, p.call.end)
	}
	p.jump(p.call.end)
	return true
}
