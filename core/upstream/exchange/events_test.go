package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/upstream"
)

const secret = "sk-very/secret+1"

// serve is a client of a server that answers with h, and checks at the end
// that nothing goes on.
func serve(t *testing.T, o Options, h http.HandlerFunc) (*Client, string) {
	t.Helper()
	before := runtime.NumGoroutine()
	s := httptest.NewServer(h)
	o.Name, o.Secrets = "test server", []string{secret}
	c := New(o)
	t.Cleanup(func() {
		assert.NoError(t, c.Close())
		s.CloseClientConnections()
		s.Close()
		assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 15*time.Second, 10*time.Millisecond, "goroutines stay")
	})
	return c, s.URL
}

func stream(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range parts {
			if p == "CUT" {
				panic(http.ErrAbortHandler)
			}
			if p == "STALL" {
				<-r.Context().Done()
				return
			}
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// read reads all events: "name=data" for each.
func read(t *testing.T, c *Client, url string) (events []string, raw string, err error) {
	t.Helper()
	e, err := c.Events(t.Context(), Request{Method: "POST", URL: url, Body: []byte("{}")})
	if err != nil {
		return nil, "", err
	}
	defer e.Close()
	for {
		ev, err := e.Next()
		if errors.Is(err, io.EOF) {
			return events, raw, nil
		}
		if err != nil {
			return events, raw, err
		}
		events, raw = append(events, ev.Name+"="+string(ev.Data)), raw+string(ev.Raw)
	}
}

func TestEvents(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for _, c := range []struct {
		name  string
		parts []string
		want  []string
		fails string
	}{
		{"plain", []string{"data: 1\n\ndata: 2\n\n"}, []string{"=1", "=2"}, ""},
		{"names, comments and CRLF", []string{": hi\n\nevent: a\r\ndata:1\r\n\r\n: x\nid: 3\nretry: 9\ndata: 2\n\n"}, []string{"a=1", "=2"}, ""},
		{"several data lines", []string{"data: a\ndata: b\ndata:\n\n"}, []string{"=a\nb\n"}, ""},
		{"cut anywhere", []string{"da", "ta: ", "on", "e\n", "\nd", "ata: two\n\n"}, []string{"=one", "=two"}, ""},
		{"a long line", []string{"data: " + long + "\n\n", "data: 2\n\n"}, []string{"=" + long, "=2"}, ""},
		{"no empty line at the end", []string{"data: 1\n\ndata: [DONE]"}, []string{"=1", "=[DONE]"}, ""},
		{"only comments", []string{": a\n\n: b\n\n"}, nil, ""},
		{"garbage", []string{"data: 1\n\n", "<html>oops " + secret + "</html>\n"}, []string{"=1"}, `no server-sent event: "<html>oops [redacted]</html>"`},
		{"cut", []string{"data: 1\n\n", "data: 2", "CUT"}, []string{"=1"}, "connection was cut"},
		{"stall", []string{"data: 1\n\n", "STALL"}, []string{"=1"}, "fell silent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, url := serve(t, Options{Stall: 100 * time.Millisecond}, stream(c.parts...))
			events, _, err := read(t, client, url)
			assert.Equal(t, c.want, events)
			if c.fails == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.fails)
			require.ErrorContains(t, err, "test server")
			assert.NotContains(t, err.Error(), secret)
		})
	}
}

func TestRawKeepsEveryByteOfEvents(t *testing.T) {
	text := "event: a\ndata: {\"x\":  1}\n\n: ping\n\nevent: b\r\ndata: 2\r\n\r\ndata: [DONE]\n\n"
	c, url := serve(t, Options{}, stream(text))
	_, raw, err := read(t, c, url)
	require.NoError(t, err)
	assert.Equal(t, text, raw)
}

