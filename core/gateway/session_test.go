package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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

func textLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// slow is an engine that waits for leave, or for the end of its context, in
// each call, and tells of each on entered.
func slow(entered chan<- struct{}, leave <-chan struct{}) *engine {
	return &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		s := stream("one two"+imEnd, 4)
		s.wait = func(i int) error {
			if i != 1 {
				return ctx.Err()
			}
			entered <- struct{}{}
			select {
			case <-leave:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return s, nil
	}}
}

// TestBudgetOfCalls: over budget is a 403 in words, recorded, not counted.
func TestBudgetOfCalls(t *testing.T) {
	e := says("hi"+imEnd, 10)
	b := start(t, e)
	s := b.session(t, func(spec *gateway.SessionSpec) { spec.Budget.Calls = 2 })
	for range 2 {
		require.Equal(t, 200, post(t, s, ask("hello", true)).status)
	}
	select {
	case <-s.BudgetHit():
		t.Fatal("the budget is used, not exceeded")
	default:
	}
	a := post(t, s, ask("hello", true))
	isAnthropicError(t, a, 403, "permission_error")
	assert.Contains(t, at(decoded(t, a.body), "error", "message"), "budget")
	assert.Contains(t, at(decoded(t, a.body), "error", "message"), "2 of 2 calls")
	<-s.BudgetHit()
	post(t, s, ask("hello", true))
	st := s.Stats()
	assert.Equal(t, 2, st.Calls)
	assert.True(t, st.BudgetHit)
	calls := b.store.all()
	require.Len(t, calls, 4)
	assert.Equal(t, trace.CallBudget, calls[2].Status)
	assert.Equal(t, 403, calls[2].HTTPStatus)
	assert.Len(t, calls[2].Messages, 1)
	assert.Len(t, e.seen(), 2)
}

// TestBudgetSideBySide: calls at once don't slip past the budget.
func TestBudgetSideBySide(t *testing.T) {
	e := says("hi"+imEnd, 1)
	b := start(t, e)
	s := b.session(t, func(spec *gateway.SessionSpec) { spec.Budget.Calls = 5 })
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { post(t, s, ask("hello", true)) })
	}
	all.Wait()
	assert.Len(t, e.seen(), 5)
	assert.Equal(t, 5, s.Stats().Calls)
}

// TestRefusedCallsDontCount: what never reached the upstream is no call.
func TestRefusedCallsDontCount(t *testing.T) {
	fails := true
	e := &engine{}
	e.reply = func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		if fails {
			fails = false
			return nil, &upstream.StatusError{Status: 529}
		}
		return stream("hi"+imEnd, 10), nil
	}
	b := start(t, e)
	s := b.session(t, func(spec *gateway.SessionSpec) { spec.Budget.Calls = 1 })
	assert.Equal(t, 400, post(t, s, "{").status)
	assert.Equal(t, 529, post(t, s, ask("hello", true)).status)
	assert.Equal(t, 200, post(t, s, ask("hello", true)).status)
	assert.Equal(t, 403, post(t, s, ask("hello", true)).status)
}

// TestBudgetOfTurns counts only the main lineage.
func TestBudgetOfTurns(t *testing.T) {
	b := start(t, says("one"+imEnd, 10))
	s := b.session(t, func(spec *gateway.SessionSpec) { spec.Budget.Turns = 1 })
	require.Equal(t, 200, post(t, s, ask("hello", true, addTool)).status)
	assert.Equal(t, 1, s.Stats().Turns)
	next := `{"model":"policy","max_tokens":1000,` + addTool + `,"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"one"},{"role":"user","content":"more"}]}`
	a := post(t, s, next)
	isAnthropicError(t, a, 403, "permission_error")
	assert.Contains(t, at(decoded(t, a.body), "error", "message"), "1 of 1 turns")
	<-s.BudgetHit()
	assert.Equal(t, 1, s.Stats().Calls)
}

