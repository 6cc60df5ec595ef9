package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/point"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
)

const (
	// hookTimeout bounds the hooks of one point around a stage, and of one row.
	hookTimeout = 2 * time.Minute
	// watchQueue is how many events wait for one observing hook before more of
	// them are dropped.
	watchQueue = 256
)

// openHooks opens the hooks of one place in the file.
func (e *Engine) openHooks(ctx context.Context, uses []pipeline.HookUse) ([]point.Hook, error) {
	var out []point.Hook
	for _, use := range uses {
		h, err := e.Plugins.Hook(ctx, use.Name, use.Config)
		if err != nil {
			return nil, fmt.Errorf("open hook/%s: %w", use.Name, err)
		}
		out = append(out, point.Hook{
			Name: "hook/" + use.Name, Hook: h, Observes: points(use.Observes), Changes: points(use.Changes), FailOpen: use.FailOpen,
		})
	}
	return out, nil
}

func points(names []string) []hook.Point {
	var out []hook.Point
	for _, n := range names {
		out = append(out, hook.Point(n))
	}
	return out
}

// dropped counts the events that observing hooks missed, by the hook's name,
// in the gateway and around stages and rows.
func (e *Engine) dropped() map[string]int {
	out := e.watch.Dropped()
	if e.front != nil {
		for name, n := range e.front.Dropped() {
			out[name] += n
		}
	}
	return out
}

// stageInput and stageOutput are the subjects of stage.before and stage.after.
type stageInput struct {
	ID    string          `json:"id"`
	Input json.RawMessage `json:"input"`
}

type stageOutput struct {
	ID     string          `json:"id"`
	Status string          `json:"status"`
	Output json.RawMessage `json:"output"` // null when there is none
}

// input is what the stage is given in this pass: what the file says, or what
// hooks have put in its place.
func (r *rollout) input(s *pipeline.Stage) (json.RawMessage, error) {
	if changed := r.inputs[s.ID]; changed != nil {
		return changed, nil
	}
	if s.Kind == pipeline.KindRun {
		argv, err := s.Run.JSON(r.env)
		if err != nil {
			return nil, fmt.Errorf("run: %w", err)
		}
		return chat.Marshal(map[string]json.RawMessage{"run": argv})
	}
	raw, err := s.Input.JSON(r.env)
	if err != nil {
		return nil, fmt.Errorf("with: %w", err)
	}
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	return raw, nil
}

// before shows a stage's input to its hooks, once for all of its tries. It is
// false when they denied, which fails the stage.
func (r *rollout) before(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) (bool, error) {
	input, err := r.input(s)
	if err != nil {
		return true, nil // the stage itself finds it and fails
	}
	subject, err := chat.Marshal(stageInput{s.ID, input})
	if err != nil {
		return false, fmt.Errorf("write the input for hooks: %w", err)
	}
	out, err := r.pass(ctx, hook.StageBefore, subject, res, func(value json.RawMessage) error {
		var v stageInput
		if err := strictly(value, &v); err != nil {
			return err
		}
		if v.ID != s.ID {
			return fmt.Errorf("id is %q, want %q: a hook can't send a stage's input to another", v.ID, s.ID)
		}
		if err := s.CheckInput(v.Input); err != nil {
			return err
		}
		input = v.Input
		return nil
	})
	if err != nil || out.Denied {
		return false, err
	}
	if out.Changed {
		r.inputs[s.ID] = input
	}
	return true, nil
}

// after shows how a stage ended to its hooks, once no other try follows.
func (r *rollout) after(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) error {
	now := stageOutput{s.ID, res.Status, res.Output}
	subject, err := chat.Marshal(now)
	if err != nil {
		return fmt.Errorf("write the output for hooks: %w", err)
	}
	out, err := r.pass(ctx, hook.StageAfter, subject, res, func(value json.RawMessage) error {
		var v stageOutput
		if err := strictly(value, &v); err != nil {
			return err
		}
		if err := replaces(s, now, v); err != nil {
			return err
		}
		now = v
		return nil
	})
	if err == nil && out.Changed && !out.Denied {
		res.Output = now.Output
	}
	return err
}

