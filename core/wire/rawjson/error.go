package rawjson

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Error is a value that is wrong, and where it is, such as
// "messages[3].content[1]".
type Error struct {
	Path    string
	Message string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Errorf makes an *Error without a path yet.
func Errorf(text string, args ...any) error {
	return &Error{Message: fmt.Sprintf(text, args...)}
}

// In puts path before the path of err.
func In(path string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Path: path, Message: err.Error()}
	}
	if e.Path != "" && !strings.HasPrefix(e.Path, "[") {
		path += "."
	}
	return &Error{Path: path + e.Path, Message: e.Message}
}

// Index is the path of item i of the list name.
func Index(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

// ErrRequired is said of a field that is missing, in the words that the
// providers' own servers use.
var ErrRequired = Errorf("Field required")

// Required is the text of the field name, which must be there.
func Required(v Value, name string) (string, error) {
	if v.Absent() {
		return "", In(name, ErrRequired)
	}
	s, err := v.Str()
	if err != nil {
		return "", In(name, err)
	}
	return s, nil
}

// OptionalInt is a whole number of at least least, nil when v is absent or
// null.
func OptionalInt(v Value, least int64) (*int, error) {
	if !v.Given() {
		return nil, nil
	}
	n, err := v.Int()
	if err != nil {
		return nil, err
	}
	if n < least {
		return nil, Errorf("must be at least %d", least)
	}
	i := int(n)
	return &i, nil
}

// OptionalFloat is a number, nil when v is absent or null.
func OptionalFloat(v Value) (*float64, error) {
	if !v.Given() {
		return nil, nil
	}
	f, err := v.Float()
	if err != nil {
		return nil, err
	}
	return &f, nil
}
