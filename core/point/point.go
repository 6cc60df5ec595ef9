// Package point runs hooks at the points of a rollout: those that may change
// what passes by, in the order of the file, and those that only watch, each
// through a queue of its own. What never enters: what passes by. The gateway
// and the engine make the documents and check what a hook puts in their place.
package point

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// Hook is one use of a hook in the pipeline file.
type Hook struct {
	Name     string // hook/NAME
	Hook     hook.Hook
	Observes []hook.Point
	Changes  []hook.Point
	// FailOpen treats an error of the hook as continue, else it is a deny.
	FailOpen bool
}

// Changing lists the hooks that may change what passes at a point, in order.
func Changing(hooks []Hook, p hook.Point) []*Hook {
	var out []*Hook
	for i := range hooks {
		if slices.Contains(hooks[i].Changes, p) {
			out = append(out, &hooks[i])
		}
	}
	return out
}

// Observed says that some hook watches a point.
func Observed(hooks []Hook, p hook.Point) bool {
	return slices.ContainsFunc(hooks, func(h Hook) bool { return slices.Contains(h.Observes, p) })
}

// Passage is one subject on its way past the hooks of a point.
type Passage struct {
	Point hook.Point
	Log   *slog.Logger
	// Event makes the document that a hook is shown of the subject.
	Event func(subject json.RawMessage) doc.Doc
	// Check says why a value can't take the subject's place. The last value
	// that it let pass is the one to go on with.
	Check func(value json.RawMessage) error
	// Differ, if not nil, shortens what an edit keeps of before and after.
	Differ func(before, after json.RawMessage) (json.RawMessage, json.RawMessage)
}

// Outcome is what the hooks of one point made of a subject.
type Outcome struct {
	Value   json.RawMessage // as it is now
	Changed bool
	Denied  bool
	Reason  string // of the denial
	// Failed is the hook whose error was the denial, and Err that error.
	Failed string
	Err    error
	// Edits hold what each hook did, with the subject before and after it.
	Edits []trace.Edit
}

// Run shows the subject to the hooks in order. The first that denies ends it.
func (p Passage) Run(ctx context.Context, hooks []*Hook, subject json.RawMessage) Outcome {
	out := Outcome{Value: subject}
	for _, h := range hooks {
		edit, err := p.apply(ctx, h, out.Value)
		switch hook.Action(edit.Action) {
		case hook.Replace:
			out.Value, out.Changed = edit.After, true
		case hook.Deny:
			out.Denied, out.Reason = true, edit.Reason
			if err != nil {
				out.Failed, out.Err = h.Name, err
			}
		}
		if edit.Action != string(hook.Continue) || edit.Report != nil || edit.Error != "" {
			p.Log.Debug("hook acted", "hook", h.Name, "point", p.Point, "action", edit.Action, "report", string(edit.Report))
			if p.Differ != nil {
				edit.Before, edit.After = p.Differ(edit.Before, edit.After)
			}
			out.Edits = append(out.Edits, edit)
		}
		if out.Denied {
			break
		}
	}
	return out
}

// apply calls one hook. An error of it is a denial, or nothing where the hook
// fails open; what it was stands in the edit in both cases.
func (p Passage) apply(ctx context.Context, h *Hook, subject json.RawMessage) (trace.Edit, error) {
	result, err := Call(ctx, p.Log, h, p.Event(subject))
	if err == nil && result.Action == hook.Replace {
		if e := p.Check(result.Value); e != nil {
			err = fmt.Errorf("hook %s replaces the %s with something else: %w", h.Name, p.Point, e)
		}
	}
	edit := trace.Edit{Hook: h.Name, Point: string(p.Point), Action: string(result.Action), Reason: result.Reason, Report: result.Report}
	if err != nil {
		p.Log.Warn("hook failed", "hook", h.Name, "point", p.Point, "open", h.FailOpen, "error", err)
		edit.Error, edit.Action = err.Error(), string(hook.Continue)
		if !h.FailOpen {
			// The agent reads the reason, the error is for us.
			edit.Action, edit.Reason = string(hook.Deny), h.Name+" failed"
		}
	}
	switch hook.Action(edit.Action) {
	case hook.Replace:
		edit.Before, edit.After = subject, result.Value
	case hook.Deny:
		edit.Before = subject
	}
	return edit, err
}

// Call calls one hook; a panic of it is its error.
func Call(ctx context.Context, log *slog.Logger, h *Hook, d doc.Doc) (r hook.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic in a hook", "hook", h.Name, "panic", p, "stack", string(debug.Stack()))
			r, err = hook.Result{}, fmt.Errorf("panic: %v", p)
		}
	}()
	if r, err = h.Hook.Apply(ctx, hook.NewEvent(d)); err != nil {
		return hook.Result{}, err
	}
	if err := r.Check(); err != nil {
		return hook.Result{}, err
	}
	return r, nil
}
