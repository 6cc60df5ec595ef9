package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// Programs and proxies write the loopback's names with and without the port.
func TestLoopbackNamesAreOurs(t *testing.T) {
	b := start(t, says("hi", 10))
	s := b.session(t)
	port := strings.TrimPrefix(b.URL(), "http://127.0.0.1:")
	for _, name := range []string{"localhost", "127.0.0.1", "[::1]", "LocalHost"} {
		for _, host := range []string{name, name + ":" + port} {
			r := request(t, s, ask("hello", false))
			r.Host = host
			assert.Equal(t, 200, do(t, r).status, host)
		}
	}
}

// isAnthropicError checks the one shape that errors have (seed 10a case 5).
func isAnthropicError(t *testing.T, a answer, status int, kind string) {
	t.Helper()
	assert.Equal(t, status, a.status, a.body)
	assert.Equal(t, "application/json", a.header.Get("Content-Type"))
	v := decoded(t, a.body)
	assert.Equal(t, "error", v["type"])
	assert.Equal(t, kind, at(v, "error", "type"))
	assert.NotEmpty(t, at(v, "error", "message"))
	assert.NotEmpty(t, a.header.Get("Request-Id"))
	if status == 429 {
		assert.NotEmpty(t, a.header.Get("Retry-After"))
	}
}

func hasNoCORS(t *testing.T, a answer) {
	t.Helper()
	for name := range a.header {
		assert.False(t, strings.HasPrefix(name, "Access-Control-"), name)
	}
}

// TestA15NoWebPageSpendsTheKey is fault A15: requests of other origins, or
// under another name, are refused even with a good token.
func TestA15NoWebPageSpendsTheKey(t *testing.T) {
	e := says("hi", 10)
	b := start(t, e)
	s := b.session(t)
	port := strings.TrimPrefix(b.URL(), "http://127.0.0.1:")
	body := ask("hello", false)
	for _, c := range []struct {
		name, header, value string
	}{
		{"origin", "Origin", "https://evil.example"},
		{"null origin", "Origin", "null"},
		{"https origin of the same name", "Origin", "https://127.0.0.1:" + port},
		{"another port", "Origin", "http://127.0.0.1:1"},
		{"suffix", "Origin", "http://127.0.0.1:" + port + ".evil.example"},
		{"origin without a port", "Origin", "http://localhost"},
		{"host", "Host", "evil.example"},
		{"host that begins like ours", "Host", "localhost.evil.example"},
		{"an address that isn't loopback", "Host", "10.0.0.1"},
		{"another loopback address", "Host", "127.0.0.2:" + port},
		{"host with our port", "Host", "evil.example:" + port},
		{"host with another port", "Host", "127.0.0.1:1"},
		{"fetch metadata", "Sec-Fetch-Site", "cross-site"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, route := range []string{"/v1/messages", "/v1/models"} {
				method := http.MethodPost
				if route == "/v1/models" {
					method = http.MethodGet
				}
				for _, where := range []string{"path", "header", "none"} {
					url := b.URL() + route
					if where == "path" {
						url = s.BaseURL() + route
					}
					r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
					require.NoError(t, err)
					r.Header.Set("Content-Type", "application/json")
					if where == "header" {
						r.Header.Set("X-Api-Key", s.Token())
					}
					if c.header == "Host" {
						r.Host = c.value
					} else {
						r.Header.Set(c.header, c.value)
					}
					a := do(t, r)
					hasNoCORS(t, a)
					if where == "none" {
						assert.Contains(t, []int{401, 403}, a.status)
						continue
					}
					isAnthropicError(t, a, 403, "permission_error")
				}
			}
			preflight, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, s.BaseURL()+"/v1/messages", nil)
			require.NoError(t, err)
			preflight.Header.Set("Origin", "https://evil.example")
			preflight.Header.Set("Access-Control-Request-Method", "POST")
			a := do(t, preflight)
			assert.Equal(t, 403, a.status)
			hasNoCORS(t, a)
		})
	}
	own := request(t, s, body)
	own.Header.Set("Origin", b.URL())
	assert.Equal(t, 200, do(t, own).status, "our own origin is no other one")
	assert.Len(t, e.seen(), 1, "the upstream saw no other call")
	assert.Len(t, b.store.all(), 1)
}

