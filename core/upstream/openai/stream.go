package openai

import (
	"bytes"
	"errors"
	"io"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
)

// stream is a reply as it comes.
type stream struct {
	events *exchange.Events
	p      *progress
	decode func(data []byte, c *upstream.Chunk) error
	// raw passes the bytes on; skip says which events aren't the client's.
	raw  bool
	skip func(data []byte) bool

	first *upstream.Chunk // known before the first event
	mark  int             // where in Raw the end of the reply begins
	err   error           // what comes after the chunk that is out
}

// Next implements upstream.Stream. Events that are here together make one
// chunk. The last chunk comes when the stream is known to be whole.
func (s *stream) Next() (upstream.Chunk, error) {
	if s.err != nil {
		return upstream.Chunk{}, s.err
	}
	var c upstream.Chunk
	if s.first != nil {
		c, s.first = *s.first, nil
	}
	for {
		over, err := s.event(&c)
		if err == nil && over {
			if err = s.p.last(&c); err == nil {
				s.err = io.EOF
				return c, nil
			}
		}
		switch {
		case err != nil:
			return s.cut(&c, err)
		case !s.finished() && !empty(&c) && !s.events.Ready():
			return c, nil
		}
	}
}

// cut gives what came before an error, and the error after it. Bytes that
// would end the reply are kept back.
func (s *stream) cut(c *upstream.Chunk, err error) (upstream.Chunk, error) {
	s.err = err
	if s.finished() {
		c.Raw = c.Raw[:min(s.mark, len(c.Raw))]
	}
	c.Finish, c.StopSequence = upstream.Finish{}, ""
	if empty(c) {
		return upstream.Chunk{}, err
	}
	return *c, nil
}

func (s *stream) finished() bool { return s.p.finish != (upstream.Finish{}) }

// event reads one event into c; over says that the stream is at its end.
func (s *stream) event(c *upstream.Chunk) (over bool, err error) {
	ev, err := s.events.Next()
	switch {
	case errors.Is(err, io.EOF):
		return true, nil // whole, if a reason came
	case err != nil:
		return false, err
	}
	before, finished := len(c.Raw), s.finished()
	over = bytes.Equal(bytes.TrimSpace(ev.Data), []byte("[DONE]"))
	if !over {
		err = s.decode(ev.Data, c)
	}
	if err == nil && s.raw && (s.skip == nil || !s.skip(ev.Data)) {
		c.Raw = append(c.Raw, ev.Raw...)
	}
	if over {
		s.events.Drain()
	}
	if !finished && s.finished() {
		s.mark = before
	}
	return over, err
}

func empty(c *upstream.Chunk) bool {
	return len(c.Text) == 0 && len(c.IDs) == 0 && len(c.PromptIDs) == 0 && len(c.Deltas) == 0 && len(c.Raw) == 0
}

// Close implements upstream.Stream.
func (s *stream) Close() error { return s.events.Close() }

// whole is a reply that came in one piece.
type whole struct {
	c    upstream.Chunk
	done bool
}

func (w *whole) Next() (upstream.Chunk, error) {
	if w.done {
		return upstream.Chunk{}, io.EOF
	}
	w.done = true
	return w.c, nil
}

func (w *whole) Close() error {
	w.done = true
	return nil
}
