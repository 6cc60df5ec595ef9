package formats_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

var lawTools = []chat.Tool{
	{Name: "write", Description: "Writes a file.", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"},"n":{"type":"integer"},"force":{"type":"boolean"},"tags":{"type":"array","items":{"anyOf":[{"type":"string"},{"type":"object","properties":{"k":{"type":["integer","null"]}}}]}},"opt":{"type":["integer","null"]}}}`)},
	{Name: "now", Parameters: json.RawMessage(`{"type":"object","properties":{}}`)},
}

// writer makes random conversations whose text no template changes.
type writer struct{ *rand.Rand }

func (w writer) pick(list ...string) string { return list[w.IntN(len(list))] }

func (w writer) words() string {
	out := w.pick("Look", "naïve", "日本", "x < 3 && y > 4", "`code`")
	for range w.IntN(4) {
		out += w.pick(" ", "\n", "\n\n  ") + w.pick("and", "\"then\"", "{\"a\": 1}", "👩‍👩‍👧", "it's", "\\n")
	}
	return out
}

func (w writer) arguments() json.RawMessage {
	s, err := chat.Marshal(w.words() + w.pick("", "\n", "  ", "\n\n"))
	if err != nil {
		panic(err)
	}
	all := []string{
		`"path": "a/b.txt"`, `"text": ` + string(s), fmt.Sprintf(`"n": %d`, w.Int64()),
		`"force": ` + w.pick("true", "false"), `"tags": ["a", {"k": null}]`, `"opt": null`,
	}
	w.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return json.RawMessage("{" + strings.Join(all[:w.IntN(len(all)+1)], ", ") + "}")
}

func (w writer) assistant(id *int, think bool) chat.Message {
	m := chat.Message{Role: chat.Assistant}
	if think {
		m.Parts = append(m.Parts, chat.Part{Type: chat.Reasoning, Text: w.words()})
	}
	calls := w.IntN(3)
	if calls == 0 || w.IntN(2) == 0 {
		m.Parts = append(m.Parts, chat.Part{Type: chat.Text, Text: w.words()})
	}
	for range calls {
		p := chat.Part{Type: chat.ToolCall, ID: fmt.Sprintf("c%d", *id), Name: "now", Arguments: json.RawMessage("{}")}
		if w.IntN(3) > 0 {
			p.Name, p.Arguments = "write", w.arguments()
		}
		*id++
		m.Parts = append(m.Parts, p)
	}
	return m
}

// conversation ends before an assistant's turn. think says whether each
// assistant's turn has reasoning.
func (w writer) conversation(think bool) *chat.Conversation {
	c := &chat.Conversation{Tools: lawTools}
	text := func(role chat.Role) {
		c.Messages = append(c.Messages, chat.Message{Role: role, Parts: []chat.Part{{Type: chat.Text, Text: w.words()}}})
	}
	if w.IntN(2) == 0 {
		text(chat.System)
	}
	text(chat.User)
	id := 0
	for range 1 + w.IntN(4) {
		m := w.assistant(&id, think)
		c.Messages = append(c.Messages, m)
		for _, call := range chat.Calls(m.Parts) {
			result := chat.Part{Type: chat.ToolResult, ID: call.ID, IsError: w.IntN(4) == 0, Content: []chat.Part{{Type: chat.Text, Text: w.words()}}}
			c.Messages = append(c.Messages, chat.Message{Role: chat.ToolRole, Parts: []chat.Part{result}})
		}
		if len(chat.Calls(m.Parts)) == 0 || w.IntN(5) == 0 {
			text([]chat.Role{chat.User, chat.User, chat.System}[w.IntN(3)])
		}
	}
	return c
}

// Where a template renders stably, the whole prompt is the prompt up to a
// turn, what was sampled for it, and the tail; and what was sampled parses to
// the turn.
func TestRenderLaw(t *testing.T) {
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			f := open(t, name)
			w := writer{rand.New(rand.NewPCG(7, 11))}
			stable, unstable := 0, 0
			for range 150 {
				think := reasons(f) && (opens(t, f) || w.IntN(2) == 0)
				c := w.conversation(think)
				if slices.Contains([]string{"llama3_json", "llama4_pythonic", "xlam"}, name) {
					withoutTextBesideCalls(c)
				}
				if think {
					on := true
					c.Thinking = &on
				}
				for k, m := range c.Messages {
					if m.Role != chat.Assistant {
						continue
					}
					if checkLaw(t, f, c, k) {
						stable++
					} else {
						unstable++
					}
					if t.Failed() {
						return
					}
				}
			}
			if reasons(f) || !opens(t, f) {
				assert.Greater(t, stable, 60)
			} else {
				assert.Less(t, stable, unstable, "reasoning that the prompt opens is never written back")
			}
			t.Logf("%d stable, %d forked", stable, unstable)
		})
	}
}

