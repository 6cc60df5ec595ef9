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

// TestRawReplies: the bytes of a reply are taken away as a whole where it holds a
// secret, which a stream may have cut into pieces, and stay as they are else.
func TestRawReplies(t *testing.T) {
	r := New(Options{Values: []string{known}})
	parts := func(text string) *chat.Reply {
		return &chat.Reply{Parts: []chat.Part{{Type: chat.Text, Text: text}}}
	}
	pieces := "data: {\"text\":\"" + known[:5] + "\"}\n\ndata: {\"text\":\"" + known[5:] + "\"}\n\n"
	for name, c := range map[string]*trace.Call{
		"whole":     {RawReply: []byte(`{"text":"` + known + `"}`), Parsed: parts(known)},
		"in pieces": {RawReply: []byte(pieces), Parsed: parts(known), Served: parts(known)},
		"unparsed":  {RawReply: []byte(`{"novel":"` + known + `"}`), Parsed: parts("hi")},
	} {
		before := string(c.RawReply)
		out := r.Call(c)
		assert.Equal(t, Mark(KindValue), string(out.RawReply), name)
		last := out.Redactions[len(out.Redactions)-1]
		assert.Equal(t, trace.Redaction{Field: "/raw_reply", Length: len(out.RawReply), Kind: KindValue}, last, name)
		assert.Equal(t, before, string(c.RawReply), "the call itself changed")
	}
	clean := &trace.Call{RawReply: []byte(`{"text":"hi"}`), Parsed: parts("hi")}
	assert.Same(t, clean, r.Call(clean))
}
