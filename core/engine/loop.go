package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// loop runs the passes of a loop. Res is the loop's own checkpoint: completed
// when its condition came true, failed when it didn't. Why a loop stopped that
// may not go on is in res.Error and r.stopped.
func (r *rollout) loop(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) error {
	l := s.Loop
	outer := r.where
	defer func() { r.where = outer }()
	granted := r.state.Loops[s.ID]
	limit := l.Max + granted.More
	var so progress
	for pass := 1; ; pass++ {
		r.where = place{loop: s.ID, pass: pass, max: limit}
		on, err := r.walk(ctx, l.Stages)
		if err != nil || !on {
			return err
		}
		ended, err := l.Until.Bool(r.env)
		if err != nil {
			res.Status, res.Error = trace.Failed, fmt.Sprintf("until: %v", err)
			return nil
		}
		if res.Output, err = chat.Marshal(map[string]int{"passes": pass}); err != nil {
			return fmt.Errorf("stage %s: encode passes: %w", s.ID, err)
		}
		if ended {
			res.Status = trace.Completed
			return nil
		}
		same := r.noFurther(l, &so)
		if pass <= granted.From { // whoever granted more passes knows of these
			same = ""
		}
		if pass < granted.From {
			so = progress{}
		}
		reason, why := r.stuck(l, same)
		if reason == "" && pass >= limit {
			reason, why = trace.ParkCap, fmt.Sprintf("%s is not true after pass %d, the last one", l.Until, pass)
		}
		if reason == "" || pass <= granted.From && pass < limit {
			continue
		}
		return r.stop(s, res, reason, why)
	}
}

// stopped says why and where a loop could not go on.
type stopped struct {
	reason string // of a park
	at     place
}

// stop ends a loop that may not go on, as its else says.
func (r *rollout) stop(s *pipeline.Stage, res *trace.StageResult, reason, why string) error {
	res.Status, res.Error = trace.Failed, why
	r.stopped = stopped{reason, r.where}
	switch e := s.Loop.Else; {
	case e == pipeline.OnErrorContinue && reason != trace.ParkContract:
		res.Status = trace.Completed
		r.Events.Emit(run.Event{Type: run.Warned, Rollout: r.state.ID, Stage: s.ID, Message: why + "; the rollout goes on"})
	case e == pipeline.OnErrorPark:
		res.Status = trace.Parked
	}
	return nil
}

// stuck says why another pass would be blind or in vain; same is what the passes
// so far say of that. Findings are what a stage of the body tells the next pass,
// under that name: one that rejects tells some.
func (r *rollout) stuck(l *pipeline.Loop, same string) (reason, why string) {
	silent := ""
	for _, s := range l.Stages {
		if res := r.results[s.ID]; res != nil && res.Output != nil {
			if _, ok := findings(res.Output); ok && !approves(res.Output) {
				silent = s.ID
			}
		}
	}
	if found, _ := r.found(l); silent != "" && len(found) == 0 {
		return trace.ParkContract, fmt.Sprintf("stage %s has no findings, but %s is not true: another pass would not know what to do better", silent, l.Until)
	}
	if same != "" {
		return trace.ParkNoProgress, same
	}
	return "", ""
}

// again walks through a loop that an earlier part of the run ended.
func (r *rollout) again(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) (bool, error) {
	var o struct {
		Passes int `json:"passes"`
	}
	if err := json.Unmarshal(res.Output, &o); err != nil && res.Output != nil {
		return false, fmt.Errorf("stage %s: read its checkpoint: %w", s.ID, err)
	}
	for range o.Passes {
		if on, err := r.walk(ctx, s.Loop.Stages); err != nil || !on {
			return on, err
		}
	}
	return true, nil
}
