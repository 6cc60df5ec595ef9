package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/wire/anthropic"
	"github.com/penstock-dev/penstock/sdk/chat"
)

var said = upstream.Chunk{Deltas: []chat.Delta{{Type: chat.DeltaText, Text: "hi"}, {Type: chat.DeltaPartEnd}}, Finish: finished}

// sanitizedRequest sends a request to a provider that refuses something, and
// returns what the provider was asked and what the record says was taken out.
func sanitizedRequest(t *testing.T, dialect, path, body string, refuses ...upstream.Refusal) (*upstream.Request, []string) {
	t.Helper()
	p := replies(dialect, said)
	p.info.Refuses = refuses
	b := fronting(t, p)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.session(t).BaseURL()+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	a := do(t, r)
	require.Equal(t, 200, a.status, a.body)
	var edits []string
	for _, e := range b.store.only(t).Edits {
		assert.Equal(t, "upstream", e.Hook)
		assert.Equal(t, "request", e.Point)
		edits = append(edits, e.Reason+" "+string(e.Before))
	}
	return p.seen()[0], edits
}

// texts shows messages in short.
func texts(c *chat.Conversation) string {
	var out []string
	for _, m := range c.Messages {
		for _, p := range m.Parts {
			text := string(p.Type) + ":" + p.Text
			for _, inner := range p.Content {
				text += string(inner.Type) + ":" + inner.Text
			}
			out = append(out, string(m.Role)+" "+text)
		}
	}
	return strings.Join(out, " | ")
}

