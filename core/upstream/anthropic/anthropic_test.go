package anthropic

import (
	"errors"
	"io"
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
	"github.com/penstock-dev/penstock/core/upstream/script"
	"github.com/penstock-dev/penstock/sdk/chat"
)

const key = "sk-ant-test-0123456789"

const rules = `penstock: script/v1
defaults: { chunk: 4 }
rules:
  - when: { last: 'What is (\d+)\+(\d+)' }
    reply: |-
      <think>
      Add them: é
      </think>

      Let me see.
      <tool_call>
      {"name": "calculator", "arguments": {"expression": "$1+$2"}}
      </tool_call>
  - when: { last: 'Count' }
    reply: one two STOP three
otherwise: { reply: "héllo wörld" }
`

func stand(t *testing.T, faults ...engine.Fault) (*engine.Engine, string) {
	t.Helper()
	s, err := script.Parse([]byte(rules))
	require.NoError(t, err)
	e, err := engine.New(engine.Options{Kind: engine.Anthropic, Script: s, Model: "claude", Key: key, Faults: faults})
	require.NoError(t, err)
	server := httptest.NewServer(e)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		require.NoError(t, e.Close())
	})
	return e, server.URL
}

func open(t *testing.T, url string, o Options) upstream.Upstream {
	t.Helper()
	o.BaseURL, o.APIKey, o.Model = url, key, "claude"
	u, err := New(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, u.Close()) })
	return u
}

type got struct {
	parts []chat.Part
	raw   string
	last  upstream.Chunk
	err   error
}

func generate(t *testing.T, u upstream.Upstream, r *upstream.Request) (g got) {
	t.Helper()
	s, err := u.Generate(t.Context(), r)
	if err != nil {
		assert.NotContains(t, err.Error(), key)
		return got{err: err}
	}
	defer func() { assert.NoError(t, s.Close()) }()
	open := false
	for {
		c, err := s.Next()
		if err != nil {
			assert.NotContains(t, err.Error(), key)
			if !errors.Is(err, io.EOF) {
				assert.Empty(t, g.last.Finish)
				g.err = err
			} else {
				assert.False(t, open)
			}
			return g
		}
		for _, d := range c.Deltas {
			if !open && d.Type != chat.DeltaPartEnd {
				require.Equal(t, len(g.parts), d.Part)
				g.parts, open = append(g.parts, chat.Part{}), true
			}
			require.True(t, open)
			p := &g.parts[d.Part]
			switch d.Type {
			case chat.DeltaText:
				p.Type, p.Text = chat.Text, p.Text+d.Text
			case chat.DeltaReasoning:
				p.Type, p.Text = chat.Reasoning, p.Text+d.Text
			case chat.DeltaSignature:
				p.Type, p.Signature = chat.Reasoning, p.Signature+d.Text
			case chat.DeltaRedacted:
				p.Type, p.Data = chat.Reasoning, d.Text
			case chat.DeltaCallStart:
				p.Type, p.ID, p.Name = chat.ToolCall, d.ID, d.Name
			case chat.DeltaCallArgs:
				p.Arguments = append(p.Arguments, d.Text...)
			case chat.DeltaPartEnd:
				open = false
			}
		}
		g.raw += string(c.Raw)
		g.last = c
	}
}

func talk(text string) *upstream.Request {
	most := 1000
	return &upstream.Request{Sampling: chat.Sampling{MaxTokens: &most}, Chat: &chat.Conversation{
		Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: text}}}},
		Tools:    []chat.Tool{{Name: "calculator", Parameters: []byte(`{"type":"object","properties":{"z":null,"a":1}}`)}},
	}}
}

func raw(body string) *upstream.Request {
	r := talk("What is 23+19?")
	r.Sampling = chat.Sampling{}
	r.Raw = &upstream.RawRequest{Dialect: Dialect, Query: "beta=true", Body: []byte(body), Stream: gjson.Get(body, "stream").Bool(), Header: http.Header{
		"X-Api-Key": {"session-token"}, "Authorization": {"Bearer session-token"}, "Cookie": {"c"},
		"Anthropic-Beta": {"a-2025,b-2026"}, "Anthropic-Version": {"2023-06-01"}, "User-Agent": {"claude-cli"},
	}}
	return r
}

