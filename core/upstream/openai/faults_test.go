package openai

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/dev/engine"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// modes are all ways in which a server is asked.
var modes = []struct {
	kind    string
	own     bool
	capture string
}{
	{engine.VLLM, true, "exact"}, {engine.VLLM, false, "reported"}, {engine.SGLang, true, "exact"},
	{engine.LMDeploy, true, "exact"}, {engine.OpenAI, false, "text"}, {engine.OpenAI, true, "text"},
}

func TestFaults(t *testing.T) {
	for _, m := range modes {
		for _, c := range []struct {
			fault, want string
			status      int
			notRun      bool
		}{
			{"429", "fails as it was told", 429, true},
			{"503", "fails as it was told", 503, true},
			{"529", "fails as it was told", 529, true},
			{"500", "fails as it was told", 500, false},
			{"refuse", "EOF", 0, false},
			{"hang", "did not begin to answer in time", 0, false},
			{"stall@2", "fell silent", 0, false},
			{"cut@0", "", 0, false}, {"cut@1", "connection was cut", 0, false}, {"cut@2", "connection was cut", 0, false},
			{"end@0", "", 0, false}, {"end@2", "ended without a finish_reason", 0, false},
			{"garbage@1", "502 Bad Gateway", 0, false},
			{"broken@1", "no JSON", 0, false},
			{"error@1", "overloaded", 529, false},
			{"long@1", "", -1, false},
			{"comment@1", "", -1, false},
		} {
			t.Run(fmt.Sprintf("%s own=%t %s", m.kind, m.own, c.fault), func(t *testing.T) {
				t.Parallel()
				f, err := engine.ParseFault(c.fault)
				require.NoError(t, err)
				e, url := stand(t, engine.Options{Kind: m.kind, Key: key, Faults: []engine.Fault{f}, RetryAfter: 3})
				u := open(t, Options{
					Kind: m.kind, BaseURL: url, APIKey: key, OwnFormat: m.own, Capture: m.capture, NoProbe: true,
					Headers: 300 * time.Millisecond, Stall: 300 * time.Millisecond,
				})
				r := talk("What is 23+19?")
				if m.own {
					r = ask(e, "What is 23+19?")
				}
				r.WantIDs = m.capture != "text"
				g := generate(t, u, r)
				if c.status == -1 {
					require.NoError(t, g.err)
					return
				}
				require.ErrorContains(t, g.err, c.want)
				assert.Contains(t, g.err.Error(), m.kind+" at ")
				var refused *upstream.StatusError
				if c.status > 0 {
					require.ErrorAs(t, g.err, &refused)
					assert.Equal(t, c.status, refused.Status)
				}
				if c.notRun {
					after, ok := upstream.NotRun(g.err)
					assert.True(t, ok)
					assert.Equal(t, 3*time.Second, after)
				}
			})
		}
	}
}

// TestCutAtEveryEvent cuts a reply before each of its events: nothing but the
// whole reply ends well.
func TestCutAtEveryEvent(t *testing.T) {
	for _, m := range modes {
		for _, how := range []string{"cut", "end"} {
			t.Run(fmt.Sprintf("%s own=%t %s", m.kind, m.own, how), func(t *testing.T) {
				t.Parallel()
				for at := 0; ; at++ {
					require.Less(t, at, 200)
					e, url := stand(t, engine.Options{Kind: m.kind, Faults: []engine.Fault{{What: how, At: at}}})
					u := open(t, Options{Kind: m.kind, BaseURL: url, OwnFormat: m.own, Capture: m.capture, NoProbe: true})
					r := talk("hi")
					if m.own {
						r = ask(e, "hi")
					}
					r.WantIDs = m.capture != "text"
					g := generate(t, u, r)
					if g.err != nil {
						continue
					}
					assert.Greater(t, at, 1)
					if how == "cut" {
						g = generate(t, u, r)
						require.NoError(t, g.err, "it ended well because nothing was cut")
					}
					text := g.text
					for _, p := range parts(t, g.deltas) {
						text += p.Text
					}
					assert.Contains(t, text, "héllo wörld")
					return
				}
			})
		}
	}
}

