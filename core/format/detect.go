package format

import (
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/sdk/format"
)

// DetectError is a chat template that names no format, or more than one.
type DetectError struct {
	// File is where the template is from, or empty.
	File string
	// Candidates are the formats that it may be of.
	Candidates []string
}

func (e *DetectError) Error() string {
	s := "the chat template"
	if e.File != "" {
		s += " in " + e.File
	}
	if len(e.Candidates) == 0 {
		return s + " is of no format that is known; name one with format, or write a format file"
	}
	return fmt.Sprintf("%s may be of %s; name one with format", s, strings.Join(e.Candidates, ", "))
}

// ContradictionError is a named format whose model has the template of
// another.
type ContradictionError struct {
	File, Named, Found string
}

func (e *ContradictionError) Error() string {
	return fmt.Sprintf("format is %s, but the chat template in %s is that of %s", e.Named, e.File, e.Found)
}

// Detect picks the shipped format that a chat template's text is of. It never
// guesses: without a match, or with several, it returns a *DetectError.
func Detect(template string) (string, error) {
	var found []string
	for _, s := range format.Shipped() {
		if matches(s, template) {
			found = append(found, s.Name)
		}
	}
	if len(found) != 1 {
		return "", &DetectError{Candidates: found}
	}
	return found[0], nil
}

// matches reports whether a template has everything that a format is known by,
// and nothing that rules it out.
func matches(s *format.Spec, template string) bool {
	template = unescapeLines(template)
	for _, d := range s.Detect {
		text, not := strings.CutPrefix(unescapeLines(d), "!")
		if strings.Contains(template, text) == not {
			return false
		}
	}
	return len(s.Detect) > 0
}

// unescapeLines makes the two ways in which templates have newlines one: as
// they are, and escaped in a string.
func unescapeLines(s string) string { return strings.ReplaceAll(s, `\n`, "\n") }

// Contradicts reports, as a *ContradictionError, that the template in a file
// is surely of another format than the named one. Formats that ship without
// marks to know them by, and those of plugins, contradict nothing.
func Contradicts(name, file, template string) error {
	found, err := Detect(template)
	if err != nil {
		return nil
	}
	s := shipped(name)
	if s != nil && s.Name != found && len(s.Detect) > 0 && !matches(s, template) {
		return &ContradictionError{File: file, Named: name, Found: found}
	}
	return nil
}
