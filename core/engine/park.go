package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
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
	if err := r.Store.PutPark(context.WithoutCancel(ctx), p, res, &r.state); err != nil {
		return err
	}
	r.Events.Emit(run.Event{
		Type: run.RolloutParked, Rollout: r.state.ID, Stage: p.Stage, Attempt: res.Attempt, Status: trace.Parked, Park: p.ID,
		Reason: p.Reason, Message: p.Message, Count: p.Pass,
	})
	return nil
}
