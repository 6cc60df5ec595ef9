package formats_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/format"
)

// The beginning of a text argument leaves with the chunk that brings it, in
// every format: large values are never kept until their end. A bare list of
// Python calls is the exception, as it is a call only as the whole reply.
func TestTextArgumentsStream(t *testing.T) {
	seen := 0
	for _, c := range readCases(t) {
		if !strings.HasPrefix(c.ID, "own-") || !strings.Contains(c.Note, "runes of four bytes") || c.Format == "llama4_pythonic" {
			continue
		}
		const word = "it's "
		at := strings.Index(c.Text, word)
		require.Positive(t, at, c.ID)
		p, err := open(t, c.Format).Open(t.Context(), &format.ParseOptions{Tools: c.Tools})
		require.NoError(t, err)
		p.Feed(nil, []byte(c.Text[:at]))
		var got strings.Builder
		for _, e := range p.Feed(nil, []byte(word)) {
			if e.Kind == format.CallArgs {
				got.WriteString(e.Text)
			}
		}
		assert.Contains(t, got.String(), "it's", c.ID)
		require.NoError(t, p.Close())
		seen++
	}
	assert.Greater(t, seen, 60)
}
