// Package shown makes text fit for a terminal that a task, an agent or a model
// wrote: what isn't printable is written as an escape, so that it moves no
// cursor, rings no bell and forges no line. What is meant for programs, such as
// JSON, never comes here.
package shown

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is text on one line: newlines and tabs are escaped too.
func Line(text string) string { return escape(text, false) }

// Lines is text with its newlines and tabs as they are.
func Lines(text string) string { return escape(text, true) }

func escape(text string, layout bool) string {
	fine := func(r rune) bool { return unicode.IsGraphic(r) || layout && (r == '\n' || r == '\t') }
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !fine(r) }) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		piece := text[i : i+n]
		if fine(r) && (r != utf8.RuneError || n > 1) {
			b.WriteString(piece)
		} else {
			quoted := strconv.Quote(piece)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += n
	}
	return b.String()
}

// Writer writes Lines of what it gets to w. Each write has to be of whole runes.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ io.Writer }

func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, Lines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
