package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/hook"
)

func send(t *testing.T, s *gateway.Session, method, path, body string, header ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.BaseURL()+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return do(t, r)
}

// TestSeed10aCase11Names: names that a model has, or not, by policy, and what
// the record says of it.
func TestSeed10aCase11Names(t *testing.T) {
	for _, c := range []struct {
		asked, policy string
		status        int
		note          string
	}{
		{"served", "", 200, ""},
		{"alias", "", 200, "model_alias"},
		{"strange", "", 404, ""},
		{"strange", gateway.UnknownReject, 404, ""},
		{"strange", gateway.UnknownMain, 200, "model_unknown"},
		{"upstream-name", "", 404, ""},
	} {
		b := start(t, says("hi"+imEnd, 10), func(_ *gateway.Options, m *gateway.Model) {
			m.ServeAs, m.Aliases, m.UnknownModels = "served", []string{"alias"}, c.policy
		})
		s := b.session(t)
		a := post(t, s, strings.Replace(ask("hello", false), `"policy"`, quoted(c.asked), 1))
		assert.Equal(t, c.status, a.status, "%+v", c)
		rec := b.store.only(t)
		assert.Equal(t, c.asked, rec.ModelAsked)
		if c.note != "" {
			assert.Equal(t, []trace.Warning{{Kind: c.note}}, rec.Warnings)
		}
		if c.status == 200 {
			assert.Equal(t, "served", decoded(t, a.body)["model"])
		} else {
			isAnthropicError(t, a, 404, "not_found_error")
		}
		list := send(t, s, "GET", "/v1/models", "")
		assert.Equal(t, "served", at(decoded(t, list.body), "data", 0, "id"))
		assert.Equal(t, "alias", at(decoded(t, list.body), "data", 1, "id"))
	}
}

// TestSeed10aCase6CountTokens: the count is what the call then uses, also in
// a later turn and under hooks.
func TestSeed10aCase6CountTokens(t *testing.T) {
	e := says("one"+imEnd, 10)
	b := start(t, e, hooks(changes("mask", swap("kumquat", "***"), hook.Request)))
	s := b.session(t)
	turns := []string{
		ask("a kumquat", false, addTool),
		`{"model":"policy","max_tokens":1000,` + addTool + `,"messages":[{"role":"user","content":"a kumquat"},{"role":"assistant","content":"one"},{"role":"user","content":"more"}]}`,
	}
	for i, body := range turns {
		count := send(t, s, "POST", "/v1/messages/count_tokens", strings.Replace(body, `"max_tokens":1000,`, "", 1))
		require.Equal(t, 200, count.status, count.body)
		assert.Len(t, e.seen(), i, "counting generates nothing")
		assert.Len(t, b.store.all(), i)
		a := post(t, s, body)
		assert.Equal(t, at(decoded(t, a.body), "usage", "input_tokens"), decoded(t, count.body)["input_tokens"])
	}
	assert.True(t, b.store.all()[1].Extends)
	assert.Equal(t, 2, s.Stats().Calls)
	isAnthropicError(t, send(t, s, "POST", "/v1/messages/count_tokens", "{"), 400, "invalid_request_error")
	isAnthropicError(t, send(t, s, "GET", "/v1/messages/count_tokens", ""), 405, "invalid_request_error")
	isAnthropicError(t, send(t, s, "POST", "/v1/messages/count_tokens", strings.Replace(turns[0], "policy", "other", 1)), 404, "not_found_error")
	require.NoError(t, s.Close(t.Context()))
	isAnthropicError(t, send(t, s, "POST", "/v1/messages/count_tokens", turns[0]), 401, "authentication_error")
}

// TestCountNeedsATokenizer: a count isn't guessed.
func TestCountNeedsATokenizer(t *testing.T) {
	b := start(t, says("hi", 10), func(_ *gateway.Options, m *gateway.Model) { m.Capture, m.Tokenizer = gateway.CaptureText, nil })
	isAnthropicError(t, send(t, b.session(t), "POST", "/v1/messages/count_tokens", ask("hello", false)), 404, "not_found_error")
}

// TestLimits at each limit and one above.
func TestLimits(t *testing.T) {
	entered, leave := make(chan struct{}, 4), make(chan struct{})
	b := start(t, slow(entered, leave), func(o *gateway.Options, m *gateway.Model) {
		o.Limits = gateway.Limits{Calls: 2, Messages: 3, Tools: 1}
	})
	s := b.session(t)
	got := make(chan answer, 2)
	for i := range 2 {
		go func() { got <- post(t, s, ask(fmt.Sprint("hello ", i), true)) }()
		<-entered
	}
	a := post(t, s, ask("third", true))
	isAnthropicError(t, a, 429, "rate_limit_error")
	assert.Equal(t, "1", a.header.Get("Retry-After"))
	close(leave)
	for range 2 {
		assert.Equal(t, 200, (<-got).status)
	}
	go func() {
		for range entered {
		}
	}()
	defer close(entered)
	assert.Equal(t, 200, post(t, s, ask("after", true, addTool)).status)
	three := `{"model":"policy","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`
	assert.Equal(t, 200, post(t, s, three).status)
	isAnthropicError(t, post(t, s, strings.Replace(three, `]}`, `,{"role":"user","content":"d"}]}`, 1)), 413, "request_too_large")
	isAnthropicError(t, post(t, s, ask("x", true, strings.Replace(addTool, `"tools":[`, `"tools":[{"name":"b","input_schema":{"type":"object"}},`, 1))), 413, "request_too_large")
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	isAnthropicError(t, post(t, s, ask("x", true, `"extra":`+deep)), 400, "invalid_request_error")
	assert.Equal(t, 4, s.Stats().Calls)
}
