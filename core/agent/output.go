package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// output takes one stream of a program: all of it into a file, its end into
// memory, and its lines to a function.
type output struct {
	pipe   *os.File       // the host's end
	theirs *os.File       // the program's end, until it is started
	file   *os.File       // nil: not stored
	sink   io.WriteCloser // where file is written through, if it isn't directly
	err    error          // why the file isn't whole
	tail   tail
	lines  lines
	active func()
	tee    io.Writer // nil, or gets all as it comes
	done   chan struct{}
}

func newOutput(path string, max int, line func([]byte), s *Spec) (o *output, err error) {
	o = &output{tail: tail{max: max}, lines: lines{call: line}, active: s.Active, done: make(chan struct{})}
	if path != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("store output: %w", err)
		}
		flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC | unix.O_NOFOLLOW
		if o.file, err = os.OpenFile(path, flags, 0o600); err != nil {
			return nil, fmt.Errorf("store output: %w", err)
		}
		if s.Redact != nil {
			o.sink = s.Redact(o.file)
		}
	}
	if o.pipe, o.theirs, err = os.Pipe(); err != nil {
		o.close()
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	return o, nil
}

// read reads to the end of the pipe, or until its deadline has passed and
// nothing is left in it.
func (o *output) read() {
	defer close(o.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := o.pipe.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n, err = o.rest(buf)
		}
		if n > 0 {
			o.take(buf[:n])
		}
		if err != nil {
			break
		}
	}
	o.lines.end()
	if o.sink != nil && o.err == nil {
		o.err = o.sink.Close()
	}
	if o.file != nil {
		if err := o.file.Close(); err != nil && o.err == nil {
			o.err = err
		}
		o.file = nil
	}
}

// rest reads what the pipe holds without waiting for more.
func (o *output) rest(buf []byte) (n int, err error) {
	conn, err := o.pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	readErr := conn.Control(func(fd uintptr) { n, err = unix.Read(int(fd), buf) })
	switch {
	case readErr != nil:
		return 0, readErr
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (o *output) take(b []byte) {
	if o.active != nil {
		o.active()
	}
	switch {
	case o.err != nil:
	case o.sink != nil:
		_, o.err = o.sink.Write(b)
	case o.file != nil:
		_, o.err = o.file.Write(b)
	}
	if o.tee != nil {
		if _, err := o.tee.Write(b); err != nil {
			o.tee = nil
		}
	}
	o.tail.write(b)
	o.lines.write(b)
}

// finish waits until all is read. A pipe that somebody outside of the run
// still holds is given up after a second.
func (o *output) finish() {
	_ = o.pipe.SetReadDeadline(time.Now().Add(time.Second))
	<-o.done
}

func (o *output) close() {
	for _, f := range []*os.File{o.pipe, o.theirs, o.file} {
		if f != nil {
			f.Close()
		}
	}
}

// tail keeps the last max bytes, and at most a piece more. It grows by pieces,
// so that nothing that is kept is ever copied.
type tail struct {
	max    int
	pieces [][]byte // all but the last one are full
	length int
	cut    bool
}

// tailPiece is the length of a piece.
const tailPiece = 64 << 10

func (t *tail) write(b []byte) {
	for len(b) > 0 {
		n := len(t.pieces)
		if n == 0 || len(t.pieces[n-1]) == cap(t.pieces[n-1]) {
			fresh := t.piece()
			t.pieces = append(t.pieces, fresh)
			n = len(t.pieces)
		}
		last := &t.pieces[n-1]
		k := min(len(b), cap(*last)-len(*last))
		*last = append(*last, b[:k]...)
		t.length += k
		b = b[k:]
	}
}

// piece is an empty piece: the first one where that isn't needed any more.
func (t *tail) piece() []byte {
	if len(t.pieces) == 0 || t.length-len(t.pieces[0]) < t.max {
		return make([]byte, 0, min(tailPiece, t.max))
	}
	first := t.pieces[0]
	t.length -= len(first)
	t.pieces, t.cut = append(t.pieces[:0], t.pieces[1:]...), true
	return first[:0]
}

// over says that more was written than is kept.
func (t *tail) over() bool { return t.cut || t.length > t.max }

// take returns what is kept, and keeps it no longer. When something was left
// out it starts at a line; or, in a line that is longer than all that is kept,
// at a letter.
func (t *tail) take() string {
	skip := max(t.length-t.max, 0)
	cut := t.over()
	var b strings.Builder
	b.Grow(t.length - skip)
	for i, p := range t.pieces {
		n := min(skip, len(p))
		skip -= n
		b.Write(p[n:])
		t.pieces[i] = nil
	}
	t.pieces, t.length = nil, 0
	text := b.String()
	if !cut {
		return text
	}
	if i := strings.IndexByte(text, '\n'); i >= 0 && i+1 < len(text) {
		return text[i+1:]
	}
	for i := 0; i < len(text) && i < utf8.UTFMax; i++ {
		if utf8.RuneStart(text[i]) {
			return text[i:]
		}
	}
	return text
}

// lines hands on whole lines.
type lines struct {
	call func([]byte)
	part []byte
	skip bool // the rest of the line that was too long
	long int
}

func (l *lines) write(b []byte) {
	if l.call == nil {
		return
	}
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			l.add(b)
			return
		}
		if len(l.part) == 0 && !l.skip {
			l.call(b[:i])
		} else {
			l.add(b[:i])
			l.end()
		}
		b = b[i+1:]
	}
}

func (l *lines) add(b []byte) {
	if l.skip {
		return
	}
	n := len(l.part) + len(b)
	if n > lineMax {
		l.part, l.skip = nil, true
		l.long++
		return
	}
	if n > cap(l.part) {
		l.part = append(make([]byte, 0, min(max(n, 2*cap(l.part)), lineMax)), l.part...)
	}
	l.part = append(l.part, b...)
}

// end hands on a line that was put together, or that has no newline.
func (l *lines) end() {
	if len(l.part) > 0 && l.call != nil {
		l.call(l.part)
	}
	l.skip = false
	if cap(l.part) > 1<<20 {
		l.part = nil
	}
	l.part = l.part[:0]
}
