// Package doc reads one JSON document by JSON Pointer, without decoding the
// whole of it. In the host the document is memory; in a WASM guest each read
// is a call of the host's field_read. What plugins read (tasks, rollouts,
// requests) is read through it, so that the same plugin code runs on every
// transport.
package doc

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Doc is one JSON document.
type Doc interface {
	// Get returns the value at a JSON Pointer (RFC 6901; the token "-1" is the
	// last item of an array): a string without its quotes and escapes, any
	// other value as JSON text. It is absent when nothing or null is there.
	Get(pointer string) (value []byte, ok bool)
}

// Object is a part of a document, with typed reads of its fields.
type Object struct {
	doc  Doc
	base string
}

// At returns the object of d at pointer; "" is the whole document.
func At(d Doc, pointer string) Object { return Object{d, pointer} }

// Escape escapes one token of a JSON Pointer.
func Escape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

// pointer accepts both a key and a pointer that starts with a slash.
func (o Object) pointer(key string) string {
	if key == "" {
		return o.base
	}
	if strings.HasPrefix(key, "/") {
		return o.base + key
	}
	return o.base + "/" + Escape(key)
}

// At returns the object under key. A key that starts with a slash is a JSON
// Pointer, here and in all methods of Object.
func (o Object) At(key string) Object { return Object{o.doc, o.pointer(key)} }

// Get returns the value at key as Doc.Get does.
func (o Object) Get(key string) ([]byte, bool) {
	if o.doc == nil {
		return nil, false
	}
	return o.doc.Get(o.pointer(key))
}

// Has reports whether there is a value that isn't null at key.
func (o Object) Has(key string) bool {
	_, ok := o.Get(key)
	return ok
}

// String returns the text at key: a string's own text, another value's JSON,
// and "" when it is absent.
func (o Object) String(key string) string {
	b, _ := o.Get(key)
	return string(b)
}

// Int returns the integer at key, 0 when it is absent or none.
func (o Object) Int(key string) int {
	n, _ := strconv.Atoi(o.String(key))
	return n
}

// Float returns the number at key and whether there is one.
func (o Object) Float(key string) (float64, bool) {
	f, err := strconv.ParseFloat(o.String(key), 64)
	return f, err == nil
}

// Bool reports whether the value at key is true.
func (o Object) Bool(key string) bool { return o.String(key) == "true" }

// Decode decodes the object, array or number at key into v.
func (o Object) Decode(key string, v any) error {
	b, ok := o.Get(key)
	if !ok {
		return fmt.Errorf("%s is absent", o.pointer(key))
	}
	return json.Unmarshal(b, v)
}

// Each calls f with each item of the array at key until f returns false.
func (o Object) Each(key string, f func(Object) bool) {
	base := o.pointer(key)
	if b, ok := o.doc.(Bytes); ok {
		b.each(base, func(item Bytes) bool { return f(Object{item, ""}) })
		return
	}
	for i := 0; ; i++ {
		item := Object{o.doc, base + "/" + strconv.Itoa(i)}
		if !item.Has("") || !f(item) {
			return
		}
	}
}
