package pipeline

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// asUTF8 is the way out of every other encoding.
const asUTF8 = "save the file as UTF-8"

// unreadable finds the first byte of a text that neither YAML nor a table may
// hold, and says what it is; -1 if there is none.
func unreadable(text string) (offset int, what, hint string) {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return i, fmt.Sprintf("the byte 0x%02X is not UTF-8", text[i]), asUTF8
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f, r >= 0x80 && r < 0xa0 && r != 0x85:
			return i, fmt.Sprintf("the control character U+%04X can't stand in a file", r), `remove it, or write it as "\x` + fmt.Sprintf("%02x", r) + `" in double quotes`
		}
		i += n
	}
	return -1, "", ""
}

// utf16 tells of a text that begins with the mark of another encoding, which
// YAML can read.
func utf16(text string) bool {
	return strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff")
}

// posAt is the place of a byte.
func (s *source) posAt(offset int) pos {
	before := splitLines(s.text[:offset])
	return pos{s, len(before), utf8.RuneCountInString(before[len(before)-1]) + 1}
}
