package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

var markers = []string{"<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>"}

func newModel(t *testing.T, text string, o Options) upstream.Upstream {
	t.Helper()
	s, err := Parse([]byte("penstock: script/v1\n" + text))
	require.NoError(t, err)
	u := New(s, token.NewBytes(markers), o)
	t.Cleanup(func() { assert.NoError(t, u.Close()) })
	return u
}

func ask(last string) *upstream.Request {
	prompt := "<|im_start|>user\n" + last + "<|im_end|>\n<|im_start|>assistant\n"
	return &upstream.Request{
		Model: "m", Prompt: prompt, LastMessage: last, WantIDs: true, AffinityKey: "s-1",
		PromptIDs: token.NewBytes(markers).Encode(nil, prompt, true), Stops: []string{"\n\nStop", "<|im_end|>"},
	}
}

// whole reads a generation to its end.
type whole struct {
	text     string
	ids      []int32
	logprobs []float64
	chunks   int
	last     upstream.Chunk
	err      error
}

func generate(t *testing.T, u upstream.Upstream, r *upstream.Request) (w whole) {
	t.Helper()
	s, err := u.Generate(t.Context(), r)
	if err != nil {
		return whole{err: err}
	}
	defer func() { assert.NoError(t, s.Close()) }()
	for {
		c, err := s.Next()
		if errors.Is(err, io.EOF) {
			return w
		}
		if err != nil {
			w.err = err
			return w
		}
		w.text += string(c.Text)
		w.ids = append(w.ids, c.IDs...)
		w.logprobs = append(w.logprobs, c.Logprobs...)
		w.chunks++
		w.last = c
	}
}

const sums = `
weights: w-7
seed: 3
rules:
  - name: call
    when: { last: 'What is (?<sum>\d+ \+ \d+)' , prompt: 'im_start.>(\w+)' }
    reply: "<tool_call>${sum} of $1$$</tool_call>"
  - name: answer
    when: { last: 'result=(\d+)' }
    reply: $1
`

func TestReplyIsBuiltFromWhatMatched(t *testing.T) {
	w := generate(t, newModel(t, sums, Options{}), ask("What is 2 + 3?"))
	require.NoError(t, w.err)
	assert.Equal(t, "<tool_call>2 + 3 of 2 + 3$</tool_call><|im_end|>", w.text, "a group number is that of last where both match")
	assert.Equal(t, upstream.Finish{Raw: "stop", Reason: chat.FinishStop}, w.last.Finish)
	assert.Empty(t, w.last.StopSequence)
	assert.Equal(t, "w-7", w.last.WeightVersion)
	assert.Equal(t, len(ask("What is 2 + 3?").PromptIDs), w.last.PromptTokens)
}

func TestIDs(t *testing.T) {
	u := newModel(t, sums, Options{})
	r := ask("result=12")
	w := generate(t, u, r)
	assert.Equal(t, []int32{'1', '2', 256}, w.ids, "the stop marker is sampled, as one id")
	require.Len(t, w.logprobs, 3)
	for i, id := range w.ids {
		assert.Equal(t, Logprob(3, len(r.PromptIDs)+i, id), w.logprobs[i])
		assert.Less(t, w.logprobs[i], 0.0)
		assert.GreaterOrEqual(t, w.logprobs[i], -5.0)
	}
	assert.Equal(t, w, generate(t, u, r), "the same prompt gives the same reply")

	call := generate(t, u, ask("What is 2 + 3?"))
	assert.Equal(t, int32(258), call.ids[0], "markers are single ids")

	r.WantIDs = false
	w = generate(t, u, r)
	assert.Nil(t, w.ids)
	assert.Nil(t, w.logprobs)
	assert.Equal(t, "12<|im_end|>", w.text)
}

func TestNoTokenizer(t *testing.T) {
	s, err := Parse([]byte("penstock: script/v1\n" + sums))
	require.NoError(t, err)
	r := ask("result=12345")
	r.Sampling.MaxTokens = ptr(3)
	w := generate(t, New(s, nil, Options{}), r)
	assert.Equal(t, "123", w.text)
	assert.Equal(t, chat.FinishLength, w.last.Finish.Reason)
	assert.Nil(t, w.ids)
}

