package formats_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// Long text is rendered in the same places as short text, by many at once.
func TestLongTextIsRenderedAsShort(t *testing.T) {
	said := func(words string) *chat.Conversation {
		text := func(what string) chat.Part {
			return chat.Part{Type: chat.Text, Text: "  " + strings.ReplaceAll(words, "WHAT", what) + "\n"}
		}
		arguments, err := json.Marshal(map[string]any{"command": text("argument").Text, "list": []string{text("item").Text}})
		require.NoError(t, err)
		return &chat.Conversation{
			Messages: []chat.Message{
				{Role: chat.System, Parts: []chat.Part{text("system")}},
				{Role: chat.User, Parts: []chat.Part{text("question"), text("more")}},
				{Role: chat.Assistant, Parts: []chat.Part{
					{Type: chat.Reasoning, Text: text("thought").Text}, text("answer"),
					{Type: chat.ToolCall, ID: "c1", Name: "bash", Arguments: arguments},
				}},
				{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "c1", Content: []chat.Part{text("result")}}}},
			},
			Tools: []chat.Tool{{Name: "bash", Description: text("description").Text, Parameters: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}}}`)}},
		}
	}
	const short, filler = "WHAT.word", ".and-on-it-goes-without-an-end"
	long := strings.Replace(short, ".", strings.Repeat(filler, 100)+".", 1)
	for _, name := range names(t) {
		f := open(t, name)
		want, err := f.Render(t.Context(), &format.RenderRequest{Chat: said(short)})
		require.NoError(t, err, name)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 5 {
					got, err := f.Render(t.Context(), &format.RenderRequest{Chat: said(long)})
					if !assert.NoError(t, err, name) {
						return
					}
					for i := range got.Segments {
						got.Segments[i].Text = strings.ReplaceAll(got.Segments[i].Text, strings.Repeat(filler, 100), "")
					}
					assert.Equal(t, want, got, name)
				}
			})
		}
		all.Wait()
	}
}

// A template may keep what it marked as data, and print it where it likes.
func TestMarkedDataIsPrintedAsOftenAsATemplateSays(t *testing.T) {
	spec, err := format.ParseSpec("twice.yaml", []byte(strings.Join([]string{
		"name: twice",
		"render:",
		"  user: '<u>{{$x := data .Text}}{{$x}}|{{$x}}</u>'",
		"  assistant: '<a>{{.Text}}</a>'",
		"  generate: <a>",
	}, "\n")))
	require.NoError(t, err)
	f, err := format.New(spec)
	require.NoError(t, err)
	for _, n := range []int{3, 5000} {
		text := strings.Repeat("z", n)
		r, err := f.Render(t.Context(), &format.RenderRequest{Chat: &chat.Conversation{Messages: []chat.Message{
			{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: text}}}}}})
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("<u>%s|%s</u><a>", text, text), format.Text(r.Segments))
		assert.Equal(t, format.Data, r.Segments[1].Kind)
	}
}
