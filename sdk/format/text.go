package format

import "bytes"

// text is the state of running text: content or reasoning. Between pos and
// scan lies only what is held back: whitespace, which is dropped if a marker
// follows, behind solid.
type text struct {
	reasoning bool
	prompted  bool // the prompt opened the reasoning, and nothing came yet
	solid     int  // end of the last byte that isn't whitespace
	strip     int  // newlines to drop before the next text
	begun     bool // something other than whitespace came
	reasoned  bool // the open reasoning has text
	last      EventKind
	framed    bool // a frame is open
	unclosed  bool // a wrapper was left open
}

func (p *parser) finder() *finder {
	switch {
	case p.text.reasoning && p.active && p.g.endedByCall:
		return p.g.inReasoning
	case p.text.reasoning:
		return p.g.inReasoningOnly
	case p.active:
		return p.g.inContent
	}
	return p.g.inContentOnly
}

// stepText reads content and reasoning up to a marker.
func (p *parser) stepText() bool {
	f := p.finder()
	b := p.buf[:p.limit]
	for {
		i := f.next(b, p.scan)
		p.note(i)
		if i == p.limit {
			p.flushText()
			if p.final {
				p.endText()
			}
			return false
		}
		m, how := f.at(b[i:])
		if how == part && !p.final {
			p.flushText()
			return false
		}
		if how == part {
			// At the end, a marker that is the beginning of a longer one counts.
			m, how = f.shorter(b[i:])
		}
		if how == full && p.onMarker(m, i) {
			return true
		}
		p.text.solid, p.scan = i+1, i+1
	}
}

// shorter is the longest marker that b begins with, although a longer one may
// have been meant.
func (f *finder) shorter(b []byte) (marker, match) {
	var best marker
	for _, m := range f.markers {
		if bytes.HasPrefix(b, m.text) && len(m.text) > len(best.text) {
			best = m
		}
	}
	if best.text == nil {
		return best, no
	}
	return best, full
}

// note takes the text up to i, which has no marker, into account.
func (p *parser) note(i int) {
	e := i
	for e > p.scan && isSpace(p.buf[e-1]) {
		e--
	}
	if e > p.scan {
		p.text.solid = e
	}
	p.scan = i
}

// flushText emits what is known to be text, without whitespace at its end.
func (p *parser) flushText() {
	if p.text.solid > p.pos {
		p.emitText(p.text.solid)
	}
}

func (p *parser) emitText(end int) {
	start := p.pos
	for ; p.text.strip > 0; p.text.strip-- {
		start += newline(p.buf[start:end])
	}
	p.pos = end
	if start == end {
		return
	}
	kind := Content
	if p.text.reasoning {
		kind = Reason
		p.text.reasoned = true
	}
	p.text.begun, p.text.prompted, p.text.last = true, false, kind
	p.emit(Event{Kind: kind, Text: string(p.buf[start:end]), Span: p.span(start, end)})
}

// newline is the length of the newline at the start of b.
func newline(b []byte) int {
	if len(b) > 0 && b[0] == '\n' {
		return 1
	}
	if len(b) > 1 && b[0] == '\r' && b[1] == '\n' {
		return 2
	}
	return 0
}

// trimNewline is end without one newline before it, not before start.
func trimNewline(b []byte, start, end int) int {
	if end > start && b[end-1] == '\n' {
		end--
		if end > start && b[end-1] == '\r' {
			end--
		}
	}
	return end
}

// endText emits the whitespace at the end of the text where it belongs to what
// came before it.
func (p *parser) endText() {
	own := p.text.reasoning && p.text.reasoned || !p.text.reasoning && (p.text.last == Content || !p.text.begun)
	if own && p.scan > p.pos {
		p.emitText(p.scan)
	}
	p.pos = p.scan
}

// jump goes on with text at i.
func (p *parser) jump(i int) {
	p.pos, p.scan, p.look, p.text.solid = i, i, i, i
	p.step = (*parser).stepText
}

// onMarker acts on a marker at i. It reports false when the marker is text.
func (p *parser) onMarker(m marker, i int) bool {
	end := i + len(m.text)
	switch m.kind {
	case markReasonOpen:
		return p.openReasoning(i, end)
	case markReasonClose:
		return p.closeReasoning(i, end)
	case markWrapper, markBare:
		if m.kind == markBare && !p.bareAllowed(i) {
			return false
		}
		p.flushText()
		p.call.mark, p.call.resume, p.call.wrapped = i, end, m.kind == markWrapper
		p.call.array = false
		p.look, p.step = i, (*parser).stepItem
		if p.call.wrapped {
			p.look = end
		}
		return true
	case markEnd:
		p.flushText()
		p.endText()
		p.pos, p.look, p.step = i, i, (*parser).stepBetween
		return true
	case markForced:
		return p.forcedAt(i)
	case markFrameOpen, markFrameClose, markFrameFree:
		return p.frame(m.kind, end)
	case markLeftover:
		if !p.text.unclosed && !p.g.calls.Special && (p.text.last != CallEnd || p.text.solid > p.pos) {
			return false
		}
		p.flushText()
		p.text.unclosed = false
		p.warn("stray_call_close", i, end)
		p.jump(end)
		return true
	}
	return false
}

// frame drops a marker around content, where it is one.
func (p *parser) frame(kind markerKind, end int) bool {
	switch kind {
	case markFrameOpen:
		if p.text.last == Content || p.text.solid > p.pos {
			return false
		}
		p.text.framed = true
	case markFrameClose:
		if !p.text.framed {
			return false
		}
		p.text.framed = false
	}
	p.flushText()
	p.text.strip = 1
	p.jump(end)
	return true
}

func (p *parser) openReasoning(i, end int) bool {
	if p.text.reasoning {
		if !p.text.prompted || p.text.solid > p.pos {
			return false
		}
		p.warn("repeated_reasoning_open", i, end)
		p.text.prompted, p.text.strip = false, 1
		p.jump(end)
		return true
	}
	if !p.g.anywhere && (p.text.begun || p.text.solid > p.pos) {
		return false
	}
	p.flushText()
	p.text.reasoning, p.text.reasoned, p.text.strip = true, false, 1
	p.text.begun = true
	p.jump(end)
	return true
}

func (p *parser) closeReasoning(i, end int) bool {
	if !p.text.reasoning {
		if p.before(i) == '`' {
			return false
		}
		p.flushText()
		if p.text.begun || !p.g.bareClose {
			p.warn("stray_reasoning_close", i, end)
		}
		p.jump(end)
		return true
	}
	p.flushText()
	if e := trimNewline(p.buf, p.pos, i); p.text.reasoned && e > p.pos {
		p.emitText(e)
	}
	p.text.reasoning, p.text.begun, p.text.prompted, p.text.strip = false, true, false, 2
	p.jump(end)
	return true
}

// before is the byte before i, a newline at the start of the text.
func (p *parser) before(i int) byte {
	if i > 0 {
		return p.buf[i-1]
	}
	return '\n'
}

// lineStart reports whether only blanks lie between i and the start of its
// line.
func (p *parser) lineStart(i int) bool {
	for i > p.pos && (p.buf[i-1] == ' ' || p.buf[i-1] == '\t') {
		i--
	}
	return p.before(i) == '\n'
}

func (p *parser) bareAllowed(i int) bool {
	switch p.g.calls.Bare {
	case "line":
		return p.lineStart(i) || !p.text.begun && p.text.solid <= p.pos
	case "start":
		return p.text.last != Content && p.text.solid <= p.pos
	}
	return true
}
