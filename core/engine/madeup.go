package engine

import (
	"context"
	"fmt"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/invoker"
	sdkrollout "github.com/penstock-dev/penstock/sdk/rollout"
)

// JudgeMadeUp has a judger stage judge rollouts that never ran, as they are
// given: one, or for a group all of a task. A workspace is a folder, of which
// the judge gets a copy. Stages that a rollout says nothing of are taken for
// completed agents that said its final text. The results are in the order of
// the rollouts.
func (e *Engine) JudgeMadeUp(ctx context.Context, s *pipeline.Stage, task pipeline.Task, rollouts []*sdkrollout.Data) ([]*trace.StageResult, error) {
	var out []*trace.StageResult
	var group []*member
	for i, d := range rollouts {
		r, err := e.madeUp(task, i, d)
		if err != nil {
			return nil, err
		}
		res := &trace.StageResult{Rollout: r.state.ID, Stage: s.ID, Round: 1}
		out = append(out, res)
		if !s.Group {
			if err := r.step(ctx, s, res); err != nil {
				return nil, err
			}
		} else if r.wanted(s, res) {
			group = append(group, &member{rollout: r, res: res})
		}
	}
	if len(group) == 0 {
		return out, nil
	}
	return out, triesOfGroup(ctx, s, group)
}

func (e *Engine) madeUp(task pipeline.Task, sample int, d *sdkrollout.Data) (*rollout, error) {
	r := fresh(e, task, sample)
	seen := *d
	if seen.ID == "" {
		seen.ID = r.state.ID
	}
	if seen.Sample == 0 {
		seen.Sample = sample
	}
	if seen.ExitStatus == "" {
		seen.ExitStatus = invoker.OK
	}
	if seen.Status == "" {
		seen.Status = trace.Running
	}
	r.state.ID, r.state.Sample, r.state.Status, r.state.ExitStatus = seen.ID, seen.Sample, trace.Running, seen.ExitStatus
	r.env.Rollout.ID, r.env.Rollout.Sample = seen.ID, seen.Sample
	seen.Stages = map[string]sdkrollout.StageData{}
	var err error
	e.Pipeline.Each(func(s *pipeline.Stage) {
		given, ok := d.Stages[s.ID]
		if !ok && s.Kind == component.Invoker && s.Output == nil && err == nil {
			given.Status = trace.Completed
			given.Output, err = chat.Marshal(map[string]any{"text": seen.FinalText, "usage": seen.Usage, "cost": seen.Cost, "exit_status": seen.ExitStatus})
			ok = true
		}
		if ok {
			seen.Stages[s.ID] = given
			r.env.Stages[s.ID] = pipeline.StageEnv{Status: given.Status, ExitStatus: seen.ExitStatus, Output: given.Output}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	if seen.ToolCalls == nil {
		seen.ToolCalls = []sdkrollout.CallData{}
	}
	if seen.Messages == nil {
		seen.Messages = []chat.Message{}
	}
	r.made = func(dir string) (*sdkrollout.Data, error) {
		if seen.Workspace == "" {
			return &seen, nil
		}
		ws, err := agent.NewWorkspace(agent.WorkspaceOptions{Dir: e.Folder.Work(seen.ID), From: seen.Workspace})
		if err != nil {
			return nil, err
		}
		shown := seen
		shown.Workspace = dir
		return &shown, ws.CopyTo(dir)
	}
	return r, nil
}