// TestSanitizedRequests: each thing is taken out where the upstream refuses it,
// said in the record, and left alone elsewhere.
func TestSanitizedRequests(t *testing.T) {
	const openai, anthropic = "/v1/chat/completions", "/v1/messages"
	weather := `"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"add","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"web_search"}`
	for name, c := range map[string]struct {
		path, body string
		refuses    upstream.Refusal
		check      func(r *upstream.Request)
		edits      []string
	}{
		"an empty list of tools": {
			openai, `{"model":"policy","tools":[],"tool_choice":"auto","messages":[{"role":"user","content":"a"}]}`, upstream.RefusesEmptyTools,
			func(r *upstream.Request) { assert.Equal(t, upstream.Changed{Tools: true}, r.Raw.Changed) },
			[]string{`empty_tools: an empty list of tools {"/tools":[]}`},
		},
		"a choice without tools": {
			openai, `{"model":"policy","tool_choice":"auto","messages":[{"role":"user","content":"a"}]}`, upstream.RefusesOrphanChoice,
			func(r *upstream.Request) {
				assert.Equal(t, upstream.Changed{Tools: true}, r.Raw.Changed)
				assert.Nil(t, r.Chat.ToolChoice)
			},
			[]string{`orphan_choice: a tool choice without tools {"/tool_choice":{"mode":"auto"}}`},
		},
		"tools of another provider": {
			anthropic, `{"model":"policy","max_tokens":9,` + weather + `,"messages":[{"role":"user","content":"a"}]}`, upstream.RefusesServerTools,
			func(r *upstream.Request) {
				require.Len(t, r.Chat.Tools, 1)
				assert.Equal(t, "add", r.Chat.Tools[0].Name)
				assert.Nil(t, r.Chat.ToolChoice)
			},
			[]string{
				`server_tools: [web_search] are run by another provider {"/tools":[{"type":"web_search_20250305","name":"web_search"}]}`,
				`server_tools: a tool choice of a tool that isn't there {"/tool_choice":{"mode":"named","name":"web_search"}}`,
			},
		},
		"cache breakpoints": {
			openai, `{"model":"policy", "messages":[{"role":"user","content":[{"type":"text","text":"cache_control","cache_control":{"type":"ephemeral"} }]}], "tools":[{"cache_control":{},"type":"function","function":{"name":"t","parameters":{"properties":{"cache_control":{}}}}}]}`, upstream.RefusesCacheControl,
			func(r *upstream.Request) {
				assert.Equal(t, `{"model":"policy", "messages":[{"role":"user","content":[{"type":"text","text":"cache_control" }]}], "tools":[{"type":"function","function":{"name":"t","parameters":{"properties":{"cache_control":{}}}}}]}`, string(r.Raw.Body))
				assert.Zero(t, r.Raw.Changed)
			},
			[]string{"cache_control: 2 cache breakpoints 2"},
		},
		"a late system message": {
			openai, `{"model":"policy","messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"system","content":"late"}]}`, upstream.RefusesInnerSystem,
			func(r *upstream.Request) {
				assert.Equal(t, "system text:s | user text:a | user text:late", texts(r.Chat))
				assert.Equal(t, upstream.Changed{Messages: true}, r.Raw.Changed)
			},
			[]string{`inner_system: a system message after others {"/messages/2":"system"}`},
		},
		"an image in a result": {
			anthropic, `{"model":"policy","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"x","input":{}}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aaaa"}}]}]}]}`, upstream.RefusesToolImages,
			func(r *upstream.Request) {
				assert.Equal(t, "user text:a | assistant tool_call: | tool tool_result:text:[an image, in the next message] | user image:", texts(r.Chat))
			},
			[]string{`tool_images: 1 images in tool results, which a message of the user has now 1`},
		},
		"unsigned thinking": {
			openai, `{"model":"policy","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning_content":"hm"},{"role":"user","content":"c"}]}`, upstream.RefusesUnsigned,
			func(r *upstream.Request) {
				assert.Equal(t, "user text:a | assistant text:b | user text:c", texts(r.Chat))
			},
			[]string{`unsigned: 1 parts of reasoning without a signature {"/messages/1":[{"type":"reasoning","text":"hm"}]}`},
		},
		"top_k": {
			anthropic, `{"model":"policy","max_tokens":9,"top_k":5,"messages":[{"role":"user","content":"a"}]}`, upstream.RefusesTopK,
			func(r *upstream.Request) { assert.Nil(t, r.Sampling.TopK) },
			[]string{`top_k: top_k {"/sampling/top_k":5}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, edits := sanitizedRequest(t, "openaichat", c.path, c.body, c.refuses)
			c.check(r)
			assert.Equal(t, c.edits, edits)
			r, edits = sanitizedRequest(t, "openaichat", c.path, c.body)
			assert.Empty(t, edits)
			if r.Raw != nil {
				assert.Equal(t, c.body, string(r.Raw.Body))
				assert.Zero(t, r.Raw.Changed)
			}
		})
	}
}

// TestOurSignatureIsNoneOfTheirs: thinking of another model, which clients say
// again under a signature of ours, isn't sent to a provider that signs its own.
func TestOurSignatureIsNoneOfTheirs(t *testing.T) {
	body := func(signature string) string {
		return `{"model":"policy","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
			`{"type":"thinking","thinking":"hm","signature":"` + signature + `"},{"type":"text","text":"b"}]},{"role":"user","content":"c"}]}`
	}
	r, edits := sanitizedRequest(t, "anthropic", "/v1/messages", body(anthropic.Signature("hm")), upstream.RefusesUnsigned)
	assert.Equal(t, "user text:a | assistant text:b | user text:c", texts(r.Chat))
	assert.Equal(t, upstream.Changed{Messages: true}, r.Raw.Changed)
	assert.Len(t, edits, 1)
	r, edits = sanitizedRequest(t, "anthropic", "/v1/messages", body("theirs"), upstream.RefusesUnsigned)
	assert.Equal(t, body("theirs"), string(r.Raw.Body))
	assert.Zero(t, r.Raw.Changed)
	assert.Empty(t, edits)
}

// TestClampedMaxTokens: a bound that the context has no room for is clamped to
// what remains after the prompt, which the upstream counts; if it doesn't count,
// the bound is left to it.
func TestClampedMaxTokens(t *testing.T) {
	for name, c := range map[string]struct {
		most  string
		count func(*upstream.Request) (int, error)
		want  any // what is sent
		edits int
	}{
		"fits":             {"100", nil, 100, 0},
		"counted, fits":    {"9000", func(*upstream.Request) (int, error) { return 1000, nil }, 9000, 0},
		"counted, clamped": {"64000", func(*upstream.Request) (int, error) { return 1000, nil }, 9000, 1},
		"not counted":      {"64000", nil, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := replies("anthropic", said)
			p.info.Refuses, p.count = []upstream.Refusal{upstream.RefusesLongMaxTokens}, c.count
			b := fronting(t, p, func(_ *gateway.Options, m *gateway.Model) { m.Context = 10000 })
			a := post(t, b.session(t), `{"model":"policy","max_tokens":`+c.most+`,"messages":[{"role":"user","content":"a"}]}`)
			require.Equal(t, 200, a.status, a.body)
			r := p.seen()[0]
			if c.want == nil {
				assert.Nil(t, r.Sampling.MaxTokens)
				assert.True(t, r.Raw.Changed.Sampling)
			} else {
				assert.Equal(t, c.want, *r.Sampling.MaxTokens)
			}
			call := b.store.only(t)
			assert.Len(t, call.Edits, c.edits)
			assert.Equal(t, c.most, string(mustJSON(t, call.Requested.MaxTokens)))
		})
	}
	p := replies("anthropic", said)
	p.info.Refuses = []upstream.Refusal{upstream.RefusesLongMaxTokens}
	p.count = func(*upstream.Request) (int, error) { return 10000, nil }
	b := fronting(t, p, func(_ *gateway.Options, m *gateway.Model) { m.Context = 10000 })
	a := post(t, b.session(t), `{"model":"policy","max_tokens":64000,"messages":[{"role":"user","content":"a"}]}`)
	assert.Equal(t, 400, a.status)
	assert.Contains(t, a.body, "prompt is too long: 10000 tokens > 9999 maximum")
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}

// TestTurnsWithoutTools: the calls of an agent that has no tools are turns, as
// soon as its conversation goes on, and in the end also where it doesn't.
func TestTurnsWithoutTools(t *testing.T) {
	b := start(t, says("ok", 10))
	s := b.session(t, func(spec *gateway.SessionSpec) { spec.Budget.Turns = 2 })
	first := `{"role":"user","content":"one"}`
	more := `,{"role":"assistant","content":"ok"},{"role":"user","content":"two"}`
	body := func(messages string) string {
		return `{"model":"policy","max_tokens":9,"messages":[` + messages + `]}`
	}
	require.Equal(t, 200, post(t, s, body(first)).status)
	assert.Equal(t, 1, s.Stats().Turns)
	require.Equal(t, 200, post(t, s, body(first+more)).status)
	assert.Equal(t, 2, s.Stats().Turns)
	a := post(t, s, body(first+more+strings.ReplaceAll(more, "two", "three")))
	assert.Equal(t, 403, a.status, "the first call is one of the two turns: %s", a.body)
	assert.Equal(t, gateway.Stats{Calls: 2, Turns: 2}, gateway.Stats{Calls: s.Stats().Calls, Turns: s.Stats().Turns})

	s = b.session(t) // a title, then the conversation with tools
	require.Equal(t, 200, post(t, s, body(first)).status)
	require.Equal(t, 200, post(t, s, ask("work", false, addTool)).status)
	assert.Equal(t, 1, s.Stats().Turns, "the title is none")
}

// TestLeavesAtTheEnd: a client that closes the connection as soon as it has the
// end of a reply has it delivered.
func TestLeavesAtTheEnd(t *testing.T) {
	b := start(t, says("hi", 10))
	s := b.session(t)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		res, err := (&http.Client{Transport: &http.Transport{}}).Do(request(t, s, ask("hello", true)).WithContext(ctx))
		require.NoError(t, err)
		var got strings.Builder
		for buf := make([]byte, 512); !strings.Contains(got.String(), "message_stop\"}\n\n"); {
			n, err := res.Body.Read(buf)
			got.Write(buf[:n])
			if err != nil {
				break
			}
		}
		require.Contains(t, got.String(), "message_stop")
		cancel()
		_ = res.Body.Close()
	}
	require.NoError(t, s.Close(t.Context()))
	for _, c := range b.store.all() {
		assert.True(t, b.store.wasDelivered(c.ID), c.ID)
	}
}
