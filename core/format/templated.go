package format

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/core/jinja"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// templated renders with a model's own chat template, and parses as the format
// that it stands before.
type templated struct {
	format.Format
	name   string
	native format.Native // of the format; nil where that is a plugin's
	file   *Template
	plain  *jinja.Template
	tools  *jinja.Template // of conversations with tools
	styles map[*jinja.Template]style
	stops  []string
	opens  []string // markers that open reasoning
	tokens []string
}

// OpenTemplate makes a format that renders with a chat template and parses as
// base does, which is named name. It tries the template out: one that doesn't
// compile, that can't render a turn, or that writes calls which base doesn't
// read is an error.
func OpenTemplate(ctx context.Context, base format.Format, name string, file *Template) (format.Format, error) {
	f := &templated{Format: base, name: name, file: file, styles: map[*jinja.Template]style{}}
	f.native = nativeOf(base)
	var err error
	if f.plain, err = compile(file, file.Text); err != nil {
		return nil, err
	}
	f.tools = f.plain
	if file.Tools != file.Text {
		if f.tools, err = compile(file, file.Tools); err != nil {
			return nil, err
		}
	}
	f.opens = reasoningMarkers(f.native)
	f.tokens = spelled(base.Markers(), file)
	if err := f.findStops(ctx); err != nil {
		return nil, err
	}
	return f, f.try(ctx)
}

// compile reads a template, and says which of the tokens that it wants aren't
// known.
func compile(file *Template, text string) (*jinja.Template, error) {
	t, err := jinja.Compile(file.Path, text)
	if err != nil {
		return nil, fmt.Errorf("the chat template doesn't compile: %w", err)
	}
	for _, token := range []string{"bos_token", "eos_token"} {
		if _, known := file.Special[token]; !known && t.Reads(token) {
			return nil, fmt.Errorf("the chat template %s writes %s, which it doesn't say itself: "+
				"put the model's %s beside it, or name that file", file.Path, token, configFile)
		}
	}
	return t, nil
}

// nativeOf is what base knows beyond Format, nil where it isn't declared here.
func nativeOf(base format.Format) format.Native {
	for {
		if n, ok := base.(format.Native); ok {
			return n
		}
		w, ok := base.(interface{ Unwrap() format.Format })
		if !ok {
			return nil
		}
		base = w.Unwrap()
	}
}

// reasoningMarkers are those of the format; of one that doesn't tell, those of
// all that ship.
func reasoningMarkers(n format.Native) []string {
	var out []string
	add := func(open string) {
		if open = strings.TrimSpace(open); open != "" && !slices.Contains(out, open) {
			out = append(out, open)
		}
	}
	if n != nil {
		open, _ := n.Reasoning()
		add(open)
		return out
	}
	for _, s := range format.Shipped() {
		if s.Reasoning != nil {
			add(s.Reasoning.Open)
		}
	}
	return out
}

// spelled is the markers, and the tokens of the tokenizer that the template
// spells.
func spelled(markers []string, file *Template) []string {
	out := slices.Clone(markers)
	for _, token := range file.Added {
		if !slices.Contains(out, token) && (strings.Contains(file.Text, token) || strings.Contains(file.Tools, token)) {
			out = append(out, token)
		}
	}
	for _, name := range []string{"bos_token", "eos_token"} {
		if token := file.Special[name]; token != "" && !slices.Contains(out, token) {
			out = append(out, token)
		}
	}
	slices.Sort(out[len(markers):])
	return out
}

// findStops takes the stops of the format, which a prompt of it has, and the
// end of text of the tokenizer.
func (f *templated) findStops(ctx context.Context) error {
	hello := &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "Hello"}}}}}
	r, err := f.Format.Render(ctx, &format.RenderRequest{Chat: hello})
	if err != nil {
		return fmt.Errorf("ask format %s for its stops: %w", f.name, err)
	}
	f.stops = slices.Clone(r.Stops)
	if eos := f.file.Special["eos_token"]; eos != "" && !slices.Contains(f.stops, eos) {
		f.stops = append(f.stops, eos)
	}
	return nil
}

// Markers implements Format.
func (f *templated) Markers() []string { return f.tokens }

// Unwrap returns the format that parses.
func (f *templated) Unwrap() format.Format { return f.Format }

// Render implements Format.
func (f *templated) Render(ctx context.Context, r *format.RenderRequest) (*format.Rendered, error) {
	text, err := f.run(ctx, r.Chat)
	if err != nil {
		return nil, err
	}
	return f.rendered(text, 0), nil
}

