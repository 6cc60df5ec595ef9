package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
)

// endless gives spaces.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// Whoever sends more than is taken can read why, also a client that reads
// only when it has sent all, with a length and without.
func TestRefusedWhileSendingReadsTheAnswer(t *testing.T) {
	const limit, size = 1 << 20, 12 << 20
	b := start(t, says("hi", 10), func(o *gateway.Options, m *gateway.Model) { o.BodyLimit = limit })
	s := b.session(t)
	for _, c := range []struct {
		name, path, token string
		status            int
		kind              string
	}{
		{"over the limit", "/v1/messages", s.Token(), 413, "request_too_large"},
		{"over the limit of a count", "/v1/messages/count_tokens", s.Token(), 413, "request_too_large"},
		{"without a key", "/v1/messages", "none", 401, "authentication_error"},
		{"no such route", "/v1/nothing", s.Token(), 404, "not_found_error"},
	} {
		for _, length := range []int64{size, -1} {
			t.Run(fmt.Sprintf("%s, length %d", c.name, length), func(t *testing.T) {
				send := func() *http.Request {
					r, err := http.NewRequestWithContext(t.Context(), "POST", b.URL()+c.path, io.LimitReader(endless{}, size))
					require.NoError(t, err)
					r.ContentLength = length
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("X-Api-Key", c.token)
					return r
				}
				a := do(t, send())
				isAnthropicError(t, a, c.status, c.kind)

				conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL(), "http://"))
				require.NoError(t, err)
				defer conn.Close()
				require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
				require.NoError(t, send().Write(conn), "all can be sent")
				res, err := http.ReadResponse(bufio.NewReader(conn), send())
				require.NoError(t, err)
				body, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				assert.Equal(t, c.status, res.StatusCode)
				assert.Equal(t, c.kind, at(decoded(t, string(body)), "error", "type"))
				assert.True(t, res.Close, "the connection serves nothing else")
			})
		}
	}
}

// A client that asks before it sends is answered and sends nothing.
func TestExpectContinueIsAnsweredAtOnce(t *testing.T) {
	b := start(t, says("hi", 10), func(o *gateway.Options, m *gateway.Model) { o.BodyLimit = 1000 })
	s := b.session(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL(), "http://"))
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 5000000\r\n\r\n", s.Token())
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	began := time.Now()
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Contains(t, string(all), "HTTP/1.1 413 ")
	assert.NotContains(t, string(all), "100 Continue")
	assert.Less(t, time.Since(began), 14*time.Second, "nothing is waited for")
}

// Who sends without an end is let go.
func TestEndlessSendersAreLetGo(t *testing.T) {
	b := start(t, says("hi", 10), func(o *gateway.Options, m *gateway.Model) { o.BodyLimit = 1 << 20 })
	s := b.session(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL(), "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	fmt.Fprintf(conn, "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: %s\r\nContent-Type: application/json\r\nContent-Length: 1000000000000\r\n\r\n", s.Token())
	n, err := io.Copy(conn, endless{})
	require.Error(t, err)
	assert.NotErrorIs(t, err, net.ErrClosed)
	assert.Less(t, n, int64(300<<20))
	var timeout net.Error
	if assert.ErrorAs(t, err, &timeout) {
		assert.False(t, timeout.Timeout(), "the gateway has ended it")
	}
}