// TestHeldFirstCall: while the session holds its calls, none reaches the
// upstream.
func TestHeldFirstCall(t *testing.T) {
	e := says("hi"+imEnd, 10)
	b := start(t, e)
	hold := func(spec *gateway.SessionSpec) { spec.Hold = true }

	s := b.session(t, hold)
	got := make(chan answer)
	ask1 := func() { got <- post(t, s, ask("hello", true)) }
	go ask1()
	time.Sleep(30 * time.Millisecond)
	assert.Empty(t, e.seen())
	s.Ready()
	assert.Equal(t, 200, (<-got).status)
	assert.Equal(t, 200, post(t, s, ask("hello", true)).status)

	s = b.session(t, hold)
	go ask1()
	time.Sleep(30 * time.Millisecond)
	s.Refuse("the program has tools that weren't asked for: Bash")
	isAnthropicError(t, <-got, 403, "permission_error")
	a := post(t, s, ask("hello", true))
	isAnthropicError(t, a, 403, "permission_error")
	assert.Contains(t, a.body, "Bash")
	assert.Len(t, e.seen(), 2)
	calls := b.store.all()
	assert.Equal(t, trace.CallDenied, calls[len(calls)-1].Status)
	s.Ready()
	assert.Equal(t, 403, post(t, s, ask("hello", true)).status, "a refusal stays")

	s = b.session(t, hold)
	go ask1()
	time.Sleep(30 * time.Millisecond)
	require.NoError(t, s.Close(t.Context()))
	assert.Equal(t, 401, (<-got).status)
	assert.Len(t, e.seen(), 2)
}

// revoked waits until the session's token opens nothing.
func revoked(t *testing.T, s *gateway.Session) {
	t.Helper()
	require.Eventually(t, func() bool { return send(t, s, "GET", "/v1/models", "").status == 401 }, 5*time.Second, time.Millisecond)
}

// TestCloseWaits: Close waits for a call in flight, and the token is worth
// nothing from then on.
func TestCloseWaits(t *testing.T) {
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	b := start(t, slow(entered, leave))
	s := b.session(t)
	got := make(chan answer, 1)
	go func() { got <- post(t, s, ask("hello", true)) }()
	<-entered
	closed := make(chan error, 1)
	go func() { closed <- s.Close(t.Context()) }()
	revoked(t, s)
	assert.Equal(t, 401, post(t, s, ask("late", true)).status)
	select {
	case <-closed:
		t.Fatal("Close didn't wait")
	default:
	}
	close(leave)
	require.NoError(t, <-closed)
	a := <-got
	assert.Equal(t, "one two", at(joined(t, eventsOf(t, a)), "content", 0, "text"))
	c := b.store.only(t)
	assert.True(t, b.store.wasDelivered(c.ID), "Close waits for that too")
	require.Len(t, b.store.sessions, 2)
	assert.False(t, b.store.sessions[1].Closed.IsZero())
	require.NoError(t, s.Close(t.Context()), "twice is once")
	assert.Len(t, b.store.sessions, 2)
}

// TestCloseCancels what is in flight when its context ends; the call is
// recorded all the same.
func TestCloseCancels(t *testing.T) {
	entered := make(chan struct{}, 1)
	b := start(t, slow(entered, nil))
	s := b.session(t)
	got := make(chan answer, 1)
	go func() { got <- post(t, s, ask("hello", true)) }()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.NoError(t, s.Close(ctx))
	a := <-got
	assert.Error(t, a.err)
	assert.NotContains(t, names(eventsOf(t, a)), "message_stop")
	c := b.store.only(t)
	assert.Equal(t, trace.CallCancelled, c.Status)
	assert.Equal(t, "one ", c.Raw)
}

// TestLateCallsAreRecorded even if they outlast the cancelling.
func TestLateCallsAreRecorded(t *testing.T) {
	leave := make(chan struct{})
	entered := make(chan struct{})
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		close(entered)
		<-leave // deaf to ctx
		return nil, ctx.Err()
	}}
	b := start(t, e)
	s := b.session(t)
	postAside(t, s, ask("hello", true))
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorContains(t, s.Close(ctx), "1 calls don't end")
	assert.Empty(t, b.store.all())
	close(leave)
	assert.Equal(t, trace.CallCancelled, b.store.only(t).Status)
}

// TestDeadline cancels what is in flight; what comes later is told that the
// time is over, in the dialect's shape, also once the session is closed.
func TestDeadline(t *testing.T) {
	entered := make(chan struct{}, 1)
	b := start(t, slow(entered, nil))
	s := b.session(t, func(spec *gateway.SessionSpec) { spec.Deadline = time.Now().Add(80 * time.Millisecond) })
	a := post(t, s, ask("hello", true))
	assert.Error(t, a.err)
	c := b.store.only(t)
	assert.Equal(t, trace.CallCancelled, c.Status)
	assert.Contains(t, c.Error.Message, "deadline")
	told := func() {
		t.Helper()
		late := post(t, s, ask("hello", true))
		isAnthropicError(t, late, 403, "permission_error")
		assert.Contains(t, late.body, "the session's budget is exhausted: its deadline has passed")
		list := send(t, s, "GET", "/v1beta/models", "")
		assert.Equal(t, 403, list.status)
		assert.Equal(t, "PERMISSION_DENIED", at(decoded(t, list.body), "error", "status"))
	}
	told()
	require.NoError(t, s.Close(t.Context()))
	told()
	assert.Len(t, b.store.all(), 1, "what comes too late is no call")
	early := b.session(t, func(spec *gateway.SessionSpec) { spec.Deadline = time.Now().Add(time.Hour) })
	require.NoError(t, early.Close(t.Context()))
	assert.Equal(t, 401, post(t, early, ask("hello", true)).status, "one that was closed in time is unknown")
}