func ptr[T any](v T) *T { return &v }

func TestNoRuleMatches(t *testing.T) {
	w := generate(t, newModel(t, sums, Options{}), ask("Tell me\na joke"))
	var status *upstream.StatusError
	require.ErrorAs(t, w.err, &status)
	assert.Equal(t, 400, status.Status)
	assert.Contains(t, status.Message, `"Tell me\na joke"`)

	long := generate(t, newModel(t, sums, Options{}), ask(strings.Repeat("é", 5000)+"the end"))
	assert.Less(t, len(long.err.Error()), 1000)
	assert.Contains(t, long.err.Error(), "the end")

	w = generate(t, newModel(t, sums+"otherwise: { reply: I do not know }\n", Options{}), ask("Tell me"))
	assert.Equal(t, "I do not know<|im_end|>", w.text)
}

func TestWhen(t *testing.T) {
	u := newModel(t, `
rules:
  - when: { turn: 2, last: hello }
    reply: second turn
  - when: { last: hello, not: { last: world, prompt: forbidden } }
    reply: plain
  - when: { prompt: '^<.im_start' }
    reply: rest
`, Options{})
	assert.Equal(t, "plain<|im_end|>", generate(t, u, ask("hello")).text)
	assert.Equal(t, "rest<|im_end|>", generate(t, u, ask("hello world")).text)
	assert.Equal(t, "rest<|im_end|>", generate(t, u, ask("hello forbidden")).text)
	r := ask("hello")
	r.Chat = &chat.Conversation{Messages: []chat.Message{{Role: chat.User}, {Role: chat.Assistant}, {Role: chat.User}}}
	assert.Equal(t, "second turn<|im_end|>", generate(t, u, r).text)
}

func TestEnds(t *testing.T) {
	const rules = `
rules:
  - { when: { last: plain }, reply: abc }
  - { when: { last: early }, reply: "ab<|im_end|>never" }
  - { when: { last: text }, reply: "ab\n\nStop never" }
  - { when: { last: length }, reply: abc, finish: length }
  - { when: { last: abort }, reply: abc, finish: abort }
  - { when: { last: empty }, reply: "" }
`
	u := newModel(t, rules, Options{})
	type end struct {
		text string
		raw  string
		why  chat.Finish
		stop string
	}
	for last, want := range map[string]end{
		"plain":  {"abc<|im_end|>", "stop", chat.FinishStop, ""},
		"early":  {"ab<|im_end|>", "stop", chat.FinishStop, ""},
		"text":   {"ab", "stop", chat.FinishStop, "\n\nStop"},
		"length": {"abc", "length", chat.FinishLength, ""},
		"abort":  {"abc", "abort", chat.FinishError, ""},
		"empty":  {"<|im_end|>", "stop", chat.FinishStop, ""},
	} {
		w := generate(t, u, ask(last))
		assert.Equal(t, want, end{w.text, w.last.Finish.Raw, w.last.Finish.Reason, w.last.StopSequence}, last)
	}

	r := ask("plain")
	r.Sampling.Stop = []string{"c"}
	w := generate(t, u, r)
	assert.Equal(t, end{"ab", "stop", chat.FinishStopSequence, "c"}, end{w.text, w.last.Finish.Raw, w.last.Finish.Reason, w.last.StopSequence})

	for most, want := range map[int]end{
		2: {"ab", "length", chat.FinishLength, ""},
		3: {"abc", "length", chat.FinishLength, ""},
		4: {"abc<|im_end|>", "stop", chat.FinishStop, ""},
	} {
		r := ask("plain")
		r.Sampling.MaxTokens = ptr(most)
		w := generate(t, u, r)
		assert.Equal(t, want, end{w.text, w.last.Finish.Raw, w.last.Finish.Reason, w.last.StopSequence}, most)
		assert.LessOrEqual(t, len(w.ids), most)
	}

	r = ask("empty")
	r.Stops = nil
	w = generate(t, u, r)
	assert.Equal(t, 1, w.chunks, "an empty reply still has a last chunk")
	assert.Equal(t, chat.FinishStop, w.last.Finish.Reason)
}

