// Package shell writes commands that a user may paste into a shell. What never
// enters: running them.
package shell

import (
	"strings"
	"unicode"
)

// Quote is a word as a POSIX shell reads it: as it is where nothing in it means
// anything to a shell, else in single quotes.
func Quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func special(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-./:,@%+=", r)
}
