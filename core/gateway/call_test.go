package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// TestStreamedAsGenerated: the first delta is with the client while the
// upstream has not finished.
func TestStreamedAsGenerated(t *testing.T) {
	step := make(chan struct{})
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		s := stream("one two", 4)
		s.wait = func(i int) error { <-step; return nil }
		return s, nil
	}}
	b := start(t, e)
	go func() { step <- struct{}{} }() // headers come with the first delta
	res, err := http.DefaultClient.Do(request(t, b.session(t), ask("hello", true)))
	require.NoError(t, err)
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, `"text":"one "`) {
			break
		}
	}
	assert.Empty(t, b.store.all(), "nothing is committed while the reply goes on")
	step <- struct{}{}
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	assert.Contains(t, string(rest), "message_stop")
	assert.Equal(t, "one two", b.store.only(t).Raw)
}

// replyCases are raw model texts of all shapes.
var replyCases = map[string]string{
	"text":           "Hello, world.",
	"empty":          "",
	"unicode":        "héllo 🌍 ✓",
	"thinking":       "<think>Let me see.</think>The answer is 42.",
	"call":           `<call add>{"a": 1, "b": null, "big": 12345678901234567890}</call>`,
	"call no args":   `<call list></call>`,
	"text and calls": `I'll do both. <call add>{"a":1}</call><call add>{"a":2}</call>`,
	"all":            `<think>Hm.</think>Now: <call add>{"a":"<b>&"}</call>after`,
}

// TestSeed10aCase4WholeAndStreamAgree: whole and streamed replies are the
// same after putting the stream together.
func TestSeed10aCase4WholeAndStreamAgree(t *testing.T) {
	for name, text := range replyCases {
		for _, size := range []int{1, 3, 1000} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				b := start(t, says(text+imEnd, size))
				whole := post(t, b.session(t), ask("hello", false, addTool))
				streamed := post(t, b.session(t), ask("hello", true, addTool))
				require.Equal(t, 200, whole.status, whole.body)
				require.NoError(t, streamed.err)
				assert.Equal(t, "application/json", whole.header.Get("Content-Type"))
				assert.Contains(t, streamed.header.Get("Content-Type"), "text/event-stream")
				list := eventsOf(t, streamed)
				assert.Equal(t, "message_stop", list[len(list)-1].name)
				want, got := decoded(t, whole.body), joined(t, list)
				for _, m := range []map[string]any{want, got} {
					assert.Contains(t, m["id"], "msg_")
					delete(m, "id")
					for _, c := range m["content"].([]any) {
						if block := c.(map[string]any); block["type"] == "tool_use" {
							delete(block, "id")
						}
					}
				}
				assert.Equal(t, want, got)
			})
		}
	}
}

func TestStopReasons(t *testing.T) {
	length := upstream.Finish{Raw: "length", Reason: chat.FinishLength}
	sequence := upstream.Finish{Raw: "stop", Reason: chat.FinishStopSequence}
	for _, c := range []struct {
		text   string
		finish upstream.Finish
		stop   string
		want   string
	}{
		{"hi", upstream.Finish{Raw: "stop", Reason: chat.FinishStop}, "", "end_turn"},
		{"hi", length, "", "max_tokens"},
		{`<call add>{"a":1}</call>`, length, "", "max_tokens"},
		{`<call add>{"a":1}</call>`, upstream.Finish{Raw: "stop", Reason: chat.FinishStop}, "", "tool_use"},
		{"hi", upstream.Finish{Raw: "tool_calls", Reason: chat.FinishToolCalls}, "", "end_turn"},
		{"hi", sequence, "END", "stop_sequence"},
		{"hi", sequence, imEnd, "end_turn"},
	} {
		e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
			s := stream(c.text, 100)
			s.list[0].Finish, s.list[0].StopSequence = c.finish, c.stop
			return s, nil
		}}
		b := start(t, e)
		a := post(t, b.session(t), ask("hello", false, addTool, `"stop_sequences":["END"]`))
		assert.Equal(t, c.want, decoded(t, a.body)["stop_reason"], "%+v", c)
		assert.Equal(t, c.finish.Raw, b.store.only(t).Finish)
	}
}

