package responses

import (
	"bytes"
	"encoding/json"
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
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fixed is the dialect at a fixed time.
var fixed = dialect{now: func() time.Time { return time.Unix(1700000000, 0) }}

// asked is a request with a namespace and a custom tool.
var asked = &wire.Request{Envelope: []byte(`{` + toolsOfAllKinds + `}`)}

type event struct {
	Type        string         `json:"type"`
	Number      *int           `json:"sequence_number"`
	Response    map[string]any `json:"response"`
	Item        map[string]any `json:"item"`
	ItemID      string         `json:"item_id"`
	OutputIndex *int           `json:"output_index"`
	Part        map[string]any `json:"part"`
	Delta       string         `json:"delta"`
	Text        *string        `json:"text"`
	Arguments   *string        `json:"arguments"`
	Input       *string        `json:"input"`
}

// readEvents splits a stream into events and checks their numbers.
func readEvents(t *testing.T, stream []byte) (events []event) {
	t.Helper()
	require.True(t, bytes.HasSuffix(stream, []byte("\n\n")))
	for _, text := range strings.Split(strings.TrimSuffix(string(stream), "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(text, "\n")
		require.True(t, ok && strings.HasPrefix(name, "event: ") && strings.HasPrefix(data, "data: "), text)
		var e event
		require.NoError(t, json.Unmarshal([]byte(data[len("data: "):]), &e), data)
		require.Equal(t, e.Type, name[len("event: "):])
		require.Equal(t, len(events), *e.Number, "numbers have a gap")
		events = append(events, e)
	}
	return events
}

// reassemble builds the output from the deltas alone, checks every whole text
// and item against it, and returns the final response.
func reassemble(t *testing.T, stream []byte) map[string]any {
	t.Helper()
	events := readEvents(t, stream)
	require.Equal(t, "response.created", events[0].Type)
	var items []any
	var text strings.Builder
	open := ""
	for _, e := range events {
		if e.ItemID != "" {
			require.Equal(t, open, e.ItemID)
			require.Equal(t, len(items), *e.OutputIndex)
		}
		switch {
		case e.Type == "response.output_item.added":
			require.Empty(t, open, "an item opened in another")
			open = e.Item["id"].(string)
			text.Reset()
		case strings.HasSuffix(e.Type, ".delta"):
			require.NotEmpty(t, e.Delta)
			text.WriteString(e.Delta)
		case e.Type == "response.output_item.done":
			require.Equal(t, open, e.Item["id"])
			items = append(items, e.Item)
			open = ""
		case strings.HasSuffix(e.Type, ".done"):
			whole := e.Part["text"]
			for _, s := range []*string{e.Text, e.Arguments, e.Input} {
				if s != nil {
					whole = *s
				}
			}
			require.Equal(t, text.String(), whole)
		}
	}
	last := events[len(events)-1]
	require.Contains(t, []string{"response.completed", "response.incomplete"}, last.Type)
	if items == nil {
		items = []any{}
	}
	require.Equal(t, items, last.Response["output"])
	return last.Response
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
			if p.Data != "" {
				out = append(out, chat.Delta{Type: chat.DeltaRedacted, Part: i, Text: p.Data})
				break
			}
			pieces(chat.DeltaReasoning, i, p.Text)
			if p.Signature != "" {
				pieces(chat.DeltaSignature, i, p.Signature)
			}
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

func streamed(t testing.TB, r *chat.Reply, cut func(int) []int) []byte {
	t.Helper()
	var b bytes.Buffer
	s := wire.StreamFor(fixed, asked)
	require.NoError(t, s.Start(&b, r))
	for _, d := range deltas(r, cut) {
		require.NoError(t, s.Delta(&b, d))
	}
	require.NoError(t, s.Finish(&b, r))
	return b.Bytes()
}

func agree(t *testing.T, r *chat.Reply, cut func(int) []int) {
	t.Helper()
	var want map[string]any
	body := wire.ReplyFor(fixed, asked, r)
	require.NoError(t, json.Unmarshal(body, &want), "%s", body)
	assert.Equal(t, want, reassemble(t, streamed(t, r, cut)))
}

func replies() map[string]*chat.Reply {
	text := func(s string) chat.Part { return chat.Part{Type: chat.Text, Text: s} }
	call := func(id, name, args string) chat.Part {
		return chat.Part{Type: chat.ToolCall, ID: id, Name: name, Arguments: []byte(args)}
	}
	out := map[string]*chat.Reply{
		"text":      {Parts: []chat.Part{text("Hello, wörld <b>&\u2028\"\\\n")}, Finish: chat.FinishStop},
		"reasoning": {Parts: []chat.Part{{Type: chat.Reasoning, Text: "hm"}, {Type: chat.Reasoning, Text: "x", Signature: "theirs"}, {Type: chat.Reasoning, Data: "opaque"}, text("42")}, Finish: chat.FinishStop},
		"call":      {Parts: []chat.Part{text("Let me."), call("call_1", "t", `{"a": 1, "b":null,"big":12345678901234567890}`)}, Finish: chat.FinishToolCalls},
		"parallel":  {Parts: []chat.Part{call("call_1", "t", `{"a":1}`), call("call_2", "mcp__calc__calculator", ``), call("call_3", "t", `null`)}, Finish: chat.FinishStop},
		"custom":    {Parts: []chat.Part{call("call_1", "apply_patch", `{"input":"*** Begin é\n"}`), call("call_2", "apply_patch", `{"other":1}`)}, Finish: chat.FinishStop},
		"raw":       {Parts: []chat.Part{{Type: chat.ToolCall, ID: "call_1", Name: "t", Arguments: []byte(`"{\"a\": 😀"`), ArgumentsRaw: true}}, Finish: chat.FinishToolCalls},
		"empty":     {Finish: chat.FinishStop},
		"length":    {Parts: []chat.Part{text("cut"), call("call_1", "t", `{"a`)}, Finish: chat.FinishLength},
		"refusal":   {Parts: []chat.Part{text("no")}, Finish: chat.FinishRefusal},
	}
	for _, r := range out {
		r.ID, r.Model, r.Usage = "resp_1", "test-model", chat.Usage{Input: 100, Cached: 60, Output: 7}
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
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		text := func() string {
			bits := []string{"a", " ", "\n", "é", "漢", "😀", "\"", "\\", "\x00", "\xff", "\xe6\xbc", "{"}
			var b strings.Builder
			for range rnd.IntN(12) {
				b.WriteString(bits[rnd.IntN(len(bits))])
			}
			return b.String()
		}
		r := &chat.Reply{ID: "resp_r", Model: "m", Finish: chat.FinishStop}
		names := []string{"t", "mcp__calc__calculator", "apply_patch"}
		for range rnd.IntN(6) {
			switch rnd.IntN(4) {
			case 0:
				r.Parts = append(r.Parts, chat.Part{Type: chat.Reasoning, Text: text()})
			case 1:
				r.Parts = append(r.Parts, chat.Part{Type: chat.ToolCall, ID: "call_a", Name: names[rnd.IntN(3)], Arguments: []byte(text())})
			case 2:
				r.Parts = append(r.Parts, chat.Part{Type: chat.ToolCall, ID: "call_b", Name: names[rnd.IntN(3)], Arguments: customArguments(sse.Clean(text()))})
			default:
				r.Parts = append(r.Parts, chat.Part{Type: chat.Text, Text: text()})
			}
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
	r := &chat.Reply{ID: "resp_1", Model: "test-model", Finish: chat.FinishToolCalls, Usage: chat.Usage{Input: 25, Cached: 5, Output: 9}, Parts: []chat.Part{
		{Type: chat.Reasoning, Text: "Add them."}, {Type: chat.Text, Text: "Let me do that."},
		{Type: chat.ToolCall, ID: "call_1", Name: "mcp__calc__calculator", Arguments: []byte(`{"expression":"23 + 19"}`)},
		{Type: chat.ToolCall, ID: "call_2", Name: "apply_patch", Arguments: []byte(`{"input":"*** Begin"}`)},
	}}
	got := streamed(t, r, func(n int) []int { return []int{n / 2} })
	if *update {
		require.NoError(t, os.WriteFile("testdata/stream.golden", got, 0o644))
	}
	want, err := os.ReadFile("testdata/stream.golden")
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}

// Case 8 of 10a: a cut reply is incomplete and says why.
func TestStatus(t *testing.T) {
	for name, want := range map[string][2]any{
		"text":    {"completed", nil},
		"length":  {"incomplete", map[string]any{"reason": "max_output_tokens"}},
		"refusal": {"incomplete", map[string]any{"reason": "content_filter"}},
	} {
		got := reassemble(t, streamed(t, replies()[name], uncut))
		assert.Equal(t, want, [2]any{got["status"], got["incomplete_details"]}, name)
	}
}

// The request that follows has what was served: reasoning whole, calls with
// their namespace, the input of custom calls.
func TestServedItemsComeBack(t *testing.T) {
	for _, name := range []string{"reasoning", "call", "custom", "raw"} {
		r := replies()[name]
		var served struct {
			Output json.RawMessage `json:"output"`
		}
		require.NoError(t, json.Unmarshal(wire.ReplyFor(fixed, asked, r), &served))
		back := decodeOK(t, []byte(`{"model":"m","input":`+string(served.Output)+`}`))
		require.Len(t, back.Chat.Messages, 1)
		if name == "custom" {
			r.Parts[1].Arguments = customArguments(`{"other":1}`)
		}
		if name == "reasoning" {
			r.Parts[2].Data, r.Parts[2].Signature = "", "opaque"
		}
		assert.Equal(t, asJSON(t, r.Parts), asJSON(t, back.Chat.Messages[0].Parts))
	}
}

func TestKeepAliveIsADataEventOnceStarted(t *testing.T) {
	var b bytes.Buffer
	s := fixed.Stream()
	require.NoError(t, s.KeepAlive(&b))
	assert.Equal(t, ": keep-alive\n\n", b.String())
	require.NoError(t, s.Start(&b, &chat.Reply{}))
	b.Reset()
	require.NoError(t, s.KeepAlive(&b))
	assert.Equal(t, "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":2}\n\n", b.String())
}

func TestFailures(t *testing.T) {
	var b bytes.Buffer
	s := fixed.Stream()
	require.NoError(t, s.Error(&b, wire.Errorf(wire.RateLimited, "slow down")))
	assert.Equal(t, "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":\"rate_limit_exceeded\",\"message\":\"slow down\",\"param\":null}\n\n", b.String())

	b.Reset()
	s = fixed.Stream()
	require.NoError(t, s.Start(&b, &chat.Reply{ID: "resp_1"}))
	require.NoError(t, s.Delta(&b, chat.Delta{Type: chat.DeltaText, Text: "x"}))
	require.NoError(t, s.Finish(&b, &chat.Reply{Finish: chat.FinishError}))
	events := readEvents(t, b.Bytes())
	last := events[len(events)-1]
	assert.Equal(t, "response.failed", last.Type)
	assert.Equal(t, map[string]any{"code": "upstream_error", "message": "The reply was cut"}, last.Response["error"])
	assert.Equal(t, "failed", last.Response["status"])
	assert.NotContains(t, b.String(), "response.completed")
}

func TestFinishAloneEndsTheReply(t *testing.T) {
	var b bytes.Buffer
	s := wire.StreamFor(fixed, asked)
	r := replies()["call"]
	require.NoError(t, s.Start(&b, r))
	for _, d := range deltas(r, uncut) {
		require.NoError(t, s.Delta(&b, d))
	}
	assert.NotContains(t, b.String(), "response.completed")
	b.Reset()
	require.NoError(t, s.Finish(&b, r))
	assert.True(t, strings.HasPrefix(b.String(), "event: response.completed\n"))
	assert.ErrorContains(t, s.Delta(io.Discard, chat.Delta{Type: chat.DeltaCallArgs, Part: 3}), "before its call_start")
	assert.ErrorContains(t, s.Delta(io.Discard, chat.Delta{Type: "odd"}), `type "odd"`)
}

func BenchmarkStream100Deltas(b *testing.B) {
	r := &chat.Reply{ID: "resp_1", Model: "m", Finish: chat.FinishStop}
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
