package rawjson

import "bytes"

// document is a text and where its values end. The index is what lets nested
// values be read without scanning the same bytes once a level.
type document struct {
	text []byte
	// spans are the objects, the lists and the long strings in the order in
	// which they start; none when the text wasn't indexed.
	spans []span
}

type span struct{ start, end int }

// shortString is the length up to which a string is scanned, not looked up.
const shortString = 48

// index finds the spans. It reports whether the text is nested at most depth
// levels; text that isn't JSON gives spans that mean nothing.
func (d *document) index(depth int) bool {
	b := d.text
	d.spans = make([]span, 0, 16+len(b)/128)
	open := make([]int, 0, 16)
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			end := stringEnd(b, i)
			if end-i > shortString {
				d.spans = append(d.spans, span{i, end})
			}
			i = end - 1
		case '{', '[':
			if len(open) == depth {
				return false
			}
			open = append(open, len(d.spans))
			d.spans = append(d.spans, span{i, len(b)})
		case '}', ']':
			if len(open) > 0 {
				d.spans[open[len(open)-1]].end = i + 1
				open = open[:len(open)-1]
			}
		}
	}
	return true
}

// valueEnd is the index after the value that starts at i, at most limit.
func (d *document) valueEnd(i, limit int) int {
	if i >= limit {
		return limit
	}
	b := d.text[:limit]
	switch b[i] {
	case '"':
		for j := i + 1; j < min(limit, i+shortString); j++ {
			switch b[j] {
			case '"':
				return j + 1
			case '\\':
				j++
			}
		}
		if end, ok := d.lookup(i); ok {
			return end
		}
		return stringEnd(b, i)
	case '{', '[':
		if end, ok := d.lookup(i); ok {
			return end
		}
		return nestedEnd(b, i)
	}
	for ; i < limit; i++ {
		if c := b[i]; c == ',' || c == ']' || c == '}' || isSpace(c) {
			break
		}
	}
	return i
}

// lookup is the end of the span that starts at i.
func (d *document) lookup(i int) (end int, ok bool) {
	low, high := 0, len(d.spans)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if d.spans[mid].start < i {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < len(d.spans) && d.spans[low].start == i {
		return d.spans[low].end, true
	}
	return 0, false
}

// nestedEnd is the index after the object or list that starts at b[i].
func nestedEnd(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = stringEnd(b, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(b)
}

// stringEnd is the index after the string that starts at b[i].
func stringEnd(b []byte, i int) int {
	j := i + 1
	for near := min(len(b), i+shortString); j < near; j++ {
		switch b[j] {
		case '"':
			return j + 1
		case '\\':
			j++
		}
	}
	for start := j; start < len(b); {
		n := bytes.IndexByte(b[start:], '"')
		if n < 0 {
			break
		}
		start += n + 1
		if !escaped(b[j : start-1]) {
			return start
		}
	}
	return len(b)
}

// escaped reports whether what follows text, which begins no escape's second
// half, is escaped by the backslashes at its end.
func escaped(text []byte) bool {
	n := len(text)
	for n > 0 && text[n-1] == '\\' {
		n--
	}
	return (len(text)-n)%2 == 1
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// afterComma is where the next name or item after the value that ends at i
// starts.
func afterComma(b []byte, i int) int {
	if i = skipSpace(b, i); i < len(b) && b[i] == ',' {
		i = skipSpace(b, i+1)
	}
	return i
}
