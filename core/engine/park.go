package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-dev/penstock/core/notify"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/shell"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// place is where in a loop a rollout is.
type place struct {
	loop      string
	pass, max int
}

// parked makes the park of a stage that waits for a person; nil when it
// doesn't.
func (r *rollout) parked(s *pipeline.Stage, res *trace.StageResult) *trace.Park {
	p := &trace.Park{
		ID: run.NewID("p"), Rollout: r.state.ID, Task: r.state.Task, Stage: s.ID, Round: res.Round,
		Message: res.Error, Raw: res.Text, Status: trace.ParkWaiting, Parked: time.Now().UTC(),
		Cost: r.state.Cost, CostBasis: r.state.CostBasis, Pass: r.where.pass, Max: r.where.max,
	}
	switch {
	case s.Loop != nil && res.Status == trace.Parked:
		p.Reason, p.Loop = r.stopped.reason, s.ID
		p.Pass, p.Max = r.stopped.at.pass, r.stopped.at.max
		last := r.lastOf(s.Loop)
		p.Stage, p.Round = last.Stage, last.Round
		p.Output, p.Raw = last.Output, last.Text
	case s.Loop == nil && res.Status == trace.Failed && s.OnError == pipeline.OnErrorPark:
		p.Reason = trace.ParkError
		if r.broke {
			p.Reason = trace.ParkContract
		}
		res.Status = trace.Parked
	default:
		return nil
	}
	p.Schema = r.answerSchema(p.Stage)
	return p
}

// lastOf is the last stage of a loop's body that ran: the phase that the
// rollout was in.
func (r *rollout) lastOf(l *pipeline.Loop) *trace.StageResult {
	var last *trace.StageResult
	for _, s := range l.Stages {
		if res := r.results[s.ID]; res != nil && res.Status != "skipped" && s.Loop == nil {
			last = res
		}
	}
	return last
}

// answerSchema is the schema of what a stage writes, which an answer must fit.
func (r *rollout) answerSchema(stage string) json.RawMessage {
	if s := r.stage(stage); s != nil {
		return s.Writes()
	}
	return nil
}

// park stores the park, the stage's result and the rollout's state at once,
// and tells of it afterwards: whoever hears of a park can answer it.
func (r *rollout) park(ctx context.Context, p *trace.Park, res *trace.StageResult) error {
	r.state.Status, r.state.Phase, r.state.Error = trace.Parked, p.Stage, p.Message
	p.Message = r.Redact.String(p.Message)
	p.Raw = r.Redact.String(p.Raw)
	r.state.Error = p.Message
	r.clock()
	if err := r.Store.PutPark(context.WithoutCancel(ctx), p, res, &r.state); err != nil {
		return err
	}
	r.Events.Emit(run.Event{
		Type: run.RolloutParked, Rollout: r.state.ID, Stage: p.Stage, Attempt: res.Attempt, Status: trace.Parked, Park: p.ID,
		Reason: p.Reason, Message: p.Message, Count: p.Pass,
	})
	return r.tell(ctx, p)
}

// parkMessage is what people are sent of a park.
type parkMessage struct {
	Park    string          `json:"park"`
	Run     string          `json:"run"`
	Rollout string          `json:"rollout"`
	Task    string          `json:"task"`
	Phase   string          `json:"phase"` // the stage that the rollout was in
	Pass    int             `json:"pass,omitempty"`
	Max     int             `json:"max,omitempty"`
	Reason  string          `json:"reason"`
	Message string          `json:"message"`
	Output  json.RawMessage `json:"output,omitempty"` // of the phase, with its findings or questions
	Raw     string          `json:"raw,omitempty"`    // what it wrote that is no such output
	Cost    *float64        `json:"cost"`
	Basis   string          `json:"cost_basis,omitempty"`
	Command string          `json:"command"` // that answers it
}

// tell sends word of a park that is stored, and notes to whom it did. Who can't
// be told now is told when the run is resumed: the park itself is not lost.
func (e *Engine) tell(ctx context.Context, p *trace.Park) error {
	if len(e.Pipeline.Notify) == 0 || p.Notified {
		return nil
	}
	raw := ""
	if p.Output == nil {
		raw = p.Raw
	}
	line, err := chat.Marshal(parkMessage{
		Park: p.ID, Run: e.Folder.ID, Rollout: p.Rollout, Task: p.Task, Phase: p.Stage, Pass: p.Pass, Max: p.Max, Reason: p.Reason,
		Message: p.Message, Output: p.Output, Raw: raw, Cost: p.Cost, Basis: p.CostBasis,
		Command: fmt.Sprintf("penstock park answer %s %s", shell.Quote(e.Folder.Dir), p.ID),
	})
	if err != nil {
		return fmt.Errorf("write the message of park %s: %w", p.ID, err)
	}
	for i, to := range e.Pipeline.Notify {
		if slices.Contains(p.Told, i) {
			continue
		}
		err := notify.Send(ctx, notify.Target{Command: to.Command, Webhook: to.Webhook, File: to.File}, notify.Message{ID: p.ID, JSON: line})
		if err != nil {
			e.Events.Emit(run.Event{
				Type: run.Warned, Rollout: p.Rollout, Stage: p.Stage, Park: p.ID, Message: e.Redact.String(err.Error()) + "; it is told again when the run is resumed",
			})
			continue
		}
		p.Told = append(p.Told, i)
		p.Notified = len(p.Told) == len(e.Pipeline.Notify)
		if err := e.Store.PutPark(context.WithoutCancel(ctx), p, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// tellAgain sends word of the parks that nobody was told of.
func (e *Engine) tellAgain(ctx context.Context) error {
	if len(e.Pipeline.Notify) == 0 {
		return nil
	}
	parks, err := e.Store.Parks(ctx)
	if err != nil {
		return err
	}
	for _, p := range parks {
		if p.Status != trace.ParkWaiting {
			continue
		}
		if err := e.tell(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
