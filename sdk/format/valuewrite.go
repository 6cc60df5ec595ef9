package format

import (
	"strings"
	"unicode/utf8"
)

// JSON is v as Python's json.dumps(v, ensure_ascii=False) spells it, with
// numbers as they were written.
func (v Value) JSON() string { return string(v.appendJSON(nil, style{", ", ": ", -1}, 0)) }

// Compact is v as JSON without spaces.
func (v Value) Compact() string { return string(v.appendJSON(nil, style{",", ":", -1}, 0)) }

// Indent is v as json.dumps(v, indent=4) spells it.
func (v Value) Indent() string { return string(v.appendJSON(nil, style{",", ": ", 4}, 0)) }

// Text is v as Python's str spells a scalar: a string's own text, True, False
// and None. Containers are JSON.
func (v Value) Text() string {
	switch v.kind {
	case kindString, kindNumber:
		return v.text
	case kindNull:
		return "None"
	case kindBool:
		if v.text == "true" {
			return "True"
		}
		return "False"
	}
	return v.JSON()
}

// Repr is v as Python's str spells it, containers as well.
func (v Value) Repr() string {
	if v.kind != kindArray && v.kind != kindObject {
		return v.Text()
	}
	return string(v.appendRepr(nil))
}

// Literal is v as a literal that Python and JSON readers of calls both take:
// strings in double quotes, True, False and None.
func (v Value) Literal() string { return string(v.appendLiteral(nil)) }

func (v Value) appendLiteral(dst []byte) []byte {
	switch v.kind {
	case kindArray:
		dst = append(dst, '[')
		for i, item := range v.items {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = item.appendLiteral(dst)
		}
		return append(dst, ']')
	case kindObject:
		dst = append(dst, '{')
		for i, m := range v.members {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(appendQuoted(append(dst, '"'), m.Key), `": `...)
			dst = m.Value.appendLiteral(dst)
		}
		return append(dst, '}')
	case kindString:
		return append(appendQuoted(append(dst, '"'), v.text), '"')
	}
	return append(dst, v.Text()...)
}

// Python is a value as Python's repr writes it, strings in quotes too.
func (v Value) Python() string { return string(v.appendRepr(nil)) }

func (v Value) appendRepr(dst []byte) []byte {
	switch v.kind {
	case kindString:
		return appendPyString(dst, v.text)
	case kindArray:
		dst = append(dst, '[')
		for i, item := range v.items {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = item.appendRepr(dst)
		}
		return append(dst, ']')
	case kindObject:
		dst = append(dst, '{')
		for i, m := range v.members {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(appendPyString(dst, m.Key), ": "...)
			dst = m.Value.appendRepr(dst)
		}
		return append(dst, '}')
	}
	return append(dst, v.Text()...)
}

// appendPyString writes a string as Python's repr does: in single quotes, save
// where it has those and no double ones.
func appendPyString(dst []byte, s string) []byte {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	dst = append(dst, quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r < ' ' || r == 0x7f:
			dst = append(dst, '\\', 'x', hexDigits[r>>4], hexDigits[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, quote)
}

// Plain is a string's own text and any other value's JSON.
func (v Value) Plain() string {
	if v.kind == kindString {
		return v.text
	}
	return v.JSON()
}

// style is how JSON is spaced. A negative indent is one line.
type style struct {
	item, key string
	indent    int
}

func (s style) newline(dst []byte, depth int) []byte {
	if s.indent < 0 {
		return dst
	}
	dst = append(dst, '\n')
	for range depth * s.indent {
		dst = append(dst, ' ')
	}
	return dst
}

func (v Value) appendJSON(dst []byte, s style, depth int) []byte {
	switch v.kind {
	case kindString:
		dst = append(dst, '"')
		dst = appendQuoted(dst, v.text)
		return append(dst, '"')
	case kindArray:
		if len(v.items) == 0 {
			return append(dst, "[]"...)
		}
		dst = append(dst, '[')
		for i, item := range v.items {
			if i > 0 {
				dst = append(dst, s.item...)
			}
			dst = item.appendJSON(s.newline(dst, depth+1), s, depth+1)
		}
		return append(s.newline(dst, depth), ']')
	case kindObject:
		if len(v.members) == 0 {
			return append(dst, "{}"...)
		}
		dst = append(dst, '{')
		for i, m := range v.members {
			if i > 0 {
				dst = append(dst, s.item...)
			}
			dst = append(s.newline(dst, depth+1), '"')
			dst = append(appendQuoted(dst, m.Key), '"')
			dst = m.Value.appendJSON(append(dst, s.key...), s, depth+1)
		}
		return append(s.newline(dst, depth), '}')
	case 0:
		return append(dst, "null"...)
	}
	return append(dst, v.text...)
}

// plainByte says which bytes stand for themselves inside a JSON string.
var plainByte = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf
	}
	return t
}()

const hexDigits = "0123456789abcdef"

// appendQuoted escapes s for the inside of a JSON string as Python does.
// Bytes that are no UTF-8 become U+FFFD.
func appendQuoted[T string | []byte](dst []byte, s T) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plainByte[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			n := runeLen(s, i)
			if n > 0 {
				i += n
				continue
			}
			dst = append(append(dst, s[start:i]...), "\uFFFD"...)
			i++
			start = i
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(dst, s[start:]...)
}

// runeLen is the length of the rune of several bytes at s[i], 0 when it is
// broken.
func runeLen[T string | []byte](s T, i int) int {
	var b [utf8.UTFMax]byte
	n := copy(b[:], s[i:min(len(s), i+utf8.UTFMax)])
	r, size := utf8.DecodeRune(b[:n])
	if r == utf8.RuneError && size <= 1 {
		return 0
	}
	return size
}
