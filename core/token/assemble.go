package token

import (
	"context"
	"fmt"
	"strings"
	"unsafe"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// Turn is the earlier call that a request continues. Message is the index of
// its reply among the messages of the conversation.
type Turn struct {
	Message    int
	PromptIDs  []int32
	SampledIDs []int32
	Ended      format.Ended
}

// Prompt is what a model is asked with. Without a tokenizer IDs is nil.
type Prompt struct {
	IDs  []int32
	Text string // the whole prompt; what IDs decode to where there are any
	// LastMessage is the text of the newest message as rendered.
	LastMessage string
	// Extends says that IDs begin with the ids of the turn before, prompt and
	// sampled. Fork is the format's reason when it could not be so.
	Extends bool
	Fork    string
	Stops   []string
	State   format.State
}

// Assemble renders c with f and tokenizes it with t, which may be nil for
// text alone. With prev the prompt is exactly prev's ids and what follows
// them, so that nothing that was sampled is ever tokenized again; only where
// the format says that its template does not continue so, the whole prompt is
// rendered anew and Fork says why.
func Assemble(ctx context.Context, f format.Format, t Tokenizer, c *chat.Conversation, prev *Turn) (*Prompt, error) {
	request := &format.RenderRequest{Chat: c}
	fork := ""
	if t != nil && prev != nil {
		if prev.Message < 0 || prev.Message >= len(c.Messages) || c.Messages[prev.Message].Role != chat.Assistant {
			return nil, fmt.Errorf("continue a turn: message %d of %d is no reply", prev.Message, len(c.Messages))
		}
		tail, err := f.Tail(ctx, request, prev.Message, prev.Ended)
		if err != nil {
			return nil, fmt.Errorf("render the tail of message %d: %w", prev.Message, err)
		}
		if tail.Unstable == "" {
			return extend(t, c, prev, tail), nil
		}
		fork = tail.Unstable
	}
	r, err := f.Render(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("render the prompt: %w", err)
	}
	p := &Prompt{Fork: fork, Stops: r.Stops, State: r.State}
	if t == nil {
		p.Text = format.Text(r.Segments)
	} else {
		p.IDs = EncodeSegments(t, make([]int32, 0, size(r.Segments)), r.Segments)
		p.Text = decode(t, p.IDs)
	}
	p.LastMessage = last(c, r, p.Text)
	return p, nil
}

// extend joins the ids of prev with those of tail.
func extend(t Tokenizer, c *chat.Conversation, prev *Turn, tail *format.Rendered) *Prompt {
	p := &Prompt{Extends: true, Stops: tail.Stops, State: tail.State}
	p.IDs = make([]int32, 0, len(prev.PromptIDs)+len(prev.SampledIDs)+size(tail.Segments))
	p.IDs = append(p.IDs, prev.PromptIDs...)
	p.IDs = append(p.IDs, prev.SampledIDs...)
	p.IDs = EncodeSegments(t, p.IDs, tail.Segments)
	p.Text = decode(t, p.IDs)
	p.LastMessage = last(c, tail, p.Text)
	return p
}

// decode is the text of ids.
func decode(t Tokenizer, ids []int32) string {
	b := t.Decode(nil, ids)
	return unsafe.String(unsafe.SliceData(b), len(b)) // nobody else has it
}

// last is the text of the newest message as rendered. Where it is a part of
// text, as nearly always, it is no copy.
func last(c *chat.Conversation, r *format.Rendered, text string) string {
	newest, first, after := len(c.Messages)-1, -1, 0
	var own []format.Segment
	for i, s := range r.Segments {
		if s.Message == newest && newest >= 0 {
			if first < 0 {
				first = i
			}
			own = append(own, s)
			after = 0
		} else if first >= 0 {
			after += len(s.Text)
		}
	}
	if n, from := size(own), len(text)-after-size(own); first >= 0 && from >= 0 && holds(text[from:from+n], own) {
		return text[from : from+n]
	}
	return format.Text(own)
}

// holds reports whether text is that of segments.
func holds(text string, segments []format.Segment) bool {
	for _, s := range segments {
		var ok bool
		if text, ok = strings.CutPrefix(text, s.Text); !ok {
			return false
		}
	}
	return text == ""
}

// size is an upper bound of the ids of segments: no token is shorter than a
// byte.
func size(segments []format.Segment) int {
	n := 0
	for _, s := range segments {
		n += len(s.Text)
	}
	return n
}
