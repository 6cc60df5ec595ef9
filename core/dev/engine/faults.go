package engine

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Fault is a way in which a server fails.
type Fault struct {
	// What is a status from 400 to 599, or
	//
	//	refuse   the connection is closed before any answer
	//	hang     there is no answer
	//	stall    nothing comes any more
	//	cut      the connection is cut
	//	end      the stream ends, as if it were whole
	//	garbage  a line that is no event
	//	broken   an event that is no JSON
	//	error    an error in mid-stream
	//	long     an event of 64 KB more, which is harmless
	//	comment  a keep-alive, which is harmless
	What string
	// At is the event in place of which, or before which, it happens, from 0;
	// it means nothing for what comes before the answer.
	At int
	// Times is in how many requests it happens, 0 for all.
	Times int
}

// ParseFault reads WHAT[@EVENT][xTIMES], such as 429x2 or cut@3.
func ParseFault(text string) (f Fault, err error) {
	f.What = text
	if what, times, ok := strings.Cut(f.What, "x"); ok {
		if f.Times, err = strconv.Atoi(times); err != nil || f.Times < 1 {
			return f, fmt.Errorf("fault %q: want a number of times after the x", text)
		}
		f.What = what
	}
	if what, at, ok := strings.Cut(f.What, "@"); ok {
		if f.At, err = strconv.Atoi(at); err != nil || f.At < 0 {
			return f, fmt.Errorf("fault %q: want the number of an event after the @", text)
		}
		f.What = what
	}
	switch f.What {
	case "refuse", "hang", "stall", "cut", "end", "garbage", "broken", "error", "long", "comment":
		return f, nil
	}
	if f.status() == 0 {
		return f, fmt.Errorf("fault %q: want a status from 400 to 599, refuse, hang, stall, cut, end, garbage, broken, error, long or comment", text)
	}
	return f, nil
}

func (f Fault) status() int {
	n, err := strconv.Atoi(f.What)
	if err != nil || n < 400 || n > 599 {
		return 0
	}
	return n
}

// faults are the faults with how often each has happened.
type faults struct {
	mu   sync.Mutex
	list []Fault
	done []int
}

func newFaults(list []Fault) *faults { return &faults{list: list, done: make([]int, len(list))} }

// next is what happens in the next request.
func (f *faults) next() *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &fault{}
	for i, one := range f.list {
		if one.Times == 0 || f.done[i] < one.Times {
			f.done[i]++
			out.list = append(out.list, one)
			if one.status() > 0 {
				break // what comes after it can't happen yet
			}
		}
	}
	return out
}

// fault is what happens in one request.
type fault struct{ list []Fault }

// before is what happens before the answer; false when it is one.
func (f *fault) before(w http.ResponseWriter, r *http.Request, e *Engine) bool {
	for _, one := range f.list {
		switch status := one.status(); {
		case status > 0:
			if e.o.RetryAfter > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(e.o.RetryAfter))
			}
			e.fail(w, status, "the stand-in fails as it was told")
			return false
		case one.What == "refuse":
			panic(http.ErrAbortHandler)
		case one.What == "hang":
			<-r.Context().Done()
			return false
		}
	}
	return true
}

// at is what happens at an event: the bytes that take its place or come before
// it, and whether the answer goes on.
func (f *fault) at(n int, event []byte, x *exchange) (out []byte, on bool) {
	out, on = event, true
	for _, one := range f.list {
		if one.At != n {
			continue
		}
		switch one.What {
		case "stall":
			x.flush()
			<-x.r.Context().Done()
			return nil, false
		case "cut":
			x.flush()
			panic(http.ErrAbortHandler)
		case "end":
			return nil, false
		case "garbage":
			return []byte("<html>502 Bad Gateway</html>\n\n"), false
		case "broken":
			return []byte("data: {\"choices\": [{\"ind\n\n"), false
		case "error":
			return x.sse("error", x.e.errorBody(529, "the stand-in is overloaded")), false
		case "long":
			head, tail, _ := bytes.Cut(event, []byte("data: {"))
			out = append(append(append(bytes.Clone(head), "data: {"...), bytes.Repeat([]byte(" "), 64<<10)...), tail...)
		case "comment":
			out = append([]byte(": keep-alive\n\n"), out...)
		}
	}
	return out, on
}
