package gateway_test

import (
	"bytes"
	"context"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// toy is a small format: <|im_start|>role ... <|im_end|>, reasoning in
// <think>, a call as <call NAME>{...}</call>.
type toy struct {
	wrap func(format.Parser) format.Parser
}

const (
	imStart = "<|im_start|>"
	imEnd   = "<|im_end|>"
)

func (toy) Markers() []string { return []string{imStart, imEnd, "<think>", "</think>"} }

func (toy) Render(_ context.Context, r *format.RenderRequest) (*format.Rendered, error) {
	return &format.Rendered{Segments: turns(r.Chat, 0), Stops: []string{imEnd}}, nil
}

func (toy) Tail(_ context.Context, r *format.RenderRequest, k int, ended format.Ended) (*format.Rendered, error) {
	var out []format.Segment
	if ended != format.EndedStop {
		out = append(out, format.Segment{Text: imEnd, Kind: format.Markup, Message: k})
	}
	out = append(out, format.Segment{Text: "\n", Kind: format.Markup, Message: k})
	return &format.Rendered{Segments: append(out, turns(r.Chat, k+1)...), Stops: []string{imEnd}}, nil
}

func turns(c *chat.Conversation, from int) []format.Segment {
	var out []format.Segment
	for i := from; i < len(c.Messages); i++ {
		m := c.Messages[i]
		markup := func(s string) { out = append(out, format.Segment{Text: s, Kind: format.Markup, Message: i}) }
		data := func(s string) { out = append(out, format.Segment{Text: s, Kind: format.Data, Message: i}) }
		markup(imStart + string(m.Role) + "\n")
		for _, p := range m.Parts {
			switch p.Type {
			case chat.Text:
				data(p.Text)
			case chat.ToolCall:
				markup("<call " + p.Name + ">")
				data(string(p.Arguments))
				markup("</call>")
			case chat.ToolResult:
				data(chat.PlainText(p.Content))
			}
		}
		markup(imEnd + "\n")
	}
	return append(out, format.Segment{Text: imStart + "assistant\n", Kind: format.Markup, Message: -1})
}

func (f toy) Open(_ context.Context, o *format.ParseOptions) (format.Parser, error) {
	var p format.Parser = &toyParser{newID: o.NewID}
	if f.wrap != nil {
		p = f.wrap(p)
	}
	return p, nil
}

// toyParser gives text as it comes, save what may become a tag.
type toyParser struct {
	newID    func() string
	buf      []byte
	thinking bool
	in       bool // within a call
	start    int
	at       int
	calls    int
}

func (p *toyParser) Feed(dst []format.Event, chunk []byte) []format.Event {
	p.buf = append(p.buf, chunk...)
	for len(p.buf) > 0 {
		i := bytes.IndexByte(p.buf, '<')
		if i != 0 {
			if i < 0 {
				i = len(p.buf)
			}
			dst = p.text(dst, i)
			continue
		}
		end := bytes.IndexByte(p.buf, '>')
		if end < 0 {
			return dst
		}
		dst = p.tag(dst, string(p.buf[:end+1]))
	}
	return dst
}

func (p *toyParser) text(dst []format.Event, n int) []format.Event {
	e := format.Event{Kind: format.Content, Text: string(p.buf[:n])}
	switch {
	case p.in:
		e.Kind, e.Index = format.CallArgs, p.calls
	case p.thinking:
		e.Kind = format.Reason
	}
	p.cut(n)
	return append(dst, e)
}

func (p *toyParser) tag(dst []format.Event, tag string) []format.Event {
	name, isCall := strings.CutPrefix(tag, "<call ")
	switch {
	case tag == imEnd:
		p.cut(len(tag))
	case tag == "<think>" || tag == "</think>":
		p.thinking = tag == "<think>"
		p.cut(len(tag))
	case isCall && !p.in:
		p.start, p.in = p.at, true
		p.cut(len(tag))
		return append(dst, format.Event{Kind: format.CallStart, Index: p.calls, ID: p.newID(), Name: strings.TrimSuffix(name, ">")})
	case tag == "</call>" && p.in:
		p.in = false
		p.cut(len(tag))
		p.calls++
		return append(dst, format.Event{Kind: format.CallEnd, Index: p.calls - 1, Span: format.Span{Start: p.start, End: p.at}})
	default:
		return p.text(dst, len(tag))
	}
	return dst
}

func (p *toyParser) cut(n int) { p.buf, p.at = p.buf[n:], p.at+n }

func (p *toyParser) Finish(dst []format.Event) []format.Event {
	if len(p.buf) > 0 {
		dst = p.text(dst, len(p.buf))
	}
	if p.in {
		p.in = false
		dst = append(dst, format.Event{Kind: format.CallEnd, Index: p.calls, Span: format.Span{Start: p.start, End: p.at}, Incomplete: true})
	}
	return dst
}

func (p *toyParser) Err() error   { return nil }
func (p *toyParser) Close() error { return nil }