// withoutTextBesideCalls takes the text out of turns with calls, for a format
// whose reply is either.
func withoutTextBesideCalls(c *chat.Conversation) {
	for i, m := range c.Messages {
		if calls := chat.Calls(m.Parts); len(calls) > 0 {
			c.Messages[i].Parts = calls
		}
	}
}

// opens reports whether the prompt opens reasoning by itself. Each turn has
// some then.
func opens(t *testing.T, f format.Format) bool {
	t.Helper()
	c := &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "q"}}}}}
	r, err := f.Render(t.Context(), &format.RenderRequest{Chat: c})
	require.NoError(t, err)
	return r.State.ReasoningOpen
}

// checkLaw reports whether turn k is stable.
func checkLaw(t *testing.T, f format.Format, c *chat.Conversation, k int) bool {
	t.Helper()
	until := *c
	until.Messages = c.Messages[:k]
	before, err := f.Render(t.Context(), &format.RenderRequest{Chat: &until})
	require.NoError(t, err)
	whole, err := f.Render(t.Context(), &format.RenderRequest{Chat: c})
	require.NoError(t, err)
	tail, err := f.Tail(t.Context(), &format.RenderRequest{Chat: c}, k, format.EndedStop)
	require.NoError(t, err)
	if tail.Unstable != "" {
		return false
	}
	prompt, prefix, suffix := format.Text(whole.Segments), format.Text(before.Segments), format.Text(tail.Segments)
	if !assert.True(t, strings.HasPrefix(prompt, prefix), "prompt up to message %d: %s", k, fork(prompt, prefix)) ||
		!assert.True(t, strings.HasSuffix(prompt, suffix), "tail of message %d\n%q\nis no suffix of\n...%q", k, suffix, prompt[max(0, len(prompt)-len(suffix)-40):]) {
		return false
	}
	if !assert.GreaterOrEqual(t, len(prompt), len(prefix)+len(suffix)) {
		return false
	}
	assert.Equal(t, whole.State, tail.State)
	sampled := prompt[len(prefix) : len(prompt)-len(suffix)]
	checkTurn(t, f, c, c.Messages[k], sampled, before.State)

	// Where the sampled tokens lack the stop marker, the tail brings it.
	cut, err := f.Tail(t.Context(), &format.RenderRequest{Chat: c}, k, format.EndedLength)
	require.NoError(t, err)
	stop := strings.TrimSuffix(format.Text(cut.Segments), suffix)
	assert.Equal(t, prompt, prefix+strings.TrimSuffix(sampled, stop)+format.Text(cut.Segments))
	return true
}

// checkTurn parses what was sampled for a turn.
func checkTurn(t *testing.T, f format.Format, c *chat.Conversation, m chat.Message, sampled string, s format.State) {
	t.Helper()
	events, err := cases.Parse(t.Context(), f, format.ParseOptions{Tools: c.Tools, State: s}, []string{sampled})
	require.NoError(t, err)
	want := cases.Want{Content: chat.PlainText(m.Parts)}
	for _, p := range m.Parts {
		switch p.Type {
		case chat.Reasoning:
			want.Reasoning = p.Text
		case chat.ToolCall:
			want.Calls = append(want.Calls, cases.Call{Name: p.Name, Arguments: p.Arguments})
		}
	}
	r := format.Collect(events)
	if !reasons(f) {
		want.Reasoning = ""
	}
	assert.Empty(t, cases.Compare(r, want), "sampled %q", sampled)
	assert.Empty(t, r.Warnings, "sampled %q", sampled)
}