// replaces says why one output of a stage can't take the place of another.
func replaces(s *pipeline.Stage, was, v stageOutput) error {
	switch {
	case v.ID != was.ID:
		return fmt.Errorf("id is %q, want %q", v.ID, was.ID)
	case v.Status != was.Status:
		return fmt.Errorf("status is %q, want %q: a hook can fail a stage by denying, and nothing else about how it ended", v.Status, was.Status)
	case empty(was.Output):
		return errors.New("the stage gave no output that could be replaced")
	case empty(v.Output):
		return errors.New("it has no output")
	}
	if err := s.CheckResult(v.Output); err != nil {
		return err
	}
	switch s.Kind {
	case "invoker":
		is, want := doc.At(doc.Bytes(v.Output), "").String("exit_status"), doc.At(doc.Bytes(was.Output), "").String("exit_status")
		if is != want {
			return fmt.Errorf("exit_status is %q, want %q", is, want)
		}
	case "judger":
		var verdict judger.Verdict
		if err := json.Unmarshal(v.Output, &verdict); err != nil {
			return err
		}
		if verdict.Status == judger.JudgeError || verdict.Status == judger.InfraError {
			return fmt.Errorf("the verdict has status %q: a hook fails a stage by denying", verdict.Status)
		}
		return verdict.Check()
	}
	return nil
}

func empty(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || string(raw) == "null"
}

// strictly decodes an object that has the fields of v and no others.
func strictly(value json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// pass shows a subject to the hooks of a stage and keeps what they did in the
// stage's result. A denial fails the stage, whose output is then none.
func (r *rollout) pass(ctx context.Context, p hook.Point, subject json.RawMessage, res *trace.StageResult, check func(json.RawMessage) error) (point.Outcome, error) {
	hooks := r.hooks[res.Stage]
	changing, watched := point.Changing(hooks, p), point.Observed(hooks, p)
	if len(changing) == 0 && !watched {
		return point.Outcome{Value: subject}, nil
	}
	seen, err := r.seen(ctx, p, res)
	if err != nil {
		return point.Outcome{}, err
	}
	event := func(value json.RawMessage) doc.Doc { return hookEvent(p, value, r.task.Data, seen) }
	bounded, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	out := point.Passage{Point: p, Log: r.Log.With("rollout", r.state.ID, "stage", res.Stage), Event: event, Check: check}.
		Run(bounded, changing, subject)
	for _, edit := range out.Edits {
		if edit.Error != "" && ctx.Err() != nil {
			return out, errInterrupted
		}
		res.Edits = append(res.Edits, edit)
		if edit.Error != "" && edit.Action == string(hook.Continue) {
			r.warn(res.Stage, fmt.Sprintf("%s failed at %s and is passed over, as its on_error is open: %s", edit.Hook, p, edit.Error))
		}
	}
	if out.Denied {
		res.Status, res.Output = "failed", nil
		res.Error = fmt.Sprintf("%s denied at %s: %s", res.Edits[len(res.Edits)-1].Hook, p, out.Reason)
		if out.Err != nil {
			res.Error = fmt.Sprintf("%s failed at %s: %v", out.Failed, p, out.Err)
			res.ExitStatus = invoker.InfraError
		}
	}
	if watched {
		r.watch.Send(hooks, p, event(out.Value))
	}
	return out, nil
}

// seen is what hooks of a stage are shown of the rollout: all but the
// workspace, which is the stage's own. After an agent it is that agent's
// conversation.
func (r *rollout) seen(ctx context.Context, p hook.Point, res *trace.StageResult) (json.RawMessage, error) {
	last := r.last()
	if s := r.stage(res.Stage); p == hook.StageAfter && s != nil && s.Kind == "invoker" {
		last = res
	}
	d, err := r.facts(context.WithoutCancel(ctx), &r.state, r.results, res.Attempt, last)
	if err != nil {
		return nil, fmt.Errorf("read the rollout for hooks: %w", err)
	}
	return chat.Marshal(d)
}

// hookEvent is the document {point, <subject>, task, rollout}.
func hookEvent(p hook.Point, subject, task, seen json.RawMessage) doc.Doc {
	var b bytes.Buffer
	b.Grow(len(subject) + len(task) + len(seen) + 64)
	fmt.Fprintf(&b, `{"point":%q,%q:%s`, p, p.Subject(), subject)
	if len(task) > 0 {
		fmt.Fprintf(&b, `,"task":%s`, task)
	}
	fmt.Fprintf(&b, `,"rollout":%s}`, seen)
	return doc.Bytes(b.Bytes())
}
