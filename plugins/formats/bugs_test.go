package formats_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

// Every reported bug of other parsers that testdata/bugs.jsonl lists is shown
// by cases, which TestCases runs, or by tests of this package.
func TestReportedBugsAreCovered(t *testing.T) {
	known := map[string]bool{}
	for _, c := range readCases(t) {
		known[c.ID] = true
	}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
			known[string(m[1])] = true
		}
	}
	data, err := os.ReadFile("testdata/bugs.jsonl")
	require.NoError(t, err)
	n := 0
	for line := range bytes.Lines(data) {
		var b struct {
			Bug          string
			Cases, Tests []string
		}
		require.NoError(t, json.Unmarshal(line, &b))
		n++
		shown := append(b.Cases, b.Tests...)
		assert.NotEmpty(t, shown, b.Bug)
		for _, name := range shown {
			assert.True(t, known[name], "%s: there is no %s", b.Bug, name)
		}
	}
	assert.Greater(t, n, 100)
}

// Each format that ships has three cases or more, each with its source, and
// there are more than 250 of our own.
func TestEachFormatHasCases(t *testing.T) {
	count := map[string]int{}
	own := 0
	for _, c := range readCases(t) {
		count[c.Format]++
		if strings.HasPrefix(c.ID, "own-") || strings.HasPrefix(c.ID, "bug-") {
			own++
			assert.NotEmpty(t, c.Source, c.ID)
		}
	}
	for _, name := range names(t) {
		assert.GreaterOrEqual(t, count[name], 3, name)
	}
	assert.Greater(t, own, 250)
}

// Ids that the model wrote are rendered back unchanged; those of another model
// become what the format has.
func TestNativeIDsComeBack(t *testing.T) {
	calls := func(ids ...string) *chat.Conversation {
		c := &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "go"}}}}}
		m := chat.Message{Role: chat.Assistant}
		for _, id := range ids {
			m.Parts = append(m.Parts, chat.Part{Type: chat.ToolCall, ID: id, Name: "now", Arguments: json.RawMessage("{}")})
		}
		c.Messages = append(c.Messages, m)
		for _, id := range ids {
			c.Messages = append(c.Messages, chat.Message{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: id, Content: []chat.Part{{Type: chat.Text, Text: "12"}}}}})
		}
		return c
	}
	for name, want := range map[string]map[string]string{
		"kimi_k2":     {"functions.now:7": "functions.now:7", "call_0123456789abcdef": "functions.now:0"},
		"mistral_v11": {"abcDEF123": "abcDEF123"},
		"cohere":      {"5": `"tool_call_id": "0"`},
	} {
		for id, shown := range want {
			r, err := open(t, name).Render(t.Context(), &format.RenderRequest{Chat: calls(id)})
			require.NoError(t, err)
			assert.Equal(t, 2, strings.Count(format.Text(r.Segments), shown), "%s: %s, in the call and in its result", name, id)
		}
	}
	r := parseWhole(t, "kimi_k2", format.ParseOptions{Tools: tool("now", `{}`)},
		"<|tool_calls_section_begin|><|tool_call_begin|>functions.now:7<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>")
	require.Len(t, r.Calls, 1)
	assert.Equal(t, "functions.now:7", r.Calls[0].ID)
}

// Where parsing begins is decided by the end of the prompt: neither markers
// that a user or a tool wrote nor the name of the format say anything.
func TestMarkersInThePromptDecideNothing(t *testing.T) {
	off, on := false, true
	for _, name := range []string{"qwen3p5", "deepseek_v31", "glm47", "minimax_m2", "kimi_k2p5"} {
		for _, thinking := range []*bool{nil, &on, &off} {
			at := func(text string) format.State {
				c := &chat.Conversation{Thinking: thinking, Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: text}}}}}
				r, err := open(t, name).Render(t.Context(), &format.RenderRequest{Chat: c})
				require.NoError(t, err)
				return r.State
			}
			plain := at("hi")
			for _, text := range []string{"<think>", "</think>", "<think>\n", "<tool_call>\n<function=f>", "x<mm:think>"} {
				assert.Equal(t, plain, at(text), "%s: %q", name, text)
			}
			if thinking != nil && name != "minimax_m2" { // which always thinks
				assert.Equal(t, *thinking, plain.ReasoningOpen, name)
			}
		}
	}
}

// Reasoning of a loop of tools stays while it goes on, and is dropped or kept
// after the next question as the model's template does.
func TestReasoningOfTheHistory(t *testing.T) {
	for name, keeps := range map[string]struct{ loop, old bool }{
		"hermes": {true, false}, "qwen3p5": {true, false}, "qwen3p8": {true, true}, "glm45": {true, false},
		"minimax_m2": {true, false}, "deepseek_v32": {true, false}, "kimi_k2_thinking": {true, false}, "harmony": {true, false},
	} {
		r, err := open(t, name).Render(t.Context(), &format.RenderRequest{Chat: readChat(t, "testdata/chats/thinking.json")})
		require.NoError(t, err)
		text := format.Text(r.Segments)
		assert.Equal(t, keeps.loop, strings.Contains(text, "I look first."), "%s, in the loop", name)
		assert.Equal(t, keeps.old, strings.Contains(text, "Old thought."), "%s, of an older question", name)
	}
}

// An alias is its format: it parses and renders the same.
func TestAliasesAreTheirFormats(t *testing.T) {
	n := 0
	for _, s := range format.Shipped() {
		for _, alias := range s.Aliases {
			n++
			c := readChat(t, "testdata/chats/tool_results.json")
			want, err := open(t, s.Name).Render(t.Context(), &format.RenderRequest{Chat: c})
			require.NoError(t, err)
			got, err := open(t, alias).Render(t.Context(), &format.RenderRequest{Chat: c})
			require.NoError(t, err)
			assert.Equal(t, want, got, alias)
			for _, c := range readCases(t) {
				if c.Format == s.Name {
					assert.NoError(t, cases.Run(t.Context(), open(t, alias), c, 1), "%s: %s", alias, c.ID)
				}
			}
		}
	}
	assert.Greater(t, n, 15)
}
