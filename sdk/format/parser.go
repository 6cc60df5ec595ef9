package format

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// parser is the incremental parser of declared formats. It is one machine for
// whole and streamed text: Feed adds bytes to buf and runs step until it asks
// for more; Finish sets final, on which every wait is resolved, and runs it
// once more. What was emitted is what every continuation agrees on.
//
// Indices are into buf; base is the offset of buf[0] in the text.
type parser struct {
	g      *grammar
	tools  []chat.Tool
	newID  func() string
	active bool   // the markup of calls is recognised
	named  string // the tool that the request demands

	buf   []byte
	base  int
	pos   int // what lies before it is consumed
	scan  int // how far the search in text or a value has got
	look  int // how far the look-ahead has got
	limit int // what lies behind it is held back
	final bool
	step  func(*parser) bool

	held, heldNext int // a run of stops that may be the end; held < 0: none

	out  []Event
	args []byte // arguments not yet emitted

	text text
	call callState
	val  valueState
	head headState
	json jsonStream
	lit  literalState
	elem nestedState
}

// Open implements Format.
func (d *declared) Open(_ context.Context, o *ParseOptions) (Parser, error) {
	p := &parser{g: d.grammar, held: -1, step: (*parser).stepText, newID: o.NewID, tools: o.Tools}
	if p.newID == nil {
		p.newID = d.newID
	}
	p.json.delim = d.grammar.strings
	p.active = len(o.Tools) > 0 && (o.Choice == nil || o.Choice.Mode != chat.ChoiceNone) && d.grammar.calls != nil
	if p.active && forces(o.Choice) {
		p.g = d.demand
		if o.Choice.Mode == chat.ChoiceNamed {
			p.named = o.Choice.Name
		}
	}
	p.text.reasoning = o.State.ReasoningOpen && d.grammar.hasReasoning
	p.text.prompted = p.text.reasoning
	if d.grammar.messages != nil {
		p.step = (*parser).stepBetween
	}
	return p, nil
}

// maxPiece is how much text is taken at once, so that what is worked on stays
// in the processor's cache.
const maxPiece = 32 << 10

// Feed implements Parser.
func (p *parser) Feed(dst []Event, chunk []byte) []Event {
	if p.final {
		return dst
	}
	for len(chunk) > 0 {
		n := min(len(chunk), maxPiece)
		p.compact()
		p.buf = append(p.buf, chunk[:n]...)
		if n > minCompact {
			p.args = slices.Grow(p.args, n)
		}
		chunk = chunk[n:]
		p.extend()
		dst = p.drive(dst)
	}
	return dst
}

// Finish implements Parser.
func (p *parser) Finish(dst []Event) []Event {
	if p.final {
		return dst
	}
	p.final = true
	p.limit = len(p.buf)
	if p.held >= 0 && p.g.stops.ended(p.buf, p.heldNext) {
		p.limit = p.held
	}
	dst = p.drive(dst)
	p.buf, p.pos = nil, 0
	return dst
}

// Err implements Parser.
func (p *parser) Err() error { return nil }

// Close implements Parser.
func (p *parser) Close() error { return nil }

func (p *parser) drive(dst []Event) []Event {
	p.out = dst
	for p.step(p) {
	}
	p.flushArgs()
	dst, p.out = p.out, nil
	return dst
}

// minCompact is how many consumed bytes are worth moving the others for.
const minCompact = 4 << 10

// compact drops what is consumed, save the last byte of it, once that is half
// of the buffer: so bytes move a bounded number of times.
func (p *parser) compact() {
	n := p.pos - 1
	if n < minCompact || n < len(p.buf)-n {
		return
	}
	p.buf = p.buf[:copy(p.buf, p.buf[n:])]
	p.base += n
	for _, i := range []*int{
		&p.pos, &p.scan, &p.look, &p.limit, &p.held, &p.heldNext,
		&p.text.solid, &p.call.mark, &p.call.resume, &p.call.item, &p.call.end, &p.val.run, &p.head.from, &p.lit.start,
	} {
		if *i -= n; *i < 0 {
			*i = -1
		}
	}
}

