package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

var update = flag.Bool("update", false, "write the golden files anew")

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
		switch {
		case p.Type == chat.Text:
			pieces(chat.DeltaText, i, p.Text)
		case p.Data != "":
			out = append(out, chat.Delta{Type: chat.DeltaRedacted, Part: i, Text: p.Data})
		case p.Type == chat.Reasoning:
			pieces(chat.DeltaReasoning, i, p.Text)
			if p.Signature != "" {
				pieces(chat.DeltaSignature, i, p.Signature)
			}
		case p.Type == chat.ToolCall:
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

// streamed is the whole stream of a reply.
func streamed(t testing.TB, r *chat.Reply, cut func(int) []int) []byte {
	t.Helper()
	var b bytes.Buffer
	s := New().Stream()
	require.NoError(t, s.Start(&b, r))
	for _, d := range deltas(r, cut) {
		require.NoError(t, s.Delta(&b, d))
	}
	require.NoError(t, s.Finish(&b, r))
	return b.Bytes()
}

func agree(t *testing.T, r *chat.Reply, cut func(int) []int) {
	t.Helper()
	want, got := whole(t, New().Reply(r)), reassemble(t, streamed(t, r, cut))
	if len(want.Content) == 0 {
		want.Content, got.Content = nil, nil
	}
	for i := range want.Content {
		if i < len(got.Content) && want.Content[i]["type"] == "tool_use" {
			a, b := want.Content[i]["input"].(json.RawMessage), got.Content[i]["input"].(json.RawMessage)
			assert.Equal(t, string(a), strings.TrimSpace(string(b)))
			want.Content[i]["input"], got.Content[i]["input"] = nil, nil
		}
	}
	assert.Equal(t, want, got)
}

// replies are the named shapes of case 4 of 10a.
func replies() map[string]*chat.Reply {
	call := func(id, args string) chat.Part {
		return chat.Part{Type: chat.ToolCall, ID: id, Name: "mcp__calc__add", Arguments: []byte(args)}
	}
	text := func(s string) chat.Part { return chat.Part{Type: chat.Text, Text: s} }
	out := map[string]*chat.Reply{
		"text":           {Parts: []chat.Part{text("Hello, wörld <b>&\u2028\"\\\n")}, Finish: chat.FinishStop},
		"thinking":       {Parts: []chat.Part{{Type: chat.Reasoning, Text: "hm"}, text("42")}, Finish: chat.FinishStop},
		"signed":         {Parts: []chat.Part{{Type: chat.Reasoning, Text: "hm", Signature: "EqQBsig="}, {Type: chat.Reasoning, Data: "opaque"}, text("42")}, Finish: chat.FinishStop},
		"call":           {Parts: []chat.Part{text("Let me."), call("toolu_1", `{"a": 1, "b":null,"big":12345678901234567890}`)}, Finish: chat.FinishToolCalls},
		"parallel":       {Parts: []chat.Part{call("toolu_1", `{"a":1}`), call("toolu_2", ``), call("toolu_3", `{}`)}, Finish: chat.FinishStop},
		"empty":          {Finish: chat.FinishStop},
		"empty text":     {Parts: []chat.Part{text("")}, Finish: chat.FinishStop},
		"empty thinking": {Parts: []chat.Part{{Type: chat.Reasoning}, text("x")}, Finish: chat.FinishStop},
		"raw":            {Parts: []chat.Part{{Type: chat.ToolCall, ID: "toolu_1", Name: "t", Arguments: []byte(`"{\"a\": \ud83d\ude00"`), ArgumentsRaw: true}}, Finish: chat.FinishToolCalls},
		"number":         {Parts: []chat.Part{call("toolu_1", `7`), call("toolu_2", `null`), call("toolu_3", ` [1]`)}, Finish: chat.FinishToolCalls},
		"length":         {Parts: []chat.Part{text("cut"), call("toolu_1", `{"a":1}`)}, Finish: chat.FinishLength},
		"stop sequence":  {Parts: []chat.Part{text("x")}, Finish: chat.FinishStopSequence, StopSequence: "END"},
		"refusal":        {Parts: []chat.Part{text("no")}, Finish: chat.FinishRefusal},
		"denied calls":   {Parts: []chat.Part{text("no")}, Finish: chat.FinishToolCalls},
	}
	for name, r := range out {
		r.ID, r.Model = "msg_01", "test-model"
		r.Usage = chat.Usage{Input: 100 + len(name), Cached: 60, Output: 7}
	}
	return out
}

// Case 4 of 10a.
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
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := randomReply(rnd)
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

func randomReply(rnd *rand.Rand) *chat.Reply {
	text := func() string {
		bits := []string{"a", " ", "\n", "é", "漢", "😀", "\"", "\\", "<", "\x00", "\u2029", "\xff", "\xe6\xbc", "</tool_call>"}
		var b strings.Builder
		for range rnd.IntN(12) {
			b.WriteString(bits[rnd.IntN(len(bits))])
		}
		return b.String()
	}
	finishes := []chat.Finish{chat.FinishStop, chat.FinishLength, chat.FinishToolCalls, chat.FinishStopSequence, chat.FinishRefusal}
	r := &chat.Reply{ID: "msg_r", Model: "m", Finish: finishes[rnd.IntN(len(finishes))], Usage: chat.Usage{Input: rnd.IntN(99), Output: rnd.IntN(99)}}
	if r.Finish == chat.FinishStopSequence {
		r.StopSequence = text()
	}
	for range rnd.IntN(6) {
		switch rnd.IntN(5) {
		case 0:
			r.Parts = append(r.Parts, chat.Part{Type: chat.Reasoning, Text: text()})
		case 1:
			r.Parts = append(r.Parts, chat.Part{Type: chat.Reasoning, Text: text(), Signature: "c2ln"})
		case 2:
			args, _ := chat.Marshal(map[string]any{"k": sse.Clean(text()), "n": nil})
			r.Parts = append(r.Parts, chat.Part{Type: chat.ToolCall, ID: "toolu_" + text(), Name: "t", Arguments: args})
		case 3:
			r.Parts = append(r.Parts, chat.Part{Type: chat.ToolCall, ID: "toolu_x", Name: "t", Arguments: sse.AppendString(nil, text()), ArgumentsRaw: true})
		default:
			r.Parts = append(r.Parts, chat.Part{Type: chat.Text, Text: text()})
		}
	}
	return r
}

// TestStreamGolden holds the exact bytes of a stream with every kind of event.
func TestStreamGolden(t *testing.T) {
	r := &chat.Reply{ID: "msg_01", Model: "test-model", Finish: chat.FinishToolCalls, Usage: chat.Usage{Input: 25, Cached: 5, Output: 9}, Parts: []chat.Part{
		{Type: chat.Reasoning, Text: "Add them."}, {Type: chat.Text, Text: "Let me do that."},
		{Type: chat.ToolCall, ID: "toolu_01", Name: "mcp__calculator__calculator", Arguments: []byte(`{"expression":"23 + 19"}`)},
		{Type: chat.ToolCall, ID: "toolu_02", Name: "now"},
	}}
	got := streamed(t, r, func(n int) []int { return []int{n / 2} })
	got = append(append(got, "\n"...), New().Reply(r)...)
	if *update {
		require.NoError(t, os.WriteFile("testdata/stream.golden", got, 0o644))
	}
	want, err := os.ReadFile("testdata/stream.golden")
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}

// Cases 3 of 10a and 4 of 10b.
func TestThinkingStreamsInAThinkingBlockThenItsSignature(t *testing.T) {
	r := replies()["thinking"]
	var kinds []string
	for _, e := range readEvents(t, streamed(t, r, uncut)) {
		switch {
		case e.ContentBlock != nil:
			kinds = append(kinds, fmt.Sprint("start ", e.ContentBlock["type"]))
		case e.Delta["type"] != nil:
			kinds = append(kinds, fmt.Sprint(e.Delta["type"]))
		}
	}
	assert.Equal(t, []string{"start thinking", "thinking_delta", "signature_delta", "start text", "text_delta"}, kinds)
	block := whole(t, New().Reply(r)).Content[0]
	assert.Equal(t, map[string]any{"type": "thinking", "thinking": "hm", "signature": Signature("hm")}, block)
}

// Cases 4 of 10a and 5 of 10b.
func TestStopReasons(t *testing.T) {
	for name, want := range map[string]string{
		"text": "end_turn", "call": "tool_use", "parallel": "tool_use", "length": "max_tokens", "empty": "end_turn",
		"stop sequence": "stop_sequence", "refusal": "refusal", "denied calls": "end_turn",
	} {
		m := whole(t, New().Reply(replies()[name]))
		assert.Equal(t, want, m.StopReason, name)
		if want == "stop_sequence" {
			assert.Equal(t, "END", m.StopSequence)
		} else {
			assert.Nil(t, m.StopSequence)
		}
	}
}

// TestUsageTellsOfTheCache: what came from the cache and what went into it stand
// beside the rest of the prompt, as the provider counts.
func TestUsageTellsOfTheCache(t *testing.T) {
	got := string(appendUsage(nil, chat.Usage{Input: 100, Output: 3, Cached: 60, CacheWrite: 30}))
	assert.JSONEq(t, `{"input_tokens":10,"cache_creation_input_tokens":30,"cache_read_input_tokens":60,
		"cache_creation":{"ephemeral_5m_input_tokens":30,"ephemeral_1h_input_tokens":0},"output_tokens":3,"service_tier":"standard"}`, got)
}

func TestUsageIsNeverNull(t *testing.T) {
	r := replies()["text"]
	events := readEvents(t, streamed(t, r, uncut))
	want := `{"input_tokens":44,"cache_creation_input_tokens":0,"cache_read_input_tokens":60,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":%d,"service_tier":"standard"}`
	assert.Equal(t, fmt.Sprintf(want, 0), string(events[0].Message.Usage))
	assert.Equal(t, fmt.Sprintf(want, 7), string(events[len(events)-2].Usage))
	assert.Equal(t, fmt.Sprintf(want, 7), string(whole(t, New().Reply(r)).Usage))
}

func TestEmptyArgumentsAreAnEmptyObjectOnce(t *testing.T) {
	got := string(streamed(t, replies()["parallel"], uncut))
	assert.Equal(t, 2, strings.Count(got, `"partial_json":"{}"`))
	assert.Equal(t, 3, strings.Count(got, `"partial_json"`))
}

func TestBrokenArgumentsReachTheClientAsTheyAre(t *testing.T) {
	var b bytes.Buffer
	s := New().Stream()
	require.NoError(t, s.Start(&b, &chat.Reply{}))
	for _, d := range []chat.Delta{{Type: chat.DeltaCallStart, ID: "toolu_1", Name: "t"}, {Type: chat.DeltaCallArgs, Text: `{"a": `}, {Type: chat.DeltaCallArgs, Text: `tru`}} {
		require.NoError(t, s.Delta(&b, d))
	}
	r := &chat.Reply{Finish: chat.FinishToolCalls, Parts: []chat.Part{{Type: chat.ToolCall, ID: "toolu_1", Name: "t", Arguments: []byte(`"{\"a\": tru"`), ArgumentsRaw: true}}}
	require.NoError(t, s.Finish(&b, r))
	got, want := reassemble(t, b.Bytes()), whole(t, New().Reply(r))
	assert.JSONEq(t, string(want.Content[0]["input"].(json.RawMessage)), string(got.Content[0]["input"].(json.RawMessage)))
}

func TestArgumentsThatAreNoJSONAreWrapped(t *testing.T) {
	for args, want := range map[string]string{
		"not json":   `{"__unparsedToolInput":{"raw":"not json","len":8}}`,
		`"cut`:       `{"__unparsedToolInput":{"raw":"\"cut","len":4}}`,
		`"a\u00e9😀"`: `{"__unparsedToolInput":{"raw":"aé😀","len":4}}`,
		" null ":     `{}`,
		"":           `{}`,
	} {
		var b bytes.Buffer
		s := New().Stream()
		require.NoError(t, s.Start(&b, &chat.Reply{}))
		require.NoError(t, s.Delta(&b, chat.Delta{Type: chat.DeltaCallStart, ID: "toolu_1", Name: "t"}))
		for i := range len(args) {
			require.NoError(t, s.Delta(&b, chat.Delta{Type: chat.DeltaCallArgs, Text: args[i : i+1]}))
		}
		require.NoError(t, s.Finish(&b, &chat.Reply{}))
		assert.Equal(t, want, string(reassemble(t, b.Bytes()).Content[0]["input"].(json.RawMessage)), args)
		body := New().Reply(&chat.Reply{Parts: []chat.Part{{Type: chat.ToolCall, Arguments: []byte(args)}}})
		assert.Equal(t, want, string(whole(t, body).Content[0]["input"].(json.RawMessage)), args)
	}
}

func TestKeepAlive(t *testing.T) {
	var b bytes.Buffer
	s := New().Stream()
	require.NoError(t, s.KeepAlive(&b))
	assert.Equal(t, ": keep-alive\n\n", b.String())
	b.Reset()
	require.NoError(t, s.Start(&b, &chat.Reply{}))
	b.Reset()
	require.NoError(t, s.KeepAlive(&b))
	assert.Equal(t, "event: ping\ndata: {\"type\":\"ping\"}\n\n", b.String())
}

// TestFinishAloneEndsTheReply: the caller commits between the last delta and
// Finish, so nothing before Finish may look like an end.
func TestFinishAloneEndsTheReply(t *testing.T) {
	r := replies()["call"]
	var b bytes.Buffer
	s := New().Stream()
	require.NoError(t, s.Start(&b, r))
	for _, d := range deltas(r, uncut) {
		require.NoError(t, s.Delta(&b, d))
	}
	assert.NotContains(t, b.String(), "message_delta")
	assert.NotContains(t, b.String(), "message_stop")
	b.Reset()
	require.NoError(t, s.Finish(&b, r))
	events := readEvents(t, b.Bytes())
	assert.Equal(t, "message_delta", events[0].Type)
	assert.Equal(t, "message_stop", events[1].Type)
}

func TestFailedReplyIsNotEnded(t *testing.T) {
	var b bytes.Buffer
	s := New().Stream()
	require.NoError(t, s.Start(&b, &chat.Reply{}))
	require.NoError(t, s.Delta(&b, chat.Delta{Type: chat.DeltaText, Text: "x"}))
	b.Reset()
	require.NoError(t, s.Finish(&b, &chat.Reply{Finish: chat.FinishError}))
	events := readEvents(t, b.Bytes())
	require.Len(t, events, 1)
	assert.Equal(t, map[string]any{"type": "api_error", "message": "The reply was cut"}, events[0].Error)
}

func TestStreamError(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, New().Stream().Error(&b, &wire.Error{Kind: wire.Overloaded, Message: "busy"}))
	assert.Equal(t, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n", b.String())
}

func TestStreamRefusesDeltasOutOfOrder(t *testing.T) {
	var b bytes.Buffer
	s := New().Stream()
	assert.ErrorContains(t, s.Delta(&b, chat.Delta{Type: chat.DeltaCallArgs, Part: 3, Text: "{}"}), "before its call_start")
	assert.ErrorContains(t, s.Delta(&b, chat.Delta{Type: "odd"}), `type "odd"`)
	assert.Empty(t, b.String())
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestWriteErrorsAreTold(t *testing.T) {
	s := New().Stream()
	assert.Error(t, s.Start(failing{}, &chat.Reply{}))
	assert.Error(t, s.Delta(failing{}, chat.Delta{Type: chat.DeltaText, Text: "x"}))
	assert.Error(t, s.KeepAlive(failing{}))
}
