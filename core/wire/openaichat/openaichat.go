// Package openaichat is the dialect of OpenAI Chat Completions, as the
// official SDKs, many agents and all engines speak it: requests to the
// canonical conversation and back, and replies, streams and errors to bytes.
//
// What never enters: sessions, prompts and engines. The canonical form holds
// what the model is to see; the rest of a request stays in its envelope.
//
// # What maps how
//
//   - developer messages are system messages. Each tool message is a tool
//     message.
//   - reasoning_content (or reasoning, as some servers call it) of an assistant
//     is a reasoning part, before its text and its calls.
//   - Arguments keep the string's bytes; text that isn't JSON is raw arguments
//     (see core/wire/callargs).
//   - Images are kept; audio, files and custom tools' calls are refused by name.
//   - What asks the generator for something that a conversation can't say, such
//     as a response_format, is listed in Request.Needs. Sampling fields that
//     have no place are listed in Request.Unknown where they ask for anything.
//   - A signature or redacted reasoning has no form in a reply and is left out.
//     Text and reasoning of several parts are joined.
package openaichat

import (
	"time"

	"github.com/penstock-dev/penstock/core/wire"
)

// maxDepth is how deep a request's JSON may be nested.
const maxDepth = 200

type dialect struct {
	now func() time.Time
}

// New returns the dialect. It is a wire.RequestStreamer too: only a request
// that asks for it gets the usage at the end of its stream.
func New() wire.Dialect { return dialect{now: time.Now} }

// Name implements wire.Dialect.
func (dialect) Name() string { return "openaichat" }

// Stream implements wire.Dialect. The stream has no usage.
func (d dialect) Stream() wire.Stream { return &stream{now: d.now} }

// StreamFor implements wire.RequestStreamer.
func (d dialect) StreamFor(r *wire.Request) wire.Stream {
	return &stream{now: d.now, usage: r.WantUsage}
}
