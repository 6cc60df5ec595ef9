package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/core/point"
	"github.com/penstock-dev/penstock/core/rows"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// rowHooks shows the rows that a converter stage selected to its hooks. They
// see a row when it is written, as its reward is known only then, and again
// whenever the rows are written anew.
type rowHooks struct {
	*Engine
	stage string
	hooks []point.Hook
	tasks map[string]json.RawMessage

	denied int
	reason string         // of the first denial
	lost   int            // rows left out because a hook failed
	why    string         // of the first
	passed map[string]int // rows at which a hook failed and was passed over
	first  map[string]string

	session string // whose rows pass at the moment, and
	seen    json.RawMessage
}

func (e *Engine) rowHooks(stage string) *rowHooks {
	h := &rowHooks{Engine: e, stage: stage, hooks: e.hooks[stage], passed: map[string]int{}, first: map[string]string{}, tasks: map[string]json.RawMessage{}}
	for _, t := range e.Pipeline.Tasks {
		h.tasks[t.ID] = t.Data
	}
	return h
}

// through gives the rows that the hooks let pass, as they made them.
func (h *rowHooks) through(ctx context.Context, in iter.Seq2[*converter.Row, error]) iter.Seq2[*converter.Row, error] {
	return func(yield func(*converter.Row, error) bool) {
		if err := h.Store.BeginRowEdits(ctx, h.stage); err != nil {
			yield(nil, err)
			return
		}
		for row, err := range in {
			if err == nil {
				row, err = h.row(ctx, row)
			}
			if row == nil && err == nil {
				continue
			}
			if !yield(row, err) {
				return
			}
		}
		if err := h.Store.EndRowEdits(ctx, h.stage); err != nil {
			yield(nil, err)
		}
	}
}

// row shows one row to the hooks. It is nil when they denied.
func (h *rowHooks) row(ctx context.Context, row *converter.Row) (*converter.Row, error) {
	changing, watched := point.Changing(h.hooks, hook.Row), point.Observed(h.hooks, hook.Row)
	subject, err := chat.Marshal(row)
	if err == nil {
		err = h.look(ctx, row)
	}
	if err != nil {
		return nil, fmt.Errorf("show row %s to hooks: %w", row.Row, err)
	}
	event := func(value json.RawMessage) doc.Doc { return hookEvent(hook.Row, value, h.tasks[row.Task], h.seen) }
	next := row
	bounded, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	out := point.Passage{
		Point: hook.Row, Log: h.Log.With("row", row.Row, "stage", h.stage), Event: event, Differ: rows.Difference,
		Check: func(value json.RawMessage) error {
			changed, err := rows.Replace(row, h.Redact.RawMessage(value))
			if err == nil {
				next = changed
			}
			return err
		},
	}.Run(bounded, changing, subject)
	if len(out.Edits) > 0 {
		if err := h.keep(ctx, row, next, subject, out); err != nil {
			return nil, err
		}
	}
	if out.Denied {
		return nil, nil
	}
	if watched {
		h.watch.Send(h.hooks, hook.Row, event(out.Value))
	}
	return next, nil
}

// keep stores what the hooks did with a row, and counts it.
func (h *rowHooks) keep(ctx context.Context, row, next *converter.Row, subject json.RawMessage, out point.Outcome) error {
	for _, edit := range out.Edits {
		if edit.Error != "" && edit.Action == string(hook.Continue) {
			if h.passed[edit.Hook]++; h.passed[edit.Hook] == 1 {
				h.first[edit.Hook] = edit.Error
			}
		}
	}
	h.cleanEdits(out.Edits)
	e := &trace.RowEdit{Stage: h.stage, Row: row.Row, Original: digest(subject), Denied: out.Denied, Edits: out.Edits}
	switch {
	case out.Err != nil:
		if h.lost++; h.lost == 1 {
			h.why = fmt.Sprintf("%s: %s failed: %v", row.Row, out.Failed, out.Err)
		}
	case out.Denied:
		last := out.Edits[len(out.Edits)-1]
		if h.denied++; h.denied == 1 {
			h.reason = fmt.Sprintf("%s: %s denied: %s", row.Row, last.Hook, last.Reason)
		}
	case out.Changed:
		now, err := chat.Marshal(next)
		if err != nil {
			return fmt.Errorf("store row %s as hooks changed it: %w", row.Row, err)
		}
		_, e.Changed = rows.Difference(subject, now)
	}
	return h.Store.PutRowEdit(ctx, e)
}

// look reads what hooks are shown of the rollout of a row, once for all rows
// of a session.
func (h *rowHooks) look(ctx context.Context, row *converter.Row) error {
	if h.session == row.Session && h.seen != nil {
		return nil
	}
	state, err := h.Store.Rollout(ctx, row.Rollout)
	if err != nil {
		return err
	}
	stages, err := h.Store.Stages(ctx, row.Rollout)
	if err != nil {
		return err
	}
	results := map[string]*trace.StageResult{}
	var last *trace.StageResult
	for _, s := range stages {
		results[s.Stage] = s
		if s.Session == row.Session {
			last = s
		}
	}
	d, err := h.facts(ctx, state, results, row.Attempt, last)
	if err != nil {
		return err
	}
	h.session = row.Session
	h.seen, err = chat.Marshal(d)
	return err
}

// said are the words for what the hooks did with all rows of the stage.
func (h *rowHooks) said() string {
	denied, lost := "", ""
	if h.denied > 0 {
		denied = fmt.Sprintf("%d rows denied by hooks; the first was %s", h.denied, h.reason)
	}
	if h.lost > 0 {
		lost = fmt.Sprintf("%d rows left out, as a hook failed; the first was %s", h.lost, h.why)
	}
	return joined(denied, lost)
}

// complain warns of the hooks that failed and were passed over.
func (h *rowHooks) complain() {
	for _, name := range slices.Sorted(maps.Keys(h.passed)) {
		h.Events.Emit(run.Event{Type: run.Warned, Stage: h.stage, Count: h.passed[name], Message: fmt.Sprintf(
			"%s failed at %d rows and was passed over, as its on_error is open; the first time: %s", name, h.passed[name], h.first[name])})
	}
}

// edited gives the rows of a stage as its hooks made them when the run wrote
// them. Nothing is asked of a hook.
func edited(ctx context.Context, s *trace.Store, stage string, in iter.Seq2[*converter.Row, error], denied *int) iter.Seq2[*converter.Row, error] {
	return func(yield func(*converter.Row, error) bool) {
		for row, err := range in {
			if err == nil {
				row, err = editedRow(ctx, s, stage, row)
			}
			if row == nil && err == nil {
				*denied++
				continue
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

func editedRow(ctx context.Context, s *trace.Store, stage string, row *converter.Row) (*converter.Row, error) {
	e, err := s.RowEdit(ctx, stage, row.Row)
	if errors.Is(err, trace.ErrNotFound) {
		return row, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := chat.Marshal(row)
	if err != nil {
		return nil, err
	}
	switch {
	case e.Original != digest(now):
		return nil, fmt.Errorf("row %s is not the one that the run's hooks saw: resume the run, so that they see it", row.Row)
	case e.Denied:
		return nil, nil
	case e.Changed == nil:
		return row, nil
	}
	out, err := rows.Apply(row, e.Changed)
	if err != nil {
		return nil, fmt.Errorf("row %s as hooks changed it: %w", row.Row, err)
	}
	return out, nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// joined joins what isn't empty.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}
