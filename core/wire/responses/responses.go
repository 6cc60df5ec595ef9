// Package responses is the dialect of OpenAI Responses, as Codex, other agents
// and the official SDKs speak it: requests to the canonical conversation and
// back, and replies, streams and errors to bytes.
//
// What never enters: sessions, prompts, engines and stored responses. The
// canonical form holds what the model is to see; the rest of a request stays in
// its envelope.
//
// # What maps how
//
//   - instructions become the first message, with role system; developer
//     messages are system messages.
//   - Reasoning, messages of the assistant and calls that follow each other
//     become one assistant message, in the order received.
//   - A namespace's tools become functions called NAMESPACE__NAME. Calls go out
//     and come back with the namespace apart, as Codex wants them.
//   - A custom tool becomes a function with one string, input. Its calls go out
//     and come back as custom calls.
//   - Tools that the provider runs keep their type. Items that can't be mapped,
//     a previous response and a reference to a stored item are refused by name.
//   - Reasoning goes out as a summary, and whole in encrypted_content, marked as
//     ours; when it comes back with it, the summary may have been left out.
//   - What asks the generator for something that a conversation can't say is
//     listed in Request.Needs.
//
// A reply can be written rightly only with its request at hand, because of
// namespaces and custom tools: use wire.ReplyFor and wire.StreamFor.
package responses

import (
	"time"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/openai"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// maxDepth is how deep a request's JSON may be nested.
const maxDepth = 200

type dialect struct {
	now func() time.Time
}

// New returns the dialect. It is a wire.RequestStreamer and a
// wire.RequestReplier too.
func New() wire.Dialect { return dialect{now: time.Now} }

// Name implements wire.Dialect.
func (dialect) Name() string { return "responses" }

// Stream implements wire.Dialect, for a request without namespaces and custom
// tools.
func (d dialect) Stream() wire.Stream { return &stream{now: d.now} }

// StreamFor implements wire.RequestStreamer.
func (d dialect) StreamFor(r *wire.Request) wire.Stream {
	return &stream{now: d.now, tools: toolForms(r.Envelope)}
}

// Reply implements wire.Dialect, for a request without namespaces and custom
// tools.
func (d dialect) Reply(r *chat.Reply) []byte { return d.reply(nil, r) }

// ReplyFor implements wire.RequestReplier.
func (d dialect) ReplyFor(q *wire.Request, r *chat.Reply) []byte {
	return d.reply(toolForms(q.Envelope), r)
}

// Error implements wire.Dialect.
func (dialect) Error(e *wire.Error) (status int, body []byte) { return openai.Error(e) }

// Models implements wire.Dialect.
func (dialect) Models(ids []string) []byte { return openai.Models(ids) }

// Model implements wire.Dialect.
func (dialect) Model(id string) []byte { return openai.Model(id) }
