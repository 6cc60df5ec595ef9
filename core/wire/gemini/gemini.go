// Package gemini is the dialect of Gemini's generateContent and
// streamGenerateContent, as Gemini CLI, other agents and the official SDKs
// speak it: requests to the canonical conversation and back, and replies,
// streams and errors to bytes.
//
// What never enters: sessions, prompts, engines, and the path, which names the
// model and says whether to stream: the gateway sets both.
//
// # What maps how
//
//   - systemInstruction becomes the first message. Each functionResponse becomes
//     a message of its own with role tool, in the order received.
//   - Its response is the result's text when it is {"output": TEXT}, the text of
//     an error when it is {"error": TEXT}, else the text is its JSON.
//   - Clients give calls ids of their own, or none. The id that was served comes
//     back in the call's thoughtSignature, marked as ours; a call without it is
//     call_N, N counting calls. Results are matched by the client's id, else by
//     name in order.
//   - A signature that isn't ours is kept in the part.
//   - Arguments that aren't an object go out as {"__raw_arguments": TEXT}.
//   - Schemas in parameters have their type names written as JSON Schema does.
//   - Images are kept; other media, files and executable code are refused by
//     name.
package gemini

import (
	"encoding/base64"
	"strings"

	"github.com/penstock-dev/penstock/core/wire"
)

// maxDepth is how deep a request's JSON may be nested.
const maxDepth = 200

// rawKey is the only key of the object that stands for arguments that aren't
// an object.
const rawKey = "__raw_arguments"

type dialect struct{}

// New returns the dialect. It is a wire.TokenCounter too.
func New() wire.Dialect { return dialect{} }

// array is the dialect as it is spoken to clients that ask for a stream without
// alt=sse.
type array struct{ dialect }

// NewArray returns the dialect with streams that are one JSON array of chunks.
// It is a wire.StreamTyper and a wire.TokenCounter too.
func NewArray() wire.Dialect { return array{} }

// Stream implements wire.Dialect.
func (array) Stream() wire.Stream { return &stream{array: true} }

// StreamType implements wire.StreamTyper.
func (array) StreamType() string { return "application/json; charset=utf-8" }

// Name implements wire.Dialect.
func (dialect) Name() string { return "gemini" }

// Stream implements wire.Dialect.
func (dialect) Stream() wire.Stream { return &stream{} }

// markPrefix begins what our thought signatures hold.
const markPrefix = "penstock.1:"

// mark is the thought signature that carries a call's id.
func mark(id string) string {
	return base64.StdEncoding.EncodeToString([]byte(markPrefix + id))
}

// unmark is the id in a thought signature of ours.
func unmark(signature string) (id string, ours bool) {
	b, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(b), markPrefix)
}
