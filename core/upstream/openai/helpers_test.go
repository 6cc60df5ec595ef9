package openai

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/dev/engine"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/script"
	"github.com/penstock-dev/penstock/sdk/chat"
)

const key = "sk-test-0123456789"

const rules = `penstock: script/v1
weights: w-7
seed: 3
defaults: { chunk: [3, 1, 5] }
rules:
  - name: call
    when: { last: 'What is (\d+)\+(\d+)' }
    reply: |-
      <think>
      Add tham: é
      </think>

      Let me see.
      <tool_call>
      {"name": "calculator", "arguments": {"expression": "$1+$2"}}
      </tool_call>
      <tool_call>
      {"name": "calculator", "arguments": {}}
      </tool_call>
  - name: result
    when: { last: '<tool_response>\s*(.*)\s*</tool_response>' }
    reply: "It is $1."
  - name: count
    when: { last: 'Count' }
    reply: "one two STOP three"
  - name: long
    when: { last: 'Talk' }
    reply: "a very long story"
    finish: length
  - name: void
    when: { last: 'Blank' }
    reply: "no numbers"
    logprobs: false
otherwise: { reply: "héllo wörld" }
`

// stand is a stand-in that serves over HTTP.
func stand(t *testing.T, o engine.Options) (*engine.Engine, string) {
	t.Helper()
	var err error
	if o.Script == nil {
		o.Script, err = script.Parse([]byte(rules))
		require.NoError(t, err)
	}
	if o.Model == "" {
		o.Model = "m"
	}
	before := runtime.NumGoroutine()
	e, err := engine.New(o)
	require.NoError(t, err)
	s := httptest.NewServer(e)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		require.NoError(t, e.Close())
		assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 15*time.Second, 10*time.Millisecond, "goroutines stay")
	})
	return e, s.URL
}

// open opens an upstream, whose log and errors must not hold the key.
func open(t *testing.T, o Options) upstream.Upstream {
	t.Helper()
	u, err := tryOpen(t, o)
	require.NoError(t, err)
	return u
}

func tryOpen(t *testing.T, o Options) (upstream.Upstream, error) {
	t.Helper()
	if o.Model == "" {
		o.Model = "m"
	}
	var log bytes.Buffer
	o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	u, err := New(t.Context(), o)
	t.Cleanup(func() {
		if u != nil {
			assert.NoError(t, u.Close())
		}
		assert.NotContains(t, log.String(), key)
	})
	if err != nil {
		assert.NotContains(t, err.Error(), key)
	}
	return u, err
}

// got is a whole generation.
type got struct {
	text     string
	prompt   []int32
	ids      []int32
	logprobs []float64
	deltas   []chat.Delta
	raw      string
	chunks   int
	last     upstream.Chunk
	weights  string
	err      error
}

func generate(t *testing.T, u upstream.Upstream, r *upstream.Request) (g got) {
	t.Helper()
	s, err := u.Generate(t.Context(), r)
	if err != nil {
		assert.NotContains(t, err.Error(), key)
		return got{err: err}
	}
	defer func() { assert.NoError(t, s.Close()) }()
	for {
		c, err := s.Next()
		if errors.Is(err, io.EOF) {
			_, again := s.Next()
			assert.ErrorIs(t, again, io.EOF)
			assert.NotEmpty(t, g.last.Finish.Raw, "the end comes with a reason")
			return g
		}
		if err != nil {
			assert.NotContains(t, err.Error(), key)
			assert.Empty(t, g.last.Finish, "a cut reply has no reason")
			g.err = err
			return g
		}
		assert.Len(t, c.Logprobs, len(c.IDs))
		g.text += string(c.Text)
		g.prompt = append(g.prompt, c.PromptIDs...)
		g.ids, g.logprobs = append(g.ids, c.IDs...), append(g.logprobs, c.Logprobs...)
		g.deltas, g.raw = append(g.deltas, c.Deltas...), g.raw+string(c.Raw)
		g.chunks++
		if c.WeightVersion != "" {
			g.weights = c.WeightVersion
		}
		g.last = c
	}
}

// ask is a request with a rendered prompt.
func ask(e *engine.Engine, text string) *upstream.Request {
	prompt := "<|im_start|>user\n" + text + "<|im_end|>\n<|im_start|>assistant\n"
	return &upstream.Request{
		Prompt: prompt, PromptIDs: e.Tokenizer().Encode(nil, prompt, true), WantIDs: true, AffinityKey: "s-1",
		Stops: []string{"<|im_end|>", "<|endoftext|>"},
	}
}

// talk is a request with a conversation.
func talk(text string) *upstream.Request {
	return &upstream.Request{AffinityKey: "s-1", Chat: &chat.Conversation{
		Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: text}}}},
		Tools:    []chat.Tool{{Name: "calculator", Description: "adds", Parameters: []byte(`{"type":"object","properties":{"expression":{"type":"string"}}}`)}},
	}}
}

// agrees checks ids and logprobs against those that the script gives.
func agrees(t *testing.T, e *engine.Engine, r *upstream.Request, g got, text string) {
	t.Helper()
	want := e.Tokenizer().Encode(nil, text, true)
	require.Equal(t, want, g.ids)
	require.Len(t, g.logprobs, len(want))
	for i, id := range want {
		assert.InDelta(t, script.Logprob(3, len(g.prompt)+i, id), g.logprobs[i], 1e-9)
	}
	assert.Equal(t, len(want), g.last.OutputTokens)
	assert.Equal(t, len(g.prompt), g.last.PromptTokens)
	if r.PromptIDs != nil {
		assert.Equal(t, r.PromptIDs, g.prompt)
	}
}

// parts puts deltas together, and checks their order.
func parts(t *testing.T, deltas []chat.Delta) []chat.Part {
	t.Helper()
	var out []chat.Part
	open := false
	for _, d := range deltas {
		if !open && d.Type != chat.DeltaPartEnd {
			require.Equal(t, len(out), d.Part)
			out, open = append(out, chat.Part{}), true
		}
		require.True(t, open)
		require.Equal(t, len(out)-1, d.Part)
		p := &out[len(out)-1]
		switch d.Type {
		case chat.DeltaText:
			p.Type, p.Text = chat.Text, p.Text+d.Text
		case chat.DeltaReasoning:
			p.Type, p.Text = chat.Reasoning, p.Text+d.Text
		case chat.DeltaCallStart:
			p.Type, p.ID, p.Name = chat.ToolCall, d.ID, d.Name
		case chat.DeltaCallArgs:
			p.Arguments = append(p.Arguments, d.Text...)
		case chat.DeltaPartEnd:
			open = false
		}
	}
	require.False(t, open, "a part wasn't ended")
	return out
}

func isNaN(f float64) bool { return math.IsNaN(f) }