// extend moves the limit over new bytes: up to a rune that is cut and to a run
// of stops that may be the end of the text.
func (p *parser) extend() {
	from := p.limit
	if p.held >= 0 {
		next, still := p.g.stops.follow(p.buf, p.heldNext)
		if still {
			p.heldNext = next
			return
		}
		// Another run may begin inside of one of its stops.
		p.held, from = -1, p.held+1
	}
	if i := p.g.stops.tail(p.buf, from); i < len(p.buf) {
		p.held, p.limit = i, i
		p.heldNext, _ = p.g.stops.follow(p.buf, i)
		return
	}
	p.limit = len(p.buf) - cutRune(p.buf)
}

// cutRune is how many bytes at the end of b are the beginning of a rune.
func cutRune(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		c := b[len(b)-n]
		if c < utf8.RuneSelf {
			return 0
		}
		if utf8.RuneStart(c) {
			if utf8.FullRune(b[len(b)-n:]) {
				return 0
			}
			return n
		}
	}
	return 0
}

func (p *parser) emit(e Event) {
	p.flushArgs()
	p.out = append(p.out, e)
}

func (p *parser) flushArgs() {
	if len(p.args) == 0 {
		return
	}
	p.out = append(p.out, Event{Kind: CallArgs, Index: p.call.index, Text: string(p.args)})
	p.args = p.args[:0]
}

func (p *parser) span(from, to int) Span { return Span{p.base + from, p.base + to} }

func (p *parser) warn(kind string, from, to int) {
	p.emit(Event{Kind: Warning, Text: kind, Span: p.span(from, to)})
}

// rest is what may be read from i on.
func (p *parser) rest(i int) []byte { return p.buf[i:p.limit] }

// space skips whitespace and noise from i on. It reports false when it has to
// wait for more.
func (p *parser) space(i int) (int, bool) {
	for {
		i = space(p.buf[:p.limit], i)
		if i == p.limit {
			return i, p.final
		}
		n, how := compareAny(p.rest(i), p.g.noise, p.final)
		if how == part && !p.final {
			return i, false
		}
		if how != full {
			return i, true
		}
		i += n
	}
}

// stopSet is the stops that are dropped at the end of a text.
type stopSet struct {
	texts       [][]byte
	first, last [256]bool
	max         int
}

func newStopSet(stops []string) *stopSet {
	s := &stopSet{}
	for _, t := range stops {
		s.texts = append(s.texts, []byte(t))
		s.first[t[0]], s.last[t[len(t)-1]] = true, true
		s.max = max(s.max, len(t))
	}
	return s
}

// follow reads stops and whitespace from i on. It returns where the first
// piece that isn't whole begins, and whether what is there may yet become one.
func (s *stopSet) follow(b []byte, i int) (int, bool) {
	for {
		i = space(b, i)
		if i == len(b) {
			return i, true
		}
		n, how := compareAny(b[i:], s.texts, false)
		if how != full {
			return i, how == part
		}
		i += n
	}
}

// ended reports whether b from i on is nothing but stops and whitespace.
func (s *stopSet) ended(b []byte, i int) bool {
	next, _ := s.follow(b, i)
	return next == len(b)
}

// tail returns where the run of stops at the end of b begins, its last one
// perhaps cut, not before from; len(b) when there is none.
func (s *stopSet) tail(b []byte, from int) int {
	best := len(b)
	for k := max(from, len(b)-s.max+1); k < len(b); k++ {
		if !s.first[b[k]] {
			continue
		}
		for _, t := range s.texts {
			if len(b)-k < len(t) && string(t[:len(b)-k]) == string(b[k:]) {
				best = min(best, s.back(b, from, k))
			}
		}
	}
	if whole := s.back(b, from, len(b)); whole < best {
		best = whole
	}
	return best
}

// back goes from end over whole stops, and whitespace between and behind them,
// to where the first one begins.
func (s *stopSet) back(b []byte, from, end int) int {
	start := end
	for e := end; ; {
		for e > from && isSpace(b[e-1]) {
			e--
		}
		if e == from || !s.last[b[e-1]] {
			return start
		}
		n := 0
		for _, t := range s.texts {
			if e-from >= len(t) && string(b[e-len(t):e]) == string(t) {
				n = len(t)
				break
			}
		}
		if n == 0 {
			return start
		}
		e -= n
		start = e
	}
}
