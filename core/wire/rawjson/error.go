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
