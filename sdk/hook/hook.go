// Package hook is the interface of hooks: they observe or change what passes
// by at a point of a rollout. A hook answers continue, replace or deny.
package hook

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/rollout"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// Point is a place at which hooks are called.
type Point string

// The points. The subject of each, the value that a hook may replace, lies in
// the document under the name given here.
const (
	Request     Point = "request"      // request: a chat.Conversation, before it is rendered
	Reply       Point = "reply"        // reply: a chat.Reply, before it is served
	ToolCall    Point = "tool_call"    // tool_call: {id, name, arguments, arguments_raw}; tools lists those offered
	StageBefore Point = "stage.before" // stage: {id, input}
	StageAfter  Point = "stage.after"  // stage: {id, status, output}
	Row         Point = "row"          // row: one training row
)

// Subject is the field of the document that holds the point's value.
func (p Point) Subject() string {
	if p == StageBefore || p == StageAfter {
		return "stage"
	}
	return string(p)
}

// Action is what a hook wants done.
type Action string

// The actions.
const (
	Continue Action = "continue"
	Replace  Action = "replace"
	Deny     Action = "deny"
)

// Result is a hook's answer. Value is the new subject with Replace; Reason
// says why with Deny. Report is kept in the trace beside the original,
// whatever the action.
type Result struct {
	Action Action          `json:"action"`
	Value  json.RawMessage `json:"value,omitempty"`
	Reason string          `json:"reason,omitempty"`
	Report json.RawMessage `json:"report,omitempty"`
}

// Pass is the result that changes nothing.
func Pass() Result { return Result{Action: Continue} }

// Check reports why r is no result.
func (r Result) Check() error {
	switch r.Action {
	case Continue:
	case Replace:
		if !json.Valid(r.Value) {
			return fmt.Errorf("hook replaces with a value that isn't JSON")
		}
	case Deny:
		if r.Reason == "" {
			return fmt.Errorf("hook denies without a reason")
		}
	default:
		return fmt.Errorf("hook answers action %q, want continue, replace or deny", r.Action)
	}
	return nil
}

// Hook acts at points. Apply may be called from several goroutines.
type Hook interface {
	Apply(ctx context.Context, r *Event) (Result, error)
}

// Event is one call of a hook: the document {point, <subject>, task,
// rollout?}, with tools beside a tool_call.
type Event struct{ doc doc.Doc }

// NewEvent makes an event from its document.
func NewEvent(d doc.Doc) *Event { return &Event{d} }

// Doc is the event's document.
func (e *Event) Doc() doc.Doc { return e.doc }

// Point is where the hook is called.
func (e *Event) Point() Point { return Point(doc.At(e.doc, "").String("point")) }

// Subject is the value that the hook may replace.
func (e *Event) Subject() doc.Object { return doc.At(e.doc, "/"+e.Point().Subject()) }

// Task is the task's own object.
func (e *Event) Task() doc.Object { return doc.At(e.doc, "/task") }

// Tools are the tools offered, beside a tool_call.
func (e *Event) Tools() doc.Object { return doc.At(e.doc, "/tools") }

// Rollout is the rollout, at the points that have one.
func (e *Event) Rollout() rollout.Rollout {
	return rollout.Rollout{Object: doc.At(e.doc, "/rollout")}
}

// Method is the only method of a hook.
const Method = "hook_apply"

// Option describes a hook further.
type Option func(*component.Descriptor)

// Summary says in a line what the hook does.
func Summary(text string) Option { return func(d *component.Descriptor) { d.Summary = text } }

// Version is the hook's own version.
func Version(v string) Option { return func(d *component.Descriptor) { d.Version = v } }

// Observes names points that the hook only watches: it gets copies, after the
// fact, and what it answers is ignored.
func Observes(points ...Point) Option {
	return func(d *component.Descriptor) { d.Observes = append(d.Observes, names(points)...) }
}

// Changes names points at which the hook may replace or deny.
func Changes(points ...Point) Option {
	return func(d *component.Descriptor) { d.Changes = append(d.Changes, names(points)...) }
}

func names(points []Point) []string {
	var out []string
	for _, p := range points {
		out = append(out, string(p))
	}
	return out
}

// Register adds a hook to this program. C is a struct, the hook's config.
func Register[C any](name string, open func(C) (Hook, error), options ...Option) {
	d := component.Descriptor{Kind: component.Hook, Name: name, Config: schema.Of[C](), Methods: []string{Method}}
	for _, o := range options {
		o(&d)
	}
	component.Register(component.Component{
		Descriptor: d,
		Open: func(_ context.Context, config json.RawMessage) (any, error) {
			var cfg C
			if err := schema.Decode(config, &cfg); err != nil {
				return nil, err
			}
			return open(cfg)
		},
		Call: Call,
	})
}

// Call is the byte form of a hook's method, for transports.
func Call(ctx context.Context, instance any, method string, in doc.Doc) ([]byte, error) {
	if method != Method {
		return nil, fmt.Errorf("a hook has no method %q", method)
	}
	r, err := instance.(Hook).Apply(ctx, NewEvent(in))
	if err != nil {
		return nil, err
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return chat.Marshal(r)
}