func TestChunks(t *testing.T) {
	u := newModel(t, `
defaults: { chunk: 2 }
rules:
  - { when: { last: two }, reply: abcde }
  - { when: { last: list }, reply: abcdefg, chunk: [1, 3] }
  - { when: { last: rune }, reply: "é", chunk: 1 }
`, Options{})
	assert.Equal(t, 3, generate(t, u, ask("two")).chunks)
	assert.Equal(t, 4, generate(t, u, ask("list")).chunks) // 1, 3, 1, 3
	w := generate(t, u, ask("rune"))
	assert.Equal(t, 3, w.chunks, "a rune may be cut")
	assert.Equal(t, "é<|im_end|>", w.text)
}

func TestLogprobs(t *testing.T) {
	u := newModel(t, `
rules:
  - { when: { last: fixed }, reply: ab, logprob: -0.25 }
  - { when: { last: none }, reply: ab, logprobs: false }
`, Options{})
	assert.Equal(t, []float64{-0.25, -0.25, -0.25}, generate(t, u, ask("fixed")).logprobs)
	w := generate(t, u, ask("none"))
	require.Len(t, w.logprobs, 3)
	for _, l := range w.logprobs {
		assert.True(t, math.IsNaN(l), "not given is NaN, never 0")
	}
}

func TestFail(t *testing.T) {
	u := newModel(t, `
defaults: { chunk: 1 }
rules:
  - { when: { last: busy }, fail: { status: 529, message: too busy, retry_after: 7 } }
  - { when: { last: cut }, reply: abc, fail: { after: 2 } }
  - { when: { last: late }, reply: abc, fail: { status: 500, after: 99 } }
  - { when: { last: twice }, reply: abc, fail: { status: 503, times: 2 } }
`, Options{})
	w := generate(t, u, ask("busy"))
	assert.Equal(t, &upstream.StatusError{Status: 529, RetryAfter: 7, Message: "too busy"}, w.err)

	w = generate(t, u, ask("cut"))
	assert.Equal(t, "ab", w.text)
	require.Error(t, w.err)
	assert.Empty(t, w.last.Finish, "a cut generation has no reason to stop")

	w = generate(t, u, ask("late"))
	assert.Equal(t, "abc<|im_end|>", w.text)
	var status *upstream.StatusError
	require.ErrorAs(t, w.err, &status)
	assert.Equal(t, 500, status.Status)

	other := ask("twice")
	other.AffinityKey = "s-2"
	assert.Error(t, generate(t, u, ask("twice")).err)
	assert.Error(t, generate(t, u, ask("twice")).err)
	assert.Equal(t, "abc<|im_end|>", generate(t, u, ask("twice")).text)
	assert.Error(t, generate(t, u, other).err, "sessions are counted apart")
}

func TestTimes(t *testing.T) {
	u := newModel(t, `
rules:
  - { when: { last: slow }, reply: abc, think_time: 30ms, delay: 10ms, chunk: 1 }
  - { when: { last: stall }, reply: abc, think_time: 1h }
`, Options{})
	start := time.Now()
	generate(t, u, ask("slow"))
	assert.GreaterOrEqual(t, time.Since(start), 60*time.Millisecond)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	s, err := u.Generate(ctx, ask("stall"))
	require.NoError(t, err)
	_, err = s.Next()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
}

func TestEngineLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.jsonl")
	u := newModel(t, "rules: [{ name: r, when: { last: hi }, reply: abc, chunk: 1 }]\n", Options{LogPath: path})
	w := generate(t, u, ask("hi"))
	s, err := u.Generate(t.Context(), ask("hi"))
	require.NoError(t, err)
	_, err = s.Next()
	require.NoError(t, err)
	require.NoError(t, s.Close())

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader(data))
	var first, second Record
	require.NoError(t, d.Decode(&first))
	require.NoError(t, d.Decode(&second))
	assert.Equal(t, ask("hi").PromptIDs, first.PromptIDs)
	assert.Equal(t, w.ids, first.SampledIDs)
	require.Len(t, first.Logprobs, len(w.logprobs))
	assert.Equal(t, w.logprobs[1], *first.Logprobs[1])
	assert.Equal(t, Record{Session: "s-1", Model: "m", Rule: "r", PromptIDs: first.PromptIDs, SampledIDs: w.ids,
		Logprobs: first.Logprobs, Text: "abc<|im_end|>", Finish: "stop"}, first)
	assert.Equal(t, "a", second.Text)
	assert.Equal(t, "cancelled", second.Finish)

	bad := newModel(t, "rules: [{ when: { last: hi }, reply: abc }]\n", Options{LogPath: filepath.Join(path, "x")})
	assert.ErrorContains(t, generate(t, bad, ask("hi")).err, "engine log")
}

func TestLoadErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "the file is empty",
		"penstock: v1\nrules: []\n":        `:1: penstock: is "v1", want script/v1`,
		"penstock: script/v1\n":            ":1: there are no rules",
		"penstock: script/v1\nrulez: []\n": ":2: field rulez is unknown",
		"penstock: script/v1\nrules:\n- when: { lost: a }\n  reply: b\n":              ":3: field lost is unknown, want last",
		"penstock: script/v1\nrules:\n- when: { last: a }\n  replay: b\n":             ":4: field replay is unknown",
		"penstock: script/v1\nrules:\n- when: { last: a }\n  reply: b\n  reply: c\n":  ":5: mapping key \"reply\" already defined",
		"penstock: script/v1\nrules:\n- when: { last: '(' }\n  reply: b\n":            ":3: error parsing regexp",
		"penstock: script/v1\nrules:\n- when: { last: '(a)' }\n  reply: $2\n":         ":3: rule 1: reply: no pattern of when has a group 2",
		"penstock: script/v1\nrules:\n- when: { last: a }\n  reply: '${x}'\n":         "has a group x",
		"penstock: script/v1\nrules:\n- reply: b\n":                                   ":3: rule 1 has no when",
		"penstock: script/v1\nrules:\n- when: {}\n  reply: b\n":                       ":3: rule 1: when is empty",
		"penstock: script/v1\nrules:\n- when: { last: a }\n":                          ":3: rule 1 has no reply",
		"penstock: script/v1\nrules:\n- when: { last: a }\n  reply: b\n  delay: 5\n":  ":5: \"5\" is not a duration",
		"penstock: script/v1\nrules:\n- when: { last: a }\n  reply: b\n  chunk: 0\n":  ":5: chunk wants",
		"penstock: script/v1\nrules:\n- when: { last: a }\n  reply: b\n  finish: x\n": ":3: rule 1: finish is \"x\"",
		"penstock: script/v1\nrules:\n- when: { last: a }\n  fail: { status: 200 }\n": ":3: rule 1: fail wants a status",
		"penstock: script/v1\notherwise:\n  reply: b\n  when: { last: a }\n":          ":3: otherwise takes no when",
		"penstock: script/v1\nrules:\n\t- a\n":                                        ":3: ",
	} {
		path := filepath.Join(t.TempDir(), "m.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Load(path)
		require.Error(t, err, text)
		assert.Contains(t, err.Error(), want, text)
		assert.True(t, strings.HasPrefix(err.Error(), path), err.Error())
		assert.NotContains(t, err.Error(), "script.", text)
	}
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestLogIsBesideTheScript(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.yaml")
	require.NoError(t, os.WriteFile(path, []byte("penstock: script/v1\nlog: engine.jsonl\notherwise: { reply: a }\n"), 0o600))
	s, err := Load(path)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(filepath.Dir(path), "engine.jsonl"), s.Log)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("penstock: script/v1" + sums))
	f.Add([]byte("penstock: script/v1\notherwise: { reply: $1, chunk: [1] }"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err == nil {
			assert.NotNil(t, s)
		}
	})
}
