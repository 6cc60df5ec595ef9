package format

import (
	"bytes"
	"encoding/json"
)

// valueMode says how a value reaches the arguments.
type valueMode uint8

const (
	valueStreamed  valueMode = iota // text, as it comes
	valueUndecided                  // text as soon as it can't be null
	valueBuffered                   // typed at its end
)

// valueState is the state of the value that is read. Values hold any text,
// tags as well; the stack holds the tags that were opened inside it, each by
// the letter of its kind.
type valueState struct {
	types types
	any   bool // JSON of any type
	mode  valueMode
	stack []byte
	run   int  // where a run of closing tags began that may be the end; -1: none
	trim  bool // a newline at its end is markup
	body  bool // the arguments were one JSON body
}

const (
	openParam   byte = 'p'
	openCall    byte = 'f'
	openWrapper byte = 'w'
)

// stepValueStart drops the newline that belongs to the tag.
func (p *parser) stepValueStart() bool {
	if p.g.tagged.trim {
		b := p.rest(p.pos)
		if len(b) == 0 && !p.final || len(b) == 1 && b[0] == '\r' && !p.final {
			return false
		}
		n := newline(b)
		p.pos += n
		p.scan = p.pos
		p.val.trim = n > 0 || !p.g.tagged.pair
	}
	p.val.run = -1
	p.call.item = p.pos
	p.step = (*parser).stepValue
	return true
}

// stepValue reads a value up to its end. A closing tag in it is the end only
// where structure follows, and a value may hold whole calls as text.
func (p *parser) stepValue() bool {
	t := p.g.tagged
	for {
		k := bytes.IndexByte(p.rest(p.scan), t.lead)
		if k < 0 {
			p.scan = p.limit
			if !p.final {
				p.emitValue(p.limit)
				return false
			}
			p.valueCut(p.limit)
			return true
		}
		i := p.scan + k
		tok, m := p.classify(i)
		if tok == tokPart && !p.final {
			p.scan = i
			p.emitValue(i)
			return false
		}
		if tok == tokNone || tok == tokPart {
			p.val.run = -1
			p.scan = i + 1
			continue
		}
		p.scan = i
		done, wait := p.tagInValue(i, tok, m)
		if done {
			return true
		}
		if wait {
			p.emitValue(i)
			return false
		}
	}
}

// tagInValue decides on a tag at i. Without an answer it moves scan over what
// is text.
func (p *parser) tagInValue(i int, tok token, m tagMatch) (done, wait bool) {
	v, line := &p.val, i == p.call.item || p.before(i) == '\n'
	switch tok {
	case tokCut:
		p.valueCut(i)
		return true, false
	case tokParam:
		if (line || p.g.tagged.first) && len(v.stack) == 0 && p.fresh(string(m.name)) {
			p.endValue(i, i)
			p.warn("missing_param_close", i, i)
			return true, false
		}
		p.nest(line, openParam, m.end)
	case tokOpen:
		p.nest(line, openCall, m.end)
	case tokWrapOpen:
		p.nest(line, openWrapper, m.end)
	case tokParamBad:
		v.run, p.scan = -1, i+1
	default:
		return p.closeInValue(i, tok, m.end, line)
	}
	return false, false
}

// nest notes a tag that is opened inside a value, at the beginning of a line.
func (p *parser) nest(line bool, kind byte, end int) {
	if line && !p.g.tagged.first {
		p.val.stack = append(p.val.stack, kind)
	}
	p.val.run, p.scan = -1, end
}

// fresh reports whether key is a declared parameter that the call lacks.
func (p *parser) fresh(key string) bool {
	for _, g := range p.call.given {
		if g == key {
			return false
		}
	}
	return p.call.params.declared(key)
}

// closeInValue decides on a closing tag from what follows it.
func (p *parser) closeInValue(i int, tok token, end int, line bool) (done, wait bool) {
	v := &p.val
	if tok == tokParamClose && p.g.tagged.first {
		p.endValue(i, end)
		return true, false
	}
	if p.look < end {
		p.look = end
	}
	next, ok := p.space(p.look)
	p.look = next
	if !ok {
		return false, true
	}
	after, m := p.classify(next)
	if after == tokPart {
		if !p.final {
			return false, true
		}
		after = tokCut
	}
	if tok == tokBadClose && (after == tokClose || after == tokWrapClose) {
		closed, ok := p.closesCall(m.end)
		if !ok {
			return false, true
		}
		if !closed {
			after = tokNone
		}
	}
	if p.endsValue(tok, after, m, line) {
		if tok == tokClose || tok == tokWrapClose {
			end = i
		}
		p.endValue(i, end)
		if tok != tokParamClose {
			p.warn("missing_param_close", i, end)
		}
		return true, false
	}
	p.unnest(tok, line)
	if v.run < 0 {
		v.run = i
	}
	switch {
	case after.closes():
		p.scan = next
	case after == tokEnd || after == tokCut:
		p.valueCut(p.limit)
		return true, false
	default:
		v.run, p.scan = -1, end
	}
	return false, false
}

