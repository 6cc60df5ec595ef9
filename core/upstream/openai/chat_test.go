package openai

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/dev/engine"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/script"
	"github.com/penstock-dev/penstock/sdk/chat"
)

const called = "<think>\nAdd tham: é\n</think>\n\nLet me see.\n" +
	"<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"23+19\"}}\n</tool_call>\n" +
	"<tool_call>\n{\"name\": \"calculator\", \"arguments\": {}}\n</tool_call><|im_end|>"

func TestChat(t *testing.T) {
	for _, c := range []struct {
		kind string
		ids  bool
	}{{engine.VLLM, true}, {engine.SGLang, true}, {engine.VLLM, false}, {engine.SGLang, false}, {engine.LMDeploy, false}, {engine.OpenAI, false}} {
		name, capture := c.kind+" text", "text"
		if c.ids {
			name, capture = c.kind+" reported", "reported"
		}
		t.Run(name, func(t *testing.T) {
			e, url := stand(t, engine.Options{Kind: c.kind})
			u := open(t, Options{Kind: c.kind, BaseURL: url, Capture: capture})
			info := upstream.InfoOf(u)
			assert.True(t, info.Parses)
			assert.Equal(t, map[bool]string{false: Dialect, true: ""}[c.ids], info.Dialect)
			r := talk("What is 23+19?")
			r.WantIDs = c.ids
			g := generate(t, u, r)
			require.NoError(t, g.err)
			assert.Equal(t, chat.FinishToolCalls, g.last.Finish.Reason)
			got := parts(t, g.deltas)
			require.Len(t, got, 4)
			assert.Equal(t, []chat.PartType{chat.Reasoning, chat.Text, chat.ToolCall, chat.ToolCall}, []chat.PartType{got[0].Type, got[1].Type, got[2].Type, got[3].Type})
			assert.Contains(t, got[0].Text, "Add tham: é")
			assert.Equal(t, "Let me see.", strings.TrimSpace(got[1].Text))
			assert.Equal(t, "calculator", got[2].Name)
			assert.JSONEq(t, `{"expression":"23+19"}`, string(got[2].Arguments))
			assert.NotEqual(t, got[2].ID, got[3].ID)
			assert.Positive(t, g.last.PromptTokens)
			if c.ids {
				agrees(t, e, r, g, called)
				assert.NotEmpty(t, g.prompt)
				assert.Contains(t, string(e.Tokenizer().Decode(nil, g.prompt)), "What is 23+19?")
			}
		})
	}
}