// reasons reports whether the format writes reasoning back at all.
func reasons(f format.Format) bool {
	on := true
	c := &chat.Conversation{Thinking: &on, Messages: []chat.Message{
		{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "q"}}},
		{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Reasoning, Text: "UNIQUE"}, {Type: chat.ToolCall, ID: "c0", Name: "now", Arguments: json.RawMessage("{}")}}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "c0"}}},
	}}
	r, err := f.Render(context.Background(), &format.RenderRequest{Chat: c})
	return err == nil && strings.Contains(format.Text(r.Segments), "UNIQUE")
}

// A new message of the user makes templates drop the reasoning of the turns
// before it; then the tail says that the call forks.
func TestTailForksWhereReasoningIsDropped(t *testing.T) {
	text := func(role chat.Role, s string) chat.Message {
		return chat.Message{Role: role, Parts: []chat.Part{{Type: chat.Text, Text: s}}}
	}
	reply := chat.Message{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Reasoning, Text: "Hm."}, {Type: chat.Text, Text: "Yes."}}}
	c := &chat.Conversation{Messages: []chat.Message{text(chat.User, "One?"), reply, text(chat.User, "Two?")}}
	for name, want := range map[string]string{"qwen3p5": "reasoning_dropped", "hermes": "reasoning_dropped", "qwen3_coder": "reasoning_dropped"} {
		r, err := open(t, name).Tail(t.Context(), &format.RenderRequest{Chat: c}, 1, format.EndedStop)
		require.NoError(t, err)
		assert.Equal(t, want, r.Unstable, name)
		assert.NotContains(t, format.Text(r.Segments), "Hm.", name)
	}
	loop := &chat.Conversation{Messages: []chat.Message{text(chat.User, "One?"), reply, text(chat.System, "Go on.")}}
	for _, name := range []string{"qwen3p5", "hermes"} {
		r, err := open(t, name).Tail(t.Context(), &format.RenderRequest{Chat: loop}, 1, format.EndedStop)
		require.NoError(t, err)
		assert.Empty(t, r.Unstable, name)
	}
}

// A prompt that closed the reasoning at once, for a model that isn't to think,
// has a block that the history doesn't have; then the call forks as well.
func TestTailForksWhereTheEmptyBlockIsDropped(t *testing.T) {
	text := func(role chat.Role, s string) chat.Message {
		return chat.Message{Role: role, Parts: []chat.Part{{Type: chat.Text, Text: s}}}
	}
	off := false
	c := &chat.Conversation{Thinking: &off, Messages: []chat.Message{text(chat.User, "One?"), text(chat.Assistant, "Yes."), text(chat.User, "Two?")}}
	for name, want := range map[string]string{"hermes": "template_moved", "qwen3p5": "template_moved", "gemma4": "template_moved", "glm47": "", "deepseek_v31": "", "qwen2p5": ""} {
		r, err := open(t, name).Tail(t.Context(), &format.RenderRequest{Chat: c}, 1, format.EndedStop)
		require.NoError(t, err)
		assert.Equal(t, want, r.Unstable, name)
	}
}

// A tail is asked for an assistant's message only.
func TestTailOfNoAssistant(t *testing.T) {
	c := &chat.Conversation{Messages: []chat.Message{{Role: chat.User}}}
	for _, k := range []int{-1, 0, 1} {
		_, err := open(t, "hermes").Tail(t.Context(), &format.RenderRequest{Chat: c}, k, format.EndedStop)
		assert.ErrorContains(t, err, "is no assistant's")
	}
}

// fork shows where two texts part.
func fork(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return fmt.Sprintf("after %q come %q and %q", a[max(0, i-60):i], a[i:min(len(a), i+60)], b[i:min(len(b), i+60)])
}
