// Package rawjson reads JSON that passes through. A body is checked once,
// whole; after that its values are slices of it, read in place and in order,
// so that key order, nulls, big integers and escapes stay as they came in.
//
// What never enters: knowledge of any dialect, and decoding into types.
package rawjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Check reports whether b is exactly one JSON value: in valid UTF-8, without
// repeated names in an object, and nested at most depth levels. An escape of
// half a surrogate pair is let through, because clients cut strings there; it
// reads as U+FFFD.
func Check(b []byte, depth int) error {
	if !utf8.Valid(b) {
		return errors.New("not valid UTF-8")
	}
	if deepest(b, depth) > depth {
		return fmt.Errorf("nested more than %d levels deep", depth)
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadValue(); err != nil {
		return syntaxError(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more text after the value, at byte %d", d.InputOffset())
	}
	return nil
}

// syntaxError says what is wrong and where, without the decoder's own prefix.
func syntaxError(err error) error {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		if errors.Is(err, io.EOF) {
			return errors.New("empty")
		}
		return err
	}
	cause := s.Err
	if errors.Is(cause, io.ErrUnexpectedEOF) {
		cause = errors.New("unexpected end")
	}
	if s.JSONPointer != "" {
		return fmt.Errorf("%w at byte %d, in %s", cause, s.ByteOffset, s.JSONPointer)
	}
	return fmt.Errorf("%w at byte %d", cause, s.ByteOffset)
}

// deepest is how deep b is nested; it stops counting above limit.
func deepest(b []byte, limit int) int {
	depth, most := 0, 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = stringEnd(b, i) - 1
		case '{', '[':
			if depth++; depth > most {
				if most = depth; most > limit {
					return most
				}
			}
		case '}', ']':
			depth--
		}
	}
	return most
}

// Value is one JSON value that was checked, without space around it. A nil
// Value is absent.
type Value []byte

// Of is the value in b, which must have passed Check.
func Of(b []byte) Value { return Value(bytes.TrimSpace(b)) }

// Kind is '{', '[', '"', '0' for a number, 't' for true or false, 'n' for
// null, and 0 when v is absent.
func (v Value) Kind() byte {
	if len(v) == 0 {
		return 0
	}
	switch v[0] {
	case '{', '[', '"', 'n':
		return v[0]
	case 't', 'f':
		return 't'
	default:
		return '0'
	}
}

// Given reports whether v is there and isn't null.
func (v Value) Given() bool { k := v.Kind(); return k != 0 && k != 'n' }

// kindName is the kind of v in words, for errors.
func (v Value) kindName() string {
	switch v.Kind() {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't':
		return "a boolean"
	case 'n':
		return "null"
	case '0':
		return "a number"
	default:
		return "absent"
	}
}

// Fields gives the names and values of an object in order, and nothing for
// another kind of value. A name without escapes is a slice of v.
func (v Value) Fields() iter.Seq2[[]byte, Value] {
	return func(yield func([]byte, Value) bool) {
		if v.Kind() != '{' {
			return
		}
		for i := skipSpace(v, 1); i < len(v) && v[i] == '"'; {
			end := stringEnd(v, i)
			name := v[i+1 : end-1]
			if bytes.IndexByte(name, '\\') >= 0 {
				name, _ = jsontext.AppendUnquote(nil, v[i:end])
			}
			start := skipSpace(v, skipSpace(v, end)+1)
			end = valueEnd(v, start)
			if start >= end || !yield(name, v[start:end]) {
				return
			}
			i = skipSpace(v, end)
			if i < len(v) && v[i] == ',' {
				i = skipSpace(v, i+1)
			}
		}
	}
}

// Items gives the items of a list, and nothing for another kind of value.
func (v Value) Items() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		if v.Kind() != '[' {
			return
		}
		n := 0
		for i := skipSpace(v, 1); i < len(v) && v[i] != ']'; n++ {
			end := valueEnd(v, i)
			if end <= i || !yield(n, v[i:end]) {
				return
			}
			i = skipSpace(v, end)
			if i < len(v) && v[i] == ',' {
				i = skipSpace(v, i+1)
			}
		}
	}
}

// Len is the number of items of a list or fields of an object.
func (v Value) Len() int {
	n := 0
	for range v.Items() {
		n++
	}
	for range v.Fields() {
		n++
	}
	return n
}

// Get is the field name of an object, absent where there is none.
func (v Value) Get(name string) Value {
	for n, f := range v.Fields() {
		if string(n) == name {
			return f
		}
	}
	return nil
}

// With is a copy of the object v in which the value of field name is
// replaced; everything else keeps its bytes.
func (v Value) With(name, value string) []byte {
	old := v.Get(name)
	if old == nil {
		return bytes.Clone(v)
	}
	at := cap(v) - cap(old)
	out := make([]byte, 0, len(v)-len(old)+len(value))
	out = append(out, v[:at]...)
	out = append(out, value...)
	return append(out, v[at+len(old):]...)
}

// Text is the text of a string, and "" for another kind of value.
func (v Value) Text() string {
	if v.Kind() != '"' || len(v) < 2 {
		return ""
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1])
	}
	text, _ := jsontext.AppendUnquote(make([]byte, 0, len(v)), v)
	return string(text)
}

// Str is the text of a string; another kind is an error.
func (v Value) Str() (string, error) {
	if v.Kind() != '"' {
		return "", v.wrong("a string")
	}
	return v.Text(), nil
}

// Bool is a boolean; another kind is an error.
func (v Value) Bool() (bool, error) {
	if v.Kind() != 't' {
		return false, v.wrong("a boolean")
	}
	return v[0] == 't', nil
}

// Float is a number; another kind is an error.
func (v Value) Float() (float64, error) {
	if v.Kind() != '0' {
		return 0, v.wrong("a number")
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return 0, Errorf("%s is out of range", v)
	}
	return f, nil
}

// Int is a whole number, also one written as 1e3 or 8.0; another value is an
// error.
func (v Value) Int() (int64, error) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, nil
	}
	f, err := v.Float()
	if err != nil {
		return 0, v.wrong("a whole number")
	}
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, Errorf("must be a whole number, not %s", v)
	}
	return int64(f), nil
}

// Strings is a list of strings; another kind is an error.
func (v Value) Strings() ([]string, error) {
	if v.Kind() != '[' {
		return nil, v.wrong("a list of strings")
	}
	out := []string{}
	for i, item := range v.Items() {
		s, err := item.Str()
		if err != nil {
			return nil, In(Index("", i), err)
		}
		out = append(out, s)
	}
	return out, nil
}

func (v Value) wrong(want string) error {
	return Errorf("must be %s, not %s", want, v.kindName())
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// stringEnd is the index after the string that starts at b[i].
func stringEnd(b []byte, i int) int {
	for j := i + 1; j < len(b); {
		n := bytes.IndexByte(b[j:], '"')
		if n < 0 {
			break
		}
		j += n
		escapes := 0
		for b[j-1-escapes] == '\\' {
			escapes++
		}
		j++
		if escapes%2 == 0 {
			return j
		}
	}
	return len(b)
}

// valueEnd is the index after the value that starts at b[i].
func valueEnd(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
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
	for ; i < len(b); i++ {
		switch b[i] {
		case ',', ']', '}', ' ', '\n', '\t', '\r':
			return i
		}
	}
	return i
}
