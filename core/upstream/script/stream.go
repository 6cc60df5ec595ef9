package script

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

var errCut = errors.New("connection lost")

// stream gives one reply, chunk by chunk.
type stream struct {
	ctx  context.Context
	m    *model
	rule *rule
	req  *upstream.Request

	text     string // the reply, without ids
	ids      []int32
	logprobs []float64
	finish   upstream.Finish
	stopped  string // the client's stop sequence that ended it
	failing  bool
	told     bool // the first chunk tells the prompt's ids

	chunks int
	at     int // ids or bytes given
	done   bool
	logged bool
}

func newStream(ctx context.Context, m *model, match *match, r *upstream.Request, failing bool) *stream {
	s := &stream{ctx: ctx, m: m, rule: match.rule, req: r, failing: failing}
	text := s.end(match.reply)
	if m.tok == nil {
		s.text = text
		if most := r.Sampling.MaxTokens; most != nil && len(text) > *most {
			s.text = text[:max(*most, 0)]
			s.finish, s.stopped = upstream.Finish{Raw: "length", Reason: chat.FinishLength}, ""
		}
		return s
	}
	s.ids = m.tok.Encode(nil, text, true)
	if most := r.Sampling.MaxTokens; most != nil && len(s.ids) > *most {
		s.ids = s.ids[:max(*most, 0)]
		s.finish, s.stopped = upstream.Finish{Raw: "length", Reason: chat.FinishLength}, ""
	}
	s.logprobs = make([]float64, len(s.ids))
	for i, id := range s.ids {
		s.logprobs[i] = m.logprob(match.rule, len(r.PromptIDs)+i, id)
	}
	return s
}

// end finds where the reply ends and why: at a stop that its text holds, at
// the rule's own finish, or of itself. A reply that ends of itself is
// followed by the stop marker, as a model samples it.
func (s *stream) end(text string) string {
	first, stop := -1, ""
	for _, candidate := range append(s.req.Stops[:len(s.req.Stops):len(s.req.Stops)], s.req.Sampling.Stop...) {
		if candidate == "" {
			continue
		}
		if i := strings.Index(text, candidate); i >= 0 && (first < 0 || i < first) {
			first, stop = i, candidate
		}
	}
	if first >= 0 {
		s.finish = upstream.Finish{Raw: "stop", Reason: chat.FinishStop}
		if s.marker(stop) {
			return text[:first+len(stop)]
		}
		s.stopped = stop
		for _, asked := range s.req.Sampling.Stop {
			if asked == stop {
				s.finish.Reason = chat.FinishStopSequence
			}
		}
		return text[:first]
	}
	if f := s.rule.finish; f != "" && f != "stop" {
		s.finish = upstream.Finish{Raw: f, Reason: finishes[f]}
		return text
	}
	s.finish = upstream.Finish{Raw: "stop", Reason: chat.FinishStop}
	for _, stop := range s.req.Stops {
		if s.marker(stop) {
			return text + stop
		}
	}
	return text
}

// marker reports whether a stop is one token, which a model samples like any
// other.
func (s *stream) marker(stop string) bool {
	return s.m.tok != nil && len(stop) > 1 && len(s.m.tok.Encode(nil, stop, true)) == 1
}

func (s *stream) total() int {
	if s.m.tok == nil {
		return len(s.text)
	}
	return len(s.ids)
}

// Next gives the next chunk. The last one holds the reason to stop.
func (s *stream) Next() (upstream.Chunk, error) {
	if s.done {
		return upstream.Chunk{}, io.EOF
	}
	pause := s.rule.delay
	if s.chunks == 0 {
		pause = s.rule.think
	}
	if err := wait(s.ctx, pause); err != nil {
		s.stop("cancelled")
		return upstream.Chunk{}, err
	}
	if s.failing && (s.chunks >= s.rule.fail.after || s.at > 0 && s.at >= s.total()) {
		s.stop("failed")
		return upstream.Chunk{}, s.rule.fail.err()
	}
	from := s.at
	s.at = min(from+s.rule.chunk[s.chunks%len(s.rule.chunk)], s.total())
	c := upstream.Chunk{WeightVersion: s.m.script.Weights}
	if s.told && s.chunks == 0 {
		c.PromptIDs = s.req.PromptIDs
	}
	s.chunks++
	if s.m.tok == nil {
		c.Text = []byte(s.text[from:s.at])
	} else {
		ids := s.ids[from:s.at:s.at]
		c.Text = s.m.tok.Decode(nil, ids)
		if s.req.WantIDs {
			c.IDs, c.Logprobs = ids, s.logprobs[from:s.at:s.at]
		}
	}
	if s.at == s.total() && !s.failing {
		c.Finish, c.StopSequence = s.finish, s.stopped
		c.PromptTokens = len(s.req.PromptIDs)
		if s.rule.prompts > 0 {
			c.PromptTokens = s.rule.prompts
		}
		s.stop(s.finish.Raw)
	}
	return c, nil
}

// Close ends the generation. One that was not read to its end is logged as
// cancelled.
func (s *stream) Close() error {
	s.stop("cancelled")
	return nil
}

func (s *stream) stop(finish string) {
	s.done = true
	if s.logged {
		return
	}
	s.logged = true
	s.m.engine.write(s.record(finish))
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