// TestTokens: each way to send a token, and what it opens.
func TestTokens(t *testing.T) {
	b := start(t, says("hi", 10), func(o *gateway.Options, m *gateway.Model) { o.OperatorToken = "operator-secret" })
	s, other := b.session(t), b.session(t)
	closed := b.session(t)
	require.NoError(t, closed.Close(t.Context()))
	for _, c := range []struct {
		name   string
		path   string
		header map[string]string
		status int
		by     string
	}{
		{"path", "/s/" + s.Token(), nil, 200, "s-1"},
		{"x-api-key", "", map[string]string{"X-Api-Key": s.Token()}, 200, "s-1"},
		{"bearer", "", map[string]string{"Authorization": "Bearer " + s.Token()}, 200, "s-1"},
		{"bearer in lower case", "", map[string]string{"Authorization": "bearer " + s.Token()}, 200, "s-1"},
		{"the key that is registered wins", "", map[string]string{"X-Api-Key": "sk-ant-somebody", "Authorization": "Bearer " + other.Token()}, 200, "s-2"},
		{"header of its own", "", map[string]string{"X-Penstock-Session": s.Token()}, 200, "s-1"},
		{"header of its own, beside a foreign key", "", map[string]string{"X-Penstock-Session": s.Token(), "Authorization": "Bearer sk-somebody"}, 200, "s-1"},
		{"header of its own with nothing, a registered key", "", map[string]string{"X-Penstock-Session": "abc", "X-Api-Key": other.Token()}, 200, "s-2"},
		{"X-Forwarded-For is nobody's key", "", map[string]string{"X-Forwarded-For": "127.0.0.1"}, 401, ""},
		{"path first", "/s/" + s.Token(), map[string]string{"X-Api-Key": other.Token()}, 200, "s-1"},
		{"slash at the end of the base", "/s/" + s.Token() + "/", nil, 200, "s-1"},
		{"none", "", nil, 401, ""},
		{"wrong", "", map[string]string{"X-Api-Key": "pst-wrong"}, 401, ""},
		{"cut", "", map[string]string{"X-Api-Key": s.Token()[:20]}, 401, ""},
		{"longer", "/s/" + s.Token() + "0", nil, 401, ""},
		{"public id", "", map[string]string{"X-Api-Key": "s-1"}, 401, ""},
		{"operator's", "", map[string]string{"X-Api-Key": "operator-secret"}, 401, ""},
		{"closed session's", "", map[string]string{"X-Api-Key": closed.Token()}, 401, ""},
		{"not bearer", "", map[string]string{"Authorization": "Basic " + s.Token()}, 401, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, route := range []string{"POST /v1/messages", "GET /v1/models"} {
				method, path, _ := strings.Cut(route, " ")
				before := len(b.store.all())
				r, err := http.NewRequestWithContext(t.Context(), method, b.URL()+c.path+path, strings.NewReader(ask("hello", false)))
				require.NoError(t, err)
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Anthropic-Version", "2023-06-01")
				for k, v := range c.header {
					r.Header.Set(k, v)
				}
				a := do(t, r)
				if c.status == 401 {
					isAnthropicError(t, a, 401, "authentication_error")
					assert.Len(t, b.store.all(), before)
					continue
				}
				require.Equal(t, c.status, a.status, a.body)
				if method == "POST" {
					calls := b.store.all()
					assert.Equal(t, c.by, calls[len(calls)-1].Session)
				}
			}
		})
	}
	assert.NotEqual(t, s.Token(), other.Token())
	assert.Greater(t, len(s.Token()), 64)
}

