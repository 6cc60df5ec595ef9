package engine

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// judgeFunc is a judger as a function.
type judgeFunc func(context.Context, *judger.Request) (judger.Verdict, error)

func (f judgeFunc) Judge(ctx context.Context, r *judger.Request) (judger.Verdict, error) {
	return f(ctx, r)
}

func judging(name string, f judgeFunc) component.Component {
	return component.Component{
		Descriptor: component.Descriptor{Kind: component.Judger, Name: name, Protocol: component.Protocol, Output: judger.Output, Methods: []string{judger.MethodJudge}},
		Open:       func(context.Context, json.RawMessage) (any, error) { return f, nil },
	}
}

// brokenJudges are ways of a judge to give no score.
var brokenJudges = map[string]struct {
	judge judgeFunc
	want  string
}{
	"panics": {func(context.Context, *judger.Request) (judger.Verdict, error) { panic("no main thread") }, "judge_error: plugin judger/broken: judge: it panicked: no main thread"},
	"errs": {func(context.Context, *judger.Request) (judger.Verdict, error) {
		return judger.Verdict{}, errors.New("no signal")
	}, "judge_error: no signal"},
	"gives no score": {func(context.Context, *judger.Request) (judger.Verdict, error) {
		return judger.Verdict{Status: judger.Scored}, nil
	}, "judge_error: "},
	"gives NaN": {func(context.Context, *judger.Request) (judger.Verdict, error) { return judger.Reward(math.NaN()), nil }, "judge_error: "},
	"is late": {func(ctx context.Context, _ *judger.Request) (judger.Verdict, error) {
		<-ctx.Done()
		return judger.Verdict{}, ctx.Err()
	}, "judge_error: no verdict within 50ms"},
}

// TestA13EveryJudgeBroken: a judge that errs each time gives null each time and
// never 0, and the run is none that went well.
func TestA13EveryJudgeBroken(t *testing.T) {
	for name, c := range brokenJudges {
		t.Run(name, func(t *testing.T) {
			b := start(t, `penstock: v1
tasks: { inline: [{ id: a }, { id: b }, { id: c }, { id: d }] }
stages:
  - { id: math, uses: judger/broken, timeout: 50ms }
`, judging("broken", c.judge))
			totals := b.run()
			assert.Equal(t, 4, totals.Status[trace.Failed])
			assert.Zero(t, totals.Rewarded)
			assert.Nil(t, totals.RewardMean)
			for _, id := range []string{"a~0", "b~0", "c~0", "d~0"} {
				r := b.rollout(id)
				assert.Nil(t, r.Reward)
				assert.Equal(t, "math", r.Phase)
				assert.Contains(t, r.Error, "stage math: "+c.want)
			}
		})
	}
}

// TestSeed10aCase36JudgePolicies: what becomes of a rollout without a score is
// what the file says, and a reward over several judges is a number or null.
func TestSeed10aCase36JudgePolicies(t *testing.T) {
	tries := 0
	late := judging("late", func(context.Context, *judger.Request) (judger.Verdict, error) {
		if tries++; tries%3 != 0 {
			return judger.Verdict{}, errors.New("busy")
		}
		return judger.Reward(1), nil
	})
	for _, c := range []struct {
		name, with, reward, status string
		want                       any
	}{
		{"fail", "", "broken.output.reward ?? 0.5", trace.Failed, nil},
		{"a score of its own", "on_error: continue", "broken.output?.reward ?? 0.5", trace.Completed, 0.5},
		{"none", "on_error: continue", "broken.output?.reward", trace.Completed, nil},
		{"composed", "on_error: continue", "(broken.output?.reward ?? 0) * 0.5 + (size.output?.reward ?? 0) * 0.5", trace.Completed, 2.0},
		{"park", "on_error: park", "broken.output.reward", trace.Parked, nil},
	} {
		for kind, j := range brokenJudges {
			t.Run(c.name+" when it "+kind, func(t *testing.T) {
				b := start(t, strings.NewReplacer("WITH", c.with, "REWARD", c.reward).Replace(`penstock: v1
tasks: { inline: [{ id: a }] }
stages:
  - { id: broken, uses: judger/broken, timeout: 50ms, WITH }
  - { id: size, uses: judger/length, with: { text: four } }
reward: "${{ REWARD }}"
`), judging("broken", j.judge))
				b.run()
				r := b.rollout("a~0")
				assert.Equal(t, c.status, r.Status)
				if c.want == nil {
					assert.Nil(t, r.Reward)
				} else if assert.NotNil(t, r.Reward) {
					assert.Equal(t, c.want, *r.Reward)
				}
				assert.Contains(t, b.stage("a~0", "broken").Error, j.want)
			})
		}
	}
	b := start(t, `penstock: v1
tasks: { inline: [{ id: a }] }
stages:
  - { id: broken, uses: judger/late, retry: { attempts: 3, on: [judge_error] } }
`, late)
	b.run()
	assert.Equal(t, 1.0, *b.rollout("a~0").Reward)
	assert.Equal(t, 3, tries)
}

// frail is an invoker that panics where it is told to.
type frail struct{ say }

func (f frail) Plan(ctx context.Context, q *invoker.PlanRequest) (*invoker.Plan, error) {
	p, err := f.say.Plan(ctx, q)
	if p.Argv[2] == "plan" {
		panic("no plan")
	}
	return p, err
}

func (f frail) Result(ctx context.Context, q *invoker.ResultRequest) (*invoker.Result, error) {
	if q.Stdout == "result" {
		panic("no result")
	}
	return f.say.Result(ctx, q)
}

// TestL16OneThatPanicsStopsNoOther: what is built in fails its own stage, as what
// runs in a process of its own does.
func TestL16OneThatPanicsStopsNoOther(t *testing.T) {
	c := speaker()
	c.Name, c.Open = "frail", func(context.Context, json.RawMessage) (any, error) { return frail{}, nil }
	b := start(t, `penstock: v1
tasks: { inline: [{ id: a, say: plan }, { id: b, say: fine }, { id: c, say: result }, { id: d, say: good }] }
stages:
  - { id: solve, uses: invoker/frail, with: { prompt: "${{ task.say }}" } }
  - { id: size, uses: judger/length }
`, c)
	totals := b.run()
	assert.Equal(t, map[string]int{trace.Failed: 2, trace.Completed: 2}, totals.Status)
	for _, id := range []string{"a~0", "c~0"} {
		assert.Equal(t, invoker.InfraError, b.rollout(id).ExitStatus)
		assert.Regexp(t, "plugin invoker/frail: (plan|result): it panicked: no (plan|result)", b.rollout(id).Error)
	}
	assert.Equal(t, 4.0, *b.rollout("d~0").Reward)
}
