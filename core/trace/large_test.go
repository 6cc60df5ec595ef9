package trace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// longTexts are texts above all limits from which on content is written in
// pieces, with characters of several bytes across the borders of pieces.
func longTexts() map[string]string {
	n := largeContent + 100
	return map[string]string{
		"ascii":         strings.Repeat("a\tline\\ of \"text\"\n", n/16),
		"two bytes":     strings.Repeat("é", n/2),
		"three bytes":   "x" + strings.Repeat("€", n/3),
		"four bytes":    "xy" + strings.Repeat("𝄞", n/4),
		"no UTF-8":      strings.Repeat("\xffa", n/2),
		"begins with 0": "\x00" + strings.Repeat("b", n),
		"markup":        strings.Repeat("<&>\u2028", n/6),
	}
}

func TestLargeTextsAreWrittenAsShortOnes(t *testing.T) {
	for name, text := range longTexts() {
		message := &chat.Message{Role: chat.User, Parts: []chat.Part{
			{Type: chat.Text, Text: text}, {Type: chat.Text, Text: "short"},
			{Type: chat.ToolCall, ID: text[:10], Name: "f", Arguments: json.RawMessage(`{"a":` + `"` + text + `"}`)},
			{Type: chat.Text, Text: text[:largeText]},
		}}
		want, err := encode(message)
		require.NoError(t, err)
		var got bytes.Buffer
		require.NoError(t, encodeTo(&got, message), name)
		assert.True(t, bytes.Equal(want, got.Bytes()), name)
	}
}

func TestLargeCallsReadBack(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "penstock.db"), StoreOptions{})
	require.NoError(t, err)
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 2))
	var parent *Call
	for _, name := range []string{"three bytes", "no UTF-8", "begins with 0"} {
		text := longTexts()[name]
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		seq := 1
		if parent != nil {
			seq = parent.Seq + 1
		}
		c := &Call{
			ID: "s-1." + string(rune('0'+seq)), Session: "s-1", Seq: seq, Status: CallOK, Lineage: "s-1/main0", Kind: Main,
			Envelope: json.RawMessage(`{"system":` + string(quoted) + `,"messages":[]}`),
			Messages: []json.RawMessage{json.RawMessage(`{"role":"user","content":` + string(quoted) + `}`)},
			Chat: &chat.Conversation{
				Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: text}}}},
				Tools:    []chat.Tool{{Name: "f", Description: text, Parameters: json.RawMessage(`{}`), Raw: json.RawMessage(`{"name":"f"}`)}},
			},
			Prompt: text, Raw: text, Received: time.Unix(1e9, 0).UTC(), Done: time.Unix(1e9, 5).UTC(),
		}
		for range largeContent / 16 {
			c.PromptIDs = append(c.PromptIDs, r.Int32N(200000)-5)
			c.SampledIDs = append(c.SampledIDs, r.Int32())
			c.Logprobs = append(c.Logprobs, -r.Float64())
		}
		if parent != nil {
			c.Parent = parent.ID
			c.PromptIDs = append(append(parent.PromptIDs[:len(parent.PromptIDs):len(parent.PromptIDs)], parent.SampledIDs...), c.PromptIDs...)
		}
		require.NoError(t, s.PutCall(context.Background(), c), name)
		parent = c
		got, err := s.Call(context.Background(), c.ID)
		require.NoError(t, err, name)
		require.True(t, bytes.Equal(mustEncode(t, c), mustEncode(t, got)), name)
		require.Equal(t, c.Messages, got.Messages, name)
		require.Equal(t, c.Logprobs, got.Logprobs, name)
	}
}

func mustEncode(t *testing.T, c *Call) []byte {
	b, err := encode(c)
	require.NoError(t, err)
	return b
}

// A call of 8 MB is packed with little more memory than its packed form takes.
func TestLargeCallsArePackedInPieces(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "penstock.db"), StoreOptions{})
	require.NoError(t, err)
	defer s.Close()
	text := strings.Repeat("some prose that is said again and again, ", 8<<20/41)
	quoted, err := json.Marshal(text)
	require.NoError(t, err)
	ids := make([]int32, len(text))
	for i := range ids {
		ids[i] = int32(text[i])
	}
	c := &Call{
		ID: "s-1.1", Session: "s-1", Seq: 1, Status: CallOK, Messages: []json.RawMessage{quoted}, PromptIDs: ids,
		Chat: &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: text}}}}},
	}
	least := math.MaxFloat64
	for range 8 { // the race detector has pools forget what they hold, now and then
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = s.packCall(c, nil)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		least = min(least, float64(after.TotalAlloc-before.TotalAlloc)/float64(len(text)))
	}
	assert.Less(t, least, 3.0, "bytes allocated for a byte of text")
}

func TestDigestIsThatOfTheWhole(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", digestPiece/4)
	for _, n := range []int{0, 1, digestPiece / 8, digestPiece/8 + 1, digestPiece - 1, digestPiece, digestPiece + 1, 3*digestPiece + 7} {
		var d digest
		for range 2 {
			d.reset().text(text[:n/2])
			assert.Equal(t, key(sha256.Sum256([]byte(text[:n/2]))), d.sum(), n)
			d.bytes([]byte(text[n/2 : n]))
			assert.Equal(t, key(sha256.Sum256([]byte(text[:n]))), d.sum(), n)
			assert.Equal(t, d.sum(), d.sum(), n)
		}
	}
}