// TestChatRequest holds the encoder against the conversation of a second turn.
func TestChatRequest(t *testing.T) {
	_, url := stand(t, engine.Options{Kind: engine.VLLM})
	u := open(t, Options{Kind: KindVLLM, BaseURL: url})
	r := talk("What is 23+19?")
	yes := true
	r.Chat.Thinking = &yes
	r.Chat.ToolChoice = &chat.Choice{Mode: chat.ChoiceAuto, DisableParallel: true}
	r.Chat.Tools[0].Parameters = []byte(`{"type":"object","properties":{"z":{"default":null},"a":{"const":12345678901234567890}}}`)
	r.Chat.Messages = append([]chat.Message{{Role: chat.System, Parts: []chat.Part{{Type: chat.Text, Text: "Be <brief> & kind."}}}}, r.Chat.Messages...)
	r.Chat.Messages = append(r.Chat.Messages,
		chat.Message{Role: chat.Assistant, Parts: []chat.Part{
			{Type: chat.Reasoning, Text: "add"},
			{Type: chat.ToolCall, ID: "c1", Name: "calculator", Arguments: []byte(`{"expression": "23+19"}`)},
			{Type: chat.ToolCall, ID: "c2", Name: "calculator", Arguments: []byte(`"{broken"`), ArgumentsRaw: true},
		}},
		chat.Message{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "c1", Content: []chat.Part{{Type: chat.Text, Text: "42"}}}}},
		chat.Message{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "c2", IsError: true, Content: []chat.Part{{Type: chat.Text, Text: "bad"}, {Type: chat.Image, URL: "http://x/y.png"}}}}},
		chat.Message{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "and"}, {Type: chat.Image, MediaType: "image/png", Data: "QUJD"}}},
	)
	body, err := u.(*server).chatBody(r, true)
	require.NoError(t, err)
	assert.Equal(t, `{"model":"m","messages":[`+
		`{"role":"system","content":"Be <brief> & kind."},`+
		`{"role":"user","content":"What is 23+19?"},`+
		`{"role":"assistant","content":null,"reasoning_content":"add","reasoning":"add","tool_calls":[`+
		`{"id":"c1","type":"function","function":{"name":"calculator","arguments":"{\"expression\": \"23+19\"}"}},`+
		`{"id":"c2","type":"function","function":{"name":"calculator","arguments":"{broken"}}]},`+
		`{"role":"tool","tool_call_id":"c1","content":"42"},`+
		`{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"bad"},{"type":"image_url","image_url":{"url":"http://x/y.png"}}]},`+
		`{"role":"user","content":[{"type":"text","text":"and"},{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD"}}]}],`+
		`"tools":[{"type":"function","function":{"name":"calculator","description":"adds",`+
		`"parameters":{"type":"object","properties":{"z":{"default":null},"a":{"const":12345678901234567890}}}}}],`+
		`"tool_choice":"auto","parallel_tool_calls":false,"chat_template_kwargs":{"enable_thinking":true},`+
		`"stream":true,"stream_options":{"include_usage":true}}`, string(body))

	r.Chat.Tools = nil
	body, err = u.(*server).chatBody(r, true)
	require.NoError(t, err)
	assert.False(t, gjson.GetBytes(body, "tools").Exists(), "no empty list of tools")
	assert.False(t, gjson.GetBytes(body, "tool_choice").Exists(), "no choice without tools")

	for name, change := range map[string]func(*chat.Conversation){
		"server tool":        func(c *chat.Conversation) { c.Tools = []chat.Tool{{Type: "web_search_20250305", Name: "web"}} },
		"image from a tool":  func(*chat.Conversation) {},
		"image for a system": func(c *chat.Conversation) { c.Messages[0].Parts = []chat.Part{{Type: chat.Image, URL: "x"}} },
	} {
		c := *r.Chat
		c.Messages = append([]chat.Message{}, r.Chat.Messages...)
		change(&c)
		other, err := newServer(Options{Kind: KindOpenAI, BaseURL: url})
		require.NoError(t, err)
		_, err = other.chatBody(&upstream.Request{Chat: &c}, true)
		var refused *upstream.StatusError
		require.ErrorAs(t, err, &refused, name)
		assert.Equal(t, 400, refused.Status)
	}
}

func TestOpenAIItself(t *testing.T) {
	s, err := newServer(Options{Kind: KindOpenAI, BaseURL: "https://api.openai.com/v1", Model: "gpt"})
	require.NoError(t, err)
	most, top := 5, 3
	r := talk("hi")
	r.Sampling = chat.Sampling{MaxTokens: &most, TopK: &top}
	r.Chat.Messages = append(r.Chat.Messages, chat.Message{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Reasoning, Text: "x"}, {Type: chat.Text, Text: "y"}}})
	body, err := s.chatBody(r, true)
	require.NoError(t, err)
	assert.EqualValues(t, 5, gjson.GetBytes(body, "max_completion_tokens").Int())
	for _, name := range []string{"max_tokens", "top_k", "messages.1.reasoning_content"} {
		assert.False(t, gjson.GetBytes(body, name).Exists(), name)
	}
	assert.Empty(t, s.header(r), "the provider isn't told of sessions")
}

// answers is a server that answers each POST with the same stream.
func answers(t *testing.T, text string) upstream.Upstream {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return open(t, Options{Kind: KindOpenAI, BaseURL: s.URL, NoProbe: true})
}

