package shown

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEscapes(t *testing.T) {
	for _, c := range []struct{ text, line, lines string }{
		{"plain é漢😀\u00a0\u3000", "plain é漢😀\u00a0\u3000", "plain é漢😀\u00a0\u3000"},
		{"a\n\tb", `a\n\tb`, "a\n\tb"},
		{"\x1b[2J\a\rx\x7f", `\x1b[2J\a\rx\x7f`, `\x1b[2J\a\rx\x7f`},
		{"\u009b31m\u202e\u2028", `\u009b31m\u202e\u2028`, `\u009b31m\u202e\u2028`},
		{"\xff\ufffd", "\\xff\ufffd", "\\xff\ufffd"},
		{`back\slash "quoted"`, `back\slash "quoted"`, `back\slash "quoted"`},
	} {
		assert.Equal(t, c.line, Line(c.text))
		assert.Equal(t, c.lines, Lines(c.text))
		var b strings.Builder
		n, err := Writer(&b).Write([]byte(c.text))
		require.NoError(t, err)
		assert.Equal(t, len(c.text), n)
		assert.Equal(t, c.lines, b.String())
	}
}