// TestRecordIsFull: everything that a call's record has to hold.
func TestRecordIsFull(t *testing.T) {
	temperature := 0.7
	b := start(t, says("<think>Hm.</think>ok <call add>{\"a\":1}</call>"+imEnd, 7), func(o *gateway.Options, m *gateway.Model) {
		m.ServeAs = "policy"
		m.Context = 500
		m.Sampling = chat.Sampling{Temperature: &temperature}
	})
	s := b.session(t)
	r := request(t, s, ask("hello", true, addTool, `"temperature":0.1`, `"top_p":0.9`, `"extra_field":{"b":1}`))
	r.Header.Set("Anthropic-Beta", "some-beta")
	r.Header.Set("X-Api-Key", s.Token())
	r.Header.Set("X-Custom", "has "+s.Token())
	r.Header.Set("X-Claude-Code-Session-Id", "abc")
	a := do(t, r)
	require.Equal(t, 200, a.status)
	c := b.store.only(t)
	assert.Equal(t, "s-1.1", c.ID)
	assert.Equal(t, c.ID, a.header.Get("Request-Id"))
	assert.Equal(t, "s-1", c.Session)
	assert.Equal(t, 1, c.Seq)
	assert.Equal(t, "anthropic", c.Dialect)
	assert.Equal(t, "POST", c.Method)
	assert.Equal(t, "/v1/messages?beta=true", c.Path)
	assert.Equal(t, "some-beta", c.Headers["anthropic-beta"])
	assert.Equal(t, "abc", c.Headers["x-claude-code-session-id"])
	assert.NotContains(t, quoted(c), s.Token(), "no credential is recorded")
	assert.True(t, c.Stream)
	assert.Nil(t, c.Body)
	assert.Len(t, c.Messages, 1)
	assert.Contains(t, string(c.Envelope), "extra_field")
	assert.Contains(t, c.Unknown, "extra_field")
	assert.Equal(t, "policy", c.ModelEntry)
	assert.Equal(t, "policy", c.ModelAsked)
	assert.Equal(t, "upstream-name", c.ModelServed)
	assert.Equal(t, "test", c.Engine)
	assert.Equal(t, "toy", c.Format)
	assert.Equal(t, "exact", c.Capture)
	assert.Equal(t, tokenizer.Hash(), c.Tokenizer)
	assert.Equal(t, 0.1, *c.Requested.Temperature)
	assert.Equal(t, 1000, *c.Requested.MaxTokens)
	assert.Equal(t, 0.7, *c.Effective.Temperature)
	assert.Equal(t, 0.9, *c.Effective.TopP)
	assert.Equal(t, 500-len(c.PromptIDs), *c.Effective.MaxTokens)
	assert.Equal(t, trace.Main, c.Kind)
	assert.Equal(t, "s-1/main0", c.Lineage)
	assert.Len(t, c.Chat.Messages, 1)
	assert.Empty(t, c.Prompt)
	assert.Equal(t, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n", string(tokenizer.Decode(nil, c.PromptIDs)))
	assert.Equal(t, c.Raw, string(tokenizer.Decode(nil, c.SampledIDs)))
	assert.Len(t, c.Logprobs, len(c.SampledIDs))
	require.Len(t, c.Parsed.Parts, 3)
	assert.Equal(t, chat.FinishToolCalls, c.Parsed.Finish)
	assert.Equal(t, c.Parsed.Parts, c.Served.Parts)
	require.Len(t, c.Spans, 1)
	assert.Equal(t, `<call add>{"a":1}</call>`, c.Raw[c.Spans[0].Start:c.Spans[0].End])
	assert.Equal(t, "stop", c.Finish)
	assert.Equal(t, chat.Usage{Input: len(c.PromptIDs), Output: len(c.SampledIDs)}, c.Usage)
	assert.Equal(t, trace.CallOK, c.Status)
	assert.Nil(t, c.Error)
	assert.Equal(t, 200, c.HTTPStatus)
	assert.False(t, c.ClientGone)
	assert.False(t, c.Received.IsZero() || c.FirstByte.IsZero() || c.Done.IsZero())
	require.Eventually(t, func() bool { return b.store.wasDelivered(c.ID) }, 15*time.Second, time.Millisecond)
	assert.Equal(t, c.Usage, s.Stats().Usage)
}

// TestSeed10aCase25OrderAndWeights: calls side by side have the order in which
// they came and the one in which they ended, and each the weights that sampled it.
func TestSeed10aCase25OrderAndWeights(t *testing.T) {
	began, leave := make(chan struct{}), make(chan struct{})
	e := &engine{reply: func(_ context.Context, r *upstream.Request) (upstream.Stream, error) {
		s := stream("ok"+imEnd, 10)
		s.list[0].WeightVersion = "step-8"
		if strings.Contains(r.Prompt, "first") {
			s.list[0].WeightVersion = "step-7"
			s.wait = func(i int) error {
				if i == 0 {
					close(began)
					<-leave
				}
				return nil
			}
		}
		return s, nil
	}}
	b := start(t, e)
	s := b.session(t)
	got := make(chan answer, 1)
	go func() { got <- post(t, s, ask("first", true)) }()
	<-began
	require.Equal(t, 200, post(t, s, ask("second", true)).status)
	close(leave)
	require.Equal(t, 200, (<-got).status)
	calls := b.store.all()
	require.Len(t, calls, 2)
	second, first := calls[0], calls[1]
	assert.Equal(t, []int{1, 2}, []int{first.Seq, second.Seq}, "as they came")
	assert.True(t, first.Received.Before(second.Received))
	assert.True(t, second.Done.Before(first.Done), "as they ended")
	assert.Equal(t, "step-7", first.Weights)
	assert.Equal(t, "step-8", second.Weights)
}

// TestSamplingByCapture: in training the model's sampling wins, else the
// client's.
func TestSamplingByCapture(t *testing.T) {
	mine, seed := 1.0, int64(7)
	for capture, want := range map[string]float64{gateway.CaptureExact: 1.0, gateway.CaptureReported: 1.0, gateway.CaptureText: 0.2} {
		e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
			s := stream("hi", 10)
			s.list[0].PromptIDs = []int32{1, 2, 3} // as engines tell that tokenize by themselves
			return s, nil
		}}
		b := start(t, e, func(o *gateway.Options, m *gateway.Model) {
			m.Capture = capture
			m.Sampling = chat.Sampling{Temperature: &mine, Seed: &seed}
		})
		a := post(t, b.session(t), ask("hello", false, `"temperature":0.2`))
		require.Equal(t, 200, a.status, a.body)
		r := e.seen()[0]
		assert.Equal(t, want, *r.Sampling.Temperature, capture)
		assert.Equal(t, int64(7), *r.Sampling.Seed)
		assert.Equal(t, capture != gateway.CaptureText, r.WantIDs)
		c := b.store.only(t)
		assert.Equal(t, 0.2, *c.Requested.Temperature)
		assert.Equal(t, want, *c.Effective.Temperature)
	}
}

