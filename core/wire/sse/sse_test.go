package sse

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStringsEscapeOnlyWhatJSONDemands(t *testing.T) {
	assert.Equal(t, `"<b>&é\u0000\n\"\\`+"\u2028"+`"`, string(AppendString(nil, "<b>&é\x00\n\"\\\u2028")))
	assert.Equal(t, "\"a\ufffd\"", string(AppendString(nil, "a\xff")))
}

func FuzzRunes(f *testing.F) {
	f.Add("a漢\xe6\xbcz😀\xf0", uint8(1))
	f.Add("\xff\xff\xe2\x82", uint8(3))
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		step := int(size%5) + 1
		var r Runes
		joined := ""
		for at := 0; at < len(text); at += step {
			piece := r.Next(text[at:min(at+step, len(text))])
			require.True(t, utf8.ValidString(piece))
			joined += piece
		}
		joined += r.Rest()
		require.Equal(t, Clean(text), joined)
		require.Empty(t, r.Rest())
		var back string
		require.NoError(t, json.Unmarshal(AppendString(nil, text), &back))
		require.Equal(t, joined, back)
	})
}
