package gateway_test

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
)

const operator = "operator-secret"

// controlled is a gateway with an operator and a store that can be read.
func controlled(t *testing.T, e *engine) *bench {
	t.Helper()
	st, err := trace.Open(filepath.Join(t.TempDir(), "penstock.db"), trace.StoreOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	return start(t, e, func(o *gateway.Options, m *gateway.Model) {
		o.OperatorToken, o.Calls, o.Models = operator, st, []*gateway.Model{m}
	})
}

func (b *bench) control(t *testing.T, token, method, path, body string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Anthropic-Version", "2023-06-01")
	return do(t, r)
}

// TestSeed10aCase21TokensDontMix: each token on each route. No session's
// token reads or closes another's, nor its own.
func TestSeed10aCase21TokensDontMix(t *testing.T) {
	b := controlled(t, says("hi", 10))
	s, other := b.session(t), b.session(t)
	for _, route := range []string{
		"GET /sessions", "POST /sessions", "GET /sessions/s-2", "GET /sessions/s-2/calls",
		"POST /sessions/s-2/pop", "POST /sessions/s-2/clear", "DELETE /sessions/s-2", "GET /sessions/s-1/calls",
	} {
		method, path, _ := strings.Cut(route, " ")
		for _, token := range []string{s.Token(), other.Token(), s.ID(), "", "wrong"} {
			isAnthropicError(t, b.control(t, token, method, path, ""), 401, "authentication_error")
		}
		under := b.control(t, operator, method, "/s/"+s.Token()+path, "")
		assert.Equal(t, 404, under.status, "no control route lies under a session")
		r, err := http.NewRequestWithContext(t.Context(), method, b.URL()+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+operator)
		r.Header.Set("Origin", "https://evil.example")
		assert.Equal(t, 403, do(t, r).status)
	}
	assert.Equal(t, 200, post(t, other, ask("hello", false)).status, "the session is still open")
	closed := start(t, says("hi", 10))
	assert.Equal(t, 401, closed.control(t, "", "GET", "/sessions", "").status, "without an operator's token they are closed")
}

// TestOperatorOpensSessions for agents that people start themselves.
func TestOperatorOpensSessions(t *testing.T) {
	b := controlled(t, says("hi"+imEnd, 10))
	a := b.control(t, operator, "POST", "/sessions", `{"model":"policy","task":{"id":"t9"},"budget":{"calls":1},"timeout":"1m"}`)
	require.Equal(t, 200, a.status, a.body)
	v := decoded(t, a.body)
	assert.True(t, strings.HasPrefix(v["id"].(string), "s-"))
	assert.Equal(t, "policy", v["model"])
	r, err := http.NewRequestWithContext(t.Context(), "POST", v["base_url"].(string)+"/v1/messages", strings.NewReader(ask("hello", false)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	require.Equal(t, 200, do(t, r).status)
	list := decoded(t, b.control(t, operator, "GET", "/sessions", "").body)
	assert.Equal(t, v["id"], at(list, "sessions", 0, "id"))
	assert.Equal(t, 1.0, at(list, "sessions", 0, "calls"))
	assert.NotContains(t, quoted(list), v["token"])
	one := decoded(t, b.control(t, operator, "GET", "/sessions/"+v["id"].(string), "").body)
	assert.Equal(t, 3.0, at(one, "usage", "output"))
	for body, status := range map[string]int{`{"model":"other"}`: 404, `{`: 400, `{"timeout":"soon"}`: 400} {
		assert.Equal(t, status, b.control(t, operator, "POST", "/sessions", body).status, body)
	}
}

// TestSeed10aCase23Pop waits for calls in flight, closes the session, and
// gives the same when it is repeated.
func TestSeed10aCase23Pop(t *testing.T) {
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	b := controlled(t, slow(entered, leave))
	s := b.session(t)
	postAside(t, s, ask("hello", true))
	<-entered
	got := make(chan answer, 1)
	go func() { got <- b.control(t, operator, "POST", "/sessions/s-1/pop", "") }()
	revoked(t, s)
	close(leave)
	first := <-got
	v := decoded(t, first.body)
	assert.Equal(t, true, v["complete"])
	assert.Equal(t, "one two"+imEnd, at(v, "calls", 0, "raw"))
	assert.Len(t, at(v, "calls", 0, "logprobs"), len(at(v, "calls", 0, "sampled_ids").([]any)))
	again := b.control(t, operator, "POST", "/sessions/s-1/pop", "")
	assert.Equal(t, first.body, again.body)
	assert.Equal(t, 200, b.control(t, operator, "GET", "/sessions/s-1/calls", "").status)
	assert.Equal(t, 200, b.control(t, operator, "POST", "/sessions/s-1/clear", "").status)
	assert.Equal(t, 404, b.control(t, operator, "POST", "/sessions/s-1/pop", "").status)
	assert.Equal(t, 404, b.control(t, operator, "POST", "/sessions/nobody/pop", "").status)
}

// TestPopIsBounded: a call that doesn't end is cancelled, and recorded as it.
func TestPopIsBounded(t *testing.T) {
	entered := make(chan struct{}, 1)
	b := controlled(t, slow(entered, nil))
	s := b.session(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go http.DefaultClient.Do(request(t, s, ask("hello", true)).WithContext(ctx))
	<-entered
	v := decoded(t, b.control(t, operator, "POST", "/sessions/s-1/pop?wait=20ms", "").body)
	assert.Equal(t, "cancelled", at(v, "calls", 0, "status"))
	assert.Equal(t, "one ", at(v, "calls", 0, "raw"))
}

func TestMetricsAreForTheOperatorAlone(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("up 1")) })
	b := start(t, says("hi", 10), func(o *gateway.Options, m *gateway.Model) { o.OperatorToken, o.Metrics = operator, served })
	s := b.session(t)
	assert.Equal(t, "up 1", b.control(t, operator, "GET", "/metrics", "").body)
	assert.Equal(t, 401, b.control(t, s.Token(), "GET", "/metrics", "").status)
	assert.Equal(t, 401, b.control(t, "", "GET", "/metrics", "").status)
	assert.Equal(t, 404, b.control(t, operator, "POST", "/metrics", "").status)
	off := start(t, says("hi", 10), func(o *gateway.Options, m *gateway.Model) { o.OperatorToken = operator })
	assert.Equal(t, 404, off.control(t, operator, "GET", "/metrics", "").status)
}