// TestContextOverflow: an overflow is recognisable as one, and not a call of
// the upstream.
func TestContextOverflow(t *testing.T) {
	e := says("hi", 10)
	b := start(t, e, func(o *gateway.Options, m *gateway.Model) { m.Context = 64 })
	s := b.session(t)
	a := post(t, s, ask(strings.Repeat("x", 100), true))
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "invalid_request_error", at(decoded(t, a.body), "error", "type"))
	assert.Contains(t, at(decoded(t, a.body), "error", "message"), "prompt is too long: ")
	assert.Empty(t, e.seen())
	assert.Zero(t, s.Stats().Calls)
	assert.Equal(t, trace.CallInvalid, b.store.only(t).Status)
}

func TestMissingIDsAreAnError(t *testing.T) {
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		return &chunks{list: []upstream.Chunk{{Text: []byte("hi"), Finish: upstream.Finish{Raw: "stop", Reason: chat.FinishStop}}}}, nil
	}}
	b := start(t, e)
	assert.Equal(t, 502, post(t, b.session(t), ask("hello", false)).status)
	assert.Equal(t, "hi", b.store.only(t).Raw)
}

func TestMissingLogprobsAreNaN(t *testing.T) {
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		s := stream("abcdef", 2)
		s.list[0].Logprobs = nil
		s.list[1].Logprobs = s.list[1].Logprobs[:1]
		return s, nil
	}}
	b := start(t, e)
	require.Equal(t, 200, post(t, b.session(t), ask("hello", false)).status)
	c := b.store.only(t)
	require.Len(t, c.Logprobs, len(c.SampledIDs))
	for i, nan := range []bool{true, true, false, true, false, false} {
		assert.Equal(t, nan, math.IsNaN(c.Logprobs[i]), i)
	}
}

