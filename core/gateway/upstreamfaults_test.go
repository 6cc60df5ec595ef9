package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/openai"
)

// The reply of the server in these tests, in pieces of its events.
var faultPieces = []string{"<think>", "Hm.", "</think>", "one ", "<call add>", `{"a":`, "1}", "</call>", imEnd}

// completionEvent is an event of an engine's Completions.
func completionEvent(text, finish string) string {
	reason := any(nil)
	if finish != "" {
		reason = finish
	}
	b, err := json.Marshal(map[string]any{"id": "cmpl-1", "object": "text_completion", "choices": []any{
		map[string]any{"index": 0, "text": text, "finish_reason": reason}}})
	if err != nil {
		panic(err)
	}
	return "data: " + string(b) + "\n\n"
}

// faultEvents are the events of a whole reply.
func faultEvents() []string {
	var out []string
	for i, p := range faultPieces {
		finish := ""
		if i == len(faultPieces)-1 {
			finish = "stop"
		}
		out = append(out, completionEvent(p, finish))
	}
	return append(out, "data: [DONE]\n\n")
}

// patience is how long a server of a test may be silent: not long where it is
// going to be, else longer than any machine is busy.
func patience(fault string) time.Duration {
	if strings.HasPrefix(fault, "stall") {
		return 200 * time.Millisecond
	}
	return time.Minute
}

// behind starts a gateway before a server of the given behaviour.
func behind(t *testing.T, stall time.Duration, serve http.HandlerFunc, settings ...setting) (*bench, *gateway.Session) {
	t.Helper()
	server := httptest.NewServer(serve)
	up, err := openai.New(t.Context(), openai.Options{
		Kind: openai.KindVLLM, BaseURL: server.URL, OwnFormat: true, NoProbe: true, Stall: stall,
	})
	require.NoError(t, err)
	settings = append(settings, func(o *gateway.Options, m *gateway.Model) {
		m.Upstream, m.Capture, m.Tokenizer = up, gateway.CaptureText, nil
	})
	b := start(t, nil, settings...)
	// The gateway is closed first, as cleanups run from the last to the first.
	s := b.session(t)
	t.Cleanup(func() {
		assert.NoError(t, up.Close())
		server.CloseClientConnections()
		server.Close()
	})
	return b, s
}

// writing is a server that streams text and then goes on with then.
func writing(text string, then func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		if then != nil {
			then(w, r)
		}
	}
}

func cutConnection(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// TestServerCutAtEveryEvent: the connection to the server breaks, or ends in
// good order, after each of its events. Unless it ended in good order and had
// said why it stopped, the client sees an error and no end, and the record has
// what was sampled.
func TestServerCutAtEveryEvent(t *testing.T) {
	events := faultEvents()
	for name, end := range map[string]func(http.ResponseWriter, *http.Request){"broken": cutConnection, "ended": nil} {
		for _, d := range dialects {
			for at := range events {
				for _, streamed := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s/%s/%d/stream=%v", name, d.name, at, streamed), func(t *testing.T) {
						b, s := behind(t, time.Minute, writing(strings.Join(events[:at], ""), end))
						path, body := d.request(streamed)
						a := send(t, s, "POST", path, body)
						c := b.store.only(t)
						assert.Equal(t, strings.Join(faultPieces[:min(at, len(faultPieces))], ""), c.Raw)
						if at >= len(faultPieces) && end == nil { // all but [DONE]
							isWholeReply(t, d, streamed, a, c)
							return
						}
						isCutReply(t, d, streamed, a, c)
						assert.False(t, b.store.wasDelivered(c.ID))
					})
				}
			}
		}
	}
}

// isWholeReply checks what both sides have of the reply of faultPieces.
func isWholeReply(t *testing.T, d spoken, streamed bool, a answer, c *trace.Call) {
	t.Helper()
	require.NoError(t, a.err)
	assert.Equal(t, 200, a.status, a.body)
	if streamed {
		assert.Contains(t, d.text(t, a.body), d.end)
	} else {
		assert.Contains(t, a.body, d.args)
	}
	assert.Equal(t, trace.CallOK, c.Status)
	require.NotNil(t, c.Served, "%+v", c.Error)
	assert.Len(t, c.Served.Parts, 3)
}

// isCutReply checks that the client sees an error in its dialect and nothing
// that looks like an end, and that the record says so.
func isCutReply(t *testing.T, d spoken, streamed bool, a answer, c *trace.Call) {
	t.Helper()
	assert.Equal(t, trace.CallError, c.Status)
	require.NotNil(t, c.Error)
	assert.Equal(t, "upstream", c.Error.Kind)
	assert.Nil(t, c.Served)
	assert.Equal(t, a.status, c.HTTPStatus)
	if a.status != 200 {
		assert.Equal(t, 502, a.status, a.body)
		assert.NotEmpty(t, d.refusal(t, a.body), a.body)
		return
	}
	require.True(t, streamed, a.body)
	assert.Error(t, a.err, "the connection is broken, not ended")
	got := d.text(t, a.body)
	for _, end := range []string{d.end, "stop_reason\":\"", "finish_reason\":\"", "finishReason", "response.completed"} {
		assert.NotContains(t, got, end)
	}
	assert.NotEmpty(t, d.lastError(t, a.body), got)
}