func events(list ...string) string {
	return "data: " + strings.Join(append(list, "[DONE]"), "\n\ndata: ") + "\n\n"
}

// TestOtherServers reads forms that compatible servers have.
func TestOtherServers(t *testing.T) {
	end := `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	for _, c := range []struct {
		name, stream string
		want         []chat.Part
		fails        string
	}{
		{"calls without index", events(
			`{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"id":"b","function":{"name":"g","arguments":"{\"x\""}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":":1}"}}]}}]}`, end),
			[]chat.Part{{Type: chat.ToolCall, ID: "a", Name: "f", Arguments: []byte(`{}`)}, {Type: chat.ToolCall, ID: "b", Name: "g", Arguments: []byte(`{"x":1}`)}}, ""},
		{"the id again in each piece", events(
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"y\":2}"}}]}}]}`, end),
			[]chat.Part{{Type: chat.ToolCall, ID: "a", Name: "f", Arguments: []byte(`{"y":2}`)}}, ""},
		{"arguments as an object", events(
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"y": 2}}}]}}]}`, end),
			[]chat.Part{{Type: chat.ToolCall, ID: "a", Name: "f", Arguments: []byte(`{"y": 2}`)}}, ""},
		{"everything null", events(
			`{"choices":[{"delta":{"role":"assistant","content":null,"reasoning_content":null,"tool_calls":null},"finish_reason":null}],"usage":null}`,
			`{"choices":[{"delta":{"content":"hi"}}]}`, end), []chat.Part{{Type: chat.Text, Text: "hi"}}, ""},
		{"a refusal", events(`{"choices":[{"delta":{"refusal":"no"}}]}`, `{"choices":[{"delta":{},"finish_reason":"content_filter"}]}`),
			[]chat.Part{{Type: chat.Text, Text: "no"}}, ""},
		{"no [DONE]", strings.ReplaceAll(events(`{"choices":[{"delta":{"content":"hi"}}]}`, end), "data: [DONE]\n\n", ""), []chat.Part{{Type: chat.Text, Text: "hi"}}, ""},
		{"empty stream", "", nil, "ended without a finish_reason"},
		{"only [DONE]", events(), nil, "ended without a finish_reason"},
		{"no reason", events(`{"choices":[{"delta":{"content":"hi"}}]}`), nil, "ended without a finish_reason"},
		{"an error", events(`{"error":{"message":"CUDA out of memory","type":"InternalServerError","code":500}}`), nil, "CUDA out of memory"},
		{"calls that interleave", events(
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}`, end), nil, "went on with tool call 0"},
		{"a call without a name", events(`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}`, end), nil, "without a name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := generate(t, answers(t, c.stream), talk("hi"))
			if c.fails != "" {
				require.ErrorContains(t, g.err, c.fails)
				return
			}
			require.NoError(t, g.err)
			assert.Equal(t, c.want, parts(t, g.deltas))
		})
	}
}

// TestBilledReplies: what a server says that it charges is told, streamed and
// whole.
func TestBilledReplies(t *testing.T) {
	for usage, want := range map[string]any{
		`{"prompt_tokens":7,"completion_tokens":1,"cost":0.00125}`:             0.00125,
		`{"prompt_tokens":7,"completion_tokens":1,"cost":{"total_cost":0.5}}`:  0.5,
		`{"prompt_tokens":7,"completion_tokens":1,"cost":0}`:                   0.0,
		`{"prompt_tokens":7,"completion_tokens":1,"cost":null}`:                nil,
		`{"prompt_tokens":7,"completion_tokens":1,"cost":"free of charge"}`:    nil,
		`{"prompt_tokens":7,"completion_tokens":1,"cost":-1}`:                  nil,
		`{"prompt_tokens":7,"completion_tokens":1,"cost_details":{"total":1}}`: nil,
	} {
		u := answers(t, events(`{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}`, `{"choices":[],"usage":`+usage+`}`))
		g := generate(t, u, talk("hi"))
		require.NoError(t, g.err)
		p := &progress{s: &server{}}
		whole, err := p.whole([]byte(`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":` + usage + `}`))
		require.NoError(t, err)
		c, err := whole.Next()
		require.NoError(t, err)
		for _, got := range []*float64{g.last.Cost, c.Cost} {
			if want == nil {
				assert.Nil(t, got, usage)
			} else if assert.NotNil(t, got, usage) {
				assert.Equal(t, want, *got)
			}
		}
	}
}

