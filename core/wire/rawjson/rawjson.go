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
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
)

// Parse checks that b is exactly one JSON value and returns it: in valid
// UTF-8, without repeated names in an object, and nested at most depth levels.
// An escape of half a surrogate pair is let through, because clients cut
// strings there; it reads as U+FFFD. The value keeps b.
func Parse(b []byte, depth int) (Value, error) {
	if !utf8.Valid(b) {
		return Value{}, errors.New("not valid UTF-8")
	}
	v := Of(b)
	if !v.d.index(depth) {
		return Value{}, fmt.Errorf("nested more than %d levels deep", depth)
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadValue(); err != nil {
		return Value{}, syntaxError(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return Value{}, fmt.Errorf("more text after the value, at byte %d", d.InputOffset())
	}
	return v, nil
}

// Check is Parse for callers that need no value.
func Check(b []byte, depth int) error {
	_, err := Parse(b, depth)
	return err
}

// Valid reports whether b is JSON that a client's parser reads: as Check, but
// names may repeat, as they do in what models write.
func Valid(b []byte, depth int) bool {
	d := document{text: b}
	return utf8.Valid(b) && d.index(depth) && jsontext.Value(b).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
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

// Value is one JSON value that was checked, without space around it. The zero
// Value is absent.
type Value struct {
	d          *document
	start, end int
}

// Of is the value in b, which must be valid JSON; other text is read as far
// as it makes sense.
func Of(b []byte) Value {
	start := skipSpace(b, 0)
	end := len(b)
	for end > start && isSpace(b[end-1]) {
		end--
	}
	if start == end {
		return Value{d: &document{}}
	}
	return Value{d: &document{text: b}, start: start, end: end}
}

// Raw is the value's bytes, nil when it is absent.
func (v Value) Raw() []byte {
	if v.start == v.end {
		return nil
	}
	return v.d.text[v.start:v.end:v.end]
}

// Kind is '{', '[', '"', '0' for a number, 't' for true or false, 'n' for
// null, and 0 when v is absent.
func (v Value) Kind() byte {
	if v.start == v.end {
		return 0
	}
	switch c := v.d.text[v.start]; c {
	case '{', '[', '"', 'n':
		return c
	case 't', 'f':
		return 't'
	default:
		return '0'
	}
}

// Absent reports whether v isn't there at all.
func (v Value) Absent() bool { return v.start == v.end }

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
// another kind of value. A name without escapes is a slice of the text.
func (v Value) Fields() iter.Seq2[[]byte, Value] {
	return func(yield func([]byte, Value) bool) {
		if v.Kind() != '{' {
			return
		}
		b := v.d.text[:v.end]
		for i := skipSpace(b, v.start+1); i < v.end && b[i] == '"'; {
			end := v.d.valueEnd(i, v.end)
			name := b[i+1 : max(end-1, i+1)]
			if bytes.IndexByte(name, '\\') >= 0 {
				name, _ = jsontext.AppendUnquote(nil, b[i:end])
			}
			start := skipSpace(b, skipSpace(b, end)+1)
			end = v.d.valueEnd(start, v.end)
			if start >= end || !yield(name, Value{v.d, start, end}) {
				return
			}
			i = afterComma(b, end)
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
		b := v.d.text[:v.end]
		for i := skipSpace(b, v.start+1); i < v.end && b[i] != ']'; n++ {
			end := v.d.valueEnd(i, v.end)
			if end <= i || !yield(n, Value{v.d, i, end}) {
				return
			}
			i = afterComma(b, end)
		}
	}
}

// Get is the field name of an object, absent where there is none.
func (v Value) Get(name string) Value {
	for n, f := range v.Fields() {
		if string(n) == name {
			return f
		}
	}
	return Value{}
}

// Replace is a copy of v's bytes in which old, a value inside v, is replaced;
// everything else stays. An absent old replaces nothing.
func (v Value) Replace(old Value, with string) []byte {
	if old.Absent() {
		return bytes.Clone(v.Raw())
	}
	out := make([]byte, 0, v.end-v.start-(old.end-old.start)+len(with))
	out = append(out, v.d.text[v.start:old.start]...)
	out = append(out, with...)
	return append(out, v.d.text[old.end:v.end]...)
}

// Text is the text of a string, and "" for another kind of value.
func (v Value) Text() string {
	if v.Kind() != '"' || v.end-v.start < 2 {
		return ""
	}
	b := v.Raw()
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1])
	}
	text, _ := jsontext.AppendUnquote(make([]byte, 0, len(b)), b)
	if len(text) < len(b)/4*3 {
		return string(text) // and lets the rest go
	}
	return unsafe.String(unsafe.SliceData(text), len(text)) // nobody else has it
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
	return v.d.text[v.start] == 't', nil
}

// Float is a number; another kind is an error.
func (v Value) Float() (float64, error) {
	if v.Kind() != '0' {
		return 0, v.wrong("a number")
	}
	f, err := strconv.ParseFloat(string(v.Raw()), 64)
	if err != nil {
		return 0, Errorf("%s is out of range", v.Raw())
	}
	return f, nil
}

// Int is a whole number, also one written as 1e3 or 8.0; another value is an
// error.
func (v Value) Int() (int64, error) {
	if n, err := strconv.ParseInt(string(v.Raw()), 10, 64); err == nil {
		return n, nil
	}
	f, err := v.Float()
	if err != nil {
		return 0, v.wrong("a whole number")
	}
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, Errorf("must be a whole number, not %s", v.Raw())
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
