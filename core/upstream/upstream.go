// Package upstream is who generates: engines and providers behind one
// interface. An upstream knows sdk/chat and its own protocol; it never sees a
// client dialect or a format.
package upstream

import (
	"context"

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
}

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

// Upstream generates. Generate may be called from several goroutines; the
// context ends the generation too.
type Upstream interface {
	// Kind is the kind in the pipeline file, such as "script".
	Kind() string
	Generate(ctx context.Context, r *Request) (Stream, error)
	Close() error
}

// StatusError is a refusal by an engine or provider.
type StatusError struct {
	Status     int
	RetryAfter int // seconds
	Message    string
}

func (e *StatusError) Error() string { return e.Message }
