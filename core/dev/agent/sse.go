package agent

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine bounds one line of a stream.
const maxLine = 32 << 20

// events reads server-sent events.
type events struct{ r *bufio.Reader }

func newEvents(r io.Reader) *events { return &events{bufio.NewReaderSize(r, 32<<10)} }

// next returns the data of the next event that has some. io.EOF means that
// the stream ended between two events, io.ErrUnexpectedEOF within one.
func (e *events) next() ([]byte, error) {
	var data []byte
	any := false
	for {
		line, err := e.line()
		if err != nil {
			if errors.Is(err, io.EOF) && (any || len(line) > 0) {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if len(line) == 0 {
			if any {
				return data, nil
			}
			continue
		}
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if any {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(rest, []byte(" "))...)
			any = true
		}
	}
}

// line returns a line without its end. The bytes are valid until the next
// call.
func (e *events) line() ([]byte, error) {
	line, err := e.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			if len(long) > maxLine {
				return nil, errors.New("a line of the stream is too long")
			}
			line, err = e.r.ReadSlice('\n')
			long = append(long, line...)
		}
		line = long
	}
	if err != nil {
		return line, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}
