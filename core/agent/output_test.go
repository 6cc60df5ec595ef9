package agent

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tail is the end of all that was written, however it was cut into writes.
func TestTailIsTheEndOfAll(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, max := range []int{1, 10, 1000, tailPiece - 1, tailPiece, tailPiece + 1, 3*tailPiece + 5} {
		for _, size := range []int{0, 1, max - 1, max, max + 1, 2 * max, 5*max + tailPiece} {
			all := make([]byte, size)
			for i := range all {
				all[i] = "abc\n"[r.IntN(4)]
			}
			x := tail{max: max}
			for rest := all; len(rest) > 0; {
				n := 1 + r.IntN(min(len(rest), 2*tailPiece))
				x.write(rest[:n])
				rest = rest[n:]
				held := 0
				for _, p := range x.pieces {
					held += cap(p)
				}
				require.LessOrEqual(t, held, max+2*tailPiece)
			}
			want := all[len(all)-min(size, max):]
			if i := bytes.IndexByte(want, '\n'); size > max && i >= 0 && i+1 < len(want) {
				want = want[i+1:]
			}
			require.Equal(t, string(want), x.take(), "%d of %d bytes", max, size)
			require.Empty(t, x.take(), "it is given away once")
		}
	}
}

// A line without an end takes no more memory than what is kept of it.
func TestEndlessLineIsHeldOnce(t *testing.T) {
	const max, written = 4 << 20, 64 << 20
	o := &output{tail: tail{max: max}, lines: lines{call: func([]byte) { t.Error("no line has ended") }}}
	part := bytes.Repeat([]byte("é"), 32<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range written / len(part) {
		o.take(part)
	}
	got := o.tail.take()
	runtime.ReadMemStats(&after)
	assert.Equal(t, 1, o.lines.long)
	assert.True(t, strings.HasPrefix(got, "é"), "it begins at a letter")
	assert.LessOrEqual(t, len(got), max)
	assert.Greater(t, len(got), max-4)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*max+3*lineMax), "what is kept, and the line up to its limit")
}
