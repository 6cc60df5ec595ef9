package exchange

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Event is one server-sent event. Raw is its bytes as they came, comments
// before it included. Both are good until the next call of Next.
type Event struct {
	Name string
	Data []byte
	Raw  []byte
}

// Events reads the events of an answer. It is for one goroutine, save Close.
type Events struct {
	c   *Client
	a   *answer
	r   *bufio.Reader
	raw []byte // of the event that is read
	// data holds the data of an event of several data lines.
	data []byte
	err  error
}

func newEvents(c *Client, a *answer) *Events {
	return &Events{c: c, a: a, r: bufio.NewReaderSize(a, 32<<10)}
}

// Next gives the next event that has data. Comments and other fields are
// passed over; a line that isn't of the protocol is an error that shows it.
// io.EOF is the end of a body that ended as HTTP says it must.
func (e *Events) Next() (Event, error) {
	if e.err != nil {
		return Event{}, e.err
	}
	e.raw, e.data = e.raw[:0], e.data[:0]
	var ev Event
	lines, from, to := 0, 0, 0 // of data, and where the first one is in raw
	for {
		start := len(e.raw)
		if e.err = e.line(); e.err != nil {
			if errors.Is(e.err, io.EOF) && lines > 0 {
				break // the last event lacks its empty line
			}
			return Event{}, e.err
		}
		line := bytes.TrimRight(e.raw[start:], "\r\n")
		if len(line) == 0 {
			if lines > 0 {
				break
			}
			continue // of keep-alives
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "": // a comment
		case "event":
			ev.Name = string(value)
		case "data":
			if lines++; lines == 1 {
				to = start + len(line)
				from = to - len(value)
				continue
			}
			if lines == 2 {
				e.data = append(e.data, e.raw[from:to]...)
			}
			e.data = append(append(e.data, '\n'), value...)
		case "id", "retry":
		default:
			e.err = fmt.Errorf("%s: sent a line that is no server-sent event: %s", e.c.o.Name, e.c.Excerpt(line))
			return Event{}, e.err
		}
	}
	ev.Raw, ev.Data = e.raw, e.raw[from:to]
	if lines > 1 {
		ev.Data = e.data
	}
	return ev, nil
}

// line appends the next line to raw, its end included.
func (e *Events) line() error {
	start := len(e.raw)
	for {
		part, err := e.r.ReadSlice('\n')
		e.raw = append(e.raw, part...)
		switch {
		case len(bytes.TrimRight(e.raw[start:], "\r\n")) > e.c.o.MaxLine:
			return fmt.Errorf("%s: sent a line of more than %d bytes", e.c.o.Name, e.c.o.MaxLine)
		case err == nil:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && len(e.raw) > start:
			return nil // the end comes again at the next line
		case err == io.EOF:
			return io.EOF
		default:
			return fmt.Errorf("%s: %w", e.c.o.Name, err)
		}
	}
}

// Ready reports whether a whole event is here already.
func (e *Events) Ready() bool {
	if e.err != nil {
		return false
	}
	b, _ := e.r.Peek(e.r.Buffered())
	return bytes.Contains(b, []byte("\n\n")) || bytes.Contains(b, []byte("\n\r\n"))
}

// Drain reads the end of a stream whose last event was read, so that its
// connection can be used again. It waits shortly at most.
func (e *Events) Drain() {
	if e.err == nil {
		e.a.drain()
		e.err = io.EOF
	}
}

// Close ends the exchange. It may be called at any time, also twice.
func (e *Events) Close() error {
	e.a.close()
	return nil
}
