package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// taskError is an error at a byte of a line, with the way out.
type taskError struct {
	offset        int
	message, hint string
}

func (e *taskError) Error() string { return e.message }

// errLineEnds marks the error of a line that is only the begin of an object.
const errLineEnds = "not valid JSON: the line ends before the object does"

// syntaxText says what is wrong with a line of JSON, where, and what to write
// instead.
func syntaxText(raw []byte, err error) error {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		return err
	}
	e := &taskError{offset: min(int(s.ByteOffset), len(raw))}
	text := strings.TrimPrefix(s.Err.Error(), "jsontext: ")
	switch {
	case errors.Is(s.Err, io.ErrUnexpectedEOF), errors.Is(s.Err, io.EOF):
		e.message, e.hint = errLineEnds, "a task is one line; jq -c . FILE writes each object into one"
		return e
	case errors.Is(s.Err, jsontext.ErrDuplicateName):
		e.message, e.hint = "a name is given twice", "keep one of the two"
		if name, first := firstOf(raw, s.JSONPointer); first >= 0 {
			e.message = fmt.Sprintf("'%s' is given twice, first in column %d", name, utf8.RuneCount(raw[:first])+1)
		}
		return e
	case strings.Contains(text, "invalid UTF-8"):
		e.hint = "save the file as UTF-8"
	default:
		e.hint = jsonHint(raw, e.offset, text)
	}
	e.message = "not valid JSON: " + text
	return e
}

// firstOf finds the first of the names that a pointer stands for, -1 if it
// can't be found.
func firstOf(raw []byte, at jsontext.Pointer) (name string, offset int) {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return "", -1
		}
		if t.Kind() != '"' || d.StackPointer() != at {
			continue
		}
		end := int(d.InputOffset())
		start := bytes.LastIndexByte(raw[:max(0, end-1)], '"')
		for start > 0 && raw[start-1] == '\\' {
			start = bytes.LastIndexByte(raw[:start], '"')
		}
		return t.String(), start
	}
}

var bareWord = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*`)

// jsonHint is the way out of the mistakes that people make in JSON.
func jsonHint(raw []byte, at int, text string) string {
	rest := raw[at:]
	word := string(bareWord.Find(rest))
	after := bytes.TrimLeft(rest[min(1, len(rest)):], " \t")
	switch {
	case len(rest) == 0:
		return ""
	case rest[0] == '\'':
		return `text and names are in double quotes: "..."`
	case rest[0] == '#', bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")):
		return "JSON has no comments; remove it"
	case rest[0] == ',' && len(after) > 0 && (after[0] == '}' || after[0] == ']'):
		return fmt.Sprintf("remove the comma before the %c", after[0])
	case rest[0] >= '0' && rest[0] <= '9' && at > 0 && raw[at-1] == '0':
		return "a number has no leading zero; what is no number is in quotes"
	case strings.Contains(text, "expecting ','") && (rest[0] == '"' || rest[0] == '{' || rest[0] == '['):
		return "a comma is missing before it"
	case strings.Contains(text, "missing value"):
		return "write a value after the colon, or leave the name out"
	}
	switch strings.ToLower(word) {
	case "":
		return ""
	case "true", "false", "null":
		return "write " + strings.ToLower(word)
	case "none", "nil", "undefined", "nan", "infinity":
		return "write null, or leave the name out"
	}
	return `text and names are in double quotes: "` + word + `"`
}
