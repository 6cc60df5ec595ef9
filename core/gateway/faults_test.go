package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// TestSeed10aCase12CommitBeforeTerminal: until the store has the call, the
// client gets keep-alives and all but the end.
func TestSeed10aCase12CommitBeforeTerminal(t *testing.T) {
	for _, streamed := range []bool{true, false} {
		t.Run(fmt.Sprint("stream=", streamed), func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			b := start(t, says("hi"+imEnd, 10), func(o *gateway.Options, m *gateway.Model) {
				o.KeepAlive = 10 * time.Millisecond
				o.Calls.(*store).before = func(*trace.Call) error {
					close(entered)
					<-leave
					return nil
				}
			})
			got := make(chan answer, 1)
			s := b.session(t)
			pr, pw := io.Pipe()
			go func() {
				defer pw.Close()
				res, err := http.DefaultClient.Do(request(t, s, ask("hello", streamed)))
				if err != nil {
					return
				}
				defer res.Body.Close()
				io.Copy(pw, res.Body)
			}()
			go func() {
				body, err := io.ReadAll(pr)
				got <- answer{body: string(body), err: err}
			}()
			<-entered
			time.Sleep(60 * time.Millisecond)
			select {
			case a := <-got:
				t.Fatalf("the reply ended before its commit: %s", a.body)
			default:
			}
			close(leave)
			a := <-got
			if streamed {
				assert.Contains(t, names(eventsOf(t, a)), "content_block_delta content_block_stop ping")
				assert.True(t, strings.HasSuffix(names(eventsOf(t, a)), "message_delta message_stop"))
			} else {
				assert.Equal(t, "end_turn", decoded(t, a.body)["stop_reason"])
			}
		})
	}
}

// TestFailedCommitIsNoReply: what can't be recorded is not served to its end.
func TestFailedCommitIsNoReply(t *testing.T) {
	for _, streamed := range []bool{true, false} {
		b := start(t, says("hi"+imEnd, 10), func(o *gateway.Options, m *gateway.Model) {
			o.Calls.(*store).before = func(*trace.Call) error { return errors.New("disk full") }
		})
		a := post(t, b.session(t), ask("hello", streamed))
		assert.NotContains(t, a.body, "disk full")
		if streamed {
			assert.Error(t, a.err)
			assert.True(t, strings.HasSuffix(names(eventsOf(t, a)), "error"))
			continue
		}
		assert.Equal(t, 500, a.status)
		assert.Equal(t, "api_error", at(decoded(t, a.body), "error", "type"))
	}
}

// TestSeed10aCase12KeepAlive: a silent upstream is bridged, before the first
// byte and within the reply.
func TestSeed10aCase12KeepAlive(t *testing.T) {
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		s := stream("one two", 4)
		s.wait = func(i int) error { time.Sleep(200 * time.Millisecond); return nil }
		return s, nil
	}}
	b := start(t, e, func(o *gateway.Options, m *gateway.Model) { o.KeepAlive = 20 * time.Millisecond })
	a := post(t, b.session(t), ask("hello", true))
	require.NoError(t, a.err)
	assert.True(t, strings.HasPrefix(a.body, ":"), "a comment before message_start: %q", a.body[:20])
	assert.Contains(t, names(eventsOf(t, a)), "content_block_delta ping")
	assert.Equal(t, "one two", at(joined(t, eventsOf(t, a)), "content", 0, "text"))
}

// TestSeed10aCase12ClientGone: a client that leaves at any event still leaves
// a full record.
func TestSeed10aCase12ClientGone(t *testing.T) {
	const text = "<think>Hm.</think>one <call add>{\"a\":1}</call>" + imEnd
	total := len(stream(text, 4).list)
	for leave := 0; leave <= total; leave++ {
		left := make(chan struct{})
		at := make(chan int, total)
		e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
			s := stream(text, 4)
			s.wait = func(i int) error {
				at <- i
				if i == leave {
					<-left
				}
				return ctx.Err()
			}
			return s, nil
		}}
		b := start(t, e)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		s := b.session(t)
		go func() {
			defer close(gone)
			if res, err := http.DefaultClient.Do(request(t, s, ask("hello", true, addTool)).WithContext(ctx)); err == nil {
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}()
		for i := range at {
			if i == min(leave, total-1) {
				break
			}
		}
		cancel()
		if leave < total {
			<-gone
			time.Sleep(5 * time.Millisecond)
		}
		close(left)
		c := b.store.only(t)
		assert.Equal(t, text, c.Raw)
		assert.Equal(t, trace.CallOK, c.Status)
		assert.Len(t, c.Served.Parts, 3)
		assert.Len(t, c.SampledIDs, len(tokenizer.Encode(nil, text, true)))
		<-gone
		if leave < total {
			assert.True(t, c.ClientGone, "left at chunk %d", leave)
			assert.False(t, b.store.wasDelivered(c.ID))
		}
	}
}