func TestTranslation(t *testing.T) {
	_, url := stand(t)
	u := open(t, url, Options{})
	info := upstream.InfoOf(u)
	assert.True(t, info.Parses)
	assert.Equal(t, Dialect, info.Dialect)
	g := generate(t, u, talk("What is 23+19?"))
	require.NoError(t, g.err)
	require.Len(t, g.parts, 3)
	assert.Contains(t, g.parts[0].Text, "Add them: é")
	assert.Equal(t, engine.Signature(g.parts[0].Text), g.parts[0].Signature)
	assert.Equal(t, "Let me see.", strings.TrimSpace(g.parts[1].Text))
	assert.JSONEq(t, `{"expression":"23+19"}`, string(g.parts[2].Arguments))
	assert.Equal(t, upstream.Finish{Raw: "tool_use", Reason: chat.FinishToolCalls}, g.last.Finish)
	assert.Positive(t, g.last.PromptTokens)
	assert.Positive(t, g.last.OutputTokens)
	assert.Empty(t, g.raw, "what was translated isn't passed on")

	n, err := u.(upstream.Counter).Count(t.Context(), talk("What is 23+19?"))
	require.NoError(t, err)
	assert.Equal(t, g.last.PromptTokens, n)

	r := talk("Count")
	r.Sampling.Stop = []string{"STOP"}
	g = generate(t, u, r)
	require.NoError(t, g.err)
	assert.Equal(t, "STOP", g.last.StopSequence)
	assert.Equal(t, chat.FinishStopSequence, g.last.Finish.Reason)
}

