package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-dev/penstock/core/trace"
)

// Sessions end with who opened them. Those that nobody closes end by themselves
// once they are idle for long, and what a session leaves in the store is bounded:
// where a record has no room any more, its call is refused, and the session is
// marked as incomplete for good. Nothing is dropped to make room.

// ErrTooManySessions says that no further session can be opened now.
var ErrTooManySessions = errors.New("too many sessions are open")

// ended is trace.Session.End of a session that was closed for being idle.
const ended = "idle"

// sweep closes what is idle for too long, until stop is closed.
func (g *Gateway) sweep() {
	defer close(g.swept)
	tick := time.NewTicker(min(max(g.o.SessionTTL/10, 10*time.Millisecond), time.Minute))
	defer tick.Stop()
	for {
		select {
		case <-g.stop:
			return
		case <-tick.C:
			g.closeIdle()
		}
	}
}

// closeIdle closes the sessions without a deadline that are idle, and forgets the
// ids of those that were closed long ago.
func (g *Gateway) closeIdle() {
	now := time.Now()
	var idle []*Session
	g.mu.Lock()
	for _, s := range g.sessions {
		if s.spec.Deadline.IsZero() && now.Sub(s.Stats().LastActivity) > g.o.SessionTTL {
			idle = append(idle, s)
			g.opened[s.ID()] = now
		}
	}
	for id, closed := range g.opened {
		if !closed.IsZero() && now.Sub(closed) > g.o.SessionTTL {
			delete(g.opened, id)
		}
	}
	g.mu.Unlock()
	for _, s := range idle {
		g.log.Warn("a session was abandoned", "session", s.ID(), "idle", g.o.SessionTTL)
		s.mark(func(r *trace.Session) { r.End = ended })
		ctx, cancel := context.WithTimeout(context.Background(), popWait)
		if err := s.Close(ctx); err != nil {
			g.log.Warn("an abandoned session could not be closed", "session", s.ID(), "error", err)
		}
		cancel()
	}
}

// crowded says whether one more session may be opened.
func (g *Gateway) crowded() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.sessions); n >= g.o.Limits.Sessions {
		return fmt.Errorf("%w: %d, the limit of limits.sessions", ErrTooManySessions, n)
	}
	return nil
}

// mark changes what is known of the session, and returns it.
func (s *Session) mark(change func(*trace.Session)) trace.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.spec.Session)
	return s.spec.Session
}

// stored counts what a record takes in the store.
func (s *Session) stored(bytes int64) {
	s.g.stored.Add(bytes)
	s.mu.Lock()
	s.bytes += bytes
	s.mu.Unlock()
}

// full says why no further call can be recorded, "" while one can. The first time
// it marks the session in the store.
func (s *Session) full() string {
	l := &s.g.o.Limits
	all := s.g.stored.Load()
	s.mu.Lock()
	why := s.spec.Session.Incomplete
	switch {
	case why != "":
	case s.bytes >= l.SessionBytes:
		why = fmt.Sprintf("the session's trace takes %d bytes, and limits.session_bytes is %d", s.bytes, l.SessionBytes)
	case l.TraceBytes > 0 && all >= l.TraceBytes:
		why = fmt.Sprintf("the trace takes %d bytes, and limits.trace_bytes is %d", all, l.TraceBytes)
	default:
		s.mu.Unlock()
		return ""
	}
	first := s.spec.Session.Incomplete == ""
	s.spec.Session.Incomplete = why
	s.spec.Session.Unrecorded++
	s.stats.Fault = why
	record := s.spec.Session
	s.mu.Unlock()
	if first {
		s.g.log.Error("a session's trace is incomplete from here on", "session", s.ID(), "why", why)
		if err := s.g.calls.PutSession(context.WithoutCancel(s.ctx), &record); err != nil {
			s.g.log.Error("a session could not be marked as incomplete", "session", s.ID(), "error", err)
		}
	}
	return why
}