func TestProbe(t *testing.T) {
	for _, c := range []struct {
		name    string
		server  engine.Options
		own     bool
		capture string
		want    []string
	}{
		{"no ids", engine.Options{Kind: engine.VLLM, Without: []string{"token_ids", "logprobs"}}, true, "exact", []string{"vllm at http://", "/v1/completions", "token ids"}},
		{"no prompt ids", engine.Options{Kind: engine.VLLM, Without: []string{"prompt_token_ids"}}, true, "reported", []string{"/v1/completions", "prompt_token_ids"}},
		{"no prompt ids in chats", engine.Options{Kind: engine.VLLM, Without: []string{"prompt_token_ids"}}, false, "reported", []string{"/v1/chat/completions", "prompt_token_ids"}},
		{"no logprobs", engine.Options{Kind: engine.VLLM, Without: []string{"logprobs"}}, true, "exact", []string{"/v1/completions", "logprobs"}},
		{"no endpoint", engine.Options{Kind: engine.VLLM, Without: []string{"/v1/completions"}}, true, "text", []string{"/v1/completions", "404"}},
		{"sglang without its own endpoint", engine.Options{Kind: engine.SGLang, Without: []string{"/generate"}}, true, "exact", []string{"/generate", "404"}},
		{"sglang without a tokenizer", engine.Options{Kind: engine.SGLang, Without: []string{"/tokenize"}}, true, "reported", []string{"/generate", "404"}},
		{"sglang without ids", engine.Options{Kind: engine.SGLang, Without: []string{"token_ids"}}, true, "exact", []string{"/generate", "output_ids"}},
		{"sglang chats without prompt ids", engine.Options{Kind: engine.SGLang, Without: []string{"prompt_token_ids"}}, false, "reported", []string{"/v1/chat/completions", "prompt_token_ids"}},
		{"lmdeploy chats have no prompt ids", engine.Options{Kind: engine.LMDeploy}, false, "reported", []string{"lmdeploy at http://", "/v1/chat/completions", "prompt_token_ids"}},
		{"no server of a special kind", engine.Options{Kind: engine.OpenAI}, true, "exact", []string{"openai at http://", "/v1/completions"}},
		{"another model", engine.Options{Kind: engine.VLLM, Model: "other"}, true, "text", []string{`no model "m"`, "it has other"}},
		{"a wrong key", engine.Options{Kind: engine.VLLM, Key: "another"}, true, "text", []string{"/v1/models", "401"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, url := stand(t, c.server)
			_, err := tryOpen(t, Options{Kind: c.server.Kind, BaseURL: url, APIKey: key, OwnFormat: c.own, Capture: c.capture})
			require.Error(t, err)
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for want, o := range map[string]Options{
		"want openai, vllm":     {Kind: "tgi", BaseURL: "http://x"},
		"want http:// or":       {Kind: KindVLLM, BaseURL: "localhost:8000"},
		"no credentials":        {Kind: KindVLLM, BaseURL: "http://user:" + key + "@x"},
		"want exact, reported":  {Kind: KindVLLM, BaseURL: "http://x", Capture: "all"},
		"format that renders":   {Kind: KindVLLM, BaseURL: "http://x", Capture: "exact"},
		"was not ready in 200m": {Kind: KindVLLM, BaseURL: "http://127.0.0.1:1", Ready: 200 * time.Millisecond},
	} {
		_, err := tryOpen(t, o)
		require.ErrorContains(t, err, want)
	}
}

func TestProbeWaitsForAServerThatStarts(t *testing.T) {
	starting := 2
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if starting--; starting >= 0 {
			w.WriteHeader(503)
			return
		}
		_, _ = w.Write([]byte(`{"data":[{"id":"m","max_model_len":77}]}`))
	}))
	defer s.Close()
	u := open(t, Options{Kind: KindVLLM, BaseURL: s.URL})
	assert.Equal(t, 77, upstream.InfoOf(u).Context)
}

func raw(body string) *upstream.Request {
	r := talk("What is 23+19?")
	r.Raw = &upstream.RawRequest{Dialect: Dialect, Body: []byte(body), Stream: gjson.Get(body, "stream").Bool(), Header: http.Header{
		"Authorization": {"Bearer session-token"}, "Cookie": {"x"}, "Openai-Beta": {"b1"},
	}}
	return r
}