func TestEncode(t *testing.T) {
	text := func(s string) chat.Part { return chat.Part{Type: chat.Text, Text: s} }
	hot, yes := 1.7, true
	r := talk("one")
	r.Sampling.Temperature, r.Sampling.Stop = &hot, []string{"END"}
	r.Chat.ToolChoice = &chat.Choice{Mode: chat.ChoiceNamed, Name: "calculator", DisableParallel: true}
	r.Chat.Messages = []chat.Message{
		{Role: chat.System, Parts: []chat.Part{text("Be brief."), text("")}},
		{Role: chat.User, Parts: []chat.Part{text("one"), {Type: chat.Image, MediaType: "image/png", Data: "QUJD"}}},
		{Role: chat.Assistant, Parts: []chat.Part{
			{Type: chat.Reasoning, Text: "ours"}, {Type: chat.Reasoning, Text: "theirs", Signature: "sig=="}, {Type: chat.Reasoning, Data: "redacted"},
			text("so"), {Type: chat.ToolCall, ID: "t1", Name: "calculator", Arguments: []byte(`{"b": null,  "a":1}`)},
			{Type: chat.ToolCall, ID: "t2", Name: "calculator", Arguments: []byte(`"{bröken"`), ArgumentsRaw: true},
		}},
		{Role: chat.User, Parts: []chat.Part{text("wait")}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "t1", Content: []chat.Part{text("42")}}}},
		{Role: chat.System, Parts: []chat.Part{text("later")}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "t2", IsError: true}}},
		{Role: chat.Assistant, Parts: []chat.Part{text("")}},
		{Role: chat.User, Parts: []chat.Part{text("go on")}},
	}
	u := &server{o: Options{Model: "claude", MaxTokens: 10}}
	body, err := u.body(r, false)
	require.NoError(t, err)
	assert.Equal(t, `{"model":"claude","system":[{"type":"text","text":"Be brief."}],"messages":[`+
		`{"role":"user","content":[{"type":"text","text":"one"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}]},`+
		`{"role":"assistant","content":[{"type":"thinking","thinking":"theirs","signature":"sig=="},{"type":"redacted_thinking","data":"redacted"},`+
		`{"type":"text","text":"so"},{"type":"tool_use","id":"t1","name":"calculator","input":{"b": null,  "a":1}},`+
		`{"type":"tool_use","id":"t2","name":"calculator","input":{"__unparsedToolInput":{"raw":"{bröken","len":7}}}]},`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"42"}]},`+
		`{"type":"tool_result","tool_use_id":"t2","content":[],"is_error":true},{"type":"text","text":"wait"},{"type":"text","text":"later"}]},`+
		`{"role":"user","content":[{"type":"text","text":"go on"}]}],`+
		`"tools":[{"name":"calculator","input_schema":{"type":"object","properties":{"z":null,"a":1}}}],`+
		`"tool_choice":{"type":"tool","name":"calculator","disable_parallel_tool_use":true},`+
		`"max_tokens":1000,"temperature":1,"stop_sequences":["END"],"stream":true}`, string(body))

	u.o.ThinkingBudget = 5000
	r.Chat.Thinking = &yes
	most := 3000
	r.Sampling.MaxTokens = &most
	body, err = u.body(r, false)
	require.NoError(t, err)
	assert.EqualValues(t, 2999, gjson.GetBytes(body, "thinking.budget_tokens").Int())
	assert.False(t, gjson.GetBytes(body, "temperature").Exists())

	r.Chat.Messages = append(r.Chat.Messages, chat.Message{Role: chat.User, Parts: []chat.Part{{Type: chat.ToolCall}}})
	_, err = u.body(r, false)
	var refused *upstream.StatusError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, 400, refused.Status)
}

func TestPassthroughKeepsBytes(t *testing.T) {
	reply := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"claude-x\",\"usage\":{\"input_tokens\":3,\"cache_read_input_tokens\":5,\"cache_creation_input_tokens\":2,\"output_tokens\":1}}}\n\n" +
		"event: ping\ndata: {\"type\": \"ping\"}\n\n" +
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"h\\u00e9\"}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"EqQB==\"}}\n\n" +
		"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"xyz\"}}\n\n" +
		"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n" +
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"s\",\"name\":\"web_search\",\"input\":{}}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n" +
		"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":2}\n\n" +
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" +
		"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":3}\n\n" +
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":4,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"f\",\"input\":{}}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":4,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"x\\\": 1}\"}}\n\n" +
		"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":4}\n\n" +
		"event: something_new\ndata: {\"type\":\"something_new\"}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":17}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	var seen []byte
	var header http.Header
	var uri string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen, _ = io.ReadAll(r.Body)
		header, uri = r.Header, r.RequestURI
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, reply)
	}))
	defer s.Close()
	u := open(t, s.URL, Options{NoProbe: true})
	body := `{"model":"claude","system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}],
 "messages":[{"role":"user","content":[{"text":"a","type":"text"}]},{"role":"system","content":"later"}], "thinking":{"type":"adaptive"},"stream":true,"max_tokens":32000 , "context_management":{"edits":[]}}`
	r := raw(body)
	most := 32000
	r.Sampling.MaxTokens = &most
	g := generate(t, u, r)
	require.NoError(t, g.err)
	assert.Equal(t, body, string(seen))
	assert.Equal(t, reply, g.raw)
	assert.Equal(t, "/v1/messages?beta=true", uri)
	assert.Equal(t, key, header.Get("X-Api-Key"))
	assert.Empty(t, header.Get("Authorization"))
	assert.Empty(t, header.Get("Cookie"))
	assert.Equal(t, "a-2025,b-2026", header.Get("Anthropic-Beta"))
	assert.Equal(t, []chat.Part{
		{Type: chat.Reasoning, Text: "hé", Signature: "EqQB=="}, {Type: chat.Reasoning, Data: "xyz"},
		{Type: chat.ToolCall, ID: "toolu_1", Name: "f", Arguments: []byte(`{"x": 1}`)},
	}, g.parts)
	assert.Equal(t, 10, g.last.PromptTokens)
	assert.Equal(t, 5, g.last.CachedTokens)
	assert.Equal(t, 2, g.last.CacheWriteTokens)
	assert.Equal(t, 17, g.last.OutputTokens)
	end := string(g.last.Raw[strings.Index(string(g.last.Raw), "event: message_delta"):])
	assert.True(t, strings.HasSuffix(end, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"), "the end comes in one chunk")

	r = raw(`{"model":"my-alias","messages":[],"stream":true,"max_tokens":64000,"tools":[{"name":"old"}],"tool_choice":{"type":"any"},"metadata":{"user_id":"u"}}`)
	few := 100
	r.Sampling.MaxTokens = &few
	r.Raw.Changed = upstream.Changed{Messages: true, Tools: true}
	require.NoError(t, generate(t, u, r).err)
	assert.Equal(t, `{"model":"claude","messages":[{"role":"user","content":[{"type":"text","text":"What is 23+19?"}]}],"stream":true,"max_tokens":100,`+
		`"tools":[{"name":"calculator","input_schema":{"type":"object","properties":{"z":null,"a":1}}}],"metadata":{"user_id":"u"}}`, string(seen))
}

func TestPassthroughOfWholeReplies(t *testing.T) {
	_, url := stand(t)
	u := open(t, url, Options{})
	r := raw(`{"model":"claude","max_tokens":500,"messages":[{"role":"user","content":"What is 23+19?"}],"tools":[{"name":"calculator","input_schema":{"type":"object"}}]}`)
	g := generate(t, u, r)
	require.NoError(t, g.err)
	assert.Equal(t, "tool_use", gjson.Get(g.raw, "stop_reason").Str)
	require.Len(t, g.parts, 3)
	assert.Equal(t, gjson.Get(g.raw, "content.0.signature").Str, g.parts[0].Signature)
	assert.JSONEq(t, `{"expression":"23+19"}`, string(g.parts[2].Arguments))
	n, err := u.(upstream.Counter).Count(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, g.last.PromptTokens, n)
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		fault, want string
		status      int
	}{
		{"429", "as it was told", 429}, {"529", "as it was told", 529}, {"500", "as it was told", 500},
		{"stall@2", "fell silent", 0}, {"hang", "did not begin", 0}, {"refuse", "EOF", 0},
		{"garbage@2", "502 Bad Gateway", 0}, {"broken@2", "no JSON", 0}, {"error@0", "overloaded", 529}, {"error@4", "overloaded", 529},
		{"long@3", "", -1}, {"comment@3", "", -1},
	} {
		for _, how := range []string{"translated", "passed"} {
			t.Run(c.fault+" "+how, func(t *testing.T) {
				t.Parallel()
				f, err := engine.ParseFault(c.fault)
				require.NoError(t, err)
				_, url := stand(t, f)
				u := open(t, url, Options{NoProbe: true, Headers: 300 * time.Millisecond, Stall: 300 * time.Millisecond})
				r := talk("What is 23+19?")
				if how == "passed" {
					r = raw(`{"model":"claude","max_tokens":500,"stream":true,"messages":[{"role":"user","content":"What is 23+19?"}]}`)
				}
				g := generate(t, u, r)
				if c.status < 0 {
					require.NoError(t, g.err)
					return
				}
				require.ErrorContains(t, g.err, c.want)
				assert.NotContains(t, g.raw, "message_delta")
				if c.status > 0 {
					var refused *upstream.StatusError
					require.ErrorAs(t, g.err, &refused)
					assert.Equal(t, c.status, refused.Status)
				}
			})
		}
	}
}

func TestCutAtEveryEvent(t *testing.T) {
	for _, how := range []string{"cut", "end"} {
		for at := 0; ; at++ {
			require.Less(t, at, 100)
			_, url := stand(t, engine.Fault{What: how, At: at})
			u := open(t, url, Options{NoProbe: true})
			g := generate(t, u, raw(`{"model":"claude","max_tokens":500,"stream":true,"messages":[{"role":"user","content":"hi"}]}`))
			if g.err == nil {
				assert.Equal(t, "héllo wörld", g.parts[0].Text)
				assert.Contains(t, g.raw, "message_stop")
				break
			}
			assert.NotContains(t, g.raw, "message_delta", "a cut reply is never ended")
		}
	}
}

func TestKeyAndOptions(t *testing.T) {
	_, url := stand(t)
	_, err := New(t.Context(), Options{BaseURL: url, APIKey: "wrong-" + key})
	require.ErrorContains(t, err, "/v1/models")
	require.ErrorContains(t, err, "[redacted]")
	assert.NotContains(t, err.Error(), key)
	for want, o := range map[string]Options{
		"want http:// or": {BaseURL: "api"}, "no credentials": {BaseURL: "http://a:b@c"}, "least of 1024": {ThinkingBudget: 5},
	} {
		_, err := New(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
}