// TestUpstreamCutAtEachChunk: a reply that was cut is never ended as if it
// were whole, and what was sampled is kept.
func TestUpstreamCutAtEachChunk(t *testing.T) {
	const text = "<think>Hm.</think>one <call add>{\"a\":1}</call>" + imEnd
	cut := errors.New("connection reset")
	for _, streamed := range []bool{true, false} {
		for _, how := range []error{cut, nil} {
			for at := range stream(text, 6).list {
				e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
					s := stream(text, 6)
					s.list = s.list[:at]
					s.wait = func(i int) error {
						if i == at {
							return how
						}
						return nil
					}
					return s, nil
				}}
				b := start(t, e)
				s := b.session(t)
				a := post(t, s, ask("hello", streamed, addTool))
				c := b.store.only(t)
				want := ""
				for _, chunk := range stream(text, 6).list[:at] {
					want += string(chunk.Text)
				}
				assert.Equal(t, want, c.Raw)
				assert.Equal(t, trace.CallError, c.Status)
				assert.Equal(t, "upstream", c.Error.Kind)
				assert.Equal(t, 1, s.Stats().Calls)
				assert.Equal(t, len(c.SampledIDs), s.Stats().Usage.Output)
				if c.HTTPStatus != 200 {
					assert.Equal(t, 502, a.status)
					assert.Equal(t, 502, c.HTTPStatus)
					assert.Equal(t, "error", decoded(t, a.body)["type"])
					continue
				}
				require.True(t, streamed)
				assert.Error(t, a.err, "the connection is broken, not ended")
				list := eventsOf(t, a)
				assert.Equal(t, "error", list[len(list)-1].name)
				assert.NotContains(t, names(list), "message_delta")
				assert.False(t, b.store.wasDelivered(c.ID))
			}
		}
	}
}

// TestUpstreamErrors: refusals of the upstream keep their meaning in the
// client's dialect.
func TestUpstreamErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		kind   string
		after  string
	}{
		{&upstream.StatusError{Status: 429, Message: "slow down"}, 429, "rate_limit_error", "1"},
		{&upstream.StatusError{Status: 429, RetryAfter: 7}, 429, "rate_limit_error", "7"},
		{&upstream.StatusError{Status: 429, RetryAfter: 700}, 429, "rate_limit_error", "60"},
		{&upstream.StatusError{Status: 500, Message: "oops"}, 502, "api_error", ""},
		{&upstream.StatusError{Status: 503}, 529, "overloaded_error", ""},
		{&upstream.StatusError{Status: 529, RetryAfter: 90}, 529, "overloaded_error", "60"},
		{&upstream.StatusError{Status: 400, Message: "bad"}, 400, "invalid_request_error", ""},
		{&upstream.StatusError{Status: 400, Message: "This model's maximum context length is 4096 tokens"}, 400, "invalid_request_error", ""},
		{&upstream.StatusError{Status: 401, Message: "bad key"}, 403, "permission_error", ""},
		{&upstream.StatusError{Status: 404, Message: "no model"}, 404, "not_found_error", ""},
		{&upstream.StatusError{Status: 413}, 413, "request_too_large", ""},
		{errors.New("connection refused"), 502, "api_error", ""},
	} {
		e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) { return nil, c.err }}
		b := start(t, e)
		s := b.session(t)
		a := post(t, s, ask("hello", true))
		assert.Equal(t, c.status, a.status, "%v", c.err)
		assert.Equal(t, c.kind, at(decoded(t, a.body), "error", "type"))
		assert.Equal(t, c.after, a.header.Get("Retry-After"))
		rec := b.store.only(t)
		assert.Equal(t, trace.CallError, rec.Status)
		assert.Equal(t, c.status, rec.HTTPStatus)
		assert.NotEmpty(t, rec.PromptIDs, "what was to be sent is recorded")
		assert.Zero(t, s.Stats().Calls, "no generation began")
		if strings.Contains(c.err.Error(), "context") {
			assert.Contains(t, at(decoded(t, a.body), "error", "message"), "prompt is too long")
		}
	}
}

// TestSeed10aCase14AbortIsNoReply: an engine that gave up, or that paused for new
// weights, is an error in each dialect, never a short reply.
func TestSeed10aCase14AbortIsNoReply(t *testing.T) {
	for _, d := range dialects {
		for _, streamed := range []bool{true, false} {
			e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
				s := stream("half a", 3)
				s.list[len(s.list)-1].Finish = upstream.Finish{Raw: "abort", Reason: chat.FinishError}
				return s, nil
			}}
			b := start(t, e)
			path, body := d.request(streamed)
			a := send(t, b.session(t), "POST", path, body)
			assert.NotContains(t, a.body, d.end, d.name)
			if streamed {
				assert.Error(t, a.err, "%s: the connection is broken, not ended", d.name)
			} else {
				assert.Equal(t, 502, a.status, d.name)
			}
			c := b.store.only(t)
			assert.Equal(t, trace.CallError, c.Status)
			assert.Equal(t, "half a", c.Raw)
			assert.Equal(t, "abort", c.Finish)
			assert.Nil(t, c.Served)
		}
	}
}
