package gateway

import (
	"context"
	"errors"
	"strings"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/wire"
)

// failure is why a call has no reply: the status of its record, and what the
// client is told.
type failure struct {
	status string
	err    *wire.Error
}

func fail(status string, kind wire.ErrorKind, text string, args ...any) *failure {
	return &failure{status, wire.Errorf(kind, text, args...)}
}

// cancelled is the failure of a call whose session has ended.
func (c *call) cancelled() *failure {
	if c.s.overdue() {
		return &failure{trace.CallCancelled, overtime()}
	}
	return fail(trace.CallCancelled, wire.Forbidden, "the session was closed")
}

// overdue says that the session has ended by its deadline.
func (s *Session) overdue() bool {
	return errors.Is(context.Cause(s.ctx), context.DeadlineExceeded)
}

// overtime refuses a call after the deadline, in the words of other budgets.
func overtime() *wire.Error {
	return wire.Errorf(wire.Forbidden, "the session's budget is exhausted: its deadline has passed, so no wall time is left")
}

// upstreamFailure says what an error of the upstream is for the client.
func (c *call) upstreamFailure(err error) *failure {
	if c.ctx.Err() != nil {
		return c.cancelled()
	}
	var refused *upstream.StatusError
	if !errors.As(err, &refused) {
		return fail(trace.CallError, wire.Upstream, "upstream: %v", err)
	}
	e := wire.Errorf(wire.Upstream, "upstream answered %d: %s", refused.Status, refused.Message)
	switch refused.Status {
	case 400, 422:
		e.Kind = wire.Invalid
		if overflows(refused.Message) {
			e.Kind = wire.ContextOverflow
		}
	case 401, 402, 403:
		e.Kind = wire.Forbidden // a 401 of ours would be repeated for minutes
	case 404:
		e.Kind = wire.NotFound
	case 413:
		e.Kind = wire.TooLarge
	case 429:
		e.Kind, e.RetryAfter = wire.RateLimited, min(max(refused.RetryAfter, 1), maxRetryAfter)
	case 503, 529:
		e.Kind, e.RetryAfter = wire.Overloaded, min(refused.RetryAfter, maxRetryAfter)
	}
	return &failure{trace.CallError, e}
}

// overflows recognises how engines say that a prompt is too long.
func overflows(message string) bool {
	message = strings.ToLower(message)
	for _, words := range []string{
		"maximum context length", "context_length_exceeded", "context length", "prompt is too long",
		"input is too long", "context window", "longer than the model's", "exceeds the available context",
	} {
		if strings.Contains(message, words) {
			return true
		}
	}
	return false
}
