package openaichat

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/callargs"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fixed is the dialect at a fixed time.
var fixed = dialect{now: func() time.Time { return time.Unix(1700000000, 0) }}

type completion struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
}

type choice struct {
	Index        int     `json:"index"`
	Message      said    `json:"message"`
	Delta        said    `json:"delta"`
	FinishReason *string `json:"finish_reason"`
}

type said struct {
	Role      string  `json:"role"`
	Content   *string `json:"content"`
	Reasoning *string `json:"reasoning_content"`
	ToolCalls []call  `json:"tool_calls"`
}

type call struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func add(to **string, more *string) {
	if more == nil {
		return
	}
	if *to == nil {
		*to = new(string)
	}
	**to += *more
}

// reassemble builds the completion from a stream as the official SDK does.
func reassemble(t *testing.T, stream []byte, wantUsage bool) *completion {
	t.Helper()
	text, ended := strings.CutSuffix(string(stream), "data: [DONE]\n\n")
	require.True(t, ended, "no [DONE] at the end")
	var out completion
	var m said
	for _, chunk := range strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		if strings.HasPrefix(chunk, ":") {
			continue
		}
		data, ok := strings.CutPrefix(chunk, "data: ")
		require.True(t, ok, chunk)
		require.NotContains(t, data, "\n")
		var c completion
		require.NoError(t, json.Unmarshal([]byte(data), &c), data)
		require.Equal(t, "chat.completion.chunk", c.Object)
		require.Equal(t, wantUsage, strings.Contains(data, `"usage":`))
		if len(c.Choices) == 0 {
			require.NotEmpty(t, out.Choices, "usage before the end")
			out.Usage = c.Usage
			continue
		}
		require.Empty(t, out.Choices, "a chunk after finish_reason")
		out.ID, out.Created, out.Model = c.ID, c.Created, c.Model
		d := c.Choices[0].Delta
		m.Role += d.Role
		add(&m.Content, d.Content)
		add(&m.Reasoning, d.Reasoning)
		for _, tc := range d.ToolCalls {
			if tc.Index == len(m.ToolCalls) {
				m.ToolCalls = append(m.ToolCalls, tc)
				continue
			}
			require.Equal(t, len(m.ToolCalls)-1, tc.Index)
			require.Empty(t, tc.ID)
			m.ToolCalls[tc.Index].Function.Arguments += tc.Function.Arguments
		}
		if reason := c.Choices[0].FinishReason; reason != nil {
			out.Choices = []choice{{Message: m, FinishReason: reason}}
		}
	}
	require.NotEmpty(t, out.Choices, "no finish_reason")
	return &out
}

func whole(t *testing.T, body []byte) *completion {
	t.Helper()
	var out completion
	require.NoError(t, json.Unmarshal(body, &out), "%s", body)
	require.Equal(t, "chat.completion", out.Object)
	out.Object = ""
	for i := range out.Choices[0].Message.ToolCalls {
		out.Choices[0].Message.ToolCalls[i].Index = i
	}
	return &out
}

// deltas are the deltas of a reply; cut says where a text of n bytes is cut.
func deltas(r *chat.Reply, cut func(n int) []int) (out []chat.Delta) {
	pieces := func(kind chat.DeltaType, part int, text string) {
		at := 0
		for _, end := range append(cut(len(text)), len(text)) {
			out = append(out, chat.Delta{Type: kind, Part: part, Text: text[at:end]})
			at = end
		}
	}
	for i, p := range r.Parts {
		switch p.Type {
		case chat.Text:
			pieces(chat.DeltaText, i, p.Text)
		case chat.Reasoning:
			pieces(chat.DeltaReasoning, i, p.Text)
			out = append(out, chat.Delta{Type: chat.DeltaSignature, Part: i, Text: "sig"})
		case chat.ToolCall:
			out = append(out, chat.Delta{Type: chat.DeltaCallStart, Part: i, ID: p.ID, Name: p.Name})
			if len(p.Arguments) > 0 {
				pieces(chat.DeltaCallArgs, i, string(p.Arguments))
			}
		}
		out = append(out, chat.Delta{Type: chat.DeltaPartEnd, Part: i})
	}
	return out
}

func uncut(int) []int { return nil }

func streamed(t testing.TB, r *chat.Reply, usage bool, cut func(int) []int) []byte {
	t.Helper()
	var b bytes.Buffer
	s := wire.StreamFor(fixed, &wire.Request{WantUsage: usage})
	require.NoError(t, s.Start(&b, r))
	for _, d := range deltas(r, cut) {
		require.NoError(t, s.Delta(&b, d))
	}
	require.NoError(t, s.Finish(&b, r))
	return b.Bytes()
}

