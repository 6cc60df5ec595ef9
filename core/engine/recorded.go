package engine

import (
	"encoding/json"
	"fmt"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/component"
)

// step is one visit of a stage, as a run recorded it.
type step struct {
	stage *pipeline.Stage
	visit visit
}

// walked adds the steps that a stage had the rollout do: of a loop those of all
// its passes, then itself.
func (a *replayed) walked(to []step, s *pipeline.Stage) (_ []step, err error) {
	v := a.next(s.ID)
	if s.Loop != nil {
		passes, err := a.passes(v)
		if err != nil {
			return nil, err
		}
		for n := 0; n < passes || passes < 0 && a.anyNext(s.Loop.Stages); n++ {
			for _, b := range s.Loop.Stages {
				if to, err = a.walked(to, b); err != nil {
					return nil, err
				}
			}
		}
	}
	return append(to, step{s, v}), nil
}

// passes is how many a loop took, -1 where it has no end: it is the last then
// that the rollout was in.
func (a *replayed) passes(v visit) (int, error) {
	res := a.stored[v]
	switch {
	case res == nil:
		return -1, nil
	case res.Output == nil && res.Status == trace.Failed: // in its condition
		return -1, nil
	case res.Output == nil:
		return 0, nil
	}
	var o struct {
		Passes int `json:"passes"`
	}
	if err := json.Unmarshal(res.Output, &o); err != nil {
		return 0, fmt.Errorf("rollout %s: stage %s: read its checkpoint: %w", a.state.ID, v.stage, err)
	}
	return o.Passes, nil
}

// anyNext says whether another pass of a loop was begun.
func (a *replayed) anyNext(body []*pipeline.Stage) bool {
	for _, s := range body {
		if a.stored[visit{s.ID, a.visits[s.ID] + 1}] != nil || s.Loop != nil && a.anyNext(s.Loop.Stages) {
			return true
		}
	}
	return false
}

// worksNext names the snapshot of the workspace as it was when a program next
// worked in it, after the n-th step of the i-th stage: "" if none did.
func (a *replayed) worksNext(i, n int) string {
	for ; i < len(a.steps); i, n = i+1, -1 {
		for _, st := range a.steps[i][n+1:] {
			res := a.stored[st.visit]
			if (st.stage.Kind == component.Invoker || st.stage.Kind == pipeline.KindRun) && res != nil && res.Status != "skipped" {
				return snapshotOf(st.stage.ID, st.visit.round)
			}
		}
	}
	return ""
}