// TestErrorsHaveTheDialectsShape is seed 10a case 5.
func TestSeed10aCase5ErrorShapes(t *testing.T) {
	e := says("hi", 10)
	b := start(t, e, func(o *gateway.Options, m *gateway.Model) { o.BodyLimit = 1000 })
	s := b.session(t)
	for _, c := range []struct {
		name, method, path, contentType, body string
		status                                int
		kind                                  string
	}{
		{"no JSON", "POST", "/v1/messages", "application/json", "{", 400, "invalid_request_error"},
		{"no messages", "POST", "/v1/messages", "application/json", `{"model":"policy","max_tokens":1}`, 400, "invalid_request_error"},
		{"unknown block", "POST", "/v1/messages", "application/json", `{"model":"policy","max_tokens":1,"messages":[{"role":"user","content":[{"type":"hologram"}]}]}`, 400, "invalid_request_error"},
		{"text/plain", "POST", "/v1/messages", "text/plain", ask("hello", false), 400, "invalid_request_error"},
		{"no content type", "POST", "/v1/messages", "", ask("hello", false), 400, "invalid_request_error"},
		{"too large", "POST", "/v1/messages", "application/json", ask(strings.Repeat("x", 1000), false), 413, "request_too_large"},
		{"unknown model", "POST", "/v1/messages", "application/json", strings.Replace(ask("hello", true), "policy", "claude-opus", 1), 404, "not_found_error"},
		{"upstream's name", "POST", "/v1/messages", "application/json", strings.Replace(ask("hello", true), "policy", "upstream-name", 1), 404, "not_found_error"},
		{"unknown route", "POST", "/v1/nothing", "application/json", "{}", 404, "not_found_error"},
		{"wrong method", "GET", "/v1/messages", "", "", 405, "invalid_request_error"},
		{"batches", "POST", "/v1/messages/batches", "application/json", "{}", 404, "not_found_error"},
		{"another dialect", "POST", "/v1/embeddings", "application/json", "{}", 404, "not_found_error"},
		{"post of models", "POST", "/v1/models", "application/json", "{}", 405, "invalid_request_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), c.method, s.BaseURL()+c.path, strings.NewReader(c.body))
			require.NoError(t, err)
			if c.contentType != "" {
				r.Header.Set("Content-Type", c.contentType)
			}
			isAnthropicError(t, do(t, r), c.status, c.kind)
		})
	}
	assert.Empty(t, e.seen())
	kinds := map[string]int{}
	for _, c := range b.store.all() {
		assert.Equal(t, trace.CallInvalid, c.Status)
		kinds[c.Error.Kind]++
		if c.Error.Kind == "invalid" && c.HTTPStatus == 400 && c.Envelope == nil {
			continue
		}
	}
	assert.Equal(t, map[string]int{"invalid": 5, "too_large": 1, "not_found": 2}, kinds)
	assert.Equal(t, "{", string(b.store.all()[0].Body), "a body that can't be read is kept")
}

// TestBodyLimit: a body at the limit is read, one byte more is not, with and
// without a length.
func TestBodyLimit(t *testing.T) {
	body := ask("hello", false)
	b := start(t, says("hi", 10), func(o *gateway.Options, m *gateway.Model) { o.BodyLimit = int64(len(body)) })
	s := b.session(t)
	assert.Equal(t, 200, post(t, s, body).status)
	isAnthropicError(t, post(t, s, body+" "), 413, "request_too_large")
	for extra, status := range map[string]int{"": 200, " ": 413} {
		r := request(t, s, "")
		r.Body = io.NopCloser(strings.NewReader(body + extra))
		r.ContentLength = -1
		assert.Equal(t, status, do(t, r).status)
	}
}

func TestHeaderLimit(t *testing.T) {
	b := start(t, says("hi", 10))
	s := b.session(t)
	for size, status := range map[int]int{60 << 10: 200, 80 << 10: 431, 1 << 20: 431} { // HTTP gives the limit of 64 KiB some slack
		r := request(t, s, ask("hello", false))
		r.Header.Set("X-Large", strings.Repeat("x", size))
		assert.Equal(t, status, do(t, r).status, size)
	}
	assert.Len(t, b.store.all(), 1)
}

