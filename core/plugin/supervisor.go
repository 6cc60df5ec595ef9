package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// How a program that dies is started again: after a pause that doubles, and
// not at all while it died often in the last minute.
const (
	firstPause  = 100 * time.Millisecond
	longPause   = 10 * time.Second
	deathWindow = time.Minute
	maxDeaths   = 5
)

// life is one run of a program, from its start to its death.
type life interface {
	gone() <-chan struct{} // closed when the program is gone
	bury() string          // waits for its last words and cleans up
	exit() string          // how it ended
	stop()                 // ends it
}

// supervisor keeps a program going. It is started at the first call, and
// again after it died.
type supervisor[L life] struct {
	key   string
	log   *slog.Logger
	start func(context.Context) (L, error)
	slots chan struct{} // one for each call in flight
	turn  chan struct{} // held while starting, so that waiting can be given up

	mu      sync.Mutex
	current L
	running bool // whether current is set
	deaths  []time.Time
	tail    string // of the last one that died
	closed  bool
}

func newSupervisor[L life](key string, inFlight int, log *slog.Logger, start func(context.Context) (L, error)) *supervisor[L] {
	if inFlight <= 0 {
		inFlight = 2 * runtime.GOMAXPROCS(0)
	}
	return &supervisor[L]{key: key, log: log, start: start, slots: make(chan struct{}, inFlight), turn: make(chan struct{}, 1)}
}

// get returns the running program and starts it if there is none.
func (s *supervisor[L]) get(ctx context.Context) (run L, err error) {
	if run, ok := s.alive(); ok {
		return run, nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return run, s.fail("", Cancelled, ctx.Err())
	}
	if run, ok := s.alive(); ok {
		return run, nil
	}
	if err := s.pause(ctx); err != nil {
		return run, err
	}
	if run, err = s.start(ctx); err != nil {
		if ctx.Err() != nil {
			return run, s.fail("", Cancelled, ctx.Err())
		}
		s.died()
		return run, s.fail("", Unavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		run.stop()
		return run, s.fail("", Unavailable, errClosed)
	}
	s.current, s.running = run, true
	return run, nil
}

var errClosed = errors.New("the plugin registry is closed")

// alive is the current program unless it is known to be dead.
func (s *supervisor[L]) alive() (L, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return s.current, false
	}
	select {
	case <-s.current.gone():
		return s.current, false
	default:
		return s.current, true
	}
}

// pause buries the program that died, if one did, and waits until the next
// may start.
func (s *supervisor[L]) pause(ctx context.Context) error {
	s.mu.Lock()
	dead, died := s.current, s.running
	s.mu.Unlock()
	if died {
		s.drop(dead)
	}
	s.mu.Lock()
	n, tail, closed := len(s.deaths), s.tail, s.closed
	var last time.Time
	if n > 0 {
		last = s.deaths[n-1]
	}
	s.mu.Unlock()
	switch {
	case closed:
		return s.fail("", Unavailable, errClosed)
	case n == 0 || time.Since(last) > deathWindow:
		return nil
	case n >= maxDeaths:
		return &Error{Plugin: s.key, Reason: Unavailable, Tail: tail,
			Message: fmt.Sprintf("it died %d times within a minute and isn't started again for now", n)}
	}
	timer := time.NewTimer(time.Until(last.Add(pauseAfter(n))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return s.fail("", Cancelled, ctx.Err())
	}
}

// pauseAfter is how long a program that died n times is left alone.
func pauseAfter(n int) time.Duration {
	pause := firstPause
	for ; n > 1 && pause < longPause; n-- {
		pause *= 2
	}
	return min(pause, longPause)
}

// died counts a death and forgets those of more than a minute ago.
func (s *supervisor[L]) died() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.deaths = append(s.deaths, now)
	for now.Sub(s.deaths[0]) > deathWindow {
		s.deaths = s.deaths[1:]
	}
}

// drop ends a program that failed, once, and returns the end of what it wrote
// to standard error.
func (s *supervisor[L]) drop(run L) string {
	tail := run.bury()
	s.mu.Lock()
	mine := s.running && any(s.current) == any(run)
	if mine {
		s.running, s.tail = false, tail
	}
	s.mu.Unlock()
	if mine {
		s.died()
		s.log.Warn("plugin process died", "exit", run.exit(), "tail", tail)
	}
	return tail
}

// lost is the error of a call during which the program died.
func (s *supervisor[L]) lost(run L, method string) error {
	tail := s.drop(run)
	return &Error{Plugin: s.key, Method: method, Reason: Unavailable, Tail: tail, Retryable: true,
		Message: "the plugin process died during the call (" + run.exit() + ")"}
}

func (s *supervisor[L]) fail(method string, reason Reason, err error) *Error {
	return &Error{Plugin: s.key, Method: method, Reason: reason, Message: err.Error(), Cause: err}
}

// slot waits for a free place among the calls in flight.
func (s *supervisor[L]) slot(ctx context.Context, method string) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return s.fail(method, Cancelled, ctx.Err())
	}
}

// close ends the program for good.
func (s *supervisor[L]) close() {
	s.mu.Lock()
	run, running := s.current, s.running
	s.running, s.closed = false, true
	s.mu.Unlock()
	if running {
		run.stop()
	}
}

// crash ends the running program as its own death would.
func (s *supervisor[L]) crash() {
	if run, ok := s.alive(); ok {
		run.stop()
		<-run.gone()
	}
}
