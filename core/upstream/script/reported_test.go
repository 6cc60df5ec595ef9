package script

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTellsTheIDsOfText: of a prompt that comes as text, a script tells the ids
// with the first chunk, and samples as it does with these ids.
func TestTellsTheIDsOfText(t *testing.T) {
	u := newModel(t, "defaults: { chunk: 2 }\notherwise: { reply: hello }\n", Options{})
	given := ask("hi")
	text := *given
	text.PromptIDs = nil
	s, err := u.Generate(t.Context(), &text)
	require.NoError(t, err)
	first, err := s.Next()
	require.NoError(t, err)
	assert.Equal(t, given.PromptIDs, first.PromptIDs)
	second, err := s.Next()
	require.NoError(t, err)
	assert.Nil(t, second.PromptIDs)
	require.NoError(t, s.Close())
	a, b := generate(t, u, given), generate(t, u, &text)
	assert.Equal(t, a.ids, b.ids)
	assert.Equal(t, a.logprobs, b.logprobs)
	assert.Equal(t, len(given.PromptIDs), b.last.PromptTokens)
}
