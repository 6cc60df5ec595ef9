// Package format is the interface of formats, that is how a model writes
// reasoning and tool calls, and the parts from which formats are built: the
// incremental parser and the families.
//
// A format renders a whole prompt, turn tokens included, and parses what was
// sampled. What never enters: tokens, engines and client dialects.
package format

import (
	"context"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// SegmentKind says whether a segment may become special tokens.
type SegmentKind string

// Only Markup may become special tokens; Data is text of users, tools and
// models, and is encoded as plain text even where it spells a marker.
const (
	Markup SegmentKind = "markup"
	Data   SegmentKind = "data"
)

// Segment is a piece of a rendered prompt. Message is the index of the
// message that it came from, -1 for what belongs to none.
type Segment struct {
	Text    string      `json:"text"`
	Kind    SegmentKind `json:"kind"`
	Message int         `json:"message"`
}

// Text joins segments.
func Text(segments []Segment) string {
	n := 0
	for _, s := range segments {
		n += len(s.Text)
	}
	var b strings.Builder
	b.Grow(n)
	for _, s := range segments {
		b.WriteString(s.Text)
	}
	return b.String()
}

// State is where the parser starts, found from the end of the rendered
// prompt.
type State struct {
	// ReasoningOpen says that the prompt opened the reasoning block.
	ReasoningOpen bool `json:"reasoning_open,omitempty"`
}

// Rendered is a prompt, or the tail of one.
type Rendered struct {
	Segments []Segment `json:"segments"`
	// Stops are the strings at which generation ends.
	Stops []string `json:"stops"`
	State State    `json:"state"`
	// Unstable is why the prompt is not a continuation of what was sampled
	// before, such as "reasoning_dropped". It is set by Tail alone; the call
	// then forks.
	Unstable string `json:"unstable,omitempty"`
}

// Ended says how the sampled tokens of a turn ended.
type Ended string

// EndedStop: the sampled tokens include the stop marker. EndedLength and
// EndedOther: they lack it.
const (
	EndedStop   Ended = "stop"
	EndedLength Ended = "length"
	EndedOther  Ended = "other"
)

// RenderRequest is a conversation to render. It ends before the turn that the
// model is to write.
type RenderRequest struct {
	Chat *chat.Conversation `json:"chat"`
}

// ParseOptions is what a parser knows of the request.
type ParseOptions struct {
	Tools  []chat.Tool  `json:"tools,omitempty"`
	State  State        `json:"state"`
	Choice *chat.Choice `json:"choice,omitempty"`
	// NewID makes the ids of calls, for formats that have none of their own;
	// nil means random ones.
	NewID func() string `json:"-"`
}

// Format renders and parses. Its methods may be called from several
// goroutines.
type Format interface {
	// Render renders the whole prompt.
	Render(ctx context.Context, r *RenderRequest) (*Rendered, error)
	// Tail renders what follows the sampled tokens of message k, an assistant
	// message: the close of its turn where the sampled tokens lack it, the
	// messages after it, and the opening of the next turn.
	Tail(ctx context.Context, r *RenderRequest, k int, ended Ended) (*Rendered, error)
	// Open starts to parse one reply.
	Open(ctx context.Context, o *ParseOptions) (Parser, error)
	// Markers are the strings that are single tokens of the models that use
	// the format, turn tokens included.
	Markers() []string
}

// EventKind says what an event tells.
type EventKind uint8

// The kinds of event. Index of a call's events counts calls from 0.
const (
	Content   EventKind = iota + 1 // Text
	Reason                         // Text of reasoning
	CallStart                      // Index, ID, Name
	CallArgs                       // Index, Text: the next bytes of the arguments' JSON
	CallEnd                        // Index, Span: the raw text of the call; Incomplete
	Warning                        // Text: the tolerance that was used; Span
)

func (k EventKind) String() string {
	return [...]string{"", "content", "reasoning", "call_start", "call_args", "call_end", "warning"}[k]
}

// Span is a half-open range of byte offsets into the sampled text.
type Span struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// Event is one step of a parse. Whatever the chunks were, the events joined
// (texts of neighbours of the same kind and index put together) are the same.
type Event struct {
	Kind  EventKind
	Index int
	ID    string
	Name  string
	Text  string
	Span  Span
	// Incomplete marks the CallEnd of a call that was cut off.
	Incomplete bool
}

// Parser parses one reply, fed in chunks of any size. Feed and Finish append
// events to dst and never fail on model text; malformed text is content.
type Parser interface {
	Feed(dst []Event, chunk []byte) []Event
	Finish(dst []Event) []Event
	// Err tells of a transport that died, never of model text.
	Err() error
	Close() error
}