func agree(t *testing.T, r *chat.Reply, cut func(int) []int) {
	t.Helper()
	assert.Equal(t, whole(t, fixed.Reply(r)), reassemble(t, streamed(t, r, true, cut), true))
}

func replies() map[string]*chat.Reply {
	text := func(s string) chat.Part { return chat.Part{Type: chat.Text, Text: s} }
	toolCall := func(id, args string) chat.Part {
		return chat.Part{Type: chat.ToolCall, ID: id, Name: "add", Arguments: []byte(args)}
	}
	out := map[string]*chat.Reply{
		"text":      {Parts: []chat.Part{text("Hello, wörld <b>&\u2028\"\\\n")}, Finish: chat.FinishStop},
		"reasoning": {Parts: []chat.Part{{Type: chat.Reasoning, Text: "hm", Signature: "sig"}, text("42")}, Finish: chat.FinishStop},
		"call":      {Parts: []chat.Part{text("Let me."), toolCall("call_1", `{"a": 1, "b":null,"big":12345678901234567890}`)}, Finish: chat.FinishToolCalls},
		"only call": {Parts: []chat.Part{toolCall("call_1", `{}`)}, Finish: chat.FinishStop},
		"parallel":  {Parts: []chat.Part{toolCall("call_1", `{"a":1}`), toolCall("call_2", ``), text("mid"), toolCall("call_3", `null`)}, Finish: chat.FinishStop},
		"raw":       {Parts: []chat.Part{{Type: chat.ToolCall, ID: "call_1", Name: "t", Arguments: []byte(`"{\"a\": \ud83d\ude00"`), ArgumentsRaw: true}}, Finish: chat.FinishToolCalls},
		"broken":    {Parts: []chat.Part{toolCall("call_1", `{"a": tru`)}, Finish: chat.FinishToolCalls},
		"empty":     {Finish: chat.FinishStop},
		"length":    {Parts: []chat.Part{text("cut"), toolCall("call_1", `{"a`)}, Finish: chat.FinishLength},
		"stop":      {Parts: []chat.Part{text("x")}, Finish: chat.FinishStopSequence, StopSequence: "END"},
		"refusal":   {Parts: []chat.Part{text("no")}, Finish: chat.FinishRefusal},
		"denied":    {Parts: []chat.Part{text("no")}, Finish: chat.FinishToolCalls},
	}
	for _, r := range out {
		r.ID, r.Model, r.Usage = "chatcmpl-1", "test-model", chat.Usage{Input: 100, Cached: 60, Output: 7}
	}
	return out
}

func TestWholeAndStreamedRepliesAgree(t *testing.T) {
	for name, r := range replies() {
		t.Run(name, func(t *testing.T) {
			agree(t, r, uncut)
			agree(t, r, func(n int) (cuts []int) {
				for i := 1; i < n; i++ {
					cuts = append(cuts, i)
				}
				return cuts
			})
		})
	}
}

func TestRandomRepliesAgreeUnderRandomCuts(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		text := func() string {
			bits := []string{"a", " ", "\n", "é", "漢", "😀", "\"", "\\", "\x00", "\xff", "\xe6\xbc", "{"}
			var b strings.Builder
			for range rnd.IntN(12) {
				b.WriteString(bits[rnd.IntN(len(bits))])
			}
			return b.String()
		}
		r := &chat.Reply{ID: "chatcmpl-r", Model: "m", Finish: chat.FinishStop}
		for range rnd.IntN(6) {
			switch rnd.IntN(4) {
			case 0:
				r.Parts = append(r.Parts, chat.Part{Type: chat.Reasoning, Text: text()})
			case 1:
				r.Parts = append(r.Parts, chat.Part{Type: chat.ToolCall, ID: "call_" + text(), Name: "t", Arguments: []byte(text())})
			case 2:
				r.Parts = append(r.Parts, chat.Part{Type: chat.ToolCall, ID: "call_x", Name: "t", Arguments: sse.AppendString(nil, text()), ArgumentsRaw: true})
			default:
				r.Parts = append(r.Parts, chat.Part{Type: chat.Text, Text: sse.Clean(text())})
			}
		}
		for i, p := range r.Parts {
			// Text of several parts is joined, so that a rune cut between two
			// of them would be mended in a whole reply only.
			r.Parts[i].Text = sse.Clean(p.Text)
		}
		agree(t, r, func(n int) (cuts []int) {
			for i := 1; i < n; i += 1 + rnd.IntN(6) {
				cuts = append(cuts, i)
			}
			return cuts
		})
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, r)
		}
	}
}

