package redact

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// TestIDsOfParsedReplies: of an engine that renders and parses by itself there
// are ids and no text of them; a secret in the conversation or in the reply
// takes the ids away, too.
func TestIDsOfParsedReplies(t *testing.T) {
	r := New(Options{Values: []string{known}})
	text := func(s string) []chat.Part { return []chat.Part{{Type: chat.Text, Text: s}} }
	for name, c := range map[string]struct {
		prompt, reply string
		gone          bool
	}{
		"in the prompt": {known, "hi", true}, "in the reply": {"hello", "it is " + known, true}, "nowhere": {"hello", "hi", false},
	} {
		out := r.Call(&trace.Call{
			Chat: &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: text(c.prompt)}}}, Parsed: &chat.Reply{Parts: text(c.reply)},
			PromptIDs: []int32{1}, SampledIDs: []int32{2}, Logprobs: []float64{-1},
		})
		assert.Equal(t, c.gone, out.PromptIDs == nil, name)
		assert.Equal(t, c.gone, out.SampledIDs == nil, name)
		assert.Equal(t, c.gone, out.Logprobs == nil, name)
	}
}
