package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// fake answers with the errors it was given, then with a reply of two chunks.
type fake struct {
	name    string
	info    upstream.Info
	errs    []error
	mu      sync.Mutex
	asked   []time.Time
	running atomic.Int32
	most    atomic.Int32
	closed  bool
	block   chan struct{}
}

func (f *fake) Kind() string { return "fake" }

func (f *fake) Info() upstream.Info {
	i := f.info
	i.Server = f.name
	return i
}

func (f *fake) Close() error { f.closed = true; return nil }

func (f *fake) Generate(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
	f.mu.Lock()
	n := len(f.asked)
	f.asked = append(f.asked, time.Now())
	f.mu.Unlock()
	if n < len(f.errs) && f.errs[n] != nil {
		return nil, f.errs[n]
	}
	if now := f.running.Add(1); now > f.most.Load() {
		f.most.Store(now)
	}
	return &fakeStream{f: f}, nil
}

func (f *fake) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

type fakeStream struct {
	f    *fake
	n    int
	over sync.Once
}

func (s *fakeStream) Next() (upstream.Chunk, error) {
	if s.f.block != nil {
		<-s.f.block
	}
	s.n++
	switch s.n {
	case 1:
		return upstream.Chunk{Text: []byte(s.f.name)}, nil
	case 2:
		s.over.Do(func() { s.f.running.Add(-1) })
		return upstream.Chunk{Finish: upstream.Finish{Raw: "stop", Reason: chat.FinishStop}}, nil
	}
	return upstream.Chunk{}, io.EOF
}

func (s *fakeStream) Close() error {
	s.over.Do(func() { s.f.running.Add(-1) })
	return nil
}

func refused(status, after int) error {
	return fmt.Errorf("asked: %w", &upstream.StatusError{Status: status, RetryAfter: after, Message: "no"})
}

// ask is the name of the replica that answered.
func ask(t *testing.T, u upstream.Upstream, key string) (string, error) {
	t.Helper()
	s, err := u.Generate(t.Context(), &upstream.Request{AffinityKey: key})
	if err != nil {
		return "", err
	}
	defer s.Close()
	c, err := s.Next()
	require.NoError(t, err)
	return string(c.Text), nil
}

func newPool(t *testing.T, o Options, list ...*fake) *Pool {
	t.Helper()
	var us []upstream.Upstream
	for _, f := range list {
		us = append(us, f)
	}
	p, err := New(o, us...)
	require.NoError(t, err)
	return p
}

func TestWhatIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		tries int
	}{
		{"connection", &upstream.NotRunError{Err: errors.New("refused")}, 3},
		{"429", refused(429, 0), 3},
		{"503", refused(503, 0), 3},
		{"529", refused(529, 0), 3},
		{"500 may have run", refused(500, 0), 1},
		{"502 may have run", refused(502, 0), 1},
		{"408 may have run", refused(408, 0), 1},
		{"400", refused(400, 0), 1},
		{"a cut before the answer", errors.New("EOF"), 1},
		{"more patience than there is", refused(429, 3600), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{name: "a", errs: []error{c.err, c.err, c.err, c.err, c.err}}
				_, err := ask(t, newPool(t, Options{Tries: 3}, f), "s")
				require.ErrorIs(t, err, c.err)
				assert.Equal(t, c.tries, f.times())
			})
		})
	}
}

func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{name: "a", errs: []error{refused(429, 7), refused(503, 0), refused(503, 0), nil}}
		got, err := ask(t, newPool(t, Options{Backoff: time.Second, MaxBackoff: 3 * time.Second}, f), "s")
		require.NoError(t, err)
		assert.Equal(t, "a", got)
		var waits []time.Duration
		for i := range f.asked[1:] {
			waits = append(waits, f.asked[i+1].Sub(f.asked[i]))
		}
		assert.Equal(t, 7*time.Second, waits[0], "Retry-After is honoured")
		assert.GreaterOrEqual(t, waits[1], time.Second)
		assert.LessOrEqual(t, waits[1], 2*time.Second)
		assert.GreaterOrEqual(t, waits[2], 1500*time.Millisecond)
		assert.LessOrEqual(t, waits[2], 3*time.Second)
	})
}

func TestTheEndOfAContextEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{name: "a", errs: []error{refused(429, 50), refused(429, 50)}}
		why := errors.New("the session is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		start := time.Now()
		_, err := newPool(t, Options{}, f).Generate(ctx, &upstream.Request{})
		require.ErrorIs(t, err, why)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, 1, f.times())
	})
}

func TestNothingIsTriedAgainOnceAReplyHasBegun(t *testing.T) {
	f := &fake{name: "a"}
	s, err := newPool(t, Options{}, f).Generate(t.Context(), &upstream.Request{})
	require.NoError(t, err)
	for err == nil {
		_, err = s.Next()
	}
	assert.Equal(t, 1, f.times())
}