// endsValue reports whether a closing tag is the end of the value, given what
// comes after it.
func (p *parser) endsValue(tok, after token, next tagMatch, line bool) bool {
	if len(p.val.stack) > 0 {
		return false
	}
	end := after == tokEnd || after == tokCut
	switch tok {
	case tokParamClose:
		switch after {
		case tokParam, tokParamBad, tokClose, tokWrapClose, tokWrapOpen, tokOpen:
			return true
		}
		return end
	case tokBadClose:
		return after == tokParam && p.fresh(string(next.name)) || after == tokClose || after == tokWrapClose
	case tokClose:
		return line && (end || after == tokWrapClose || after == tokWrapOpen || after == tokOpen)
	case tokWrapClose:
		return line && (end || after == tokWrapOpen)
	}
	return false
}

// maxGap is how much whitespace may lie between the tags behind a broken one.
const maxGap = 64

// closesCall reports whether a wrapper's closing tag or the end of the text
// comes at i; ok is false when that isn't known yet.
func (p *parser) closesCall(i int) (closes, ok bool) {
	k := space(p.buf[:p.limit], i)
	if k-i > maxGap {
		return false, true
	}
	tok, _ := p.classify(k)
	if !p.final && (k == p.limit || tok == tokPart) {
		return false, false
	}
	return tok == tokWrapClose || tok == tokEnd || tok == tokCut, true
}

// unnest closes what a closing tag in a value closes there.
func (p *parser) unnest(tok token, line bool) {
	v := &p.val
	if len(v.stack) == 0 {
		return
	}
	switch tok {
	case tokParamClose:
		if v.stack[len(v.stack)-1] == openParam {
			v.stack = v.stack[:len(v.stack)-1]
		}
	case tokClose, tokWrapClose:
		kind := openCall
		if tok == tokWrapClose {
			kind = openWrapper
		}
		if k := bytes.LastIndexByte(v.stack, kind); k >= 0 && line {
			v.stack = v.stack[:k]
		}
	}
}

// emitValue sends a value that is text on, up to end. It keeps a newline at
// its end, which may belong to the closing tag.
func (p *parser) emitValue(end int) {
	if p.val.run >= 0 {
		end = p.val.run
	}
	if p.val.mode == valueBuffered || end <= p.pos {
		return
	}
	if p.val.trim {
		if e := trimNewline(p.buf, p.pos, end); e < end {
			end = e
		} else if p.buf[end-1] == '\r' && end == p.limit && !p.final {
			end--
		}
	}
	if p.val.mode == valueUndecided {
		if maybeNull(p.buf[p.pos:end]) {
			return
		}
		p.args = append(p.args, '"')
		p.val.mode = valueStreamed
	}
	if end > p.pos {
		p.args = appendQuoted(p.args, p.buf[p.pos:end])
		p.pos = end
	}
}

// maybeNull reports whether b may be the beginning of null or None.
func maybeNull(b []byte) bool {
	b = bytes.TrimSpace(b)
	return len(b) <= 4 && (bytes.EqualFold(b, []byte("null"[:len(b)])) || bytes.EqualFold(b, []byte("none"[:len(b)])))
}

// endValue ends the value at end; the call goes on at next.
func (p *parser) endValue(end, next int) {
	v := &p.val
	v.run = -1
	if v.trim {
		end = trimNewline(p.buf, p.pos, end)
	}
	raw := p.buf[p.pos:max(end, p.pos)]
	switch {
	case v.mode == valueStreamed:
		p.args = append(appendQuoted(p.args, raw), '"')
	case v.any:
		p.args = coerceAny(p.args, raw)
	default:
		p.args = coerce(p.args, raw, v.types)
	}
	p.pos, p.look, p.scan = next, next, next
	p.step = (*parser).stepParams
}

// coerceAny appends a value that is said to be JSON; what isn't stays text.
func coerceAny(dst, raw []byte) []byte {
	if s := bytes.TrimSpace(raw); len(s) > 0 {
		if json.Valid(s) {
			return append(dst, s...)
		}
		if out, ok := looseJSON(s); ok {
			return append(dst, out...)
		}
	}
	return coerce(dst, raw, typeString)
}

// valueCut ends a value that the end of the text ends. A run of closing tags
// before it is markup.
func (p *parser) valueCut(end int) {
	closed := p.val.run >= 0
	if closed {
		end = p.val.run
	}
	p.call.cut = !closed
	p.endValue(end, p.limit)
	p.closeArgs()
	if closed {
		p.warn("unbalanced_value", end, p.limit)
	}
	p.goAfter(p.limit)
}
