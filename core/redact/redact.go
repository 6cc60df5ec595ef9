// Package redact keeps secrets out of what is written: every text, JSON value,
// header and stream goes through a Redactor before it reaches a file, the
// store or a collector. Secrets are known by value, also as base64, URL, hex
// and JSON escapes write them, by the name of a header, and by shape.
//
// What never enters: where secrets come from, save the environment, and what a
// record means. Redaction of secrets that nobody named is best effort.
package redact

import (
	"cmp"
	"slices"
	"strings"
	"unsafe"
)

// MinValue is the length in bytes of the shortest value that is looked for.
const MinValue = 6

// maxMatch bounds one match, in bytes; a longer secret by shape is found in
// part.
const maxMatch = 16 << 10

// Options say what is secret.
type Options struct {
	// Values are secrets in the clear. Shorter ones than MinValue are left
	// out: they would be found everywhere.
	Values []string
	// Headers are names of headers, in any case, beside those that are always
	// secret.
	Headers []string
	// Patterns are shapes beside the built-in ones, and NoPatterns leaves the
	// built-in ones out, save that of penstock's own session tokens.
	Patterns   []Pattern
	NoPatterns bool
}

// Redactor replaces secrets by marks such as [redacted:value]. It is safe for
// concurrent use. A nil one finds nothing.
type Redactor struct {
	all     *matcher // values and patterns
	values  *matcher // for opaque text, in which a shape means nothing
	headers map[string]bool
	longest int // of what a match may span, in bytes
	options Options
}

// New makes a Redactor.
func New(o Options) *Redactor {
	r := &Redactor{options: o, headers: map[string]bool{}, all: newMatcher(), values: newMatcher()}
	for _, h := range slices.Concat(secretHeaders, o.Headers) {
		r.headers[strings.ToLower(h)] = true
	}
	for _, n := range needlesOf(o.Values) {
		r.all.add(n)
		r.values.add(n)
		// A line break may stand after every four characters.
		r.longest = max(r.longest, 2*len(n.text)+64)
	}
	patterns := append(slices.Clone(o.Patterns), sessionTokens...)
	if !o.NoPatterns {
		patterns = append(patterns, builtin...)
	}
	for i := range patterns {
		for _, n := range patterns[i].needles() {
			r.all.add(n)
		}
	}
	r.longest = max(r.longest, maxMatch+64)
	return r
}

// With is a Redactor that knows further values; nil of a nil one.
func (r *Redactor) With(values ...string) *Redactor {
	if r == nil {
		return nil
	}
	o := r.options
	o.Values = slices.Concat(o.Values, values)
	return New(o)
}

// Found is one replacement.
type Found struct {
	Kind   string // how the secret was known: value, base64, url, hex, header or a pattern's kind
	Offset int    // of the mark, in the redacted text
	Length int    // of the mark
	from   int    // where the secret stood in the original
	to     int
}

// Mark is what stands for a secret of a kind. It needs no escape in JSON.
func Mark(kind string) string { return "[redacted:" + kind + "]" }

// Has says whether there is a secret in a text.
func (r *Redactor) Has(text string) bool { return r != nil && r.all.has(text) }

func (m *matcher) has(text string) bool { return m.find(bytesOf(text), nil, true) != nil }

// bytesOf are the bytes of a text, to be read only.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// Bytes redacts a text. One without a secret is returned as it is.
func (r *Redactor) Bytes(text []byte) ([]byte, []Found) {
	if r == nil {
		return text, nil
	}
	return replace(text, r.all.spans(text))
}

// Text redacts a text. One without a secret is returned as it is.
func (r *Redactor) Text(text string) (string, []Found) {
	if r == nil {
		return text, nil
	}
	return r.all.text(text)
}

// String redacts a text and says nothing more of it.
func (r *Redactor) String(text string) string {
	out, _ := r.Text(text)
	return out
}

// Header says whether a header of this name is secret whatever it holds.
func (r *Redactor) Header(name string) bool { return r != nil && r.headers[strings.ToLower(name)] }

func (m *matcher) text(text string) (string, []Found) {
	spans := m.spans(bytesOf(text))
	if spans == nil {
		return text, nil
	}
	out, found := replace([]byte(text), spans)
	return string(out), found
}

// span is a secret in a text.
type span struct {
	from, to int
	kind     string
}

// spans are the secrets of a text in order; none overlaps another.
func (m *matcher) spans(text []byte) []span {
	found := m.find(text, nil, false)
	if len(found) < 2 {
		return found
	}
	slices.SortFunc(found, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to))
	})
	out := found[:1]
	for _, s := range found[1:] {
		last := &out[len(out)-1]
		if s.from >= last.to {
			out = append(out, s)
		} else {
			last.to = max(last.to, s.to)
		}
	}
	return out
}

func replace(text []byte, spans []span) ([]byte, []Found) {
	if len(spans) == 0 {
		return text, nil
	}
	out := make([]byte, 0, len(text)+len(spans)*24)
	found := make([]Found, 0, len(spans))
	at := 0
	for _, s := range spans {
		out = append(out, text[at:s.from]...)
		mark := Mark(s.kind)
		found = append(found, Found{s.kind, len(out), len(mark), s.from, s.to})
		out = append(out, mark...)
		at = s.to
	}
	return append(out, text[at:]...), found
}

// moved is where a position of the original text is in the redacted one. A
// position inside a secret is that of its mark's end.
func moved(found []Found, at int) int {
	shift := 0
	for _, f := range found {
		switch {
		case at <= f.from:
			return at + shift
		case at < f.to:
			return f.Offset + f.Length
		}
		shift = f.Offset + f.Length - f.to
	}
	return at + shift
}
