package redact

import (
	"bytes"
	"encoding/binary"
)

// needle is a text that is looked for: a secret, or the start of a pattern.
type needle struct {
	text    []byte
	kind    string
	pattern *Pattern // checks what follows; nil: the text is the secret
	next    *charset // of the byte after text, where text has three bytes only
	wraps   bool     // line breaks may stand in it
}

// matcher finds needles in one pass. It looks at three bytes at every second
// place; a needle is known by the three bytes at an offset of its own and
// those one further on, one of which is at such a place. What has a known
// three bytes is compared.
type matcher struct {
	bits    [1 << 16 / 64]uint64 // of gram.hash
	anchors map[gram][]anchor
}

// gram is three bytes, the first one lowest but one.
type gram uint32

type anchor struct {
	*needle
	offset int // of the three bytes in the needle
}

func newMatcher() *matcher { return &matcher{anchors: map[gram][]anchor{}} }

func gramOf(b []byte) gram {
	return gram(uint32(b[0])<<8 | uint32(b[1])<<16 | uint32(b[2])<<24)
}

func (g gram) hash() uint32 { return uint32(g) * 0x9E3779B1 >> 16 }

func (m *matcher) add(n *needle) {
	if len(n.text) == 3 {
		m.anchor(n, 0, gramOf(n.text))
		for c := range n.next {
			if n.next[c] {
				m.anchor(n, 1, gramOf([]byte{n.text[1], n.text[2], byte(c)}))
			}
		}
		return
	}
	at := m.rarest(n.text, 0, len(n.text))
	m.anchor(n, at, gramOf(n.text[at:]))
	m.anchor(n, at+1, gramOf(n.text[at+1:]))
	if n.wraps && len(n.text) > 16 {
		// Should a line break stand in these, there is none in those.
		half := len(n.text) / 2
		if at >= half-2 {
			at = m.rarest(n.text, 0, half-2)
		} else {
			at = m.rarest(n.text, half+2, len(n.text))
		}
		m.anchor(n, at, gramOf(n.text[at:]))
		m.anchor(n, at+1, gramOf(n.text[at+1:]))
	}
}

func (m *matcher) anchor(n *needle, offset int, g gram) {
	h := g.hash()
	m.bits[h>>6] |= 1 << (h & 63)
	m.anchors[g] = append(m.anchors[g], anchor{n, offset})
}

// rarest is the offset of the four bytes of a needle, between two offsets, that
// texts and other needles are least likely to hold.
func (m *matcher) rarest(text []byte, from, to int) int {
	best, at := 1<<30, from
	for i := from; i+4 <= to; i++ {
		cost := 4 * (len(m.anchors[gramOf(text[i:])]) + len(m.anchors[gramOf(text[i+1:])]))
		for _, c := range text[i : i+4] {
			switch {
			case c >= 'a' && c <= 'z', c == ' ', c == '\n':
				cost += 4
			case c == '_', c == '-', c == '"', c == '/':
				cost += 2
			case c == text[i]:
				cost++ // runs of one character are common
			}
		}
		if cost < best {
			best, at = cost, i
		}
	}
	return at
}

// find appends what it finds to out, in no order; with first, only one.
func (m *matcher) find(b []byte, out []span, first bool) []span {
	if len(m.anchors) == 0 {
		return out
	}
	i := 0
	for ; i+8 <= len(b); i += 6 {
		w := binary.LittleEndian.Uint64(b[i:])
		g0, g1, g2 := gram(w<<8), gram(w>>16<<8), gram(w>>32<<8)
		h0, h1, h2 := g0.hash(), g1.hash(), g2.hash()
		if (m.bits[h0>>6&1023]>>(h0&63)|m.bits[h1>>6&1023]>>(h1&63)|m.bits[h2>>6&1023]>>(h2&63))&1 == 0 {
			continue
		}
		for k, g := range [3]gram{g0, g1, g2} {
			out = m.at(b, i+2*k, g, out)
		}
		if first && out != nil {
			return out
		}
	}
	for ; i+3 <= len(b); i += 2 {
		out = m.at(b, i, gramOf(b[i:]), out)
	}
	return out
}

// at compares the needles that have these three bytes.
func (m *matcher) at(b []byte, i int, g gram, out []span) []span {
	if h := g.hash(); m.bits[h>>6]>>(h&63)&1 == 0 {
		return out
	}
	for _, a := range m.anchors[g] {
		if s, ok := a.match(b, i); ok {
			out = append(out, s)
		}
	}
	return out
}

// match compares a needle whose anchor is at b[i:].
func (a anchor) match(b []byte, i int) (span, bool) {
	from := i - a.offset
	to := from + len(a.text)
	if from < 0 || to > len(b) || !bytes.Equal(b[from:to], a.text) {
		if !a.wraps {
			return span{}, false
		}
		var ok bool
		if from, to, ok = a.wrapped(b, i); !ok {
			return span{}, false
		}
	}
	if a.pattern != nil {
		var ok bool
		if from, to, ok = a.pattern.match(b, from, to); !ok {
			return span{}, false
		}
	}
	return span{from, to, a.kind}, true
}

// wrapped compares a needle whose anchor is at b[i:], over line breaks.
func (a anchor) wrapped(b []byte, i int) (from, to int, ok bool) {
	to = i
	for _, c := range a.text[a.offset:] {
		to += newlines(b[to:])
		if to >= len(b) || b[to] != c {
			return 0, 0, false
		}
		to++
	}
	from = i
	for k := a.offset - 1; k >= 0; k-- {
		from -= newlinesBefore(b[:from])
		if from == 0 || b[from-1] != a.text[k] {
			return 0, 0, false
		}
		from--
	}
	return from, to, true
}

var lineBreaks = [][]byte{[]byte("\n"), []byte("\r\n"), []byte(`\n`), []byte(`\r\n`), []byte(`\\n`), []byte(`\\r\\n`)}

// newlines is the length of the line break that b begins with.
func newlines(b []byte) int {
	if len(b) == 0 || b[0] != '\n' && b[0] != '\r' && b[0] != '\\' {
		return 0
	}
	n := 0
	for _, l := range lineBreaks {
		if bytes.HasPrefix(b, l) {
			n = max(n, len(l))
		}
	}
	return n
}

func newlinesBefore(b []byte) int {
	if len(b) == 0 || b[len(b)-1] != '\n' && b[len(b)-1] != 'n' {
		return 0
	}
	n := 0
	for _, l := range lineBreaks {
		if bytes.HasSuffix(b, l) {
			n = max(n, len(l))
		}
	}
	return n
}
