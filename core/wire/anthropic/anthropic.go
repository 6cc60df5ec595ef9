// Package anthropic is the dialect of Anthropic Messages, as Claude Code and
// the official SDKs speak it: requests to the canonical conversation and back,
// and replies, streams and errors to bytes.
//
// What never enters: sessions, prompts and engines. The canonical form holds
// what the model is to see; the rest of a request stays in its envelope.
//
// # What maps how
//
//   - system becomes the first message, one text part a block. Messages with
//     role system inside the list stay where they are.
//   - Each tool_result becomes a message of its own with role tool; text and
//     images around it stay user messages, all in the order received.
//   - A tool_reference becomes the text "Tool loaded: NAME" with the name kept
//     in the part. Tools with defer_loading are left out of the conversation's
//     tools until a tool_reference, a tool_use or the tool choice names them;
//     their definitions stay in the envelope.
//   - cache_control and citations are no part of the canonical form.
//   - Arguments that aren't an object or a list go to the client as
//     {"__unparsedToolInput": {"raw": TEXT, "len": N}}, the form in which Claude
//     Code itself keeps input that it could not parse, and come back from it
//     as raw arguments.
//   - Reasoning without a signature gets one of ours (see Signature), because
//     clients send thinking back only with a signature. Ours is taken off again.
package anthropic

import (
	"github.com/penstock-dev/penstock/core/wire"
)

// maxDepth is how deep a request's JSON may be nested. Deep tool schemas take
// about twenty levels.
const maxDepth = 200

// unparsedKey is the only key of the object that stands for arguments that
// aren't JSON.
const unparsedKey = "__unparsedToolInput"

// referencePrefix begins the text that stands for a tool_reference block.
const referencePrefix = "Tool loaded: "

type dialect struct{}

// New returns the dialect. It is a wire.TokenCounter too.
func New() wire.Dialect { return dialect{} }

// Name implements wire.Dialect.
func (dialect) Name() string { return "anthropic" }

// Decode implements wire.Dialect.
func (dialect) Decode(body []byte) (*wire.Request, error) { return decode(body, false) }

// DecodeCount implements wire.TokenCounter.
func (dialect) DecodeCount(body []byte) (*wire.Request, error) { return decode(body, true) }

// Stream implements wire.Dialect.
func (dialect) Stream() wire.Stream { return &stream{} }