// TestNextTurnExtends: the prompt of the second turn begins with the exact
// ids of the first.
func TestNextTurnExtends(t *testing.T) {
	b := start(t, says("one"+imEnd, 2))
	s := b.session(t)
	require.Equal(t, 200, post(t, s, ask("hello", true, addTool)).status)
	next := `{"model":"policy","max_tokens":1000,"stream":true,` + addTool + `,"messages":[{"role":"user","content":"hello"},` +
		`{"role":"assistant","content":[{"type":"text","text":"one"}]},{"role":"user","content":"more"}]}`
	require.Equal(t, 200, post(t, s, next).status)
	calls := b.store.all()
	require.Len(t, calls, 2)
	first, second := calls[0], calls[1]
	assert.True(t, second.Extends)
	assert.Equal(t, first.ID, second.Parent)
	assert.Equal(t, first.Lineage, second.Lineage)
	whole := append(append([]int32(nil), first.PromptIDs...), first.SampledIDs...)
	assert.Equal(t, whole, second.PromptIDs[:len(whole)])
	assert.Equal(t, "\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n", string(tokenizer.Decode(nil, second.PromptIDs[len(whole):])))
	st := s.Stats()
	assert.Equal(t, gateway.Stats{Calls: 2, Turns: 2, Usage: first.Usage.Add(second.Usage), Cost: cost.Cost{Basis: cost.Unknown}, LastActivity: st.LastActivity}, st)
}

// TestCallIDsAreUnique: a format whose ids repeat gets new ones.
func TestCallIDsAreUnique(t *testing.T) {
	b := start(t, says(`<call add>{"a":1}</call><call add>{"a":2}</call>`+imEnd, 5), func(o *gateway.Options, m *gateway.Model) {
		m.Format = toy{wrap: func(p format.Parser) format.Parser {
			p.(*toyParser).newID = func() string { return "functions.add:0" }
			return p
		}}
	})
	s := b.session(t)
	seen := map[string]bool{}
	for range 2 {
		require.Equal(t, 200, post(t, s, ask("hello", false, addTool)).status)
	}
	for _, c := range b.store.all() {
		for _, p := range chat.Calls(c.Served.Parts) {
			assert.False(t, seen[p.ID], p.ID)
			seen[p.ID] = true
		}
	}
	assert.Len(t, seen, 4)
	assert.True(t, seen["functions.add:0"])
}

// TestManyCallsAtOnce: the calls of a session side by side are all served
// and recorded.
func TestManyCallsAtOnce(t *testing.T) {
	b := start(t, says("hi"+imEnd, 1))
	s := b.session(t)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			a := post(t, s, ask(fmt.Sprint("hello ", i), i%2 == 0))
			assert.Equal(t, 200, a.status)
		})
	}
	all.Wait()
	seqs := map[int]bool{}
	for _, c := range b.store.all() {
		seqs[c.Seq] = true
	}
	assert.Len(t, seqs, 20)
	assert.Equal(t, 20, s.Stats().Calls)
}

// TestSeed10aCase10ToolChoice is enforced where it can be, else refused.
func TestSeed10aCase10ToolChoice(t *testing.T) {
	const text = `<call add>{"a":1}</call><call add>{"a":2}</call> end`
	for _, hs := range [][]gateway.Hook{nil, {changes("pass", swap("nothing", ""), hook.ToolCall)}} {
		for _, streamed := range []bool{true, false} {
			b := start(t, says(text+imEnd, 3), hooks(hs...))
			a := post(t, b.session(t), ask("hello", streamed, addTool, `"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`))
			m := decodedOrJoined(t, a, streamed)
			assert.Len(t, m["content"], 2)
			assert.Equal(t, 1.0, at(m, "content", 0, "input", "a"))
			assert.Equal(t, " end", at(m, "content", 1, "text"))
			assert.Equal(t, "tool_use", m["stop_reason"])
			c := b.store.only(t)
			assert.Len(t, c.Parsed.Parts, 3)
			require.Len(t, c.Edits, 1)
			assert.Contains(t, string(c.Edits[0].Before), `{"a":2}`)
		}
	}
}

func decodedOrJoined(t *testing.T, a answer, streamed bool) map[string]any {
	t.Helper()
	require.Equal(t, 200, a.status, a.body)
	if streamed {
		return joined(t, eventsOf(t, a))
	}
	return decoded(t, a.body)
}

// TestChunksThatAreHereGoOutTogether: one write takes what needn't wait.
func TestChunksThatAreHereGoOutTogether(t *testing.T) {
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		s := stream("one two three", 1)
		for i := range len(s.list) - 1 {
			s.list[i].More = true
		}
		return s, nil
	}}
	b := start(t, e)
	a := post(t, b.session(t), ask("hello", true))
	assert.Equal(t, "one two three", at(joined(t, eventsOf(t, a)), "content", 0, "text"))
}