func TestSessionsKeepToTheirReplica(t *testing.T) {
	var list []*fake
	for i := range 5 {
		list = append(list, &fake{name: fmt.Sprintf("r%d", i)})
	}
	p := newPool(t, Options{}, list...)
	const sessions = 2000
	home, load := map[string]string{}, map[string]int{}
	for i := range sessions {
		key := fmt.Sprintf("s-%d", i)
		name, err := ask(t, p, key)
		require.NoError(t, err)
		home[key] = name
		load[name]++
		again, err := ask(t, p, key)
		require.NoError(t, err)
		require.Equal(t, name, again)
	}
	for name, n := range load {
		assert.InDelta(t, sessions/5, n, sessions/5*0.3, name)
	}
	smaller := newPool(t, Options{}, list[:4]...)
	moved := 0
	for key, name := range home {
		now, err := ask(t, smaller, key)
		require.NoError(t, err)
		if name == "r4" {
			moved++
		} else {
			require.Equal(t, name, now, "only those of the replica that went move")
		}
	}
	assert.Equal(t, load["r4"], moved)

	one, two, three := &fake{name: "x"}, &fake{name: "x"}, &fake{name: "x"}
	twins := newPool(t, Options{}, one, two, three)
	for i := range 300 {
		_, err := ask(t, twins, fmt.Sprint(i))
		require.NoError(t, err)
	}
	for _, f := range []*fake{one, two, three} {
		assert.InDelta(t, 100, f.times(), 40, "replicas of one name share the load")
	}
	turns := newPool(t, Options{}, list...)
	seen := map[string]bool{}
	for range 5 {
		name, err := ask(t, turns, "")
		require.NoError(t, err)
		seen[name] = true
	}
	assert.Len(t, seen, 5, "requests without a key take turns")
}

func TestAnotherReplicaTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &upstream.NotRunError{Err: errors.New("refused")}
		a, b := &fake{name: "a", errs: []error{down, down, down, down}}, &fake{name: "b"}
		p := newPool(t, Options{}, a, b)
		start := time.Now()
		for i := range 10 {
			name, err := ask(t, p, fmt.Sprint(i))
			require.NoError(t, err)
			if a.times() <= 4 {
				assert.Equal(t, "b", name)
			}
		}
		assert.Zero(t, time.Since(start), "at once")
		assert.NotZero(t, a.times())
	})
}

func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{name: "a", block: make(chan struct{})}
		p := newPool(t, Options{Concurrency: 3}, f)
		var done sync.WaitGroup
		for i := range 10 {
			done.Go(func() {
				s, err := p.Generate(t.Context(), &upstream.Request{})
				if !assert.NoError(t, err) {
					return
				}
				if i%2 == 0 { // some read to the end, some leave
					for err == nil {
						_, err = s.Next()
					}
				} else {
					_, _ = s.Next()
				}
				assert.NoError(t, s.Close())
				assert.NoError(t, s.Close())
			})
		}
		synctest.Wait()
		assert.EqualValues(t, 3, f.running.Load())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Generate(ctx, &upstream.Request{})
		require.ErrorIs(t, err, context.DeadlineExceeded, "a queue ends with its context")
		close(f.block)
		done.Wait()
		assert.EqualValues(t, 3, f.most.Load())
		assert.Zero(t, f.running.Load())
	})
}

func TestAFailedRequestGivesItsSlotBack(t *testing.T) {
	f := &fake{name: "a", errs: []error{refused(400, 0), refused(400, 0)}}
	p := newPool(t, Options{Concurrency: 1}, f)
	for range 2 {
		_, err := ask(t, p, "s")
		require.Error(t, err)
	}
	_, err := ask(t, p, "s")
	require.NoError(t, err)
}

func TestFailover(t *testing.T) {
	a := &fake{name: "a", info: upstream.Info{Context: 100, Refuses: []upstream.Refusal{upstream.RefusesTopK}}, errs: []error{refused(529, 0), refused(500, 0)}}
	b := &fake{name: "b", info: upstream.Info{Context: 50, Refuses: []upstream.Refusal{upstream.RefusesUnsigned, upstream.RefusesTopK}}}
	f, err := NewFailover(nil, a, b)
	require.NoError(t, err)
	info := f.Info()
	assert.Equal(t, 50, info.Context)
	assert.Equal(t, []upstream.Refusal{upstream.RefusesTopK, upstream.RefusesUnsigned}, info.Refuses)
	name, err := ask(t, f, "s")
	require.NoError(t, err)
	assert.Equal(t, "b", name)
	_, err = ask(t, f, "s")
	require.Error(t, err, "what may have run isn't run elsewhere")
	name, err = ask(t, f, "s")
	require.NoError(t, err)
	assert.Equal(t, "a", name)
	require.NoError(t, f.Close())
	assert.True(t, a.closed && b.closed)

	_, err = NewFailover(nil, a, &fake{name: "c", info: upstream.Info{Parses: true}})
	require.ErrorContains(t, err, "c can't stand in for a")
	_, err = NewFailover(nil)
	require.Error(t, err)
	_, err = New(Options{})
	require.Error(t, err)
}

func TestBackoffIsBounded(t *testing.T) {
	p := newPool(t, Options{}, &fake{})
	for round := range 100 {
		d := p.backoff(round)
		assert.LessOrEqual(t, d, p.o.MaxBackoff)
		assert.GreaterOrEqual(t, d, min(p.o.MaxBackoff, time.Duration(float64(p.o.Backoff)*math.Pow(2, float64(min(round, 20)))))/2)
	}
}
