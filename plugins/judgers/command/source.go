package command

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

const (
	// defaultReport bounds what is read of reports in files and of JUnit XML.
	// go test -json and TAP on standard output are read line by line, so that
	// the time of the program is bound enough.
	defaultReport = 64 << 20
	longestLine   = 1 << 20 // of which more is left out
	mostTests     = 1 << 20
)

// limit is what the judge itself can't read, whatever the program did: it gives
// no reward, where a broken report is no pass.
type limit struct{ why string }

func (l *limit) Error() string { return l.why }

func over(bytes int64) error {
	return &limit{fmt.Sprintf("it is over the limit of %d bytes, so that only its beginning is known; raise it with output", bytes)}
}

// bounded fails where more is read than is allowed, unlike io.LimitReader, at
// whose end nobody can tell a report that was cut from a whole one.
type bounded struct {
	r           io.Reader
	left, bound int64 // bound 0 is none
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.bound == 0 {
		return b.r.Read(p)
	}
	if b.left == 0 { // there may be no more
		n, err := io.ReadFull(b.r, make([]byte, 1))
		if n > 0 {
			return 0, over(b.bound)
		}
		return 0, err
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// decoded is a text in UTF-8: what begins as UTF-16 does is decoded, as some
// shells write it into files, and a mark at the beginning is left out.
func decoded(r io.Reader) (out io.Reader, utf16 bool) {
	head := bufio.NewReader(r)
	first, _ := head.Peek(4)
	var from encoding.Encoding
	switch {
	case bytes.HasPrefix(first, []byte{0xEF, 0xBB, 0xBF}):
		_, _ = head.Discard(3)
		return head, false
	case bytes.HasPrefix(first, []byte{0xFF, 0xFE}), bytes.HasPrefix(first, []byte{0xFE, 0xFF}):
		from = unicode.UTF16(unicode.BigEndian, unicode.ExpectBOM)
	case bytes.HasPrefix(first, []byte("<\x00")), bytes.HasPrefix(first, []byte("{\x00")):
		from = unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	case bytes.HasPrefix(first, []byte("\x00<")), bytes.HasPrefix(first, []byte("\x00{")):
		from = unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	default:
		return head, false
	}
	return transform.NewReader(head, from.NewDecoder()), true
}

// line is one line, without its end. Of a long one only the beginning is there;
// one without an end is the last one.
type line struct {
	text        string
	long, ended bool
}

// lines reads line by line; why it couldn't to the end is in err.
func lines(r io.Reader, err *error) iter.Seq[line] {
	return func(yield func(line) bool) {
		in := bufio.NewReaderSize(r, 64<<10)
		var part []byte
		long := false
		for {
			piece, e := in.ReadSlice('\n')
			if room := longestLine - len(part); len(piece) > room {
				piece, long = piece[:room], true
			}
			part = append(part, piece...)
			if errors.Is(e, bufio.ErrBufferFull) {
				continue
			}
			if len(part) > 0 && !yield(line{string(bytes.TrimRight(part, "\r\n")), long, e == nil}) {
				return
			}
			if e != nil {
				if !errors.Is(e, io.EOF) {
					*err = e
				}
				return
			}
			part, long = part[:0], false
		}
	}
}

// live reads a report while the program still writes it.
type live struct {
	*io.PipeWriter
	done chan struct{}
	err  error
}

// follow starts to read. The program never waits for a reader that has given up.
func follow(read func(io.Reader) error) *live {
	r, w := io.Pipe()
	l := &live{PipeWriter: w, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = read(r)
		_, _ = io.Copy(io.Discard, r)
	}()
	return l
}

// end says that all is written, and waits for the reader.
func (l *live) end() error {
	_ = l.Close()
	<-l.done
	return l.err
}
