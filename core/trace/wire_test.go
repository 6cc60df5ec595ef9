package trace_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/wire/anthropic"
	"github.com/penstock-dev/penstock/core/wire/openaichat"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// recorded decodes a request of a real client.
func recorded(t *testing.T, name string) *chat.Conversation {
	t.Helper()
	b, err := os.ReadFile("testdata/wire/" + name + ".json")
	require.NoError(t, err)
	var file struct {
		Path string
		Body json.RawMessage
	}
	require.NoError(t, json.Unmarshal(b, &file))
	dialect := anthropic.New()
	if strings.HasSuffix(file.Path, "/chat/completions") {
		dialect = openaichat.New()
	}
	r, err := dialect.Decode(file.Body)
	require.NoError(t, err)
	return &r.Chat
}

// before returns the request that the reply at message k answers, and that
// reply.
func before(c *chat.Conversation, k int) (*chat.Conversation, *chat.Reply) {
	first := *c
	first.Messages = c.Messages[:k]
	return &first, &chat.Reply{Parts: c.Messages[k].Parts}
}

// replies returns the indexes of the assistant messages.
func replies(c *chat.Conversation) (out []int) {
	for i, m := range c.Messages {
		if m.Role == chat.Assistant {
			out = append(out, i)
		}
	}
	return out
}

func TestRecordedSecondTurnLinksToTheFirst(t *testing.T) {
	for _, pair := range [][2]string{
		{"claude-2.1.197-02", "claude-2.1.197-03"},
		{"bedrock-03", "bedrock-04"},
		{"opencode-04", "opencode-05"},
		{"opencode-chat-02", "opencode-chat-03"},
		{"pi-chat-01", "pi-chat-02"},
		{"copilot-chat-01", "copilot-chat-02"},
		{"qwen-code-01", "qwen-code-02"},
		{"cline-01", "cline-02"},
		{"continue-cli-01", "continue-cli-02"},
		{"kilo-01", "kilo-02"},
	} {
		t.Run(pair[0], func(t *testing.T) {
			first, second := recorded(t, pair[0]), recorded(t, pair[1])
			k := replies(second)[0]
			_, reply := before(second, k)
			g := trace.NewGraph("s")
			g.Add(g.Link(first), first, reply, trace.Node{Call: "s.1", PromptIDs: []int32{1}, SampledIDs: []int32{2}})
			l := g.Link(second)
			require.NotNil(t, l.Parent, "class %s", l.Class)
			assert.Equal(t, "s.1", l.Parent.Call)
			assert.Equal(t, k, l.Message)
			assert.Equal(t, "s/main0", l.Lineage)
			assert.Empty(t, l.Class)
		})
	}
}

// The turns before one in the middle of a recorded conversation are told from
// it, with each of its notes of role system in its place.
func TestRecordedConversationsAreChains(t *testing.T) {
	for _, name := range []string{"claude-2.1.332-03", "claude-2.1.332-04", "claude-2.1.332-05"} {
		t.Run(name, func(t *testing.T) {
			c := recorded(t, name)
			g := trace.NewGraph("s")
			at := replies(c)
			for i, k := range at {
				earlier, reply := before(c, k)
				l := g.Link(earlier)
				assert.Equal(t, i > 0, l.Parent != nil)
				g.Add(l, earlier, reply, trace.Node{Call: "s." + string(rune('1'+i))})
			}
			l := g.Link(c)
			require.NotNil(t, l.Parent)
			assert.Equal(t, at[len(at)-1], l.Message)
			assert.Empty(t, g.Forks())
		})
	}
}

func TestRecordedTitleCallIsASideCall(t *testing.T) {
	g := trace.NewGraph("s")
	assert.Equal(t, "s/side0", g.Link(recorded(t, "claude-2.1.197-01")).Lineage)
	assert.Equal(t, "s/main0", g.Link(recorded(t, "claude-2.1.197-02")).Lineage)
	assert.Equal(t, "s/sub_agent0", g.Link(recorded(t, "claude-2.1.332-05")).Lineage)
}

func TestRecordedCompactionContinues(t *testing.T) {
	g := trace.NewGraph("s")
	compaction := recorded(t, "compaction-03")
	first, reply := before(compaction, replies(compaction)[0])
	g.Add(g.Link(first), first, reply, trace.Node{Call: "s.1"})
	l := g.Link(compaction)
	require.NotNil(t, l.Parent, "nothing marks the call that asks for a summary")
	g.Add(l, compaction, &chat.Reply{Parts: []chat.Part{{Type: chat.Text, Text: "Summary."}}}, trace.Node{Call: "s.2"})
	assert.Equal(t, "s/continuation0", g.Link(recorded(t, "compaction-04")).Lineage)
}
