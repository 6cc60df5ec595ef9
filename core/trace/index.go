package trace

import (
	"crypto/sha256"
	"hash"
	"sync"
	"unsafe"

	"github.com/tidwall/gjson"
)

// index remembers, for each session, the calls written last: what a later
// call may share with one of them is then written as a reference.
type index struct {
	mu       sync.Mutex
	sessions map[string][]*entry // the oldest first
}

// maxEntries bounds what is kept of a session: the tips of its lineages.
const maxEntries = 16

// maxChain bounds how many calls must be read to read one.
const maxChain = 50

// entry is a written call, reduced to what tells what another shares with it.
type entry struct {
	call, lineage string
	depth         int // calls that it needs below it
	messages      []key
	chat          []key
	prompt        sums // of the prompt and the sampled text
	ids           sums // of the prompt's and the sampled ids
}

// base returns the entry that a call builds on: its parent, else the last one
// of its lineage, else nil.
func (x *index) base(c *Call) *entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	var best *entry
	for _, e := range x.sessions[c.Session] {
		switch {
		case e.depth+1 >= maxChain:
		case e.call == c.Parent:
			return e
		case e.lineage == c.Lineage:
			best = e
		}
	}
	return best
}

func (x *index) add(session string, e *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sessions == nil {
		x.sessions = map[string][]*entry{}
	}
	list := x.sessions[session]
	if len(list) == maxEntries {
		copy(list, list[1:])
		list = list[:maxEntries-1]
	}
	x.sessions[session] = append(list, e)
}

func (x *index) forget(session string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.sessions, session)
}

// block is the length at which two sequences of bytes are compared.
const block = 4 << 10

// sums holds the hashes of a sequence up to each block and at its end, so
// that a common beginning is found without the sequence itself.
type sums struct {
	length int
	at     []key // at[i] is of the first (i+1)*block bytes, the last one of all
}

// summer makes the sums of a sequence as it is written.
type summer struct {
	sums
	base sums
	h    hash.Hash
	// shared is how much of the beginning is certainly that of the base: all
	// of the base or a number of blocks. It is known once that much is
	// written.
	shared int
	differ bool
}

func newSummer(base sums) *summer { return &summer{base: base, h: sha256.New()} }

func (s *summer) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 {
		n := min(block-s.length%block, len(p))
		if s.length < s.base.length {
			n = min(n, s.base.length-s.length)
		}
		s.h.Write(p[:n])
		p = p[n:]
		s.length += n
		if s.length%block == 0 {
			s.at = append(s.at, key(s.h.Sum(nil)))
		}
		if i := (s.length - 1) / block; !s.differ && (s.length == s.base.length || s.length%block == 0) && s.length <= s.base.length {
			if s.differ = key(s.h.Sum(nil)) != s.base.at[i]; !s.differ {
				s.shared = s.length
			}
		}
	}
	return written, nil
}

// end completes the sums.
func (s *summer) end() sums {
	if s.length%block != 0 {
		s.at = append(s.at, key(s.h.Sum(nil)))
	}
	return s.sums
}

// common returns how many keys a and b share at their beginning.
func common(a, b []key) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// largeMember is from where on a member of a request's envelope is kept once
// for all calls that have it, as tools and system prompts are.
const largeMember = 512

// split cuts an envelope at its large members: every second piece is one. The
// pieces joined are the envelope, whatever it is.
func split(envelope []byte) [][]byte {
	var out [][]byte
	done := 0
	if len(envelope) > largeMember && envelope[0] == '{' {
		gjson.Parse(unsafe.String(&envelope[0], len(envelope))).ForEach(func(_, v gjson.Result) bool {
			start, end := v.Index, v.Index+len(v.Raw)
			if len(v.Raw) >= largeMember && start >= done && end <= len(envelope) {
				out = append(out, envelope[done:start], envelope[start:end])
				done = end
			}
			return true
		})
	}
	return append(out, envelope[done:])
}
