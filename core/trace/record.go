// Package trace holds what happened: sessions, calls, the graph that links
// the calls of a session, lineages, and the durable store of a run. Raw is
// the truth here: what the model was sent and what it sampled are kept as
// they were, and parsed views stand beside them.
//
// What never enters: how calls are made, judged or written as rows.
package trace

import (
	"encoding/json"
	"time"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// Kind is the kind of a lineage.
type Kind string

// The kinds of lineage.
const (
	Main         Kind = "main"
	SubAgent     Kind = "sub_agent"
	Compaction   Kind = "compaction"
	Continuation Kind = "continuation"
	Side         Kind = "side"
	Retry        Kind = "retry"
	Probe        Kind = "probe"
)

// Session is a gateway credential and the trace of one agent run. The token
// itself is never stored.
type Session struct {
	ID         string `json:"id"` // s-<ULID>
	Rollout    string `json:"rollout"`
	Task       string `json:"task"`
	Stage      string `json:"stage"`
	Round      int    `json:"round"` // from 1
	Try        int    `json:"try"`   // from 1
	Attempt    string `json:"attempt"`
	ModelEntry string `json:"model_entry"`
	// Judge says that a judger asked the model. Nothing of it is trained.
	Judge  bool      `json:"judge,omitempty"`
	Opened time.Time `json:"opened"`
	Closed time.Time `json:"closed,omitzero"`
	// End is how it was closed where nobody did: "idle".
	End string `json:"end,omitempty"`
	// Incomplete says why calls of it are not in the store, and Unrecorded how
	// many were refused for it.
	Incomplete string `json:"incomplete,omitempty"`
	Unrecorded int    `json:"unrecorded,omitempty"`
}

// The statuses of a call.
const (
	CallOK        = "ok"
	CallError     = "error"     // the upstream or penstock failed
	CallCancelled = "cancelled" // the session or run ended
	CallDenied    = "denied"    // a hook refused
	CallBudget    = "budget"    // over the session's budget; not counted
	CallInvalid   = "invalid"   // the request could not be used
)

// Call is one model call, as it was.
type Call struct {
	ID      string `json:"id"` // <session>.<seq>
	Session string `json:"session"`
	Seq     int    `json:"seq"` // in order of arrival, from 1

	Dialect string            `json:"dialect"`
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers,omitempty"` // those that matter, never credentials
	Stream  bool              `json:"stream"`
	// Body is set, and Envelope and Messages are not, when the body could not
	// be decoded.
	Body     []byte            `json:"body,omitempty"`
	Envelope json.RawMessage   `json:"envelope,omitempty"`
	Messages []json.RawMessage `json:"messages,omitempty"`
	Unknown  []string          `json:"unknown,omitempty"`

	ModelEntry  string        `json:"model_entry"`
	ModelAsked  string        `json:"model_asked"`
	ModelServed string        `json:"model_served"`
	Engine      string        `json:"engine"`
	Format      string        `json:"format"`
	Template    string        `json:"template,omitempty"` // hash of what renders
	Capture     string        `json:"capture"`
	Tokenizer   string        `json:"tokenizer,omitempty"` // its hash
	Requested   chat.Sampling `json:"requested"`
	Effective   chat.Sampling `json:"effective"`

	// Link: the call whose reply this one continues.
	Parent  string `json:"parent,omitempty"`
	Lineage string `json:"lineage,omitempty"` // <session>/<kind><k>
	Kind    Kind   `json:"kind,omitempty"`
	// Extends says that PromptIDs begin with the parent's PromptIDs and
	// SampledIDs. Fork is the class of the reason when they don't, "" for the
	// first call of a conversation.
	Extends bool   `json:"extends"`
	Fork    string `json:"fork,omitempty"`

	// Replays is the call whose reply a repeated request got again; this call
	// generated nothing.
	Replays string `json:"replays,omitempty"`

	// Chat is the conversation as rendered, after hooks.
	Chat   *chat.Conversation `json:"chat,omitempty"`
	Prompt string             `json:"prompt,omitempty"` // rendered text; empty when PromptIDs give it
	// Rendered is the prompt as text in any case. It isn't stored: redaction
	// reads it, since ids can't be looked through.
	Rendered   string  `json:"-"`
	PromptIDs  []int32 `json:"prompt_ids,omitempty"`
	SampledIDs []int32 `json:"sampled_ids,omitempty"`
	// Logprobs has the length of SampledIDs or is nil; NaN where the engine
	// gave none.
	Logprobs []float64 `json:"-"`
	Raw      string    `json:"raw"` // sampled text
	// RawReply is the reply as it came from an upstream that speaks the client's
	// dialect: a body, or server-sent events.
	RawReply []byte `json:"raw_reply,omitempty"`
	// Parsed is the reply as parsed, Served as the client got it, after hooks.
	Parsed   *chat.Reply   `json:"parsed,omitempty"`
	Served   *chat.Reply   `json:"served,omitempty"`
	Spans    []format.Span `json:"spans,omitempty"` // of each tool call in Raw
	Warnings []Warning     `json:"warnings,omitempty"`
	Edits    []Edit        `json:"edits,omitempty"`
	// Redactions are the secrets that were taken out of this record. Where the
	// text of tokens held one, a warning WarnRedacted says so, and the ids and
	// logprobs are gone: they would spell it.
	Redactions []Redaction `json:"redactions,omitempty"`
	Finish     string      `json:"finish"` // the engine's word
	Weights    string      `json:"weight_version,omitempty"`
	Usage      chat.Usage  `json:"usage"`
	// Cost is in US dollars, nil where it isn't known or nothing was generated.
	// CostBasis says how it is known: billed, estimated or unknown.
	Cost      *float64 `json:"cost,omitempty"`
	CostBasis string   `json:"cost_basis,omitempty"`
	// Held is what a budget in US dollars counts for the call where its cost
	// isn't known: the most that it can have been.
	Held float64 `json:"held,omitempty"`

	Status string   `json:"status"`
	Error  *Problem `json:"error,omitempty"`
	// HTTPStatus is what the client was answered; 0 if it was gone before.
	HTTPStatus int  `json:"http_status"`
	ClientGone bool `json:"client_gone,omitempty"`
	// Delivered says that the terminal event went out; Store.SetDelivered
	// sets it.
	Delivered bool      `json:"delivered,omitempty"`
	Received  time.Time `json:"received"`
	FirstByte time.Time `json:"first_byte,omitzero"` // of the upstream's reply
	Done      time.Time `json:"done"`
	// Stored is what the record takes in the store, in bytes: PutCall sets it,
	// and nothing stores it.
	Stored int64 `json:"-"`
}

// WarnRedacted is the kind of the warning that a secret stood in the prompt or
// in what was sampled, so that the record has no token ids.
const WarnRedacted = "redacted_tokens"

// Redaction is a secret that was replaced by a mark before the record was
// written.
type Redaction struct {
	Field  string `json:"field"`  // JSON pointer into the record
	Offset int    `json:"offset"` // of the mark, in bytes of the field as it is stored
	Length int    `json:"length"` // of the mark
	Kind   string `json:"kind"`   // how the secret was known: value, base64, url, hex, or a key's name
}

// Warning is a tolerance that the parser used.
type Warning struct {
	Kind string      `json:"kind"`
	Span format.Span `json:"span"`
}

// Edit is what one hook did at one point, with the original beside it.
type Edit struct {
	Hook   string          `json:"hook"`
	Point  string          `json:"point"`
	Action string          `json:"action"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	Reason string          `json:"reason,omitempty"`
	Report json.RawMessage `json:"report,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Problem is why a call failed.
type Problem struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// The statuses of a rollout.
const (
	Queued    = "queued"
	Running   = "running"
	Completed = "completed"
	Failed    = "failed"
	Parked    = "parked"
	Cancelled = "cancelled"
)

// Rollout is one task x one sample, as it stands.
type Rollout struct {
	ID         string             `json:"id"`
	Task       string             `json:"task"`
	Sample     int                `json:"sample"`
	Status     string             `json:"status"`
	Phase      string             `json:"phase"`
	ExitStatus string             `json:"exit_status,omitempty"`
	Error      string             `json:"error,omitempty"`
	Reward     *float64           `json:"reward"`
	Components map[string]float64 `json:"components,omitempty"`
	Usage      chat.Usage         `json:"usage"`
	Calls      int                `json:"calls"`
	Cost       *float64           `json:"cost,omitempty"`
	CostBasis  string             `json:"cost_basis,omitempty"` // billed, estimated, unknown
	// Loops hold, by loop, what people granted it beyond the file.
	Loops map[string]LoopGrant `json:"loops,omitempty"`
	// Tried is what tries of stages used that ask no model through the gateway,
	// by stage and pass, such as ask/1. That of others is in their sessions.
	Tried map[string]Tried `json:"tried,omitempty"`
	// Abandoned says that a person gave a parked rollout up: it is cancelled
	// for good.
	Abandoned bool      `json:"abandoned,omitempty"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// Seconds is how long it ran: of a rollout that was gone on with, the sum
	// of its parts without the pauses between.
	Seconds float64 `json:"seconds"`
}

// Tried is what the tries of one stage in one pass used.
type Tried struct {
	Seconds float64 `json:"seconds"`
	USD     float64 `json:"usd,omitempty"` // as far as it is known
}

// LoopGrant is what a person granted a loop that was parked: More passes on
// top of its max, and those up to From not asked about again.
type LoopGrant struct {
	More int `json:"more"`
	From int `json:"from"`
}

// StageResult is the checkpoint of one stage of a rollout: what later stages
// read, and all that resume needs to go on after it.
type StageResult struct {
	Rollout    string          `json:"rollout"`
	Stage      string          `json:"stage"`
	Round      int             `json:"round"`
	Try        int             `json:"try"` // tries used
	Attempt    string          `json:"attempt"`
	Session    string          `json:"session,omitempty"`
	Status     string          `json:"status"` // completed, failed, skipped; parked waits for a person
	ExitStatus string          `json:"exit_status,omitempty"`
	Error      string          `json:"error,omitempty"`
	Output     json.RawMessage `json:"output,omitempty"`
	// Edits are what hooks did before and after the stage, with the input and
	// the output as they were.
	Edits []Edit `json:"edits,omitempty"`
	// Text is the agent's final text, where Output holds what was read from it.
	Text string `json:"text,omitempty"`
	// Workspace is the path, relative to the run folder, of the workspace
	// snapshot after the stage, if one is kept.
	Workspace string    `json:"workspace,omitempty"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
}

// Task is one task as read at the start of the run.
type Task struct {
	ID   string          `json:"id"`
	Seq  int             `json:"seq"` // position in the file, from 0
	Data json.RawMessage `json:"data"`
}
