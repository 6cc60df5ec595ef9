package workspace

import (
	"bytes"
	"io"
	"time"
)

// The limits of a command that gives none.
const (
	DefaultTimeout = time.Minute
	DefaultOutput  = 1 << 20 // bytes, of standard output and of error each
)

// Command is a program to run in the workspace.
type Command struct {
	Argv []string // the program, found in PATH, and its arguments
	// Env is added to PATH, the locale, and a HOME that is new and empty for
	// each command; no other variable of the judger's own gets there. In a
	// judger inside penstock the rest is what a program of a run: stage gets.
	Env   []string
	Stdin []byte
	// Timeout and Output are limits; 0 is the default.
	Timeout time.Duration
	Output  int
	// Stdout, where given, gets all of standard output as it comes, whatever
	// the limit of the end that Result keeps. It is no longer used when Run
	// returns.
	Stdout io.Writer
}

// Result is how a command ended.
type Result struct {
	Code     int    // -1 when a signal ended it
	Signal   string // that ended it, such as "killed"
	TimedOut bool
	// Stdout and Stderr are the ends of what it wrote; Cut says that there was
	// more of Stdout.
	Stdout, Stderr string
	Cut            bool
}

// OK says that the command ended by itself, with exit code 0.
func (r *Result) OK() bool { return r.Code == 0 && !r.TimedOut }

// tail keeps the end of what is written to it.
type tail struct {
	limit int
	buf   []byte
	cut   bool
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > t.limit {
		p, t.cut = p[len(p)-t.limit:], true
	}
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*t.limit {
		t.trim()
	}
	return n, nil
}

// trim drops what is over the limit.
func (t *tail) trim() {
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf, t.cut = append(t.buf[:0], t.buf[over:]...), true
	}
}

func (t *tail) text() string {
	t.trim()
	return string(bytes.ToValidUTF8(t.buf, nil))
}
