package connect

import (
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/dev/engine"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/core/upstream/script"
	"github.com/penstock-dev/penstock/sdk/chat"
)

func stand(t *testing.T, o engine.Options) (*engine.Engine, string) {
	t.Helper()
	var err error
	o.Script, err = script.Parse([]byte("penstock: script/v1\notherwise: { reply: hello }\n"))
	require.NoError(t, err)
	o.Model = "m"
	e, err := engine.New(o)
	require.NoError(t, err)
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	return e, s.URL
}

func text(t *testing.T, u upstream.Upstream, key string) string {
	t.Helper()
	s, err := u.Generate(t.Context(), &upstream.Request{AffinityKey: key, Chat: &chat.Conversation{
		Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "hi"}}}},
	}})
	require.NoError(t, err)
	defer s.Close()
	out := ""
	for {
		c, err := s.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		for _, d := range c.Deltas {
			out += d.Text
		}
	}
}

func TestReplicasAndFallback(t *testing.T) {
	first, urlA := stand(t, engine.Options{Kind: engine.VLLM})
	second, urlB := stand(t, engine.Options{Kind: engine.VLLM})
	u, err := Open(t.Context(), Config{Kind: "vllm", URL: urlA, Model: "m", With: map[string]any{"urls": []any{urlB}, "concurrency": 4, "stall_timeout": "30s"}})
	require.NoError(t, err)
	defer u.Close()
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		for range 2 {
			assert.Equal(t, "hello", text(t, u, key))
		}
	}
	assert.NotEmpty(t, first.Seen())
	assert.NotEmpty(t, second.Seen())
	homes := map[string]*engine.Engine{}
	for _, e := range []*engine.Engine{first, second} {
		for _, seen := range e.Seen() {
			key := seen.Header.Get("X-Session-Id")
			if home := homes[key]; home != nil {
				assert.Same(t, home, e, "a session keeps to its replica")
			}
			homes[key] = e
		}
	}

	// A provider that is overloaded, with another one behind it.
	busy, urlC := stand(t, engine.Options{Kind: engine.Anthropic, Faults: []engine.Fault{{What: "529"}}})
	_, urlD := stand(t, engine.Options{Kind: engine.OpenAI, Key: "second-key"})
	u, err = Open(t.Context(), Config{Kind: "anthropic", URL: urlC, APIKey: "first-key", Model: "m", With: map[string]any{
		"tries": 1, "fallback": []any{map[string]any{"kind": "openai", "url": urlD, "api_key": "second-key"}},
	}})
	require.NoError(t, err)
	defer u.Close()
	assert.Equal(t, "hello", text(t, u, "s"))
	assert.Len(t, busy.Seen(), 1)
	assert.Equal(t, "anthropic", upstream.InfoOf(u).Dialect)
}

func TestTriesUntilTheServerTakesIt(t *testing.T) {
	e, url := stand(t, engine.Options{Kind: engine.OpenAI, Faults: []engine.Fault{{What: "429", Times: 2}}})
	u, err := Open(t.Context(), Config{Kind: "openai", URL: url, Model: "m"})
	require.NoError(t, err)
	defer u.Close()
	assert.Equal(t, "hello", text(t, u, "s"))
	assert.Len(t, e.Seen(), 3)
}

func TestCheck(t *testing.T) {
	for want, c := range map[string]Config{
		`no upstream of kind "tgi"; there are anthropic`: {Kind: "tgi"},
		"upstream vllm needs a url":                      {Kind: "vllm"},
		"write 'format: upstream'":                       {Kind: "anthropic", OwnFormat: true},
		"capture exact can't be had, only text":          {Kind: "anthropic", Capture: "exact"},
		`unknown field "retries"`:                        {Kind: "vllm", URL: "http://x", With: map[string]any{"retries": 3}},
		`"30" is not a duration`:                         {Kind: "vllm", URL: "http://x", With: map[string]any{"stall_timeout": "30"}},
		"can't be negative":                              {Kind: "vllm", URL: "http://x", With: map[string]any{"concurrency": -1}},
		"no bearer":                                      {Kind: "vllm", URL: "http://x", With: map[string]any{"bearer": true}},
		"fallback 1: upstream vllm needs a url":          {Kind: "vllm", URL: "http://x", With: map[string]any{"fallback": []any{map[string]any{"kind": "vllm"}}}},
		"no fallback of its own": {Kind: "vllm", URL: "http://x", With: map[string]any{"fallback": []any{
			map[string]any{"kind": "vllm", "url": "http://y", "fallback": []any{map[string]any{"kind": "vllm"}}}}}},
	} {
		require.ErrorContains(t, Check(c), want)
	}
	good := Config{Kind: "anthropic", APIKey: "k1", With: map[string]any{"headers": map[string]any{"x-a": "on", "x-b": "a-long-secret-value"}, "fallback": []any{map[string]any{"kind": "openai", "url": "http://127.0.0.1:1", "api_key": "k2"}}}}
	require.NoError(t, Check(good))
	assert.Equal(t, []string{"k1", "a-long-secret-value", "k2"}, Secrets(good))
}

func TestAServerThatIsDownIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	_, err = Open(t.Context(), Config{Kind: "sglang", URL: url, With: map[string]any{"ready": "200ms"}})
	require.ErrorContains(t, err, "sglang at "+url+" was not ready in 200ms")
	require.ErrorContains(t, err, "connection refused")
}

// TestPricesOfStandIns: one that stands in has the prices of the first one, those
// of its own, or none that are known; the list as a whole has the dearest.
func TestPricesOfStandIns(t *testing.T) {
	c := Config{Kind: "openai", URL: "http://127.0.0.1:1", Model: "m", NoProbe: true, Prices: &cost.Prices{Input: 3, Output: 1}, With: map[string]any{"fallback": []any{
		map[string]any{"kind": "openai", "url": "http://127.0.0.1:2"},
		map[string]any{"kind": "openai", "url": "http://127.0.0.1:3", "model": "m"},
		map[string]any{"kind": "openai", "url": "http://127.0.0.1:4", "model": "n"},
		map[string]any{"kind": "openai", "url": "http://127.0.0.1:5", "model": "n", "prices": map[string]any{"input": 1, "output": 7}},
	}}}
	s, err := settings(c.With)
	require.NoError(t, err)
	list, err := openList(t.Context(), c, s)
	require.NoError(t, err)
	var got []*cost.Prices
	for _, u := range list {
		got = append(got, upstream.InfoOf(u).Prices)
		require.NoError(t, u.Close())
	}
	assert.Equal(t, []*cost.Prices{c.Prices, c.Prices, c.Prices, nil, {Input: 1, Output: 7}}, got)
	u, err := Open(t.Context(), c)
	require.NoError(t, err)
	defer u.Close()
	dearest := upstream.InfoOf(u).Prices
	assert.Equal(t, 3.0, dearest.Input)
	assert.Equal(t, 7.0, dearest.Output)
}
