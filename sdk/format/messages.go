package format

import (
	"bytes"
	"slices"
	"strings"
)

// messageGrammar is a MessagesSpec, ready to match.
type messageGrammar struct {
	spec                               *MessagesSpec
	start, channel, constrain, message []byte
	ends                               [][]byte // ends and start
	head                               [][]byte // what a header may begin with
}

func (g *grammar) useMessages(s *MessagesSpec, calls []marker) {
	m := &messageGrammar{
		spec: s, start: []byte(s.Start), channel: []byte(s.Channel),
		constrain: []byte(s.Constrain), message: []byte(s.Message),
	}
	m.ends = append(texts(s.End), m.start)
	m.head = [][]byte{m.start, []byte("to="), m.message}
	if len(m.channel) > 0 {
		m.head = append(m.head, m.channel)
	}
	g.messages = m
	g.edges = append(g.edges, m.ends...)
	for _, e := range m.ends {
		g.edge[e[0]] = true
	}
	var ends []marker
	for _, e := range m.ends {
		ends = append(ends, marker{e, markEnd})
	}
	f := newFinder(ends)
	g.inContentOnly, g.inReasoning, g.inReasoningOnly = f, f, f
	g.inContent = newFinder(append(ends, calls...))
	g.hasReasoning = true
}

// stepBetween stands between messages, or at the start of the first, whose
// start the prompt may have written.
func (p *parser) stepBetween() bool {
	m := p.g.messages
	i := space(p.buf[:p.limit], p.look)
	p.look = i
	if i == p.limit {
		if p.final {
			p.pos = i
		}
		return false
	}
	if n, how := compareAny(p.rest(i), m.ends[:len(m.ends)-1], p.final); how == full {
		p.pos, p.look = i+n, i+n
		return true
	} else if how == part && !p.final {
		return false
	}
	_, how := compareAny(p.rest(i), m.head, p.final)
	if how == part && !p.final {
		return false
	}
	p.text.reasoning = false
	if how != full {
		// Text without a header, such as a refusal, is content.
		p.jump(p.pos)
		return true
	}
	p.call.mark, p.call.resume, p.look = i, i, i
	p.step = (*parser).stepMessageHead
	return true
}

// stepMessageHead reads a header up to its message marker.
func (p *parser) stepMessageHead() bool {
	m := p.g.messages
	for i := p.look; ; i++ {
		for i < p.limit && p.buf[i] != m.message[0] {
			i++
		}
		p.look = i
		switch {
		case i == p.limit && !p.final && i-p.call.mark <= maxTag:
			return false
		case i == p.limit || i-p.call.mark > maxTag:
			return p.headless(i)
		}
		how := compare(p.rest(i), m.message)
		if how == full {
			p.readHeader(p.buf[p.call.mark:i], i+len(m.message))
			return true
		}
		_, end := compareAny(p.rest(i), m.ends, p.final)
		if !p.final && (how == part || end == part) {
			return false
		}
		if end == full && i > p.call.mark {
			// A doubled start begins the header anew.
			if len(bytes.TrimSpace(bytes.TrimPrefix(p.buf[p.call.mark:i], m.start))) == 0 {
				p.warn("repeated_start", p.call.mark, i)
				p.call.mark, p.pos = i, i
				continue
			}
			return p.headless(i)
		}
	}
}

// headless takes a header that no message marker follows: what it holds beyond
// markers and the names of channels is the body.
func (p *parser) headless(end int) bool {
	m := p.g.messages
	h := p.buf[p.call.mark:end]
	from := p.call.mark
	if k := bytes.Index(h, m.channel); k >= 0 && len(m.channel) > 0 {
		from += k + len(m.channel)
		for _, name := range slices.Concat(m.spec.Reasoning, m.spec.Content) {
			if hasPrefix(p.buf[from:end], name) {
				from += len(name)
				break
			}
		}
	}
	p.warn("broken_header", p.call.mark, from)
	p.pos = from
	p.jumpKeep(from, end)
	return true
}

// jumpKeep goes on with text at from, of which what lies before end is known
// to be text.
func (p *parser) jumpKeep(from, end int) {
	p.pos, p.scan, p.look, p.text.solid = from, from, end, from
	p.note(end)
	p.step = (*parser).stepText
}

