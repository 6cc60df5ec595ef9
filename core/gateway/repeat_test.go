package gateway_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
)

// leave makes a request and drops its connection once the engine is at work.
func leave(t *testing.T, s *gateway.Session, body string, entered <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if res, err := http.DefaultClient.Do(request(t, s, body).WithContext(ctx)); err == nil {
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}()
	<-entered
	cancel()
	<-gone
	time.Sleep(20 * time.Millisecond) // until the server has seen it
}

// TestRepeatJoins: a repeat of a request whose connection is gone gets the
// reply of that one, streamed or whole, and is no second turn.
func TestRepeatJoins(t *testing.T) {
	for _, streamed := range []bool{true, false} {
		entered, leaveEngine := make(chan struct{}, 1), make(chan struct{})
		e := slow(entered, leaveEngine)
		b := start(t, e, func(o *gateway.Options, m *gateway.Model) { o.KeepAlive = 10 * time.Millisecond })
		s := b.session(t, func(spec *gateway.SessionSpec) { spec.Budget.Calls = 1 })
		leave(t, s, ask("hello", true, addTool), entered)
		got := make(chan answer, 1)
		go func() { got <- post(t, s, ask("hello", streamed, addTool)) }()
		time.Sleep(40 * time.Millisecond)
		close(leaveEngine)
		a := <-got
		require.Equal(t, 200, a.status, a.body)
		if streamed {
			assert.True(t, strings.HasPrefix(a.body, ":"), "kept alive while it waited")
			assert.Equal(t, "one two", at(joined(t, eventsOf(t, a)), "content", 0, "text"))
		} else {
			assert.Equal(t, "one two", at(decoded(t, a.body), "content", 0, "text"))
		}
		assert.Len(t, e.seen(), 1)
		require.Eventually(t, func() bool { return len(b.store.all()) == 2 }, 15*time.Second, time.Millisecond)
		first, second := b.store.all()[0], b.store.all()[1]
		assert.Equal(t, "s-1.1", first.ID)
		assert.True(t, first.ClientGone)
		assert.Equal(t, "s-1.2", second.ID)
		assert.Equal(t, first.ID, second.Replays)
		assert.Equal(t, trace.Retry, second.Kind)
		assert.Empty(t, second.Lineage)
		assert.Zero(t, second.Usage)
		assert.Equal(t, first.Served.ID, second.Served.ID)
		require.Eventually(t, func() bool { return b.store.wasDelivered(first.ID) && b.store.wasDelivered(second.ID) }, 15*time.Second, time.Millisecond)
		st := s.Stats()
		assert.Equal(t, 1, st.Calls)
		assert.False(t, st.BudgetHit)
		assert.Equal(t, first.Usage, st.Usage)
	}
}

// TestUndeliveredReplyIsReplayed: a reply that was finished but whose end
// never reached the client is sent again.
func TestUndeliveredReplyIsReplayed(t *testing.T) {
	entered, leaveEngine := make(chan struct{}, 1), make(chan struct{})
	e := slow(entered, leaveEngine)
	b := start(t, e)
	s := b.session(t)
	leave(t, s, ask("hello", true), entered)
	close(leaveEngine)
	b.store.only(t)
	a := post(t, s, ask("hello", true))
	assert.Equal(t, "one two", at(joined(t, eventsOf(t, a)), "content", 0, "text"))
	assert.Len(t, e.seen(), 1)
	go func() { <-entered }()
	post(t, s, ask("hello", true))
	assert.Len(t, e.seen(), 2, "delivered now, so asking again is a call of its own")
}

// TestHonestRepeats: asking the same again is a new call, one after the other
// and side by side.
func TestHonestRepeats(t *testing.T) {
	e := says("vote"+imEnd, 1)
	b := start(t, e)
	s, other := b.session(t), b.session(t)
	for range 3 {
		require.Equal(t, 200, post(t, s, ask("hello", true)).status)
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { post(t, s, ask("hello", true)) })
	}
	all.Wait()
	post(t, other, ask("hello", true))
	assert.Len(t, e.seen(), 7)
}

// TestMarkedRetry: what an SDK marks as a retry gets the first one's reply,
// whether it is under way or delivered.
func TestMarkedRetry(t *testing.T) {
	entered, leaveEngine := make(chan struct{}, 1), make(chan struct{})
	e := slow(entered, leaveEngine)
	b := start(t, e)
	s := b.session(t)
	marked := func() *http.Request {
		r := request(t, s, ask("hello", true))
		r.Header.Set("X-Stainless-Retry-Count", "1")
		return r
	}
	got := make(chan answer, 2)
	go func() { got <- post(t, s, ask("hello", true)) }()
	<-entered
	go func() { got <- do(t, marked()) }()
	time.Sleep(20 * time.Millisecond)
	close(leaveEngine)
	for range 2 {
		assert.Equal(t, "one two", at(joined(t, eventsOf(t, <-got)), "content", 0, "text"))
	}
	assert.Equal(t, 200, do(t, marked()).status)
	assert.Len(t, e.seen(), 1)
	assert.Equal(t, 1, s.Stats().Calls)
}

// TestRepeatOfFailure: a failed call isn't repeated to anybody; who waited
// for it becomes a call of its own.
func TestRepeatOfFailure(t *testing.T) {
	entered, leaveEngine := make(chan struct{}, 2), make(chan error, 2)
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		s := stream("one two"+imEnd, 4)
		s.wait = func(i int) error {
			if i != 1 {
				return nil
			}
			entered <- struct{}{}
			return <-leaveEngine
		}
		return s, nil
	}}
	b := start(t, e)
	s := b.session(t)
	leave(t, s, ask("hello", true), entered)
	got := make(chan answer, 1)
	go func() { got <- post(t, s, ask("hello", true)) }()
	time.Sleep(20 * time.Millisecond)
	leaveEngine <- io.ErrUnexpectedEOF
	leaveEngine <- nil
	assert.Equal(t, "one two", at(joined(t, eventsOf(t, <-got)), "content", 0, "text"))
	// The one that failed is recorded after who waits for it has been told.
	require.Eventually(t, func() bool { return len(b.store.all()) == 2 }, 5*time.Second, time.Millisecond)
	calls := b.store.all()
	slices.SortFunc(calls, func(a, b *trace.Call) int { return a.Seq - b.Seq })
	assert.Equal(t, trace.CallError, calls[0].Status)
	assert.Equal(t, trace.CallOK, calls[1].Status)
	assert.Empty(t, calls[1].Replays)
	assert.Equal(t, 2, s.Stats().Calls)
}
