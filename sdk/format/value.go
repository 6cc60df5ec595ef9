package format

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep JSON from outside may nest.
const maxDepth = 512

// kind is the first letter of a JSON type's name.
type kind byte

const (
	kindNull   kind = 'n'
	kindBool   kind = 'b'
	kindNumber kind = '0'
	kindString kind = 's'
	kindArray  kind = 'a'
	kindObject kind = 'o'
)

// Value is a JSON value with its keys in order and its numbers as written.
// Its exported methods are what templates use.
type Value struct {
	kind    kind
	text    string // a string's own text, another scalar's spelling
	items   []Value
	members []Member
}

// Member is a key of an object with its value.
type Member struct {
	Key   string
	Value Value
}

// ParseValue reads one JSON value, strictly.
func ParseValue(src []byte) (Value, error) {
	r := valueReader{src: src}
	v, err := r.value(0)
	if err != nil {
		return Value{}, err
	}
	if r.space(); r.i < len(src) {
		return Value{}, fmt.Errorf("byte %d: text after the JSON value", r.i)
	}
	return v, nil
}

type valueReader struct {
	src []byte
	i   int
}

func (r *valueReader) space() {
	for r.i < len(r.src) && isSpace(r.src[r.i]) {
		r.i++
	}
}

func (r *valueReader) fail(want string) error {
	if r.i >= len(r.src) {
		return fmt.Errorf("JSON ends where %s should be", want)
	}
	return fmt.Errorf("byte %d: %q where %s should be", r.i, r.src[r.i], want)
}

func (r *valueReader) value(depth int) (Value, error) {
	if depth > maxDepth {
		return Value{}, errors.New("JSON nests too deeply")
	}
	r.space()
	if r.i >= len(r.src) {
		return Value{}, r.fail("a value")
	}
	switch c := r.src[r.i]; {
	case c == '{':
		return r.object(depth)
	case c == '[':
		return r.array(depth)
	case c == '"':
		s, err := r.str()
		return Value{kind: kindString, text: s}, err
	case c == '-' || c >= '0' && c <= '9':
		n := numberEnd(r.src[r.i:])
		if n == 0 {
			return Value{}, r.fail("a number")
		}
		v := Value{kind: kindNumber, text: string(r.src[r.i : r.i+n])}
		r.i += n
		return v, nil
	}
	for word, k := range map[string]kind{"true": kindBool, "false": kindBool, "null": kindNull} {
		if hasPrefix(r.src[r.i:], word) {
			r.i += len(word)
			return Value{kind: k, text: word}, nil
		}
	}
	return Value{}, r.fail("a value")
}

func (r *valueReader) object(depth int) (Value, error) {
	v := Value{kind: kindObject}
	r.i++
	for {
		r.space()
		if r.i < len(r.src) && r.src[r.i] == '}' && len(v.members) == 0 {
			r.i++
			return v, nil
		}
		if r.i >= len(r.src) || r.src[r.i] != '"' {
			return v, r.fail("a key")
		}
		key, err := r.str()
		if err != nil {
			return v, err
		}
		if r.space(); r.i >= len(r.src) || r.src[r.i] != ':' {
			return v, r.fail("a colon")
		}
		r.i++
		item, err := r.value(depth + 1)
		if err != nil {
			return v, err
		}
		v.members = append(v.members, Member{key, item})
		done, err := r.next('}')
		if done || err != nil {
			return v, err
		}
	}
}

func (r *valueReader) array(depth int) (Value, error) {
	v := Value{kind: kindArray}
	r.i++
	for {
		r.space()
		if r.i < len(r.src) && r.src[r.i] == ']' && len(v.items) == 0 {
			r.i++
			return v, nil
		}
		item, err := r.value(depth + 1)
		if err != nil {
			return v, err
		}
		v.items = append(v.items, item)
		done, err := r.next(']')
		if done || err != nil {
			return v, err
		}
	}
}

// next reads a comma, or the end of the container.
func (r *valueReader) next(end byte) (bool, error) {
	r.space()
	if r.i >= len(r.src) {
		return false, r.fail("a comma")
	}
	c := r.src[r.i]
	if c != ',' && c != end {
		return false, r.fail("a comma")
	}
	r.i++
	return c == end, nil
}

