package plugin

import (
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/sdk/component"
)

// Reason says what went wrong with a plugin.
type Reason string

// The reasons of an Error.
const (
	Failed      Reason = "error"       // the component answered with an error
	Unavailable Reason = "unavailable" // the process died, or could not be started
	Timeout     Reason = "timeout"     // the call took longer than the plugin's limit
	Trapped     Reason = "trap"        // the module trapped: a panic, no memory; or what is compiled in panicked
	Exited      Reason = "exit"        // the module called exit
	TooLarge    Reason = "too_large"   // a request or a reply over the limit
	BadReply    Reason = "bad_reply"   // the reply is not what the kind promises
	Cancelled   Reason = "cancelled"   // the caller gave up
)

// Error is a failed call of a plugin, or a panic of what is compiled in.
type Error struct {
	Plugin    string // its key
	Method    string
	Reason    Reason
	Message   string
	Tail      string // the end of what it wrote to standard error, if that may help
	Retryable bool   // the same call may succeed on another try
	Cause     error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plugin %s: ", e.Plugin)
	if e.Method != "" {
		fmt.Fprintf(&b, "%s: ", e.Method)
	}
	b.WriteString(e.Message)
	if e.Tail != "" {
		fmt.Fprintf(&b, "; it wrote: %s", e.Tail)
	}
	return b.String()
}

// overIn and overOut say that a request or a reply is over a limit, and where
// that is set.
func overIn(key, method string, size int, limit int64) error {
	return &Error{Plugin: key, Method: method, Reason: TooLarge,
		Message: fmt.Sprintf("a request of %d bytes is over the limit of %d; raise limits: {in: ...} of the plugin", size, limit)}
}

func overOut(key, method string, size int, limit int64) error {
	return &Error{Plugin: key, Method: method, Reason: TooLarge,
		Message: fmt.Sprintf("a reply of %d bytes is over the limit of %d; raise limits: {out: ...} of the plugin", size, limit)}
}

// Unwrap gives a *component.Error, the component's own where it failed, and
// the cause.
func (e *Error) Unwrap() []error {
	if _, ok := e.Cause.(*component.Error); ok {
		return []error{e.Cause}
	}
	own := &component.Error{Code: string(e.Reason), Message: e.Message, Retryable: e.Retryable}
	if e.Cause == nil {
		return []error{own}
	}
	return []error{own, e.Cause}
}
