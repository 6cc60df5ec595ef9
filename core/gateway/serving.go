package gateway

import (
	"github.com/penstock-dev/penstock/core/point"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// serving makes the parts and deltas that the client gets of those that were
// parsed.
type serving struct {
	c         *call
	stream    bool // deltas are wanted
	holdCalls bool // until complete, as a hook may change them
	holdReply bool // whole, for the same reason
	single    bool // the client takes one call in a reply
	awaits    bool // nothing goes out before the call that was demanded
	calls     int
	parts     []chat.Part
	deltas    []chat.Delta
	args      bool // arguments of the open call went out
}

func newServing(c *call) *serving {
	return &serving{
		c: c, stream: c.req.Stream,
		holdCalls: len(point.Changing(c.m.Hooks, hook.ToolCall)) > 0,
		holdReply: len(point.Changing(c.m.Hooks, hook.Reply)) > 0,
		single:    c.conv.ToolChoice != nil && c.conv.ToolChoice.DisableParallel,
		awaits:    c.checked(),
	}
}

// take returns the deltas since the last time.
func (s *serving) take() []chat.Delta {
	if s.awaits {
		return nil
	}
	out := s.deltas
	s.deltas = s.deltas[:0]
	return out
}

func (s *serving) held(p *chat.Part) bool {
	return !s.stream || s.holdReply || p.Type == chat.ToolCall && (s.holdCalls || s.surplus())
}

// surplus says that the reply has all the calls that the client takes.
func (s *serving) surplus() bool { return s.single && s.calls > 0 }

func (s *serving) opened(p *chat.Part) {
	s.args = false
	if p.Type == chat.ToolCall && !s.held(p) {
		s.add(chat.Delta{Type: chat.DeltaCallStart, ID: p.ID, Name: p.Name})
	}
}

func (s *serving) grew(p *chat.Part, text string) {
	if s.held(p) {
		return
	}
	t := chat.DeltaText
	switch p.Type {
	case chat.Reasoning:
		t = chat.DeltaReasoning
	case chat.ToolCall:
		t, s.args = chat.DeltaCallArgs, true
	}
	s.add(chat.Delta{Type: t, Text: text})
}

// marked adds what a part has beside its text: a signature, or the whole of a
// redacted one.
func (s *serving) marked(p *chat.Part, t chat.DeltaType, text string) {
	if !s.held(p) {
		s.add(chat.Delta{Type: t, Text: text})
	}
}

func (s *serving) ended(p *chat.Part) {
	held := s.held(p)
	part := *p
	if p.Type == chat.ToolCall {
		if s.surplus() {
			s.c.leaveOut(p)
			return
		}
		if !held && !s.args {
			s.add(chat.Delta{Type: chat.DeltaCallArgs, Text: argumentsText(p)})
		}
		if part = s.c.hookCall(p); part.Type == chat.ToolCall {
			s.calls++
		}
	}
	if held && s.stream && !s.holdReply {
		s.whole(&part)
	} else if !held {
		s.add(chat.Delta{Type: chat.DeltaPartEnd})
	}
	part.Text = sse.Clean(part.Text) // as dialects write it, so that it is known again
	s.parts = append(s.parts, part)
}

func (s *serving) add(d chat.Delta) {
	if d.Type == chat.DeltaCallStart && s.fits(d.Name) {
		s.awaits = false
	}
	d.Part = len(s.parts)
	s.deltas = append(s.deltas, d)
}

// fits reports whether a call is one that was demanded.
func (s *serving) fits(name string) bool {
	want := s.c.conv.ToolChoice
	return want == nil || want.Mode != chat.ChoiceNamed || want.Name == name
}

// whole adds the deltas of a part that was held.
func (s *serving) whole(p *chat.Part) {
	switch p.Type {
	case chat.ToolCall:
		text := argumentsText(p)
		if p.ArgumentsRaw {
			text = string(p.Arguments) // a JSON string, which every client can read
		}
		s.add(chat.Delta{Type: chat.DeltaCallStart, ID: p.ID, Name: p.Name})
		s.add(chat.Delta{Type: chat.DeltaCallArgs, Text: text})
	case chat.Reasoning:
		if p.Data != "" {
			s.add(chat.Delta{Type: chat.DeltaRedacted, Text: p.Data})
			break
		}
		s.add(chat.Delta{Type: chat.DeltaReasoning, Text: p.Text})
		if p.Signature != "" {
			s.add(chat.Delta{Type: chat.DeltaSignature, Text: p.Signature})
		}
	default:
		s.add(chat.Delta{Type: chat.DeltaText, Text: p.Text})
	}
	s.add(chat.Delta{Type: chat.DeltaPartEnd})
}

// all adds the deltas of a reply that was held, and makes its parts the
// served ones.
func (s *serving) all(parts []chat.Part) {
	s.parts = s.parts[:0:0]
	if !s.stream {
		s.parts = parts
		return
	}
	for i := range parts {
		s.whole(&parts[i])
		s.parts = append(s.parts, parts[i])
	}
}
