package format

import (
	"bytes"
	"unicode/utf8"
)

// loose reads one value that is JSON or a Python literal, or between the two:
// single quotes, True, False and None, trailing commas, tuples, raw control
// characters in strings. It writes JSON.
type loose struct {
	src []byte
	i   int
	out []byte
}

// looseJSON turns the whole of src into JSON.
func looseJSON(src []byte) ([]byte, bool) {
	l := loose{src: src}
	if !l.value(0) {
		return nil, false
	}
	if l.space(); l.i < len(src) {
		return nil, false
	}
	return l.out, true
}

func (l *loose) space() {
	for l.i < len(l.src) && isSpace(l.src[l.i]) {
		l.i++
	}
}

func (l *loose) peek() byte {
	if l.i < len(l.src) {
		return l.src[l.i]
	}
	return 0
}

func (l *loose) value(depth int) bool {
	l.space()
	if depth > maxDepth {
		return false
	}
	switch c := l.peek(); c {
	case '{':
		return l.container('}', '{', '}', true, depth)
	case '[':
		return l.container(']', '[', ']', false, depth)
	case '(':
		return l.container(')', '[', ']', false, depth)
	case '"', '\'':
		return l.str(c)
	}
	return l.word()
}

func (l *loose) container(end, open, shut byte, keyed bool, depth int) bool {
	l.i++
	l.out = append(l.out, open)
	for n := 0; ; n++ {
		l.space()
		if l.peek() == end {
			l.i++
			l.out = append(l.out, shut)
			return true
		}
		if n > 0 {
			l.out = append(l.out, ", "...)
		}
		if keyed && !l.key() {
			return false
		}
		if !l.value(depth + 1) {
			return false
		}
		l.space()
		if c := l.peek(); c == ',' {
			l.i++
		} else if c != end {
			return false
		}
	}
}

func (l *loose) key() bool {
	q := l.peek()
	if q != '"' && q != '\'' || !l.str(q) {
		return false
	}
	if l.space(); l.peek() != ':' {
		return false
	}
	l.i++
	l.out = append(l.out, ": "...)
	return true
}

// str reads a string in one or three quotes.
func (l *loose) str(quote byte) bool {
	end := []byte{quote}
	if triple := bytes.Repeat(end, 3); bytes.HasPrefix(l.src[l.i:], triple) {
		end = triple
	}
	l.i += len(end)
	l.out = append(l.out, '"')
	for l.i < len(l.src) {
		if bytes.HasPrefix(l.src[l.i:], end) {
			l.i += len(end)
			l.out = append(l.out, '"')
			return true
		}
		if l.src[l.i] == '\\' {
			n := appendEscape(&l.out, l.src[l.i:])
			if n == 0 {
				return false
			}
			l.i += n
			continue
		}
		n := 1
		if l.src[l.i] >= utf8.RuneSelf {
			n = max(1, runeLen(l.src, l.i))
		}
		l.out = appendQuoted(l.out, l.src[l.i:l.i+n])
		l.i += n
	}
	return false
}

// appendEscape writes the JSON spelling of the escape at the start of b, be it
// JSON's or Python's, and returns its length, 0 when b ends in it. A backslash
// that escapes nothing stands for itself, as in Python.
func appendEscape(out *[]byte, b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch c := b[1]; c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		*out = append(*out, '\\', c)
		return 2
	case '\'':
		*out = append(*out, '\'')
		return 2
	case '\n':
		return 2
	case 'u':
		if _, ok := hex4(b); ok {
			*out = append(*out, b[:6]...)
			return 6
		}
	case 'x':
		if len(b) >= 4 {
			u := append([]byte(`\u00`), b[2:4]...)
			if _, ok := hex4(u); ok {
				*out = append(*out, u...)
				return 4
			}
		}
	}
	*out = append(*out, '\\', '\\')
	return 1
}

// word reads a number or a keyword.
func (l *loose) word() bool {
	start := l.i
	for l.i < len(l.src) && !isSpace(l.src[l.i]) && !isDelimiter(l.src[l.i]) {
		l.i++
	}
	var ok bool
	l.out, ok = appendWord(l.out, l.src[start:l.i])
	return ok
}

func isDelimiter(c byte) bool {
	switch c {
	case ',', ']', '}', ')', ':', '[', '{', '(', '"', '\'', '<':
		return true
	}
	return false
}

// appendWord writes a bare word as JSON: a number, or a keyword of JSON or
// Python.
func appendWord(dst, w []byte) ([]byte, bool) {
	switch string(w) {
	case "true", "True":
		return append(dst, "true"...), true
	case "false", "False":
		return append(dst, "false"...), true
	case "null", "None":
		return append(dst, "null"...), true
	}
	if len(w) > 0 && numberEnd(w) == len(w) {
		return append(dst, w...), true
	}
	if len(w) > 1 && w[0] == '+' && numberEnd(w[1:]) == len(w)-1 {
		return append(dst, w[1:]...), true
	}
	return dst, false
}
