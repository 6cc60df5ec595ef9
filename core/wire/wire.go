// Package wire holds client dialects: bytes of a request to the canonical
// conversation, and replies, deltas and errors back to bytes. A dialect knows
// sdk/chat and its own side; it never sees a format, an upstream or a
// session.
package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// Request is one decoded request of a client.
type Request struct {
	Model  string
	Stream bool
	Chat   chat.Conversation
	// Messages are the bytes of each item of the conversation as received, in
	// the order received. Envelope is the rest of the body, as received, with
	// the list of messages replaced by an empty one.
	Messages []json.RawMessage
	Envelope json.RawMessage
	// Unknown names top-level fields that the dialect doesn't know. They are
	// tolerated and recorded.
	Unknown []string
	// Needs names fields that ask the generator for something that the
	// canonical conversation can't say, such as "response_format". Only an
	// upstream that gets the client's own bytes can honour them; elsewhere the
	// request is refused (see Refusal).
	Needs []string
	// LeastTokens is the least bound of a reply that goes with the rest of the
	// request, such as with a number of tokens for thinking; 0 for none.
	LeastTokens int
	// WantUsage says that a streamed reply is to end with its usage, in
	// dialects where that is the client's choice.
	WantUsage bool
}

// Error is an answer that refuses a request. Kind is one of the kinds below;
// each dialect has its own shape and status for each.
type Error struct {
	Kind    ErrorKind
	Message string
	// RetryAfter is in seconds, 0 for none. Rate limits always have one.
	RetryAfter int
	// Tokens and Limit are the prompt's length and the most that fits, where
	// a context overflow knows them. Clients read both out of the message.
	Tokens, Limit int
	// RequestID is the id that the response carries in its header too; empty
	// leaves it out of the body.
	RequestID string
	// Details is a JSON value for programs to read, which a dialect's decoder
	// may give; the same dialect writes it.
	Details json.RawMessage
}

func (e *Error) Error() string { return e.Message }

// ErrorKind says what kind of error it is, across dialects.
type ErrorKind string

// The kinds of error and the HTTP status of each.
const (
	Invalid         ErrorKind = "invalid"          // 400
	ContextOverflow ErrorKind = "context_overflow" // 400, in words that clients compact on
	Unauthorized    ErrorKind = "unauthorized"     // 401
	Forbidden       ErrorKind = "forbidden"        // 403
	NotFound        ErrorKind = "not_found"        // 404, of a model: clients then ask for another
	NoRoute         ErrorKind = "no_route"         // 404, of anything else
	WrongMethod     ErrorKind = "wrong_method"     // 405
	TooLarge        ErrorKind = "too_large"        // 413
	RateLimited     ErrorKind = "rate_limited"     // 429
	Internal        ErrorKind = "internal"         // 500
	Upstream        ErrorKind = "upstream"         // 502
	Overloaded      ErrorKind = "overloaded"       // 529 or 503
)

// Errorf makes an *Error.
func Errorf(kind ErrorKind, text string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(text, args...)}
}

// Dialect is one way in which clients speak. Its methods may be called from
// several goroutines.
type Dialect interface {
	// Name is the dialect's name in records, such as "anthropic".
	Name() string
	// Decode reads a request's body, which must not change afterwards: the
	// request keeps slices of it. Its error is an *Error of kind Invalid that
	// names what can't be mapped.
	Decode(body []byte) (*Request, error)
	// Reply is the whole reply as one body.
	Reply(r *chat.Reply) []byte
	// Stream starts a streamed reply.
	Stream() Stream
	// Error is the status and body that refuse a request.
	Error(e *Error) (status int, body []byte)
	// Models is the body that lists models.
	Models(ids []string) []byte
	// Model is the body that describes one model.
	Model(id string) []byte
}

// TokenCounter is a dialect that can also be asked how long a prompt is.
type TokenCounter interface {
	// DecodeCount reads the body of a request to count tokens. What only
	// generation needs may be left out of it.
	DecodeCount(body []byte) (*Request, error)
	// Count is the body that answers with n tokens.
	Count(n int) []byte
}

// RequestStreamer is a dialect whose streams depend on what was asked.
type RequestStreamer interface {
	StreamFor(r *Request) Stream
}

// StreamFor starts the streamed reply to r.
func StreamFor(d Dialect, r *Request) Stream {
	if s, ok := d.(RequestStreamer); ok {
		return s.StreamFor(r)
	}
	return d.Stream()
}

// StreamTyper is a dialect whose streams are no server-sent events.
type StreamTyper interface {
	// StreamType is the content type of its streams.
	StreamType() string
}

// StreamType is the content type of a dialect's streams.
func StreamType(d Dialect) string {
	if t, ok := d.(StreamTyper); ok {
		return t.StreamType()
	}
	return "text/event-stream; charset=utf-8"
}

// RequestReplier is a dialect whose whole replies depend on what was asked.
type RequestReplier interface {
	ReplyFor(q *Request, r *chat.Reply) []byte
}

// ReplyFor is the whole reply to q as one body.
func ReplyFor(d Dialect, q *Request, r *chat.Reply) []byte {
	if s, ok := d.(RequestReplier); ok {
		return s.ReplyFor(q, r)
	}
	return d.Reply(r)
}

// Refusal is the error for a request whose Needs can't be met, nil when there
// are none.
func (r *Request) Refusal() *Error {
	if len(r.Needs) == 0 {
		return nil
	}
	return Errorf(Invalid, "%s is not supported by this model's upstream", strings.Join(r.Needs, ", "))
}

// Stream writes one reply as a series of events. Each method writes whole
// events to w. It is not for concurrent use.
type Stream interface {
	// Start opens the reply. Only ID, Model and the input side of Usage of r
	// are read.
	Start(w io.Writer, r *chat.Reply) error
	Delta(w io.Writer, d chat.Delta) error
	// Finish closes the reply. All of r is known now; the parts were already
	// sent as deltas. The last event that Finish writes is the terminal one,
	// so the caller commits before.
	Finish(w io.Writer, r *chat.Reply) error
	// KeepAlive writes an event that clients ignore but count as activity.
	KeepAlive(w io.Writer) error
	// Error writes an error event in mid-stream.
	Error(w io.Writer, e *Error) error
}
