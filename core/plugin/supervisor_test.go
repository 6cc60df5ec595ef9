package plugin

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mortal is one life of a program that dies when it is told to.
type mortal struct{ dead chan struct{} }

func (m *mortal) gone() <-chan struct{} { return m.dead }
func (m *mortal) bury() string          { return "last words" }
func (m *mortal) exit() string          { return "exit status 1" }
func (m *mortal) stop()                 { m.die() }

func (m *mortal) die() {
	select {
	case <-m.dead:
	default:
		close(m.dead)
	}
}

// TestRestartsWaitLongerEachTime: 100 ms after the first death, twice as long
// after each further one; five deaths in a minute are too many, and are
// forgotten a minute after the last.
func TestRestartsWaitLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		s := newSupervisor("judger/a", 0, slog.New(slog.DiscardHandler), func(context.Context) (*mortal, error) {
			starts++
			return &mortal{make(chan struct{})}, nil
		})
		begin := func() (*mortal, time.Duration, error) {
			before := time.Now()
			run, err := s.get(t.Context())
			return run, time.Since(before), err
		}
		run, waited, err := begin()
		require.NoError(t, err)
		assert.Zero(t, waited)
		again, _, err := begin()
		require.NoError(t, err)
		assert.Same(t, run, again, "it is started once")
		for _, pause := range []time.Duration{100, 200, 400, 800} {
			run.die()
			if run, waited, err = begin(); assert.NoError(t, err) {
				assert.Equal(t, pause*time.Millisecond, waited)
			}
		}
		run.die()
		_, waited, err = begin()
		e := fails(t, err, Unavailable)
		assert.Zero(t, waited)
		assert.Equal(t, "last words", e.Tail)
		assert.Equal(t, 5, starts)

		time.Sleep(deathWindow + time.Second)
		run, _, err = begin()
		require.NoError(t, err)
		run.die()
		_, waited, err = begin()
		require.NoError(t, err)
		assert.Equal(t, firstPause, waited, "a death after a quiet minute is the first again")
	})
}

// TestThePauseIsTenSecondsAtMost holds where more deaths were allowed.
func TestThePauseIsTenSecondsAtMost(t *testing.T) {
	for n, want := range map[int]time.Duration{1: 100 * time.Millisecond, 4: 800 * time.Millisecond, 8: longPause, 70: longPause} {
		assert.Equal(t, want, pauseAfter(n))
	}
}

// TestAStartThatFailsCounts as a death, and waiting for the next can be given
// up.
func TestAStartThatFailsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor("judger/a", 0, slog.New(slog.DiscardHandler), func(context.Context) (*mortal, error) {
			return nil, errors.New("no such file")
		})
		_, err := s.get(t.Context())
		fails(t, err, Unavailable)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = s.get(ctx)
		fails(t, err, Cancelled)
	})
}
