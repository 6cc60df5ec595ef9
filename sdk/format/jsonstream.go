package format

import "unicode/utf8"

// jsonStream passes one JSON value through as it comes, bytes as they are
// where they are JSON. It mends what models get wrong: raw control characters
// in strings, single quotes, Python's keywords, bare keys, trailing commas.
type jsonStream struct {
	stack []byte // open brackets
	state jsonState
	quote byte
	key   bool   // the string is a key
	pend  []byte // a comma with what follows it, until it isn't a trailing one
	fixed bool   // something was mended

	python bool   // literals are Python's: quotes of any kind, tuples
	triple bool   // the string is in three quotes
	delim  []byte // a marker that strings may be between, whose keys are bare
	raw    bool   // the string is between two of them
}

type jsonState uint8

const (
	jsonValue    jsonState = iota // a value must come
	jsonItem                      // a value or the end of an empty array
	jsonKey                       // a key must come
	jsonFirstKey                  // a key or the end of an empty object
	jsonColon                     // a colon must come
	jsonAfter                     // a comma or the end of the container
	jsonComma                     // a comma came
	jsonString                    // inside a string
	jsonDone
)

type jsonStatus uint8

const (
	jsonMore jsonStatus = iota
	jsonEnd
	jsonBroken
)

// maxWord bounds a number or keyword.
const maxWord = 1024

func (s *jsonStream) reset() {
	*s = jsonStream{stack: s.stack[:0], pend: s.pend[:0], delim: s.delim}
}

// run reads b from i on and appends JSON to out, which may be nil. It returns
// how far it got: to the end of the value, to what it can't take, or to what
// needs more text.
func (s *jsonStream) run(b []byte, i int, final bool, out *[]byte) (int, jsonStatus) {
	for i < len(b) {
		if s.state == jsonString {
			n := s.str(b, i, final, out)
			if n == i {
				return i, jsonMore
			}
			i = n
		} else {
			n, status := s.token(b, i, final, out)
			if status != jsonMore || n == i {
				return n, status
			}
			i = n
		}
		if s.state == jsonDone {
			return i, jsonEnd
		}
	}
	return i, jsonMore
}

func put(out *[]byte, b ...byte) {
	if out != nil {
		*out = append(*out, b...)
	}
}

// token reads one token outside strings. It returns i itself when it has to
// wait.
func (s *jsonStream) token(b []byte, i int, final bool, out *[]byte) (int, jsonStatus) {
	c := b[i]
	if isSpace(c) {
		if s.state == jsonComma {
			s.pend = append(s.pend, c)
		} else {
			put(out, c)
		}
		return i + 1, jsonMore
	}
	if s.state == jsonComma && !s.comma(c, out) {
		return i, jsonBroken
	}
	switch s.state {
	case jsonValue, jsonItem:
		return s.value(b, i, final, out)
	case jsonKey, jsonFirstKey:
		return s.keyToken(b, i, final, out)
	case jsonColon:
		if c != ':' && (c != '=' || s.delim == nil) {
			return i, jsonBroken
		}
		s.state, s.fixed = jsonValue, s.fixed || c != ':'
		put(out, ':')
		return i + 1, jsonMore
	}
	return s.after(c, i, out)
}

// comma decides, at the token behind a comma, whether it was a trailing one.
func (s *jsonStream) comma(c byte, out *[]byte) bool {
	if c == '}' || c == ']' || c == ')' {
		s.state, s.fixed = jsonAfter, s.fixed || !s.python
		put(out, s.pend[1:]...)
	} else {
		put(out, s.pend...)
		s.state = jsonValue
		if s.stack[len(s.stack)-1] == '{' {
			s.state = jsonKey
		}
	}
	s.pend = s.pend[:0]
	return true
}

func (s *jsonStream) after(c byte, i int, out *[]byte) (int, jsonStatus) {
	open := s.stack[len(s.stack)-1]
	switch {
	case c == ',':
		s.state = jsonComma
		s.pend = append(s.pend, c)
	case c == '}' && open == '{', c == ']' && open == '[':
		put(out, c)
		s.pop()
	case c == ')' && open == '(':
		put(out, ']')
		s.pop()
	default:
		return i, jsonBroken
	}
	return i + 1, jsonMore
}

func (s *jsonStream) pop() {
	s.stack = s.stack[:len(s.stack)-1]
	s.ended()
}

// ended is called at the end of a value.
func (s *jsonStream) ended() {
	s.state = jsonAfter
	if len(s.stack) == 0 {
		s.state = jsonDone
	}
}

func (s *jsonStream) value(b []byte, i int, final bool, out *[]byte) (int, jsonStatus) {
	switch c := b[i]; {
	case c == '{' || c == '[' || c == '(' && s.python:
		if len(s.stack) == maxDepth {
			return i, jsonBroken
		}
		s.stack = append(s.stack, c)
		s.state = jsonItem
		if c == '{' {
			s.state = jsonFirstKey
		} else {
			c = '['
		}
		put(out, c)
		return i + 1, jsonMore
	case (c == ']' || c == ')' && s.stack[len(s.stack)-1] == '(') && s.state == jsonItem:
		put(out, ']')
		s.pop()
		return i + 1, jsonMore
	case c == '"' || c == '\'':
		if s.python {
			return s.openPython(b, i, final, out)
		}
		s.fixed = s.fixed || s.delim != nil
		s.open(c, false, out)
		return i + 1, jsonMore
	case s.delim != nil:
		return s.openDelimited(b, i, final, out)
	}
	return s.word(b, i, final, out)
}