func TestLineLimit(t *testing.T) {
	const limit = 100 << 10
	for length, ok := range map[int]bool{limit: true, limit + 1: false, 2 * limit: false} {
		for _, end := range []string{"\n", "\r\n"} {
			line := "data: " + strings.Repeat("x", length-len("data: ")) + end
			c, url := serve(t, Options{MaxLine: limit}, stream(line+end))
			_, raw, err := read(t, c, url)
			if !ok {
				require.ErrorContains(t, err, "more than 102400 bytes", "%d", length)
				continue
			}
			require.NoError(t, err, "%d", length)
			assert.Equal(t, line+end, raw)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status                  int
		header, value           string
		body, message, kind     string
		after                   int
		notRun, isStatus, plain bool
	}{
		{429, "Retry-After", "7", `{"error":{"message":"slow down","type":"rate_limit_error"}}`, "slow down", "rate_limit_error", 7, true, true, false},
		{503, "Retry-After", time.Now().Add(10 * time.Second).UTC().Format(http.TimeFormat), `{"detail":"loading"}`, "loading", "", 10, true, true, false},
		{529, "Retry-After-Ms", "1500", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, "Overloaded", "overloaded_error", 2, true, true, false},
		{400, "", "", `{"object":"error","message":"too long","type":"BadRequestError","code":400}`, "too long", "BadRequestError", 0, false, true, false},
		{422, "", "", `{"detail":[{"loc":["body","x"],"msg":"field required"}]}`, "field required", "", 0, false, true, false},
		{401, "", "", `{"error":{"message":"Incorrect API key provided: ` + secret + `","code":"invalid_api_key"}}`, "Incorrect API key provided: [redacted]", "invalid_api_key", 0, false, true, false},
		{502, "", "", `<html>Bad Gateway</html>`, "<html>Bad Gateway</html>", "", 0, false, true, false},
		{500, "", "", ``, "Internal Server Error", "", 0, false, true, false},
		{307, "Location", "http://elsewhere.invalid/", ``, "Temporary Redirect", "", 0, false, true, false},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			client, url := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
				if c.header != "" {
					w.Header().Set(c.header, c.value)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			_, err := client.Body(t.Context(), Request{Method: "POST", URL: url, Body: []byte("{}")})
			var refused *upstream.StatusError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, c.status, refused.Status)
			assert.Equal(t, "test server: "+c.message, refused.Message)
			assert.Equal(t, c.kind, refused.Type)
			assert.InDelta(t, c.after, refused.RetryAfter, 1)
			_, notRun := upstream.NotRun(err)
			assert.Equal(t, c.notRun, notRun)
		})
	}
}

func TestWhatCannotHaveRun(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	c := New(Options{Name: "test server"})
	defer c.Close()
	_, err = c.Body(t.Context(), Request{Method: "POST", URL: closed, Body: []byte("{}")})
	_, notRun := upstream.NotRun(err)
	assert.True(t, notRun, "no connection: %v", err)

	client, url := serve(t, Options{Headers: 100 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	})
	for path, want := range map[string]string{"/": "EOF", "/hang": "did not begin to answer in time (100ms)"} {
		_, err := client.Events(t.Context(), Request{Method: "POST", URL: url + path, Body: []byte("{}")})
		require.ErrorContains(t, err, want)
		_, notRun := upstream.NotRun(err)
		assert.False(t, notRun, "the request was out: %v", err)
	}
}

func TestTheEndOfAContextIsItsCause(t *testing.T) {
	c, url := serve(t, Options{}, stream("data: 1\n\n", "STALL"))
	why := errors.New("the session is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	e, err := c.Events(ctx, Request{Method: "POST", URL: url, Body: []byte("{}")})
	require.NoError(t, err)
	defer e.Close()
	_, err = e.Next()
	require.NoError(t, err)
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	_, err = e.Next()
	require.ErrorIs(t, err, why)
}

func TestAnswersThatAreNoStream(t *testing.T) {
	c, url := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<h1>login</h1>")
	})
	_, _, err := read(t, c, url)
	require.ErrorContains(t, err, `content type "text/html": "<h1>login</h1>"`)
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	seen := map[string]bool{}
	c, url := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		seen[r.RemoteAddr] = true
		stream("data: 1\n\n", "data: [DONE]\n\n")(w, r)
	})
	for range 3 {
		e, err := c.Events(t.Context(), Request{Method: "POST", URL: url, Body: []byte("{}")})
		require.NoError(t, err)
		for range 2 {
			_, err = e.Next()
			require.NoError(t, err)
		}
		e.Drain()
		require.NoError(t, e.Close())
	}
	assert.Len(t, seen, 1)
}

func FuzzEvents(f *testing.F) {
	f.Add("data: 1\n\nevent: x\ndata: 2\ndata: 3\n\n: c\n\n")
	f.Add("data")
	f.Fuzz(func(t *testing.T, text string) {
		c := New(Options{Name: "x", MaxLine: 1 << 20})
		a := &answer{parent: t.Context(), ctx: t.Context(), cancel: func(error) {}, stall: time.Minute,
			response: &http.Response{Body: io.NopCloser(strings.NewReader(text))}, watch: time.NewTimer(time.Hour)}
		e := newEvents(c, a)
		defer e.Close()
		raw := 0
		for {
			ev, err := e.Next()
			if err != nil {
				break
			}
			raw += len(ev.Raw)
			assert.LessOrEqual(t, len(ev.Data), len(ev.Raw))
		}
		assert.LessOrEqual(t, raw, len(text))
	})
}
