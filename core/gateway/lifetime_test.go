package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/telemetry"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
)

// stored is a gateway over a real store, with an operator and metrics.
func stored(t *testing.T, e *engine, settings ...setting) (*bench, *trace.Store, func() string) {
	t.Helper()
	st, err := trace.Open(filepath.Join(t.TempDir(), "penstock.db"), trace.StoreOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	tel, err := telemetry.New(t.Context(), telemetry.Options{Prometheus: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tel.Close(context.Background())) })
	b := start(t, e, append([]setting{func(o *gateway.Options, m *gateway.Model) {
		o.OperatorToken, o.Calls, o.Models, o.Metrics = operator, tel.Calls(st), []*gateway.Model{m}, tel.Metrics()
	}}, settings...)...)
	return b, st, func() string {
		w := httptest.NewRecorder()
		tel.Metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
}

func sessionOf(t *testing.T, st *trace.Store, id string) *trace.Session {
	t.Helper()
	all, err := st.Sessions(t.Context(), "")
	require.NoError(t, err)
	for _, s := range all {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("no session %s", id)
	return nil
}

// TestSeed10aCase24BytesOfASession: once the records of a session take what they
// may, its calls are refused in the dialect, and the session is marked as
// incomplete at once and for good. Every call that was served is in the store,
// and other sessions go on.
func TestSeed10aCase24BytesOfASession(t *testing.T) {
	for _, d := range dialects[:2] {
		t.Run(d.name, func(t *testing.T) {
			e := says("ok"+imEnd, 10)
			b, st, metrics := stored(t, e, func(o *gateway.Options, _ *gateway.Model) { o.Limits.SessionBytes = 3000 })
			s, other := b.session(t), b.session(t)
			path, body := d.request(true)
			served := 0
			var refused answer
			for range 100 {
				a := send(t, s, "POST", path, body)
				if a.status != 200 {
					refused = a
					break
				}
				assert.Contains(t, a.body, d.end)
				served++
			}
			assert.Greater(t, served, 1)
			require.Equal(t, 403, refused.status, refused.body)
			assert.Contains(t, at(decoded(t, refused.body), "error", "message"), "limits.session_bytes is 3000")
			assert.Equal(t, d.name == "anthropic", decoded(t, refused.body)["type"] == "error")
			marked := sessionOf(t, st, s.ID())
			assert.Contains(t, marked.Incomplete, "limits.session_bytes", "also if penstock dies now")
			assert.Equal(t, 403, send(t, s, "POST", path, body).status)
			assert.Len(t, e.seen(), served, "what can't be recorded isn't asked")
			assert.Contains(t, s.Stats().Fault, "limits.session_bytes", "what the agent makes of it says nothing of the agent")

			require.Equal(t, 200, send(t, other, "POST", path, body).status)
			require.NoError(t, s.Close(t.Context()))
			require.NoError(t, other.Close(t.Context()))
			calls, err := st.Calls(t.Context(), s.ID())
			require.NoError(t, err)
			assert.Len(t, calls, served, "no record was dropped to make room")
			marked = sessionOf(t, st, s.ID())
			assert.Equal(t, 2, marked.Unrecorded)
			assert.False(t, marked.Closed.IsZero())
			assert.Empty(t, sessionOf(t, st, other.ID()).Incomplete)
			for _, want := range []string{
				"penstock_sessions_incomplete_total 1", "penstock_calls_unrecorded_total 2", "penstock_sessions_open 0",
				`penstock_sessions_closed_total{end="closed"} 2`,
			} {
				assert.Contains(t, metrics(), want)
			}
		})
	}
}

// TestSeed10aCase24BytesOfATrace: the same for all sessions together, with what
// an earlier part of the run had stored.
func TestSeed10aCase24BytesOfATrace(t *testing.T) {
	b, st, metrics := stored(t, says("ok"+imEnd, 10), func(o *gateway.Options, _ *gateway.Model) {
		o.Limits.TraceBytes, o.Stored = 5001, 5000
	})
	s, other := b.session(t), b.session(t)
	require.Equal(t, 200, post(t, s, ask("hello", false)).status)
	isAnthropicError(t, post(t, other, ask("hello", false)), 403, "permission_error")
	assert.Contains(t, sessionOf(t, st, other.ID()).Incomplete, "limits.trace_bytes is 5001")
	assert.Empty(t, sessionOf(t, st, s.ID()).Incomplete)
	assert.NotContains(t, metrics(), "penstock_trace_bytes_total 0\n")
}

// TestSeed10aCase24CountOfSessions: more sessions than may be open are refused,
// in a way that one waits for, and a closed one makes room.
func TestSeed10aCase24CountOfSessions(t *testing.T) {
	b, _, metrics := stored(t, says("ok", 10), func(o *gateway.Options, _ *gateway.Model) { o.Limits.Sessions = 2 })
	one := decoded(t, b.control(t, operator, "POST", "/sessions", "").body)
	b.session(t)
	a := b.control(t, operator, "POST", "/sessions", "")
	isAnthropicError(t, a, 429, "rate_limit_error")
	assert.Contains(t, a.body, "too many sessions are open")
	_, err := b.Open(t.Context(), gateway.SessionSpec{Session: trace.Session{ID: "s"}, Model: b.model})
	require.ErrorIs(t, err, gateway.ErrTooManySessions)
	assert.Contains(t, metrics(), "penstock_sessions_open 2")
	require.Equal(t, 200, b.control(t, operator, "DELETE", "/sessions/"+one["id"].(string), "").status)
	assert.Equal(t, 200, b.control(t, operator, "POST", "/sessions", "").status)
}

// TestSeed10aCase24IdleSessions: a session that nobody closes ends when it is idle
// for long, and says so. One that is at work, or that has an end of its own, stays.
func TestSeed10aCase24IdleSessions(t *testing.T) {
	working, leave := make(chan struct{}), make(chan struct{})
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		s := stream("ok"+imEnd, 10)
		if strings.Contains(r.Prompt, "slow") {
			s.wait = func(int) error { working <- struct{}{}; <-leave; return nil }
		}
		return s, nil
	}}
	b, st, metrics := stored(t, e, func(o *gateway.Options, _ *gateway.Model) { o.SessionTTL = 2 * time.Second })
	abandoned, busy := b.session(t), b.session(t)
	bounded := b.session(t, func(s *gateway.SessionSpec) { s.Deadline = time.Now().Add(time.Hour) })
	require.Equal(t, 200, post(t, abandoned, ask("hello", false)).status)
	got := make(chan answer, 1)
	go func() { got <- post(t, busy, ask("slow", false)) }()
	<-working
	require.Eventually(t, func() bool { return !sessionOf(t, st, abandoned.ID()).Closed.IsZero() }, 30*time.Second, 5*time.Millisecond)
	assert.Equal(t, "idle", sessionOf(t, st, abandoned.ID()).End)
	assert.Equal(t, 401, post(t, abandoned, ask("hello", false)).status)
	for _, s := range []*gateway.Session{busy, bounded} {
		assert.True(t, sessionOf(t, st, s.ID()).Closed.IsZero(), s.ID())
	}
	popped := b.control(t, operator, "POST", "/sessions/"+abandoned.ID()+"/pop", "")
	require.Equal(t, 200, popped.status, "its id is known for as long again")
	assert.Equal(t, "ok"+imEnd, at(decoded(t, popped.body), "calls", 0, "raw"))
	assert.Contains(t, metrics(), `penstock_sessions_closed_total{end="idle"} 1`)
	close(leave)
	assert.Equal(t, 200, (<-got).status)
	assert.Equal(t, 200, post(t, bounded, ask("hello", false)).status)
	require.Eventually(t, func() bool { return sessionOf(t, st, busy.ID()).End == "idle" }, 30*time.Second, 5*time.Millisecond)
	require.Eventually(t, func() bool {
		return b.control(t, operator, "GET", fmt.Sprintf("/sessions/%s/calls", abandoned.ID()), "").status == 404
	}, 30*time.Second, 5*time.Millisecond, "its id is forgotten here, not in the store")
	calls, err := st.Calls(t.Context(), abandoned.ID())
	require.NoError(t, err)
	assert.Len(t, calls, 1)
}
