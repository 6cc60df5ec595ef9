package anthropic

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// bigRequest is a request of about 120 KB: 20 tools and a conversation of 40
// turns.
func bigRequest() []byte {
	var b strings.Builder
	b.WriteString(`{"model":"m","max_tokens":32000,"stream":true,"system":[{"type":"text","text":"` + strings.Repeat("You are careful. ", 500) + `"}],"tools":[`)
	for i := range 20 {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `{"name":"tool%d","description":"%s","input_schema":{"type":"object","properties":{"a":{"type":"string","description":"text"},"b":{"type":["integer","null"],"default":null}},"required":["a"]}}`, i, strings.Repeat("Does a thing.\\n", 100))
	}
	b.WriteString(`],"messages":[{"role":"user","content":"go"}`)
	for i := range 40 {
		fmt.Fprintf(&b, `,{"role":"assistant","content":[{"type":"text","text":"Next."},{"type":"tool_use","id":"toolu_%d","name":"tool1","input":{"a":"x","b":%d}}]}`, i, i)
		fmt.Fprintf(&b, `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_%d","content":[{"type":"text","text":"%s"}]}]}`, i, strings.Repeat(`a line of output with \"quotes\"\n`, 50))
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func BenchmarkDecode120KB(b *testing.B) {
	body := bigRequest()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New().Decode(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode120KB(b *testing.B) {
	r, err := New().Decode(bigRequest())
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeRequest(&r.Chat, EncodeOptions{Model: "m"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStream100Deltas(b *testing.B) {
	r := &chat.Reply{ID: "msg_1", Model: "m", Finish: chat.FinishStop}
	delta := chat.Delta{Type: chat.DeltaText, Text: "some words of \"text\"\n"}
	b.ReportAllocs()
	for b.Loop() {
		s := New().Stream()
		_ = s.Start(io.Discard, r)
		for range 100 {
			_ = s.Delta(io.Discard, delta)
		}
		_ = s.Finish(io.Discard, r)
	}
}

// FuzzDecode: whatever comes in, decoding doesn't panic, and what is accepted
// can be written again and says the same.
func FuzzDecode(f *testing.F) {
	files, _ := filepath.Glob("testdata/requests/*.json")
	for _, file := range files {
		body, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(body)
	}
	f.Add([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"},{"type":"image","source":{"type":"base64","media_type":"i","data":"d"}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"redacted_thinking","data":"d"}]}],"tool_choice":{"type":"tool","name":"t"},"tools":[{"name":"t"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := New().Decode(body)
		if err != nil {
			return
		}
		require.True(t, json.Valid(r.Envelope), "%s", r.Envelope)
		for _, m := range r.Messages {
			require.True(t, json.Valid(m), "%s", m)
		}
		again, err := EncodeRequest(&r.Chat, EncodeOptions{Model: r.Model, Stream: r.Stream})
		require.NoError(t, err)
		second, err := New().Decode(again)
		require.NoError(t, err, "%s", again)
		require.Equal(t, asJSON(t, r.Chat.Messages), asJSON(t, second.Chat.Messages))
		require.Equal(t, asJSON(t, r.Chat.ToolChoice), asJSON(t, second.Chat.ToolChoice))
	})
}
