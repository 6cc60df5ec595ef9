package agent

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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

// What stands between the program and its files sees the files alone.
func TestFilesAreWrittenThroughRedact(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		s := job(t, "echo one; echo two >&2")
		dir := t.TempDir()
		s.Stdout, s.Stderr = filepath.Join(dir, "stdout"), filepath.Join(dir, "stderr")
		s.Redact = func(w io.Writer) io.WriteCloser { return &holdingBack{w: w} }
		var lines []string
		s.Line = func(line []byte) { lines = append(lines, string(line)) }
		e := run1(t, r, s)
		require.NoError(t, e.OutputErr)
		require.Equal(t, []string{"one"}, lines)
		require.Equal(t, "one\n", string(e.Stdout))
		for name, want := range map[string]string{s.Stdout: "ONE\n", s.Stderr: "TWO\n"} {
			got, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
	})
}

// holdingBack writes all at the end, in capitals.
type holdingBack struct {
	w    io.Writer
	held []byte
}

func (h *holdingBack) Write(p []byte) (int, error) {
	h.held = append(h.held, p...)
	return len(p), nil
}

func (h *holdingBack) Close() error {
	_, err := h.w.Write(bytes.ToUpper(h.held))
	return err
}

// Case 35: stdout and stderr are kept whole; what is in memory is their end.
func TestSeed35OutputIsKeptWhole(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		const lines = 1_200_000
		s := job(t, fmt.Sprintf("yes 'a line of twenty-three' | head -n %d; echo '{\"type\":\"result\"}'; head -c 100000 /dev/zero >&2", lines))
		dir := t.TempDir()
		s.Stdout, s.Stderr = filepath.Join(dir, "stdout"), filepath.Join(dir, "stderr")
		seen, last := 0, ""
		s.Line = func(line []byte) { seen++; last = string(line) }
		e := run1(t, r, s)
		require.NoError(t, e.OutputErr)
		info, err := os.Stat(s.Stdout)
		require.NoError(t, err)
		require.EqualValues(t, lines*23+18, info.Size())
		require.Equal(t, lines+1, seen)
		require.Equal(t, `{"type":"result"}`, last)
		require.LessOrEqual(t, len(e.Stdout), DefaultStdoutMax)
		require.Greater(t, len(e.Stdout), DefaultStdoutMax-100)
		require.True(t, strings.HasPrefix(e.Stdout, "a line of twenty-three\n"))
		require.True(t, strings.HasSuffix(e.Stdout, "\n{\"type\":\"result\"}\n"))
		info, err = os.Stat(s.Stderr)
		require.NoError(t, err)
		require.EqualValues(t, 100000, info.Size())
		require.Len(t, e.Stderr, stderrMax)
	})
}

func TestLongLines(t *testing.T) {
	r := runner("")
	s := tool(t, "long", strconv.Itoa(lineMax))
	var sizes []int
	s.Line = func(line []byte) { sizes = append(sizes, len(line)) }
	e := run1(t, r, s)
	require.Equal(t, []int{lineMax}, sizes)
	require.Zero(t, e.LongLines)
	require.Len(t, e.Stdout, DefaultStdoutMax, "a line with no place to cut keeps its end")

	s.Argv[3], sizes = strconv.Itoa(lineMax+1), nil
	e = run1(t, r, s)
	require.Empty(t, sizes)
	require.Equal(t, 1, e.LongLines)
}

// A reader that is slow loses nothing, though the pipe is given up in time.
func TestSlowReaderLosesNothing(t *testing.T) {
	s := job(t, "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); done")
	n := 0
	s.Line = func([]byte) { n++; time.Sleep(50 * time.Millisecond) }
	run1(t, runner(""), s)
	require.Equal(t, 40, n)
}

func TestOutputThatCannotBeStored(t *testing.T) {
	s := job(t, "echo text; exit 6")
	s.Stdout = "/dev/full"
	e := run1(t, runner(""), s)
	require.Equal(t, 6, e.Code)
	require.ErrorIs(t, e.OutputErr, syscall.ENOSPC)
	require.Equal(t, "text\n", string(e.Stdout))

	link := filepath.Join(t.TempDir(), "stdout")
	require.NoError(t, os.Symlink("/dev/null", link))
	s.Stdout = link
	_, err := runner("").Run(t.Context(), s)
	require.ErrorContains(t, err, "store output", "an artifact is never written through a link")
}