// TestDisagreement is where ids and what stands beside them don't agree.
func TestDisagreement(t *testing.T) {
	token := func(ids, names, lps string) string {
		return `{"choices":[{"text":"a","token_ids":` + ids + `,"logprobs":{"tokens":` + names + `,"token_logprobs":` + lps + `}}]}`
	}
	end := `{"choices":[{"text":"","token_ids":[],"logprobs":{"tokens":[],"token_logprobs":[]},"finish_reason":"stop"}]}`
	for _, c := range []struct{ name, stream, want string }{
		{"fewer logprobs", events(token(`[1,2]`, `["token_id:1"]`, `[-1]`), end), "gave 2 token_ids and 1 logprobs"},
		{"no logprobs", events(`{"choices":[{"text":"a","token_ids":[1]}]}`, end), "gave 1 token_ids and 0 logprobs"},
		{"another name", events(token(`[1,2]`, `["token_id:1","token_id:3"]`, `[-1,-1]`), end), "token 1 is 2 in token_ids and 3 in logprobs"},
		{"no ids, no names", events(`{"choices":[{"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[-1]}}]}`, end), "gave no token_ids"},
		{"another count", events(token(`[1]`, `["token_id:1"]`, `[-1]`), end, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`), "counts 2 completion_tokens and gave the ids of 1"},
		{"another prompt", events(`{"choices":[{"text":"a","prompt_token_ids":[9],"token_ids":[1],"logprobs":{"tokens":["x"],"token_logprobs":[-1]}}]}`, end), "aren't the 2 that were sent"},
		{"ids that are none", events(`{"choices":[{"text":"a","token_ids":["x"],"logprobs":{"tokens":["x"],"token_logprobs":[-1]}}]}`, end), "no list of ids"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, c.stream)
			}))
			t.Cleanup(s.Close)
			u := open(t, Options{Kind: KindVLLM, BaseURL: s.URL, NoProbe: true, OwnFormat: true, Capture: "exact"})
			g := generate(t, u, &upstream.Request{PromptIDs: []int32{7, 8}, WantIDs: true})
			require.ErrorContains(t, g.err, c.want)
			assert.Contains(t, g.err.Error(), "/completions")
		})
	}
	// An engine that only names its tokens is enough.
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, events(`{"choices":[{"text":"a","logprobs":{"tokens":["token_id:5"],"token_logprobs":[-0.5]},"finish_reason":"stop"}]}`))
	}))
	t.Cleanup(s.Close)
	u := open(t, Options{Kind: KindVLLM, BaseURL: s.URL, NoProbe: true, OwnFormat: true, Capture: "exact"})
	g := generate(t, u, &upstream.Request{PromptIDs: []int32{7, 8}, WantIDs: true})
	require.NoError(t, g.err)
	assert.Equal(t, []int32{5}, g.ids)
	assert.Equal(t, []float64{-0.5}, g.logprobs)
}

func TestChunksComeAsTheyAreGenerated(t *testing.T) {
	slow, err := script.Parse([]byte(strings.Replace(rules, "defaults: {", "defaults: { delay: 30ms,", 1)))
	require.NoError(t, err)
	_, url := stand(t, engine.Options{Kind: engine.VLLM, Script: slow})
	u := open(t, Options{Kind: KindVLLM, BaseURL: url})
	g := generate(t, u, talk("What is 23+19?"))
	require.NoError(t, g.err)
	assert.Greater(t, g.chunks, 10)
}