// TestSessionsAreIsolated: sessions side by side see nothing of each other.
func TestSessionsAreIsolated(t *testing.T) {
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		return stream("echo of "+r.AffinityKey+imEnd, 3), nil
	}}
	b := start(t, e)
	var all sync.WaitGroup
	for range 8 {
		s := b.session(t)
		all.Go(func() {
			for range 4 {
				a := post(t, s, ask("hello", true))
				assert.Equal(t, "echo of "+s.ID(), at(joined(t, eventsOf(t, a)), "content", 0, "text"))
			}
			assert.Equal(t, 4, s.Stats().Calls)
			assert.NoError(t, s.Close(t.Context()))
		})
	}
	all.Wait()
	calls := b.store.all()
	assert.Len(t, calls, 32)
	for _, c := range calls {
		assert.Equal(t, "echo of "+c.Session+imEnd, c.Raw)
		assert.True(t, strings.HasPrefix(c.ID, c.Session+"."))
	}
}

// TestSeed10aCase37OldTokenIsDead: a retry has a session of its own, which
// the token and the calls of the one before can't touch.
func TestSeed10aCase37OldTokenIsDead(t *testing.T) {
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	b := start(t, slow(entered, leave))
	old := b.session(t)
	late := make(chan answer, 1)
	go func() { late <- post(t, old, ask("hello", true)) }()
	<-entered
	go old.Close(t.Context())
	fresh := b.session(t)
	revoked(t, old)
	assert.Equal(t, 401, post(t, old, ask("hello", true)).status)
	close(leave)
	require.Equal(t, 200, post(t, fresh, ask("hello", true)).status)
	<-late
	for _, c := range b.store.all() {
		assert.Contains(t, []string{old.ID() + ".1", fresh.ID() + ".1"}, c.ID)
	}
	assert.Equal(t, 1, fresh.Stats().Calls, "the late end of an old call isn't the new session's")
	r, err := http.NewRequestWithContext(t.Context(), "POST", fresh.Root()+"/v1/messages", strings.NewReader(ask("hello", false)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Api-Key", old.Token())
	assert.Equal(t, 401, do(t, r).status)
}

func TestOpenAfterClose(t *testing.T) {
	g, err := gateway.New(gateway.Options{Calls: &store{}})
	require.NoError(t, err)
	require.NoError(t, g.Close(t.Context()))
	m := &gateway.Model{Entry: "m", Format: toy{}, Upstream: says("", 1), Capture: gateway.CaptureText}
	_, err = g.Open(t.Context(), gateway.SessionSpec{Session: trace.Session{ID: "s"}, Model: m})
	assert.ErrorContains(t, err, "closing")
	_, err = http.Get(g.URL() + "/livez")
	assert.Error(t, err)
}

// TestGatewayCloseEndsSessions: closing the gateway ends what is open.
func TestGatewayCloseEndsSessions(t *testing.T) {
	entered := make(chan struct{}, 3)
	st := &store{}
	g, err := gateway.New(gateway.Options{Calls: st})
	require.NoError(t, err)
	m := &gateway.Model{Entry: "policy", Format: toy{}, Upstream: slow(entered, nil), Capture: gateway.CaptureText}
	var all sync.WaitGroup
	for i := range 3 {
		s, err := g.Open(t.Context(), gateway.SessionSpec{Session: trace.Session{ID: fmt.Sprint("s-", i)}, Model: m})
		require.NoError(t, err)
		all.Go(func() { assert.Error(t, post(t, s, ask("hello", true)).err) })
		<-entered
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_ = g.Close(ctx)
	all.Wait()
	assert.Len(t, st.all(), 3)
	for _, c := range st.all() {
		assert.Equal(t, trace.CallCancelled, c.Status)
	}
}