// readHeader decides what a message is from its header; its body begins at
// body.
func (p *parser) readHeader(h []byte, body int) {
	m := p.g.messages
	role, channel := h, []byte(nil)
	if len(m.channel) > 0 {
		role, channel, _ = bytes.Cut(h, m.channel)
	}
	to := recipient(role)
	if to == "" {
		to = recipient(channel)
	}
	name := string(channelName(channel))
	if fn, ok := bytes.CutPrefix([]byte(to), []byte(m.spec.Functions)); ok && to != "" && len(fn) > 0 && p.active && p.g.tagged == nil {
		p.call.item = p.call.mark
		p.call.name = string(fn)
		p.look, p.step = body, (*parser).stepMessageCall
		return
	}
	p.text.reasoning = slices.Contains(m.spec.Reasoning, name) || slices.Contains(m.spec.ReasoningTo, to)
	if m.odd(h) {
		p.warn("odd_header", p.call.mark, body)
	}
	// Neighbours of a kind are lines.
	if p.text.reasoning && p.text.reasoned {
		p.emit(Event{Kind: Reason, Text: "\n", Span: p.span(body, body)})
	} else if !p.text.reasoning && p.text.last == Content {
		p.emit(Event{Kind: Content, Text: "\n", Span: p.span(body, body)})
	}
	p.jump(body)
}

// odd reports whether a header says anything besides role and channel.
func (m *messageGrammar) odd(h []byte) bool {
	h, _ = bytes.CutPrefix(h, m.start)
	if len(m.channel) == 0 {
		words := strings.Fields(string(h))
		if len(words) > 0 && words[0] == "assistant" {
			words = words[1:]
		}
		return len(words) != 1 || words[0] != "to="+recipient(h)
	}
	role, channel, ok := bytes.Cut(h, m.channel)
	role, channel = bytes.TrimSpace(role), bytes.TrimSpace(channel)
	known := slices.Contains(m.spec.Reasoning, string(channel)) || slices.Contains(m.spec.Content, string(channel))
	return !ok || !known || len(role) > 0 && string(role) != "assistant"
}

// recipient is what follows to= in a part of a header, up to a blank or a
// marker.
func recipient(h []byte) string {
	_, rest, ok := bytes.Cut(h, []byte("to="))
	if !ok {
		return ""
	}
	if k := bytes.IndexAny(rest, " \t\r\n<"); k >= 0 {
		rest = rest[:k]
	}
	return string(rest)
}

// channelName is the word at the start of a channel.
func channelName(h []byte) []byte {
	h = bytes.TrimSpace(h)
	if k := bytes.IndexAny(h, " \t\r\n<?:"); k >= 0 {
		h = h[:k]
	}
	return h
}

// stepMessageCall reads the body of a call: JSON, or nothing.
func (p *parser) stepMessageCall() bool {
	m := p.g.messages
	i := space(p.buf[:p.limit], p.look)
	p.look = i
	if i == p.limit && !p.final {
		return false
	}
	_, how := compareAny(p.rest(i), m.ends, p.final)
	if how == part && i < p.limit && !p.final {
		return false
	}
	p.text.reasoning = false
	p.head.id = ""
	if !p.begin(p.call.name) {
		p.jumpKeep(p.call.mark, i) // its header is text as well
		return true
	}
	p.pos = i
	if i == p.limit || how == full {
		p.args = append(p.args, "{}"...)
		p.endMessageCall(i)
		return true
	}
	p.startBody(i, (*parser).stepMessageEnd)
	return true
}

// stepMessageEnd reads up to the end of a call's message.
func (p *parser) stepMessageEnd() bool {
	m := p.g.messages
	i := space(p.buf[:p.limit], p.look)
	p.look = i
	if i == p.limit && !p.final {
		return false
	}
	_, how := compareAny(p.rest(i), m.ends, p.final)
	if how == part && i < p.limit && !p.final {
		return false
	}
	if i < p.limit && how != full {
		p.warn("text_after_arguments", i, i)
	}
	p.endMessageCall(p.look)
	return true
}

// endMessageCall ends a call whose body ends at i.
func (p *parser) endMessageCall(i int) {
	p.finish(i)
	p.pos, p.look, p.step = i, i, (*parser).stepBetween
}
