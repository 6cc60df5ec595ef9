package format

import "bytes"

// openPython opens a string in one or three quotes.
func (s *jsonStream) openPython(b []byte, i int, final bool, out *[]byte) (int, jsonStatus) {
	c := b[i]
	quotes := 1
	for quotes < 3 && i+quotes < len(b) && b[i+quotes] == c {
		quotes++
	}
	if i+quotes == len(b) && quotes < 3 && !final {
		return i, jsonMore
	}
	s.open(c, false, out)
	if quotes == 3 {
		s.triple = true
		return i + 3, jsonMore
	}
	return i + 1, jsonMore
}

// openDelimited reads a value where strings are between markers: a string, a
// number or keyword, or text whose opening marker is missing.
func (s *jsonStream) openDelimited(b []byte, i int, final bool, out *[]byte) (int, jsonStatus) {
	switch compare(b[i:], s.delim) {
	case full:
		s.open(0, false, out)
		s.raw = true
		return i + len(s.delim), jsonMore
	case part:
		if !final {
			return i, jsonMore
		}
	}
	end := i
	for end < len(b) && end-i <= maxWord && b[end] != ',' && b[end] != '}' && b[end] != ']' && b[end] != '\n' && b[end] != s.delim[0] {
		end++
	}
	if end-i > maxWord {
		return i, jsonBroken
	}
	marked := no
	if end < len(b) && b[end] == s.delim[0] {
		marked = compare(b[end:], s.delim)
	}
	if (end == len(b) || marked == part) && !final {
		return i, jsonMore
	}
	text := bytes.TrimSpace(b[i:end])
	if word, ok := appendWord(nil, text); ok && marked != full {
		s.fixed = s.fixed || string(word) != string(text)
		put(out, word...)
		s.ended()
		return end, jsonMore
	}
	if len(text) == 0 || marked == no && end < len(b) && b[end] == s.delim[0] {
		return i, jsonBroken
	}
	s.fixed = true
	put(out, '"')
	if out != nil {
		*out = appendQuoted(*out, text)
	}
	s.key = false
	s.closeString(out)
	if marked == full {
		end += len(s.delim)
	}
	return end, jsonMore
}

// delimited reads on in a string between markers, in which everything stands
// for itself.
func (s *jsonStream) delimited(b []byte, i int, out *[]byte) int {
	start := i
	for {
		k := bytes.IndexByte(b[i:], s.delim[0])
		if k < 0 {
			i = len(b)
			break
		}
		i += k
		how := compare(b[i:], s.delim)
		if how == no {
			i++
			continue
		}
		if out != nil {
			*out = appendQuoted(*out, b[start:i])
		}
		if how == full {
			s.closeString(out)
			i += len(s.delim)
		}
		return i
	}
	i -= cutRune(b[start:i])
	if out != nil {
		*out = appendQuoted(*out, b[start:i])
	}
	return i
}

// bareKey reads a key without quotes, up to what separates it from its value.
func (s *jsonStream) bareKey(b []byte, i int, out *[]byte) (int, jsonStatus) {
	end := i
	if hasPrefix(b[i:], string(s.delim)) {
		s.open(0, true, out)
		s.raw = true
		return i + len(s.delim), jsonMore
	}
	for end < len(b) && end-i <= maxTag && b[end] != ':' && b[end] != '=' {
		if c := b[end]; c == '{' || c == '}' || c == '[' || c == ']' || c == ',' || c == '\n' {
			return i, jsonBroken
		}
		end++
	}
	if end-i > maxTag {
		return i, jsonBroken
	}
	if end == len(b) {
		return i, jsonMore
	}
	key := bytes.TrimSpace(b[i:end])
	if len(key) == 0 {
		return i, jsonBroken
	}
	put(out, '"')
	if out != nil {
		*out = appendQuoted(*out, key)
	}
	put(out, '"')
	s.state = jsonColon
	return end, jsonMore
}