// of is the template for a conversation.
func (f *templated) of(c *chat.Conversation) *jinja.Template {
	if len(c.Tools) > 0 {
		return f.tools
	}
	return f.plain
}

// run renders a conversation, with the opening of the turn that the model is
// to write.
func (f *templated) run(ctx context.Context, c *chat.Conversation) (jinja.Text, error) {
	t := f.of(c)
	if len(c.Tools) > 0 && !t.Reads("tools") {
		return jinja.Text{}, fmt.Errorf("the chat template %s has no place for tools; without 'template' the prompts of format %s have one", f.file.Path, f.name)
	}
	return f.runAs(ctx, t, c, f.styles[t])
}

func (f *templated) runAs(ctx context.Context, t *jinja.Template, c *chat.Conversation, st style) (jinja.Text, error) {
	vars, err := f.chatVars(c, st)
	if err != nil {
		return jinja.Text{}, fmt.Errorf("render with %s: %w", f.file.Path, err)
	}
	text, err := t.Run(ctx, jinja.Options{Vars: vars})
	if err != nil {
		return jinja.Text{}, fmt.Errorf("render with a chat template: %w", err)
	}
	return text, nil
}

// piece is a part of a rendered prompt. markup says that it is the template's.
type piece struct {
	text      string
	start     int
	markup    bool
	message   int
	reasoning bool
}

func (f *templated) piecesOf(t jinja.Text) []piece {
	var all []piece
	at := 0
	t.Pieces(func(s string, from jinja.Source) {
		p := piece{text: s, start: at, markup: from == jinja.FromTemplate, message: -1}
		if !p.markup {
			p.message = messageOf(from)
			p.reasoning = from == reasoningSource(p.message)
		}
		all = append(all, p)
		at += len(s)
	})
	var out []piece
	for i, p := range all {
		if !p.markup {
			out = append(out, p)
			continue
		}
		before, after := -1, -1
		if i > 0 {
			before = all[i-1].message
		}
		if i+1 < len(all) {
			after = all[i+1].message
		}
		out = append(out, f.divide(p, before, after)...)
	}
	return out
}

// divide gives what the template says between the texts of two messages to the
// one before up to the stop that ends its turn, and else to the one after.
func (f *templated) divide(p piece, before, after int) []piece {
	at, stop := firstStop(p.text, f.stops)
	if before == after || before < 0 || at < 0 {
		p.message = after
		return []piece{p}
	}
	k := at + len(stop)
	head, tail := p, p
	head.text, head.message = p.text[:k], before
	tail.text, tail.start, tail.message = p.text[k:], p.start+k, after
	if tail.text == "" {
		return []piece{head}
	}
	return []piece{head, tail}
}

// firstStop finds the first of the stops, the longest of those at one place; -1
// where there is none.
func firstStop(text string, stops []string) (at int, stop string) {
	at = -1
	for _, s := range stops {
		i := strings.Index(text, s)
		if i >= 0 && (at < 0 || i < at || i == at && len(s) > len(stop)) {
			at, stop = i, s
		}
	}
	return at, stop
}

// rendered makes segments of what stands from byte on.
func (f *templated) rendered(t jinja.Text, from int) *format.Rendered {
	out := &format.Rendered{Stops: f.stops}
	for _, p := range f.piecesOf(t) {
		if p.start+len(p.text) <= from {
			continue
		}
		s := format.Segment{Text: p.text[max(0, from-p.start):], Kind: format.Data, Message: p.message}
		if p.markup {
			s.Kind = format.Markup
		}
		if n := len(out.Segments) - 1; n >= 0 && out.Segments[n].Kind == s.Kind && out.Segments[n].Message == s.Message {
			out.Segments[n].Text += s.Text
			continue
		}
		out.Segments = append(out.Segments, s)
	}
	if n := len(out.Segments); n > 0 && out.Segments[n-1].Kind == format.Markup {
		out.State.ReasoningOpen = f.opensReasoning(out.Segments[n-1].Text)
	}
	return out
}

// opensReasoning reports whether a prompt that ends so has opened reasoning.
func (f *templated) opensReasoning(end string) bool {
	end = strings.TrimRight(end, " \t\r\n")
	return slices.ContainsFunc(f.opens, func(open string) bool { return strings.HasSuffix(end, open) })
}
