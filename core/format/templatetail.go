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

// The reasons for which a prompt is no continuation.
const (
	reasoningDropped = "reasoning_dropped"
	templateMoved    = "template_moved"
	turnEndChanged   = "turn_end_changed"
)

// Tail implements Format. A template can't be asked what follows a turn, so the
// prompt that turn k was sampled from and the whole prompt are both rendered:
// where the one begins the other, what follows the turn's last own text and its
// stop is the tail, and else the template isn't stable here.
func (f *templated) Tail(ctx context.Context, r *format.RenderRequest, k int, ended format.Ended) (*format.Rendered, error) {
	c := r.Chat
	if k < 0 || k >= len(c.Messages) || c.Messages[k].Role != chat.Assistant {
		return nil, fmt.Errorf("format %s: message %d is no assistant's", f.name, k)
	}
	before := *c
	before.Messages = c.Messages[:k]
	prompt, err := f.run(ctx, &before)
	if err != nil {
		return nil, err
	}
	whole, err := f.run(ctx, c)
	if err != nil {
		return nil, err
	}
	opened := f.rendered(prompt, 0).State.ReasoningOpen
	if left := reasoningText(c.Messages[k].Parts) == ""; left && opened {
		// What was sampled has reasoning that the client left out. Whether the
		// template keeps it shows when there is some.
		if whole, err = f.run(ctx, withReasoning(c, k)); err != nil {
			return nil, err
		}
	}
	if why := f.unstable(prompt, whole, k, opened || reasoningText(c.Messages[k].Parts) != ""); why != "" {
		out := f.rendered(whole, len(whole.String()))
		out.Unstable = why
		return out, nil
	}
	at, ok := f.turnEnd(whole, len(prompt.String()), k, ended)
	out := f.rendered(whole, at)
	if !ok {
		out.Unstable = turnEndChanged
	}
	return out, nil
}

// withReasoning is c with some reasoning in message k.
func withReasoning(c *chat.Conversation, k int) *chat.Conversation {
	out := *c
	out.Messages = slices.Clone(c.Messages)
	m := out.Messages[k]
	m.Parts = append([]chat.Part{{Type: chat.Reasoning, Text: "x"}}, m.Parts...)
	out.Messages[k] = m
	return &out
}

// unstable says why the whole prompt isn't what turn k was sampled from and
// more. reasoned says that the turn has reasoning.
func (f *templated) unstable(prompt, whole jinja.Text, k int, reasoned bool) string {
	now := f.reasoningIn(whole)
	dropped := reasoned && !now[k]
	for m := range f.reasoningIn(prompt) {
		dropped = dropped || !now[m]
	}
	switch {
	case dropped:
		return reasoningDropped
	case !strings.HasPrefix(whole.String(), prompt.String()):
		return templateMoved
	}
	return ""
}

// reasoningIn is the messages whose reasoning stands in a prompt.
func (f *templated) reasoningIn(t jinja.Text) map[int]bool {
	out := map[int]bool{}
	for _, p := range f.piecesOf(t) {
		if p.reasoning {
			out[p.message] = true
		}
	}
	return out
}

// turnEnd is where what was sampled as message k ends in the whole prompt: at
// the first stop that the template writes behind the message's own text, or
// behind it where the stop was sampled too. It reports false where the template
// ends the turn in a way that no model samples.
func (f *templated) turnEnd(whole jinja.Text, from, k int, ended format.Ended) (int, bool) {
	text := whole.String()
	start, end := from, len(text)
	for _, p := range f.piecesOf(whole) {
		switch {
		case p.start < from || p.markup:
		case p.message == k:
			start = p.start + len(p.text)
		case p.message > k:
			end = min(end, p.start)
		}
	}
	if start > end {
		return start, false
	}
	best, stop := firstStop(text[start:end], f.stops)
	switch {
	case best < 0:
		return start, false
	case ended == format.EndedStop:
		return start + best + len(stop), true
	}
	return start + best, true
}
