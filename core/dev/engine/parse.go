package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// parsed turns what the script samples into deltas and parts, as a server does
// that parses by itself.
type parsed struct {
	parser format.Parser
	parts  []chat.Part
	open   chat.PartType
	text   strings.Builder
	runes  sse.Runes
	out    []chat.Delta
	calls  int
}

func (e *Engine) parse(ctx context.Context, p *prompt, prefix string) (*parsed, error) {
	d := &parsed{}
	var err error
	d.parser, err = e.format.Open(ctx, &format.ParseOptions{
		Tools: p.chat.Tools, State: p.State, Choice: p.chat.ToolChoice,
		NewID: func() string { d.calls++; return fmt.Sprintf("%s%08d", prefix, d.calls) },
	})
	return d, err
}

// take parses a chunk; the last one ends the reply.
func (d *parsed) take(c *upstream.Chunk) []chat.Delta {
	d.out = d.out[:0]
	events := d.parser.Feed(nil, c.Text)
	if c.Finish != (upstream.Finish{}) {
		events = d.parser.Finish(events)
	}
	for _, ev := range events {
		switch ev.Kind {
		case format.Content:
			d.grow(chat.Text, chat.DeltaText, ev.Text)
		case format.Reason:
			d.grow(chat.Reasoning, chat.DeltaReasoning, ev.Text)
		case format.CallStart:
			d.end()
			d.open = chat.ToolCall
			d.parts = append(d.parts, chat.Part{Type: chat.ToolCall, ID: ev.ID, Name: ev.Name})
			d.out = append(d.out, chat.Delta{Type: chat.DeltaCallStart, Part: len(d.parts) - 1, ID: ev.ID, Name: ev.Name})
		case format.CallArgs:
			d.grow(chat.ToolCall, chat.DeltaCallArgs, ev.Text)
		case format.CallEnd:
			d.end()
		}
	}
	if c.Finish != (upstream.Finish{}) {
		d.end()
	}
	return d.out
}

func (d *parsed) grow(t chat.PartType, as chat.DeltaType, text string) {
	if d.open != t {
		d.end()
		d.open = t
		d.parts = append(d.parts, chat.Part{Type: t})
	}
	d.text.WriteString(text)
	if text = d.runes.Next(text); text != "" {
		d.out = append(d.out, chat.Delta{Type: as, Part: len(d.parts) - 1, Text: text})
	}
}

// end ends the open part. Reasoning is signed, as a provider does.
func (d *parsed) end() {
	if d.open == "" {
		return
	}
	p := &d.parts[len(d.parts)-1]
	text := sse.Clean(d.text.String())
	if rest := d.runes.Rest(); rest != "" {
		d.out = append(d.out, chat.Delta{Type: deltaOf(d.open), Part: len(d.parts) - 1, Text: rest})
	}
	switch d.open {
	case chat.ToolCall:
		if p.Arguments = []byte(text); text == "" {
			p.Arguments = []byte("{}")
		}
	case chat.Reasoning:
		p.Text, p.Signature = text, Signature(text)
		d.out = append(d.out, chat.Delta{Type: chat.DeltaSignature, Part: len(d.parts) - 1, Text: p.Signature})
	default:
		p.Text = text
	}
	d.out = append(d.out, chat.Delta{Type: chat.DeltaPartEnd, Part: len(d.parts) - 1})
	d.open = ""
	d.text.Reset()
}

func deltaOf(t chat.PartType) chat.DeltaType {
	switch t {
	case chat.Reasoning:
		return chat.DeltaReasoning
	case chat.ToolCall:
		return chat.DeltaCallArgs
	}
	return chat.DeltaText
}

// Signature is what the stand-in signs reasoning with.
func Signature(text string) string {
	sum := sha256.Sum256([]byte("stand-in:" + text))
	return hex.EncodeToString(sum[:])
}