// TestProbes: what clients ask before their first call, with and without a
// token.
func TestProbes(t *testing.T) {
	b := start(t, says("hi", 10))
	s := b.session(t)
	for _, base := range []string{b.URL(), s.BaseURL()} {
		for _, probe := range []string{"HEAD /", "GET /", "HEAD /api/hello", "GET /api/hello", "GET /livez", "GET /readyz"} {
			method, path, _ := strings.Cut(probe, " ")
			r, err := http.NewRequestWithContext(t.Context(), method, base+path, nil)
			require.NoError(t, err)
			assert.Equal(t, 200, do(t, r).status, probe)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.BaseURL()+"/v1/models?limit=1000", nil)
	require.NoError(t, err)
	a := do(t, r)
	assert.Equal(t, "policy", at(decoded(t, a.body), "data", 0, "id"))
	assert.Empty(t, b.store.all(), "no probe is a call")
	r, err = http.NewRequestWithContext(t.Context(), "GET", b.URL()+"/inference-profiles?type=SYSTEM_DEFINED", nil)
	require.NoError(t, err)
	assert.Equal(t, 404, do(t, r).status)
}

// TestBusyPort: the error names who has the port.
func TestBusyPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = gateway.New(gateway.Options{Addr: l.Addr().String(), Calls: &store{}})
	require.Error(t, err)
	if _, proc := os.Stat("/proc/net/tcp"); proc == nil {
		assert.Contains(t, err.Error(), fmt.Sprintf("process %d", os.Getpid()))
	}
}

func TestLoopbackOnly(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "example.org:0", "nonsense"} {
		_, err := gateway.New(gateway.Options{Addr: addr, Calls: &store{}})
		assert.Error(t, err, addr)
	}
}

// TestModelSetup: a model that can't be served is an error when the session
// is opened.
func TestModelSetup(t *testing.T) {
	b := start(t, says("hi", 10))
	for want, change := range map[string]func(*gateway.Model){
		"needs a format and a tokenizer": func(m *gateway.Model) { m.Tokenizer = nil },
		`capture "some"`:                 func(m *gateway.Model) { m.Capture = "some" },
		"has no upstream":                func(m *gateway.Model) { m.Upstream = nil },
		"has no format":                  func(m *gateway.Model) { m.Format = nil },
	} {
		m := *b.model
		change(&m)
		_, err := b.Open(t.Context(), gateway.SessionSpec{Session: trace.Session{ID: "s"}, Model: &m})
		assert.ErrorContains(t, err, want)
	}
	_, err := b.Open(t.Context(), gateway.SessionSpec{Session: trace.Session{ID: "s"}})
	assert.ErrorContains(t, err, "no model")
}

// TestPanicsAreAnswered: a panic anywhere in a call is recorded and answered.
func TestPanicsAreAnswered(t *testing.T) {
	var log bytes.Buffer
	e := &engine{reply: func(context.Context, *upstream.Request) (upstream.Stream, error) { panic("surprise") }}
	b := start(t, e, func(o *gateway.Options, m *gateway.Model) { o.Log = textLog(&log) })
	s := b.session(t)
	isAnthropicError(t, post(t, s, ask("hello", true)), 500, "api_error")
	c := b.store.only(t)
	assert.Equal(t, trace.CallError, c.Status)
	assert.Equal(t, "internal", c.Error.Kind)
	assert.Contains(t, log.String(), "surprise")
	assert.Contains(t, log.String(), c.ID)
}

// TestClientsThatDontRead are let go after the write timeout; the record is
// full.
func TestClientsThatDontRead(t *testing.T) {
	const size = 16 << 20
	e := &engine{reply: func(context.Context, *upstream.Request) (upstream.Stream, error) {
		s := &chunks{}
		for range size >> 20 {
			s.list = append(s.list, upstream.Chunk{Text: bytes.Repeat([]byte("x"), 1<<20)})
		}
		s.list[len(s.list)-1].Finish = upstream.Finish{Raw: "stop", Reason: chat.FinishStop}
		return s, nil
	}}
	b := start(t, e, func(o *gateway.Options, m *gateway.Model) {
		o.WriteTimeout = 50 * time.Millisecond
		m.Capture, m.Tokenizer = gateway.CaptureText, nil
	})
	s := b.session(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL(), "http://"))
	require.NoError(t, err)
	defer conn.Close()
	body := ask("hello", true)
	fmt.Fprintf(conn, "POST /v1/messages HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		strings.TrimPrefix(b.URL(), "http://"), s.Token(), len(body), body)
	require.Eventually(t, func() bool { return len(b.store.all()) > 0 }, time.Minute, 10*time.Millisecond)
	c := b.store.only(t)
	assert.True(t, c.ClientGone)
	assert.Equal(t, size, len(c.Raw))
	assert.Equal(t, trace.CallOK, c.Status)
}