func (r *valueReader) str() (string, error) {
	start := r.i
	for i := r.i + 1; i < len(r.src); i++ {
		switch c := r.src[i]; {
		case c == '\\':
			i++
		case c == '"':
			r.i = i + 1
			s, ok := unescape(r.src[start+1 : i])
			if !ok {
				return "", fmt.Errorf("byte %d: a string has a bad escape", start)
			}
			return s, nil
		case c < ' ':
			return "", fmt.Errorf("byte %d: a string has a raw control character", i)
		}
	}
	return "", errors.New("JSON ends in a string")
}

// numberEnd is the length of the JSON number at the start of b, 0 when there
// is none.
func numberEnd(b []byte) int {
	i := 0
	digits := func() bool {
		start := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return 0
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return 0
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return 0
		}
	}
	return i
}

// unescape decodes the inside of a JSON string. A surrogate without its
// partner stays as it was spelled, so that nothing is lost.
func unescape(b []byte) (string, bool) {
	plain := true
	for _, c := range b {
		if c == '\\' {
			plain = false
			break
		}
	}
	if plain {
		return string(b), true
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			out = append(out, b[i])
			continue
		}
		if i++; i >= len(b) {
			return "", false
		}
		if b[i] == 'u' {
			n, ok := appendUnicode(&out, b[i-1:])
			if !ok {
				return "", false
			}
			i += n - 2
			continue
		}
		c := escaped(b[i])
		if c == 0 {
			return "", false
		}
		out = append(out, c)
	}
	return string(out), true
}

// escaped is what a JSON escape of one letter stands for, 0 when it is none.
func escaped(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}

// appendUnicode decodes \uXXXX, with its partner where it is half of a pair,
// and returns how many bytes it read.
func appendUnicode(out *[]byte, b []byte) (int, bool) {
	hi, ok := hex4(b)
	if !ok {
		return 0, false
	}
	if !utf16.IsSurrogate(hi) {
		*out = utf8.AppendRune(*out, hi)
		return 6, true
	}
	if lo, ok := hex4(b[6:]); ok {
		if r := utf16.DecodeRune(hi, lo); r != utf8.RuneError {
			*out = utf8.AppendRune(*out, r)
			return 12, true
		}
	}
	*out = append(*out, b[:6]...)
	return 6, true
}

// hex4 reads \uXXXX.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// IsObject, IsArray, IsString and IsNull tell the kind of a value.
func (v Value) IsObject() bool { return v.kind == kindObject }

// IsArray reports whether v is an array.
func (v Value) IsArray() bool { return v.kind == kindArray }

// IsString reports whether v is a string.
func (v Value) IsString() bool { return v.kind == kindString }

// IsNull reports whether v is null or absent.
func (v Value) IsNull() bool { return v.kind == kindNull || v.kind == 0 }

// Present reports whether there is a value, null included.
func (v Value) Present() bool { return v.kind != 0 }

// Members are the keys of an object, in order.
func (v Value) Members() []Member { return v.members }

// Items are the items of an array.
func (v Value) Items() []Value { return v.items }

// Get returns the value of a key, absent when there is none. The last one of
// a repeated key counts.
func (v Value) Get(key string) Value {
	for i := len(v.members) - 1; i >= 0; i-- {
		if v.members[i].Key == key {
			return v.members[i].Value
		}
	}
	return Value{}
}

// Type is the name of the JSON type of v, an integer's being number.
func (v Value) Type() string {
	switch v.kind {
	case kindBool:
		return "boolean"
	case kindNumber:
		return "number"
	case kindString:
		return "string"
	case kindArray:
		return "array"
	case kindObject:
		return "object"
	}
	return "null"
}

// Sorted is v with the keys of its objects in order, at any depth.
func (v Value) Sorted() Value {
	v.items, v.members = slices.Clone(v.items), sorted(v.members)
	for i := range v.items {
		v.items[i] = v.items[i].Sorted()
	}
	for i := range v.members {
		v.members[i].Value = v.members[i].Value.Sorted()
	}
	return v
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func hasPrefix(b []byte, s string) bool { return len(b) >= len(s) && string(b[:len(s)]) == s }
