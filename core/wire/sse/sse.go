// Package sse holds what dialects share when they write server-sent events:
// JSON strings appended without reflection, and text that is cut within a
// rune put together again. It knows no dialect.
package sse

import (
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Comment is an event that every client skips and that proxies and idle
// timers of most clients count as activity.
const Comment = ": keep-alive\n\n"

// AppendString appends s as a JSON string. Only what JSON demands is escaped;
// a byte that isn't UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// Clean is s with each byte that isn't UTF-8 replaced by U+FFFD.
func Clean(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	b := make([]byte, 0, len(s)+8)
	for _, r := range s {
		b = utf8.AppendRune(b, r)
	}
	return string(b)
}

// Runes joins text that arrives in pieces cut anywhere, so that no piece that
// goes out ends within a rune. Pieces joined are Clean of the whole.
type Runes struct {
	held [utf8.UTFMax]byte
	n    int
}

// Next gives what of s can go out now, after what was held before.
func (r *Runes) Next(s string) string {
	if r.n > 0 && s != "" {
		s = string(r.held[:r.n]) + s
		r.n = 0
	}
	cut := len(s) - openTail(s)
	r.n += copy(r.held[r.n:], s[cut:])
	return Clean(s[:cut])
}

// Rest gives what is still held when the text ends.
func (r *Runes) Rest() string {
	if r.n == 0 {
		return ""
	}
	s := Clean(string(r.held[:r.n]))
	r.n = 0
	return s
}

// openTail is the length of the start of a rune at the end of s.
func openTail(s string) int {
	for n := 1; n <= min(len(s), utf8.UTFMax-1); n++ {
		if c := s[len(s)-n]; utf8.RuneStart(c) {
			if !utf8.FullRuneInString(s[len(s)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