func TestStreamGolden(t *testing.T) {
	r := &chat.Reply{ID: "chatcmpl-1", Model: "test-model", Finish: chat.FinishToolCalls, Usage: chat.Usage{Input: 25, Cached: 5, Output: 9}, Parts: []chat.Part{
		{Type: chat.Reasoning, Text: "Add them."}, {Type: chat.Text, Text: "Let me do that."},
		{Type: chat.ToolCall, ID: "call_1", Name: "calculator", Arguments: []byte(`{"expression":"23 + 19"}`)},
		{Type: chat.ToolCall, ID: "call_2", Name: "now"},
	}}
	got := streamed(t, r, true, func(n int) []int { return []int{n / 2} })
	got = append(append(got, "\n"...), fixed.Reply(r)...)
	if *update {
		require.NoError(t, os.WriteFile("testdata/stream.golden", got, 0o644))
	}
	want, err := os.ReadFile("testdata/stream.golden")
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}

func TestContentAndFinishReasons(t *testing.T) {
	for name, want := range map[string]string{
		"text": "stop", "call": "tool_calls", "only call": "tool_calls", "length": "length", "empty": "stop",
		"stop": "stop", "refusal": "content_filter", "denied": "stop",
	} {
		c := whole(t, fixed.Reply(replies()[name])).Choices[0]
		assert.Equal(t, want, *c.FinishReason, name)
		assert.Equal(t, name == "only call", c.Message.Content == nil, name)
	}
	assert.JSONEq(t, `{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,"prompt_tokens_details":{"cached_tokens":60}}`, string(whole(t, fixed.Reply(replies()["text"])).Usage))
}

// Case 7 of 10a.
func TestUsageChunkHasEmptyChoicesAndComesOnlyWhenAsked(t *testing.T) {
	r := replies()["text"]
	with := string(streamed(t, r, true, uncut))
	assert.Contains(t, with, `"choices":[],"usage":{"prompt_tokens":100`)
	without := string(streamed(t, r, false, uncut))
	assert.NotContains(t, without, "usage")
	assert.Empty(t, reassemble(t, []byte(without), false).Usage)
	assert.Contains(t, without, "data: [DONE]\n\n")
}

func TestFinishAloneEndsTheReply(t *testing.T) {
	var b bytes.Buffer
	s := fixed.Stream()
	r := replies()["call"]
	require.NoError(t, s.Start(&b, r))
	for _, d := range deltas(r, uncut) {
		require.NoError(t, s.Delta(&b, d))
	}
	assert.NotContains(t, b.String(), `"finish_reason":"`)
	assert.NotContains(t, b.String(), "[DONE]")
	b.Reset()
	require.NoError(t, s.Finish(&b, &chat.Reply{Finish: chat.FinishError}))
	assert.Equal(t, `data: {"error":{"message":"The reply was cut","type":"server_error","param":null,"code":"upstream_error"}}`+"\n\n", b.String())
}

func TestKeepAliveIsAComment(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, fixed.Stream().KeepAlive(&b))
	assert.Equal(t, ": keep-alive\n\n", b.String())
}

func TestStreamRefusesDeltasOutOfOrder(t *testing.T) {
	s := fixed.Stream()
	assert.ErrorContains(t, s.Delta(io.Discard, chat.Delta{Type: chat.DeltaCallArgs, Part: 3}), "before its call_start")
	assert.ErrorContains(t, s.Delta(io.Discard, chat.Delta{Type: "odd"}), `type "odd"`)
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestWriteErrorsAreTold(t *testing.T) {
	s := fixed.Stream()
	assert.Error(t, s.Start(failing{}, &chat.Reply{}))
	assert.Error(t, s.KeepAlive(failing{}))
}

// The arguments that a client sends back decode to those that were served.
func TestServedArgumentsComeBack(t *testing.T) {
	for name, r := range replies() {
		for _, p := range chat.Calls(r.Parts) {
			args, raw := callargs.Parse(callargs.Text(p.Arguments))
			if p.ArgumentsRaw {
				assert.True(t, raw, name)
			}
			if json.Valid(p.Arguments) && string(p.Arguments) != "null" {
				assert.JSONEq(t, string(p.Arguments), string(args), name)
			}
		}
	}
}

func BenchmarkStream100Deltas(b *testing.B) {
	r := &chat.Reply{ID: "chatcmpl-1", Model: "m", Finish: chat.FinishStop}
	b.ReportAllocs()
	for b.Loop() {
		s := fixed.Stream()
		_ = s.Start(io.Discard, r)
		for range 100 {
			_ = s.Delta(io.Discard, chat.Delta{Type: chat.DeltaText, Text: "some words of \"text\"\n"})
		}
		_ = s.Finish(io.Discard, r)
	}
}
