package model

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ask asks a model that gives these statuses in turn, the last one for good,
// and returns how often it was asked.
func ask(t *testing.T, ctx context.Context, after string, statuses ...int) (answer []byte, asked int, err error) {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := int(n.Add(1))
		assert.Equal(t, "Bearer tok", r.Header.Get("Authorization"))
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		status := statuses[min(i, len(statuses))-1]
		w.WriteHeader(status)
		fmt.Fprintf(w, "answer %d is %d", i, status)
	}))
	defer s.Close()
	answer, err = Ask(ctx, Session{BaseURL: s.URL, Token: "tok"}, "/v1/x", []byte("{}"))
	return answer, int(n.Load()), err
}

// TestABusyModelIsAskedAgain: and one that broke, as agents do; what refuses the
// request itself is not.
func TestABusyModelIsAskedAgain(t *testing.T) {
	defer func(d time.Duration) { firstWait = d }(firstWait)
	firstWait = time.Millisecond
	for _, busy := range []int{429, 500, 502, 503, 504, 529} {
		answer, asked, err := ask(t, t.Context(), "", busy, busy, 200)
		require.NoError(t, err)
		assert.Equal(t, "answer 3 is 200", string(answer))
		assert.Equal(t, 3, asked)
	}
	_, asked, err := ask(t, t.Context(), "", 429)
	var status *StatusError
	require.ErrorAs(t, err, &status)
	assert.Equal(t, 429, status.Status)
	assert.Equal(t, 4, asked)
	for _, other := range []int{400, 401, 403, 404, 501} {
		_, asked, err := ask(t, t.Context(), "", other, 200)
		require.ErrorAs(t, err, &status)
		assert.Equal(t, other, status.Status)
		assert.Equal(t, 1, asked)
	}
}

// TestRetryAfterIsWaitedFor: no longer than the caller does.
func TestRetryAfterIsWaitedFor(t *testing.T) {
	defer func(d time.Duration) { firstWait = d }(firstWait)
	firstWait = time.Millisecond
	began := time.Now()
	_, asked, err := ask(t, t.Context(), "1", 429, 200)
	require.NoError(t, err)
	assert.Equal(t, 2, asked)
	assert.GreaterOrEqual(t, time.Since(began), time.Second)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, asked, err = ask(t, ctx, "30", 429, 200)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "HTTP status 429")
	assert.Equal(t, 1, asked)
}
