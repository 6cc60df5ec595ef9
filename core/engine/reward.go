package engine

import (
	"encoding/json"
	"fmt"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// setReward evaluates the pipeline's reward, or takes that of its only judge.
func (r *rollout) setReward() {
	var only *judger.Verdict
	judges := 0
	r.Pipeline.Each(func(s *pipeline.Stage) {
		res := r.results[s.ID]
		if s.Kind != "judger" || res == nil || res.Output == nil {
			return
		}
		var v judger.Verdict
		if err := json.Unmarshal(res.Output, &v); err == nil {
			judges++
			only = &v
			r.addComponents(s.ID, &v)
		}
	})
	if r.Pipeline.Reward == nil {
		if judges == 1 {
			r.state.Reward = only.Reward
		}
		return
	}
	reward, err := r.Pipeline.Reward.Number(r.env)
	if err != nil {
		r.state.Status, r.state.Phase, r.state.Error = trace.Failed, "reward", fmt.Sprintf("reward: %v", err)
		return
	}
	r.state.Reward = reward
}

// addComponents keeps each judge's reward and components under its stage's id.
func (r *rollout) addComponents(stage string, v *judger.Verdict) {
	if r.state.Components == nil {
		r.state.Components = map[string]float64{}
	}
	if v.Reward != nil {
		r.state.Components[stage] = *v.Reward
	}
	for name, c := range v.Components {
		r.state.Components[stage+"."+name] = c
	}
}
