package format

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// TestHeadIsRenderedAnew: whatever the head shows is in its key, and a prompt
// that was rendered with a kept head is the one that is rendered without.
func TestHeadIsRenderedAnew(t *testing.T) {
	r := &Spec{Name: "test", Render: &RenderSpec{
		Head:     `{{if .HasSystem}}<s>{{.System}}</s>{{end}}{{if .Think}}T{{end}}{{if .NoThink}}N{{end}}{{range .Tools}}<t>{{.Name}}:{{.Description}}:{{.Parameters.JSON}}</t>{{end}}`,
		User:     `<u>{{.Text}}</u>`,
		Generate: `<a>`,
	}}
	conversation := func(system, name, description, parameters string, thinking *bool) *chat.Conversation {
		c := &chat.Conversation{Thinking: thinking, Tools: []chat.Tool{{Name: name, Description: description, Parameters: []byte(parameters)}}}
		if system != "" {
			c.Messages = append(c.Messages, chat.Message{Role: chat.System, Parts: []chat.Part{{Type: chat.Text, Text: system}}})
		}
		c.Messages = append(c.Messages, chat.Message{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "hi"}}})
		return c
	}
	yes, no := true, false
	all := []*chat.Conversation{
		conversation("", "a", "", "{}", nil),
		conversation("", "a", "b", "{}", nil),
		conversation("", "ab", "", "{}", nil),
		conversation("be", "a", "", "{}", nil),
		conversation("be", "a", "", `{"b":1,"a":2}`, nil),
		conversation("be", "a", "", `{"a":2,"b":1}`, nil),
		conversation("be", "a", "", "{}", &yes),
		conversation("be", "a", "", "{}", &no),
	}
	kept, err := newRenderer(r)
	require.NoError(t, err)
	seen := map[string]bool{}
	for range 3 {
		for i, c := range all {
			fresh, err := newRenderer(r)
			require.NoError(t, err)
			want, err := fresh.run(c, -1, "")
			require.NoError(t, err)
			got, err := kept.run(c, -1, "")
			require.NoError(t, err)
			assert.Equal(t, want, got, "conversation %d", i)
			seen[Text(got.Segments)] = true
		}
	}
	assert.Len(t, seen, len(all), "each shows something else")
	assert.Len(t, kept.heads.list, len(all))
}

// TestHeadsAreBounded: the heads in use stay, the others go.
func TestHeadsAreBounded(t *testing.T) {
	key := func(i int) [sha256.Size]byte { return sha256.Sum256(fmt.Append(nil, i)) }
	var h heads
	for i := range 3 * mostHeads {
		h.put(key(i), []Segment{{Text: fmt.Sprint(i)}})
		got, ok := h.get(key(0))
		require.True(t, ok)
		assert.Equal(t, "0", got[0].Text)
	}
	assert.Len(t, h.list, mostHeads)
	h.put(key(-1), []Segment{{Text: strings.Repeat("x", mostHeadText/4)}})
	for i := range 8 {
		h.put(key(1000+i), []Segment{{Text: strings.Repeat("y", mostHeadText/4)}})
	}
	assert.LessOrEqual(t, h.size, mostHeadText)
	h.put(key(-2), []Segment{{Text: strings.Repeat("x", mostHeadText)}})
	_, ok := h.get(key(-2))
	assert.False(t, ok, "one that is too long is not kept")
}

// TestKeptSegmentsAreNotShared: what a caller does with its prompt changes no
// other.
func TestKeptSegmentsAreNotShared(t *testing.T) {
	var h heads
	h.put([sha256.Size]byte{1}, []Segment{{Text: "head"}})
	got, _ := h.get([sha256.Size]byte{1})
	got[0].Text += " and more"
	again, _ := h.get([sha256.Size]byte{1})
	assert.Equal(t, "head", again[0].Text)
}