// shown is the status that a dialect has for one of the anthropic dialect.
func (d spoken) shown(status int) int {
	if status == 529 && d.name != "anthropic" && d.name != "vertex" {
		return 503
	}
	return status
}

// TestServerFaults: what else a server can do to a stream, in every dialect.
func TestServerFaults(t *testing.T) {
	events := faultEvents()
	half := strings.Join(events[:4], "")
	long := strings.Repeat("0123456789abcdef", 64<<10/16)
	refused := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":{"message":"no such luck","type":"x"}}`)
		}
	}
	silence := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, c := range []struct {
		name   string
		serve  http.HandlerFunc
		status int    // of the answer; 200 where it had begun
		kind   string // of the record's error, "" for none
		after  string
		raw    string
	}{
		{"429", refused(429, "Retry-After", "3"), 429, "rate_limited", "3", ""},
		{"429 without Retry-After", refused(429), 429, "rate_limited", "1", ""},
		{"500", refused(500), 502, "upstream", "", ""},
		{"529", refused(529), 529, "overloaded", "", ""},
		{"stall ahead of the first event", writing("", silence), 502, "upstream", "", ""},
		{"stall", writing(half, silence), 200, "upstream", "", "<think>Hm.</think>one "},
		{"garbage for an event", writing(half+"data: {\"choices\":[{]\n\n"+events[4], nil), 200, "upstream", "", "<think>Hm.</think>one "},
		{"garbage for a stream", writing("\x00\xff\x17 no events\n\n\n", nil), 502, "upstream", "", ""},
		{"an error for an event", writing(half+`data: {"error":{"message":"out of memory","code":500}}`+"\n\n", nil), 200, "upstream", "", "<think>Hm.</think>one "},
		{"no stream", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>busy</html>") }, 502, "upstream", "", ""},
		{"a line of 64 KB", writing(completionEvent(long, "")+strings.Join(events[3:], ""), nil), 200, "", "", long + strings.Join(faultPieces[3:], "")},
	} {
		for _, d := range dialects {
			t.Run(c.name+"/"+d.name, func(t *testing.T) {
				b, s := behind(t, patience(c.name), c.serve)
				path, body := d.request(true)
				a := send(t, s, "POST", path, body)
				rec := b.store.only(t)
				assert.Equal(t, d.shown(c.status), a.status, a.body)
				assert.Equal(t, d.shown(c.status), rec.HTTPStatus)
				assert.Equal(t, c.raw, rec.Raw)
				assert.Equal(t, c.after, a.header.Get("Retry-After"))
				if c.kind == "" {
					require.NoError(t, a.err)
					assert.Contains(t, d.text(t, a.body), d.end)
					assert.Contains(t, d.text(t, a.body), long)
					assert.Equal(t, trace.CallOK, rec.Status)
					return
				}
				assert.Equal(t, trace.CallError, rec.Status)
				require.NotNil(t, rec.Error)
				assert.Equal(t, c.kind, rec.Error.Kind)
				if a.status == 200 {
					isCutReply(t, d, true, a, rec)
					return
				}
				assert.NotEmpty(t, d.refusal(t, a.body), "the shape is that of the dialect")
			})
		}
	}
}

// TestClientLeavesAtEveryEvent: in every dialect a client that has read some
// events and leaves then changes nothing in the record but that it left.
func TestClientLeavesAtEveryEvent(t *testing.T) {
	text := strings.Join(faultPieces, "")
	total := len(stream(text, 4).list)
	for _, d := range dialects {
		for leave := range total - 1 {
			t.Run(fmt.Sprint(d.name, "/", leave), func(t *testing.T) {
				left, at := make(chan struct{}), make(chan int, total+1)
				e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
					s := stream(text, 4)
					s.wait = func(i int) error {
						at <- i
						if i == leave+1 {
							<-left
						}
						return ctx.Err()
					}
					return s, nil
				}}
				b := start(t, e)
				s := b.session(t)
				path, body := d.request(true)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.BaseURL()+path, strings.NewReader(body))
				require.NoError(t, err)
				r.Header.Set("Content-Type", "application/json")
				gone := make(chan string)
				go func() {
					res, err := http.DefaultClient.Do(r)
					if err != nil {
						gone <- ""
						return
					}
					got, _ := io.ReadAll(res.Body)
					res.Body.Close()
					gone <- string(got)
				}()
				for i := range at {
					if i == leave+1 {
						break
					}
				}
				cancel()
				got := <-gone
				// What is written from now on meets a closed connection, also
				// where the server has not noticed yet.
				time.Sleep(20 * time.Millisecond)
				close(left)
				c := b.store.only(t)
				assert.NotContains(t, got, d.end)
				assert.Equal(t, text, c.Raw)
				assert.Equal(t, trace.CallOK, c.Status)
				require.NotNil(t, c.Served)
				assert.Len(t, c.Served.Parts, 3)
				assert.Len(t, c.SampledIDs, len(tokenizer.Encode(nil, text, true)))
				assert.True(t, c.ClientGone)
				assert.False(t, b.store.wasDelivered(c.ID))
			})
		}
	}
}