func (s *jsonStream) open(quote byte, key bool, out *[]byte) {
	s.quote, s.key, s.state = quote, key, jsonString
	s.fixed = s.fixed || quote == '\'' && !s.python
	s.triple, s.raw = false, false
	put(out, '"')
}

func (s *jsonStream) keyToken(b []byte, i int, final bool, out *[]byte) (int, jsonStatus) {
	switch c := b[i]; {
	case c == '}' && s.state == jsonFirstKey:
		put(out, c)
		s.pop()
		return i + 1, jsonMore
	case c == '"' || c == '\'':
		s.open(c, true, out)
		return i + 1, jsonMore
	case s.delim != nil:
		return s.bareKey(b, i, out)
	case c == '_' || c == '$' || c|0x20 >= 'a' && c|0x20 <= 'z':
		end := i
		for end < len(b) && (b[end] == '_' || b[end] == '$' || b[end]|0x20 >= 'a' && b[end]|0x20 <= 'z' || b[end] >= '0' && b[end] <= '9') {
			end++
		}
		if end-i > maxWord {
			return i, jsonBroken
		}
		if end == len(b) && !final {
			return i, jsonMore
		}
		put(out, '"')
		put(out, b[i:end]...)
		put(out, '"')
		s.state, s.fixed = jsonColon, true
		return end, jsonMore
	}
	return i, jsonBroken
}

// word reads a number or a keyword, whose end has to be seen.
func (s *jsonStream) word(b []byte, i int, final bool, out *[]byte) (int, jsonStatus) {
	end := i
	for end < len(b) && !isSpace(b[end]) && !isDelimiter(b[end]) {
		end++
	}
	if end == len(b) && !final && end-i <= maxWord {
		return i, jsonMore
	}
	var word []byte
	word, ok := appendWord(word, b[i:end])
	if !ok || end-i > maxWord {
		return i, jsonBroken
	}
	s.fixed = s.fixed || string(word) != string(b[i:end]) && !s.python
	put(out, word...)
	s.ended()
	return end, jsonMore
}

// str reads on inside a string. Escapes are never split.
func (s *jsonStream) str(b []byte, i int, final bool, out *[]byte) int {
	if s.raw {
		return s.delimited(b, i, out)
	}
	start := i
	flush := func(end int) {
		if out != nil {
			*out = append(*out, b[start:end]...)
		}
	}
	for i < len(b) {
		c := b[i]
		if plainByte[c] && c != s.quote {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if n := runeLen(b, i); n > 0 {
				i += n
				continue
			}
		}
		if c == '\\' && s.quote == '"' {
			if n := plainEscape(b[i:]); n > 0 {
				i += n
				continue
			}
		}
		flush(i)
		switch {
		case c == s.quote && s.triple && !hasPrefix(b[i+1:], string([]byte{c, c})):
			if len(b)-i < 3 && !final {
				return i
			}
			s.fixed = true
			put(out, '\\', c)
			if c == '\'' && out != nil {
				*out = append((*out)[:len(*out)-2], c)
			}
			i++
		case c == s.quote:
			s.closeString(out)
			if s.triple {
				return i + 3
			}
			return i + 1
		case c == '\\':
			n := escapeLen(b[i:], final)
			if n == 0 {
				return i
			}
			var fixed []byte
			if out != nil {
				n = appendEscape(out, b[i:i+n])
			} else {
				n = appendEscape(&fixed, b[i:i+n])
			}
			i += max(n, 1)
		default: // a double quote in single ones is Python's own
			s.fixed = s.fixed || c != '"' || !s.python
			if out != nil {
				*out = appendQuoted(*out, b[i:i+1])
			}
			i++
		}
		start = i
	}
	flush(i)
	return i
}

func (s *jsonStream) closeString(out *[]byte) {
	put(out, '"')
	if s.key {
		s.state = jsonColon
	} else {
		s.ended()
	}
}

// plainEscape is the length of the escape at the start of b where it is one of
// JSON's that needs no look at what follows it, else 0.
func plainEscape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	if escaped(b[1]) != 0 {
		return 2
	}
	if r, ok := hex4(b); ok && (r < 0xD800 || r >= 0xDC00) {
		return 6
	}
	return 0
}

// escapeLen is how much of b the escape at its start needs, 0 when that isn't
// there yet. Both halves of a surrogate pair are one escape.
func escapeLen(b []byte, final bool) int {
	want := 2
	if len(b) > 1 && b[1] == 'u' {
		want = 6
		if r, ok := hex4(b); ok && r >= 0xD800 && r < 0xDC00 {
			// The partner's bytes are looked at only as far as they agree.
			if len(b) < 8 && (len(b) < 7 || b[6] == '\\') && !final {
				return 0
			}
			if len(b) >= 8 && b[6] == '\\' && b[7] == 'u' && len(b) < 12 && !final {
				return 0
			}
		}
	} else if len(b) > 1 && b[1] == 'x' {
		want = 4
	}
	if len(b) < want {
		if !final {
			return 0
		}
		return len(b)
	}
	return want
}
