package engine

import (
	"context"
	"fmt"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
)

// visit is one time that a rollout comes to a stage: within a loop there is
// one in each pass. Rounds count from 1.
type visit struct {
	stage string
	round int
}

// next is the visit that begins now. Visits are counted anew when a rollout is
// resumed, so that it walks through its checkpoints to where it stopped.
func (r *rollout) next(stage string) visit {
	r.visits[stage]++
	return visit{stage, r.visits[stage]}
}

// walk takes the rollout through stages in their order. It is false when the
// rollout has failed or was parked, and goes no further.
func (r *rollout) walk(ctx context.Context, stages []*pipeline.Stage) (on bool, err error) {
	to := "" // where a loop said to go on
	for _, s := range stages {
		v := r.next(s.ID)
		res := r.done[v]
		switch {
		case to != "" && s.ID != to:
			if err := r.passOver(ctx, s, v, to); err != nil {
				return false, err
			}
			r.passed(s)
			continue
		case res != nil && res.Status != trace.Parked:
			on = true
			if s.Loop != nil {
				on, err = r.again(ctx, s, res)
			}
		default:
			res, on, err = r.visit(ctx, s, v, res)
		}
		if err != nil || !on {
			return false, err
		}
		r.take(s, res)
		r.passed(s)
		to = ""
		if s.Loop != nil && res.Status == trace.Failed && jumps(s.Loop.Else) {
			to = s.Loop.Else
		}
	}
	return true, nil
}

// stage is a stage of the pipeline, also one within a loop.
func (r *rollout) stage(id string) (found *pipeline.Stage) {
	r.Pipeline.Each(func(s *pipeline.Stage) {
		if s.ID == id {
			found = s
		}
	})
	return found
}

// jumps reports whether a loop's else names a stage.
func jumps(e string) bool {
	return e != pipeline.OnErrorFail && e != pipeline.OnErrorContinue && e != pipeline.OnErrorPark
}

// visit runs a stage that has no checkpoint, and leaves one. Before is what is
// left of the stage when it was parked and is tried again.
func (r *rollout) visit(ctx context.Context, s *pipeline.Stage, v visit, before *trace.StageResult) (res *trace.StageResult, on bool, err error) {
	if ctx.Err() != nil {
		return nil, false, errInterrupted
	}
	res = &trace.StageResult{Rollout: r.state.ID, Stage: s.ID, Round: v.round}
	if before != nil {
		res.Try = before.Try
	}
	if s.Loop == nil {
		r.state.Phase = s.ID
	}
	if err := r.step(ctx, s, res); err != nil {
		return nil, false, err
	}
	if r.judged[s.ID] { // with its group, which left its checkpoint
		return res, r.state.Status == trace.Running, nil
	}
	if r.state.Status != trace.Running { // within a loop's body
		return res, false, nil
	}
	r.clean(res)
	r.exited(s, res)
	if p := r.parked(s, res); p != nil {
		return res, false, r.park(ctx, p, res)
	}
	r.fails(s, res)
	r.clock()
	if err := r.Store.PutStage(context.WithoutCancel(ctx), res, &r.state); err != nil {
		return nil, false, err
	}
	return res, r.state.Status == trace.Running, nil
}

// fails ends the rollout if the stage failed and nothing says how to go on.
func (r *rollout) fails(s *pipeline.Stage, res *trace.StageResult) {
	if res.Status == trace.Failed && s.OnError != pipeline.OnErrorContinue && !(s.Loop != nil && jumps(s.Loop.Else)) {
		r.state.Status, r.state.Error = trace.Failed, fmt.Sprintf("stage %s: %s", s.ID, res.Error)
	}
}

// passOver leaves a stage out that stands between a loop and the stage that
// the loop goes on with.
func (r *rollout) passOver(ctx context.Context, s *pipeline.Stage, v visit, to string) error {
	res := r.done[v]
	if res == nil {
		res = &trace.StageResult{Rollout: r.state.ID, Stage: s.ID, Round: v.round, Status: "skipped"}
		r.clock()
		if err := r.Store.PutStage(context.WithoutCancel(ctx), res, &r.state); err != nil {
			return err
		}
		r.Events.Emit(run.Event{
			Type: run.StageEnded, Rollout: r.state.ID, Stage: s.ID, Kind: stageKind(s), Status: res.Status, Message: "passed over: the loop before it goes on with " + to,
		})
	}
	r.take(s, res)
	return nil
}
