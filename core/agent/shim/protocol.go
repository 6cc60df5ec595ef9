package shim

import (
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/penstock-dev/penstock/core/agent/landlock"
)

// The host and its shim speak over two pipes. The host writes one order, then
// at most one byte, RequestEnd; when the pipe ends, all is killed at once. The
// shim writes reports, one a line, and closes its end when none of the
// program's processes is left.
const (
	orderFD    = 3
	reportFD   = 4
	RequestEnd = 'e'
)

// Order is what to start. No string in it holds a zero byte.
type Order struct {
	Path  string
	Dir   string
	Grace time.Duration
	Argv  []string
	Env   []string
	// Hide are folders that the program finds empty, save for what is below
	// them in Keep and, not to be changed, in View. All are real paths.
	Hide, Keep, View []string
	Rules            *landlock.Rules // nil: none
}

const maxOrder = 64 << 20

// Encode joins the fields with zero bytes: arguments and variables may be any
// other bytes, which JSON could not carry. A list is its length and its items.
func (o *Order) Encode() []byte {
	f := []string{o.Path, o.Dir, strconv.FormatInt(int64(o.Grace), 10)}
	for _, list := range [][]string{o.Argv, o.Env, o.Hide, o.Keep, o.View} {
		f = appendList(f, list)
	}
	if r := o.Rules; r != nil {
		ports := make([]string, len(r.Ports))
		for i, port := range r.Ports {
			ports[i] = strconv.Itoa(port)
		}
		f = append(f, strconv.FormatBool(r.Files), strconv.FormatBool(r.TCP))
		f = appendList(appendList(appendList(f, r.Read), r.Write), ports)
	}
	b := make([]byte, 4)
	for i, field := range f {
		if i > 0 {
			b = append(b, 0)
		}
		b = append(b, field...)
	}
	n := uint32(len(b) - 4)
	b[0], b[1], b[2], b[3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return b
}

func appendList(f, list []string) []string {
	return append(append(f, strconv.Itoa(len(list))), list...)
}

var errOrder = errors.New("the order from the host is broken")

func readOrder(r io.Reader) (*Order, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, errors.Join(errOrder, err)
	}
	n := uint32(size[0])<<24 | uint32(size[1])<<16 | uint32(size[2])<<8 | uint32(size[3])
	if n > maxOrder {
		return nil, errOrder
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, errors.Join(errOrder, err)
	}
	f := &fields{left: split(string(body), 0)}
	o := &Order{Path: f.next(), Dir: f.next(), Grace: time.Duration(f.number()), Argv: f.list(), Env: f.list()}
	o.Hide, o.Keep, o.View = f.some(), f.some(), f.some()
	if len(f.left) > 0 {
		o.Rules = &landlock.Rules{Files: f.next() == "true", TCP: f.next() == "true", Read: f.list(), Write: f.list()}
		for _, port := range f.list() {
			n, err := strconv.Atoi(port)
			f.bad = f.bad || err != nil
			o.Rules.Ports = append(o.Rules.Ports, n)
		}
	}
	if f.bad || len(o.Argv) == 0 || len(f.left) > 0 {
		return nil, errOrder
	}
	return o, nil
}

// fields are read one after the other; bad is set when there were too few.
type fields struct {
	left []string
	bad  bool
}

func (f *fields) next() string {
	if len(f.left) == 0 {
		f.bad = true
		return ""
	}
	s := f.left[0]
	f.left = f.left[1:]
	return s
}

func (f *fields) number() int64 {
	n, err := strconv.ParseInt(f.next(), 10, 64)
	f.bad = f.bad || err != nil
	return n
}

func (f *fields) list() []string {
	n := f.number()
	if n < 0 || n > int64(len(f.left)) {
		f.bad = true
		return nil
	}
	list := f.left[:n:n]
	f.left = f.left[n:]
	return list
}

// some is a list, nil when it is empty.
func (f *fields) some() []string {
	if list := f.list(); len(list) > 0 {
		return list
	}
	return nil
}

// Report is one thing that the shim has to say.
type Report struct {
	Kind Kind
	// Text is the isolation, the note, what failed, or the name of the signal
	// that ended the program.
	Text string
	// Number is a process, as numbered in its namespace; the number of an
	// error of the system, 0 for another; or an exit code, -1 with a signal.
	Number int
}

// Kind says what a report is about.
type Kind string

// The kinds of reports.
const (
	Isolated Kind = "isolated" // the program is about to be started
	Hides    Kind = "hides"    // folders can be hidden here; of a probe alone
	Noted    Kind = "noted"    // why there are no namespaces
	Started  Kind = "started"
	Failed   Kind = "failed" // it could not be started
	Ended    Kind = "ended"  // it ended itself; others may be left
	Gone     Kind = "gone"   // none is left
)

func (r Report) encode() []byte {
	return []byte(string(r.Kind) + " " + strconv.Itoa(r.Number) + " " + strconv.Quote(r.Text) + "\n")
}

// ParseReport reads a line that the shim wrote.
func ParseReport(line string) (Report, error) {
	kind, rest := cut(line, ' ')
	number, text := cut(rest, ' ')
	n, err := strconv.Atoi(number)
	if err == nil {
		text, err = strconv.Unquote(text)
	}
	if err != nil {
		return Report{}, errors.New("the report of the shim is broken: " + strconv.Quote(line))
	}
	return Report{Kind: Kind(kind), Number: n, Text: text}, nil
}
