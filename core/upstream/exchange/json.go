package exchange

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Object writes a JSON object by hand: prompts are long, and pass through a
// general encoder twice as slowly. Raw values are taken as they are.
type Object struct {
	b []byte
	n int
}

// NewObject begins an object of about size bytes.
func NewObject(size int) *Object {
	return &Object{b: append(make([]byte, 0, size), '{')}
}

// Key writes a name; a value has to follow, see Append.
func (o *Object) Key(name string) *Object {
	if o.n++; o.n > 1 {
		o.b = append(o.b, ',')
	}
	o.b = append(AppendString(o.b, name), ':')
	return o
}

// Append lets f append the value of the last Key.
func (o *Object) Append(f func([]byte) []byte) *Object {
	o.b = f(o.b)
	return o
}

// String adds a text.
func (o *Object) String(name, v string) *Object {
	o.Key(name)
	o.b = AppendString(o.b, v)
	return o
}

// Bool adds a truth value.
func (o *Object) Bool(name string, v bool) *Object {
	o.Key(name)
	o.b = strconv.AppendBool(o.b, v)
	return o
}

// Int adds an integer.
func (o *Object) Int(name string, v int64) *Object {
	o.Key(name)
	o.b = strconv.AppendInt(o.b, v, 10)
	return o
}

// Float adds a number.
func (o *Object) Float(name string, v float64) *Object {
	o.Key(name)
	o.b = strconv.AppendFloat(o.b, v, 'g', -1, 64)
	return o
}

// Strings adds a list of texts.
func (o *Object) Strings(name string, v []string) *Object {
	o.Key(name)
	o.b = append(o.b, '[')
	for i, s := range v {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = AppendString(o.b, s)
	}
	o.b = append(o.b, ']')
	return o
}

// IDs adds a list of token ids.
func (o *Object) IDs(name string, v []int32) *Object {
	o.Key(name)
	o.b = append(o.b, '[')
	for i, id := range v {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = strconv.AppendInt(o.b, int64(id), 10)
	}
	o.b = append(o.b, ']')
	return o
}

// Raw adds JSON as it is.
func (o *Object) Raw(name string, v []byte) *Object {
	o.Key(name)
	o.b = append(o.b, v...)
	return o
}

// Bytes is the whole object.
func (o *Object) Bytes() []byte { return append(o.b, '}') }

// AppendString appends s as a JSON string; a byte that isn't UTF-8 becomes
// U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
