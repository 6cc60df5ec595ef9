package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// Answer is a person's answer to a park.
type Answer struct {
	Park string
	// Output stands in for what the stage wrote; nil has it tried again.
	Output json.RawMessage
	// ResetRound has the loop begin to count its passes anew.
	ResetRound bool
}

// ErrAnswer is wrapped by the errors of an answer that can't be taken. The
// park waits on.
var ErrAnswer = errors.New("the answer can't be taken")

// Reply takes an answer, so that the rollout goes on when its run is resumed.
// To give the same answer again changes nothing.
func Reply(ctx context.Context, store *trace.Store, p *pipeline.Pipeline, a Answer) error {
	park, err := find(ctx, store, a.Park)
	if err != nil {
		return err
	}
	var stage, loop *pipeline.Stage
	p.Each(func(s *pipeline.Stage) {
		switch s.ID {
		case park.Stage:
			stage = s
		case park.Loop:
			loop = s
		}
	})
	if stage == nil || park.Loop != "" && loop == nil {
		return fmt.Errorf("%w: the pipeline has no stage %s", ErrAnswer, park.Stage)
	}
	if a.Output != nil {
		if a.Output, err = stage.Answer(a.Output); err != nil {
			return fmt.Errorf("%w: %w", ErrAnswer, err)
		}
		if blind(p, stage, a.Output) {
			return fmt.Errorf("%w: it rejects without findings: another pass would not know what to do better; give at least one", ErrAnswer)
		}
	}
	switch {
	case park.Status == trace.ParkAnswered && same(park.Answer, a.Output):
		return nil
	case park.Status != trace.ParkWaiting:
		return fmt.Errorf("%w: park %s was %s at %s", ErrAnswer, park.ID, park.Status, park.Ended.Format(time.RFC3339))
	case a.ResetRound && loop == nil:
		return fmt.Errorf("%w: stage %s was not parked by a loop, which has passes to count anew", ErrAnswer, park.Stage)
	case loop != nil && a.Output == nil && !a.ResetRound:
		return fmt.Errorf("%w: the loop %s got no further (%s); give what %s should have written as JSON, or let it run %d more passes with --reset-round",
			ErrAnswer, loop.ID, park.Reason, stage.ID, loop.Loop.Max)
	}
	return take(ctx, store, park, loop, a)
}

// blind says whether an answer would have a loop park again at once: it rejects,
// and tells the next pass nothing.
func blind(p *pipeline.Pipeline, stage *pipeline.Stage, output json.RawMessage) bool {
	looped := false
	p.Each(func(s *pipeline.Stage) { looped = looped || s.Loop != nil && slices.Contains(s.Loop.Stages, stage) })
	var o struct {
		Verdict string `json:"verdict"`
	}
	list, ok := findings(output)
	return looped && ok && strings.Join(list, "") == "" && json.Unmarshal(output, &o) == nil && strings.HasPrefix(strings.ToLower(o.Verdict), "reject")
}

func take(ctx context.Context, store *trace.Store, park *trace.Park, loop *pipeline.Stage, a Answer) error {
	ro, err := store.Rollout(ctx, park.Rollout)
	if err != nil {
		return err
	}
	if loop != nil {
		if ro.Loops == nil {
			ro.Loops = map[string]trace.LoopGrant{}
		}
		// What a person found is worth another pass, if there is one left.
		grant := trace.LoopGrant{More: ro.Loops[loop.ID].More, From: park.Pass}
		if a.ResetRound {
			grant.More += loop.Loop.Max
		}
		ro.Loops[loop.ID] = grant
	}
	now := time.Now().UTC()
	var res *trace.StageResult
	if a.Output != nil {
		res = &trace.StageResult{
			Rollout: park.Rollout, Stage: park.Stage, Round: park.Round, Try: 1, Status: trace.Completed, ExitStatus: "ok",
			Output: a.Output, Started: now, Ended: now,
		}
		done, err := store.Stages(ctx, park.Rollout)
		if err != nil {
			return err
		}
		for _, d := range done {
			if d.Stage == park.Stage && d.Round == park.Round {
				res.Try = d.Try + 1
			}
		}
		res.Attempt = fmt.Sprintf("%s~%s~%d~%d", park.Rollout, park.Stage, park.Round, res.Try)
	}
	ro.Status, ro.Error = trace.Queued, ""
	park.Status, park.Answer, park.Ended = trace.ParkAnswered, a.Output, now
	return store.PutPark(ctx, park, res, ro)
}

// Abandon gives a parked rollout up: it ends cancelled, stays so, and is that in
// rollouts.jsonl.
func Abandon(ctx context.Context, folder *run.Folder, store *trace.Store, id string) error {
	park, err := find(ctx, store, id)
	if err != nil {
		return err
	}
	switch park.Status {
	case trace.ParkAbandoned:
		return tellRollouts(ctx, folder, store)
	case trace.ParkAnswered:
		return fmt.Errorf("%w: park %s was answered at %s", ErrAnswer, park.ID, park.Ended.Format(time.RFC3339))
	}
	ro, err := store.Rollout(ctx, park.Rollout)
	if err != nil {
		return err
	}
	park.Status, park.Ended = trace.ParkAbandoned, time.Now().UTC()
	ro.Status, ro.Abandoned, ro.Error = trace.Cancelled, true, "abandoned: "+park.Message
	if err := store.PutPark(ctx, park, nil, ro); err != nil {
		return err
	}
	return tellRollouts(ctx, folder, store)
}

func find(ctx context.Context, store *trace.Store, id string) (*trace.Park, error) {
	park, err := store.Park(ctx, id)
	if !errors.Is(err, trace.ErrNotFound) {
		return park, err
	}
	all, err := store.Parks(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p *trace.Park) bool { return p.Status != trace.ParkWaiting })
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: there is no park %s, and none waits", ErrAnswer, id)
	}
	var ids []string
	for _, p := range all[:min(len(all), 10)] {
		ids = append(ids, p.ID)
	}
	return nil, fmt.Errorf("%w: there is no park %s; waiting: %s", ErrAnswer, id, strings.Join(ids, ", "))
}

// same compares two answers as JSON values.
func same(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return bytes.Equal(a, b)
	}
	p, err := chat.Marshal(x)
	q, err2 := chat.Marshal(y)
	return err == nil && err2 == nil && bytes.Equal(p, q)
}
