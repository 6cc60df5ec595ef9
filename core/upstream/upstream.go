// Package upstream is who generates: engines and providers behind one
// interface. An upstream knows sdk/chat and its own protocol; it never sees a
// client dialect or a format.
package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// Request is one generation. Prompt and PromptIDs are the rendered prompt;
// upstreams that render themselves use Chat instead.
type Request struct {
	Model     string
	PromptIDs []int32
	Prompt    string
	// LastMessage is the rendered text of the newest message, without the
	// opening of the next turn.
	LastMessage string
	Chat        *chat.Conversation
	Sampling    chat.Sampling
	Stops       []string
	// WantIDs asks for token ids and logprobs.
	WantIDs bool
	// AffinityKey is stable for a session, so that its turns meet a warm
	// cache.
	AffinityKey string
	// Guide is a JSON schema of what may be sampled, for a call that the client
	// demands; nil is none. An upstream that can't guide ignores it.
	Guide json.RawMessage
	// Raw is the client's own request, for an upstream that speaks its dialect
	// (Info.Dialect); the others ignore it. Chat stands beside it always.
	Raw *RawRequest
}

// RawRequest is a request as a client wrote it. An upstream of its dialect
// sends these bytes and changes only what has to differ: the name of the
// model, sampling that isn't that of Request.Sampling, and what Changed names.
type RawRequest struct {
	Dialect string
	Query   string      // as received, without the question mark
	Header  http.Header // the upstream sends on those that its protocol knows
	Body    []byte
	Stream  bool
	Changed Changed
	// Needs names fields that only an upstream of the dialect can honour; one
	// that isn't must not be asked instead.
	Needs []string
}

// Changed names the parts of a raw request that no longer say what
// Request.Chat says, and are therefore written anew from it. Sampling says that
// fields which Request.Sampling doesn't have are taken out, too.
type Changed struct{ Messages, Tools, Sampling bool }

// Chunk is a piece of a generation. Text of chunks may be cut anywhere, also
// within a rune. With WantIDs, IDs and Logprobs have one length; a logprob
// that the engine didn't give is NaN.
type Chunk struct {
	Text     []byte
	IDs      []int32
	Logprobs []float64
	// Finish is set in the last chunk only: why the engine stopped.
	Finish       Finish
	StopSequence string
	// More says that the next chunk is here already, so that one write can
	// take both to the client. It is set only where Next won't wait for it.
	More bool
	// WeightVersion names the weights that sampled these tokens, if known.
	WeightVersion string
	// PromptTokens and OutputTokens are the engine's own counts so far, 0 if
	// it gave none.
	PromptTokens int
	OutputTokens int
	CachedTokens int // part of PromptTokens, read from a cache
	// CacheWriteTokens is the part of PromptTokens that was written into one.
	CacheWriteTokens int
	// Cost is what the server says it charges, in US dollars, nil where it
	// doesn't say.
	Cost *float64
	// PromptIDs are the ids of the prompt as the engine read it. They come
	// with WantIDs, in one chunk, from engines that tell.
	PromptIDs []int32
	// Deltas are what an upstream that parses by itself (Info.Parses) made of
	// these tokens; Text is empty then. Their parts are numbered through the
	// whole reply.
	Deltas []chat.Delta
	// Raw is the reply as it came, for a request with Raw that was sent as it
	// was: whole server-sent events for a stream, else the body. The chunk
	// with Finish has all of it from the event that gives the reason on.
	Raw []byte
}

// Finish is an engine's reason to stop, in its own word and in ours.
type Finish struct {
	Raw    string // the engine's word
	Reason chat.Finish
}

// Stream gives the chunks of one generation. Next returns io.EOF after the
// chunk with Finish; any other error means that the generation was cut.
// Close ends it at any time and may be called twice.
type Stream interface {
	Next() (Chunk, error)
	Close() error
}

// Answered is a stream that knows which of several upstreams gives it.
type Answered interface{ By() Upstream }

// Upstream generates. Generate may be called from several goroutines; the
// context ends the generation too.
type Upstream interface {
	// Kind is the kind in the pipeline file, such as "script".
	Kind() string
	Generate(ctx context.Context, r *Request) (Stream, error)
	Close() error
}

// Info says what an upstream is and does.
type Info struct {
	Server  string // what and where it is, for people
	Version string // the server's own, "" if it doesn't tell
	Model   string // its name there, "" if requests say it
	Context int    // in tokens, 0 if the server doesn't tell
	// Parses says that it renders and parses by itself: it is asked with Chat
	// and replies in Deltas, and a model of it has no format.
	Parses bool
	// Dialect is the name of the client dialect whose bytes it takes and gives
	// as they are, "" for none.
	Dialect string
	// Refuses is what requests must not hold.
	Refuses []Refusal
	// Prices are what its tokens cost, nil where that isn't known.
	Prices *cost.Prices
}

// Refusal is something that an upstream declares it refuses in requests.
type Refusal string

// What upstreams refuse.
const (
	RefusesEmptyTools    Refusal = "empty_tools"     // tools: []
	RefusesOrphanChoice  Refusal = "orphan_choice"   // a tool choice without tools
	RefusesServerTools   Refusal = "server_tools"    // tools that the provider runs
	RefusesCacheControl  Refusal = "cache_control"   // cache breakpoints
	RefusesInnerSystem   Refusal = "inner_system"    // system messages after the first others
	RefusesToolImages    Refusal = "tool_images"     // images in tool results
	RefusesUnsigned      Refusal = "unsigned"        // reasoning without a signature of its own
	RefusesReasoning     Refusal = "reasoning"       // reasoning in the history
	RefusesTopK          Refusal = "top_k"           // sampling by top_k
	RefusesLongMaxTokens Refusal = "long_max_tokens" // more tokens than the context has
)

// Describer is an upstream that knows its Info.
type Describer interface{ Info() Info }

// InfoOf is the Info of u, or as good as none.
func InfoOf(u Upstream) Info {
	if d, ok := u.(Describer); ok {
		return d.Info()
	}
	return Info{Server: u.Kind()}
}

// Counter is an upstream that counts the tokens of a prompt without
// generating. Its error is ErrNoCount where this server can't.
type Counter interface {
	Count(ctx context.Context, r *Request) (int, error)
}

// ErrNoCount says that a server doesn't count tokens.
var ErrNoCount = errors.New("the server doesn't count tokens")

// StatusError is a refusal by an engine or provider.
type StatusError struct {
	Status     int
	RetryAfter int    // seconds
	Type       string // the kind of error in the server's own word, "" if unsaid
	Message    string
}

func (e *StatusError) Error() string { return e.Message }

// NotRunError is the error of a request that the server can't have begun to
// work on, so that asking again, there or elsewhere, repeats nothing.
type NotRunError struct{ Err error }

func (e *NotRunError) Error() string { return e.Err.Error() }
func (e *NotRunError) Unwrap() error { return e.Err }

// NotRun reports whether err, of Generate, says that the request can't have
// run, and how long the server wants to be left alone, 0 if it didn't say.
func NotRun(err error) (after time.Duration, ok bool) {
	var refused *StatusError
	if errors.As(err, &refused) {
		after = time.Duration(refused.RetryAfter) * time.Second
		switch refused.Status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable, 529:
			return after, true
		}
	}
	var notRun *NotRunError
	return after, errors.As(err, &notRun)
}
