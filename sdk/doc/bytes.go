package doc

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Bytes is a document in memory. The bytes must be valid JSON and must not
// change; what Get returns is part of them wherever it can be.
type Bytes []byte

// Get implements Doc. It looks at no more of the document than lies before
// the value, and allocates only for a string with escapes.
func (b Bytes) Get(pointer string) ([]byte, bool) { return get(b, pointer, nil) }

// each calls f with each item of an array, as a document of its own, until f
// returns false or an item is null. Reading all items is thus one pass.
func (b Bytes) each(pointer string, f func(Bytes) bool) {
	s := scan{b}
	at := (*Reader)(nil).locate(s, pointer)
	if s.byte(at) != '[' {
		return
	}
	for at = s.item(at, 0); at >= 0; {
		end := s.skip(at)
		if end < 0 || string(b[at:end]) == "null" || !f(b[at:end:end]) {
			return
		}
		if at = s.space(end); s.byte(at) != ',' {
			return
		}
		at = s.space(at + 1)
	}
}

// Reader reads a document in memory as Bytes does, and remembers where it was
// in each array, so that reading the items one after another takes one pass.
// It is not for several goroutines.
type Reader struct {
	doc Bytes
	was []place
}

// NewReader makes a reader of b.
func NewReader(b []byte) *Reader { return &Reader{doc: b} }

// Bytes is the whole document.
func (r *Reader) Bytes() []byte { return r.doc }

// Get implements Doc.
func (r *Reader) Get(pointer string) ([]byte, bool) { return get(r.doc, pointer, r) }

// place is where an item of an array starts.
type place struct {
	array string // the array's pointer
	index int
	at    int
}

// get finds the value at a pointer; r may be nil.
func get(b []byte, pointer string, r *Reader) ([]byte, bool) {
	s := scan{b}
	if c := s.byte(s.space(0)); pointer == "" && (c == '{' || c == '[') {
		return bytes.TrimSpace(b), true // no need to look for its end
	}
	at := r.locate(s, pointer)
	if at < 0 {
		return nil, false
	}
	return s.value(at)
}

// locate is where the value at a pointer starts; r may be nil.
func (r *Reader) locate(s scan, pointer string) int {
	at := s.space(0)
	depth := 0
	for from := 0; from < len(pointer); depth++ {
		end := len(pointer)
		if i := strings.IndexByte(pointer[from+1:], '/'); i >= 0 {
			end = from + 1 + i
		}
		token := pointer[from+1 : end]
		switch s.byte(at) {
		case '{':
			at = s.member(at, unescape(token))
		case '[':
			index, err := strconv.Atoi(token)
			if err != nil || index < -1 {
				return -1
			}
			at = r.item(s, at, pointer[:from], index, depth)
		default:
			return -1
		}
		if at < 0 {
			return -1
		}
		from = end
	}
	return at
}

// item finds an item of an array, from where the last one was if it can.
func (r *Reader) item(s scan, at int, array string, index, depth int) int {
	if r == nil || index < 0 {
		return s.item(at, index)
	}
	for len(r.was) <= depth {
		r.was = append(r.was, place{index: -1})
	}
	was := &r.was[depth]
	found := -1
	if was.index >= 0 && was.index <= index && was.array == array {
		found = s.later(was.at, index-was.index)
	} else {
		found = s.item(at, index)
	}
	if found >= 0 {
		*was = place{array, index, found}
	}
	return found
}

func unescape(token string) string {
	if strings.IndexByte(token, '~') < 0 {
		return token
	}
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// scan walks JSON. Its positions are offsets; -1 is nowhere. At the end of a
// document that is cut off it finds nothing.
type scan struct{ b []byte }

func (s scan) byte(at int) byte {
	if at < 0 || at >= len(s.b) {
		return 0
	}
	return s.b[at]
}

func (s scan) space(at int) int {
	for at < len(s.b) && (s.b[at] == ' ' || s.b[at] == '\n' || s.b[at] == '\t' || s.b[at] == '\r') {
		at++
	}
	return at
}

// member is where the value of a key starts in the object at at.
func (s scan) member(at int, key string) int {
	for at = s.space(at + 1); s.byte(at) == '"'; {
		end := s.text(at)
		if end < 0 {
			return -1
		}
		colon := s.space(end)
		if s.byte(colon) != ':' {
			return -1
		}
		value := s.space(colon + 1)
		if s.is(s.b[at+1:end-1], key) {
			return value
		}
		if at = s.next(value); at < 0 {
			return -1
		}
	}
	return -1
}

// is reports whether the inside of a string literal spells key.
func (s scan) is(inside []byte, key string) bool {
	if string(inside) == key {
		return true
	}
	return bytes.IndexByte(inside, '\\') >= 0 && string(spelled(inside)) == key
}

// item is where an item starts in the array at at; -1 is the last one.
func (s scan) item(at, index int) int {
	at = s.space(at + 1)
	if c := s.byte(at); c == ']' || c == 0 {
		return -1
	}
	if index >= 0 {
		return s.later(at, index)
	}
	for {
		next := s.next(at)
		if next < 0 {
			return at
		}
		at = next
	}
}

// later is where the n-th item after the one at at starts.
func (s scan) later(at, n int) int {
	for ; n > 0 && at >= 0; n-- {
		at = s.next(at)
	}
	return at
}

// next is where the value after the one at at and a comma starts, -1 when
// there is no comma.
func (s scan) next(at int) int {
	if at = s.skip(at); at < 0 {
		return -1
	}
	if at = s.space(at); s.byte(at) != ',' {
		return -1
	}
	return s.space(at + 1)
}

// text is the end of the string literal at at.
func (s scan) text(at int) int {
	for at++; ; {
		i := bytes.IndexByte(s.b[min(at, len(s.b)):], '"')
		if i < 0 {
			return -1
		}
		end := at + i
		slashes := 0
		for end-1-slashes >= at && s.b[end-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1
		}
		at = end + 1
	}
}

// skip is the end of the value at at.
func (s scan) skip(at int) int {
	depth := 0
	for at >= 0 && at < len(s.b) {
		switch s.b[at] {
		case '"':
			at = s.text(at)
		case '{', '[':
			depth++
			at++
		case '}', ']':
			depth--
			at++
		case ',', ':', ' ', '\n', '\t', '\r':
			at++
			continue
		default:
			for at < len(s.b) && !ends(s.b[at]) {
				at++
			}
		}
		if depth <= 0 {
			return at
		}
	}
	return -1
}

// ends reports whether c ends a number or a word.
func ends(c byte) bool {
	switch c {
	case ',', ':', '}', ']', '{', '[', '"', ' ', '\n', '\t', '\r':
		return true
	}
	return false
}

// value is the value at at, as Doc.Get returns it.
func (s scan) value(at int) ([]byte, bool) {
	end := s.skip(at)
	if end < 0 {
		return nil, false
	}
	v := s.b[at:end:end]
	switch {
	case v[0] == '"':
		inside := v[1 : len(v)-1 : len(v)-1]
		if bytes.IndexByte(inside, '\\') >= 0 {
			return spelled(inside), true
		}
		return inside, true
	case string(v) == "null":
		return nil, false
	}
	return v, true
}

// spelled is the text of the inside of a string literal with escapes.
func spelled(inside []byte) []byte {
	var text string
	literal := append(append(append(make([]byte, 0, len(inside)+2), '"'), inside...), '"')
	if err := json.Unmarshal(literal, &text); err != nil {
		return inside
	}
	return []byte(text)
}