func TestPassthrough(t *testing.T) {
	// What the server sends, seen by a client of its own.
	text := ": hi\n\n" + events(
		`{"id":"c-1","x_new":{"a": 1},"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}`,
		`{"id":"c-1","choices":[{"index":0,"delta":{"content":"héllo \u003c"},"finish_reason":null}]}`,
		`{"id":"c-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`{"id":"c-1","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`)
	var seen []byte
	var header http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = make([]byte, r.ContentLength)
		_, _ = r.Body.Read(seen)
		header = r.Header
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(text))
	}))
	defer s.Close()
	u := open(t, Options{Kind: KindOpenAI, BaseURL: s.URL, APIKey: key, Model: "m", NoProbe: true})

	body := `{ "model": "m",  "messages":[{"role":"user","content":"What is 23+19?","x":null}], "temperature": 1.0,
  "stream":true, "stream_options":{"include_usage":true}, "response_format": {"type":"json_object"}, "max_tokens":7 }`
	r := raw(body)
	one, most := 1.0, 7
	r.Sampling = chat.Sampling{Temperature: &one, MaxTokens: &most}
	g := generate(t, u, r)
	require.NoError(t, g.err)
	assert.Equal(t, body, string(seen), "the request is the client's, byte by byte")
	assert.Equal(t, text, g.raw, "the reply is the server's, byte by byte")
	assert.Equal(t, []chat.Part{{Type: chat.Text, Text: "héllo <"}}, parts(t, g.deltas))
	assert.Equal(t, 5, g.last.PromptTokens)
	assert.Equal(t, 4, g.last.CachedTokens)
	assert.True(t, strings.HasPrefix(string(g.last.Raw[strings.Index(string(g.last.Raw), `data: {"id":"c-1","choices":[{"index":0,"delta":{},`):]), "data: "))
	assert.Equal(t, "Bearer "+key, header.Get("Authorization"))
	assert.Equal(t, "b1", header.Get("Openai-Beta"))
	assert.Empty(t, header.Get("Cookie"))

	// What has to differ, and nothing else.
	r = raw(`{"model":"alias", "messages":[{"role":"user","content":"x"}],"stream":true,"max_completion_tokens":99999,"tools":[],"zz":1}`)
	half := 0.5
	r.Sampling = chat.Sampling{Temperature: &half, MaxTokens: &most}
	r.Raw.Changed = upstream.Changed{Messages: true, Tools: true}
	r.Chat.Tools = nil
	g = generate(t, u, r)
	require.NoError(t, g.err)
	assert.Equal(t, `{"model":"m", "messages":[{"role":"user","content":"What is 23+19?"}],"stream":true,"max_completion_tokens":7,"zz":1,`+
		`"temperature":0.5,"stream_options":{"include_usage":true}}`, string(seen))
	assert.NotContains(t, g.raw, `"completion_tokens"`, "the client didn't ask for the usage")
	assert.Contains(t, g.raw, "[DONE]")
	assert.Equal(t, 5, g.last.PromptTokens)
}

func TestPassthroughOfWholeReplies(t *testing.T) {
	_, url := stand(t, engine.Options{Kind: engine.OpenAI})
	u := open(t, Options{Kind: KindOpenAI, BaseURL: url})
	g := generate(t, u, raw(`{"model":"m","messages":[{"role":"user","content":"What is 23+19?"}],"tools":[{"type":"function","function":{"name":"calculator"}}]}`))
	require.NoError(t, g.err)
	assert.Equal(t, "chat.completion", gjson.Get(g.raw, "object").Str)
	assert.Equal(t, "tool_calls", gjson.Get(g.raw, "choices.0.finish_reason").Str)
	assert.Len(t, chat.Calls(parts(t, g.deltas)), 2)
	assert.Equal(t, chat.FinishToolCalls, g.last.Finish.Reason)
}

// TestPassthroughCut cuts a passed-on stream before each event: what came out
// never holds the reason to stop.
func TestPassthroughCut(t *testing.T) {
	for at := 0; ; at++ {
		require.Less(t, at, 50)
		_, url := stand(t, engine.Options{Kind: engine.OpenAI, Faults: []engine.Fault{{What: "cut", At: at}}})
		u := open(t, Options{Kind: KindOpenAI, BaseURL: url, NoProbe: true})
		g := generate(t, u, raw(`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`))
		if g.err == nil {
			assert.Contains(t, g.raw, `"finish_reason":"stop"`)
			return
		}
		assert.NotContains(t, g.raw, `"finish_reason":"stop"`)
		assert.NotContains(t, g.raw, "[DONE]")
	}
}
