package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// The host and its shim speak over two pipes. The host writes one order, then
// at most one byte, requestEnd; when the pipe ends, all is killed at once. The
// shim writes reports, one JSON value a line, and closes its end when none of
// the program's processes is left.
const (
	orderFD    = 3
	reportFD   = 4
	requestEnd = 'e'
)

// order is what to start. No string in it holds a zero byte.
type order struct {
	Path  string
	Dir   string
	Grace time.Duration
	Argv  []string
	Env   []string
}

const maxOrder = 64 << 20

// encode joins the fields with zero bytes: arguments and variables may be any
// other bytes, which JSON could not carry.
func (o *order) encode() []byte {
	fields := []string{o.Path, o.Dir, strconv.FormatInt(int64(o.Grace), 10), strconv.Itoa(len(o.Argv))}
	fields = append(append(fields, o.Argv...), o.Env...)
	body := strings.Join(fields, "\x00")
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	return append(b, body...)
}

var errOrder = errors.New("the order from the host is broken")

func readOrder(r io.Reader) (*order, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, fmt.Errorf("read order: %w", err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxOrder {
		return nil, errOrder
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("read order: %w", err)
	}
	f := strings.Split(string(body), "\x00")
	if len(f) < 5 {
		return nil, errOrder
	}
	grace, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return nil, errOrder
	}
	argc, err := strconv.Atoi(f[3])
	if err != nil || argc < 1 || argc > len(f)-4 {
		return nil, errOrder
	}
	return &order{Path: f[0], Dir: f[1], Grace: time.Duration(grace), Argv: f[4 : 4+argc], Env: f[4+argc:]}, nil
}

// report is one thing that the shim has to say. Exactly one field is set, but
// for Isolation, which comes with a Note when it is not the strongest.
type report struct {
	Isolation string      `json:"isolation,omitempty"` // the program is about to be started
	Note      string      `json:"note,omitempty"`      // why there are no namespaces
	Pid       int         `json:"pid,omitempty"`       // it was started; as numbered in its namespace
	Failed    *startFault `json:"failed,omitempty"`    // it could not be started
	Ended     *ending     `json:"ended,omitempty"`     // it ended itself; others may be left
	Gone      bool        `json:"gone,omitempty"`      // none is left
}

type startFault struct {
	Errno int    `json:"errno,omitempty"`
	Text  string `json:"text"`
}

type ending struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
}
