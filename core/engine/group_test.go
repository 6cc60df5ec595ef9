package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// crowd is judger/crowd, which judges groups with a function and notes what it
// was shown.
type crowd struct {
	mu    sync.Mutex
	calls []string // the final texts of each call, in order
	judge func(call int, r *judger.GroupRequest) ([]judger.Verdict, error)
}

func (c *crowd) component() component.Component {
	type input struct {
		Note string `json:"note,omitempty"`
	}
	return component.Component{
		Descriptor: component.Descriptor{Kind: component.Judger, Name: "crowd", Protocol: component.Protocol, Input: schema.Of[input](),
			Output: judger.Output, Methods: []string{judger.MethodJudgeGroup}},
		Open: func(context.Context, json.RawMessage) (any, error) { return c, nil },
	}
}

func (c *crowd) Judge(context.Context, *judger.Request) (judger.Verdict, error) {
	return judger.Verdict{}, errors.New("it judges groups")
}

// JudgeGroup rewards each by its place, unless the test says otherwise.
func (c *crowd) JudgeGroup(_ context.Context, r *judger.GroupRequest) ([]judger.Verdict, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var texts []string
	for _, o := range r.Rollouts() {
		texts = append(texts, o.FinalText())
	}
	c.calls = append(c.calls, strings.TrimSpace(r.Input().String("note")+" "+strings.Join(texts, ",")))
	if c.judge != nil {
		return c.judge(len(c.calls), r)
	}
	return byPlace(r), nil
}

func byPlace(r *judger.GroupRequest) (out []judger.Verdict) {
	for i := range r.Rollouts() {
		v := judger.Reward(float64(i + 1))
		v.Components = map[string]float64{"of": float64(len(r.Rollouts()))}
		out = append(out, v)
	}
	return out
}

const groupFile = `penstock: v1
tasks: { inline: [{ id: a, note: n }, { id: b, note: n }], samples: 3 }
concurrency: { rollouts: 1 }
stages:
  - { id: solve, uses: invoker/say, with: { prompt: "${{ rollout.id }}" } }
  - { id: rank, uses: judger/crowd, scope: group, with: { note: "${{ task.note }}" } }
  - { id: rows, uses: converter/list }
`

func reward(r *trace.Rollout) any {
	if r.Reward == nil {
		return nil
	}
	return *r.Reward
}

// rewards are those of a task's samples, in their order.
func (b *bench) rewards(task string, n int) (out []any) {
	b.Helper()
	for i := range n {
		out = append(out, reward(b.rollout(fmt.Sprintf("%s~%d", task, i))))
	}
	return out
}

func (b *bench) count(typ, stage string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Type == typ && e.Stage == stage {
			n++
		}
	}
	return n
}

// TestGroupIsJudgedOnce: a judger with scope group is called once for each task
// with all of its samples, in order, also when fewer may be in flight; each
// rollout has its own verdict.
func TestGroupIsJudgedOnce(t *testing.T) {
	c := &crowd{}
	b := start(t, groupFile, c.component())
	totals := b.run()
	assert.Equal(t, 6, totals.Status[trace.Completed])
	assert.ElementsMatch(t, []string{"n a~0,a~1,a~2", "n b~0,b~1,b~2"}, c.calls)
	for _, task := range []string{"a", "b"} {
		assert.Equal(t, []any{1., 2., 3.}, b.rewards(task, 3))
	}
	assert.Equal(t, map[string]float64{"rank": 2, "rank.of": 3}, b.rollout("b~1").Components)
	assert.Equal(t, 6, b.count(run.StageStarted, "rank"))
	assert.Equal(t, 6, b.count(run.StageEnded, "rank"))
	assert.FileExists(t, b.folder.Path("artifacts", "b~2", "rank", "1.1", "verdict.json"))
	assert.Equal(t, "a~2~rank~1~1", b.stage("a~2", "rank").Attempt)

	assert.Equal(t, totals.Status, b.run().Status)
	assert.Len(t, c.calls, 2, "what was judged is not judged again")
}

// TestWaitingTakesNoTime: neither the wait for a group nor that for a judge who
// is busy with others is time that a rollout took.
func TestWaitingTakesNoTime(t *testing.T) {
	c := &crowd{}
	b := start(t, `penstock: v1
tasks: { inline: [{ id: a }], samples: 3 }
concurrency: { rollouts: 3 }
stages:
  - { id: solve, run: [sleep, "${{ rollout.sample == 2 ? '3' : '0' }}"] }
  - { id: rank, uses: judger/crowd, scope: group }
`, c.component())
	assert.Equal(t, map[string]int{trace.Completed: 3}, b.run().Status)
	slow := b.rollout("a~2").Seconds
	assert.Greater(t, slow, 3.0)
	for _, id := range []string{"a~0", "a~1"} {
		assert.Less(t, b.rollout(id).Seconds, slow-1.5, id)
	}

	slowly := component.Component{
		Descriptor: component.Descriptor{Kind: component.Judger, Name: "slowly", Protocol: component.Protocol, Output: judger.Output},
		Open: func(context.Context, json.RawMessage) (any, error) {
			return judgerFunc(func(*judger.Request) (judger.Verdict, error) {
				time.Sleep(500 * time.Millisecond)
				return judger.Reward(1), nil
			}), nil
		},
	}
	b = start(t, `penstock: v1
tasks: { inline: [{ id: a }], samples: 4 }
concurrency: { rollouts: 4, judge: 1 }
stages:
  - { id: solve, run: ["true"] }
  - { id: judge, uses: judger/slowly }
`, slowly)
	began := time.Now()
	b.run()
	sum := 0.0
	for i := range 4 {
		sum += b.rollout(fmt.Sprintf("a~%d", i)).Seconds
		s := b.stage(fmt.Sprintf("a~%d", i), "judge")
		sum += s.Ended.Sub(s.Started).Seconds()
	}
	assert.Less(t, sum, 2*1.75*time.Since(began).Seconds(), "one after the other, not each with the time of those before")
}

// TestGroupWithoutThoseWhoFailed: a sample that failed earlier has no reward
// and is not among those that are judged; one that skips the stage goes on
// without a verdict.
func TestGroupWithoutThoseWhoFailed(t *testing.T) {
	c := &crowd{}
	b := start(t, `penstock: v1
tasks: { inline: [{ id: a }], samples: 4 }
stages:
  - { id: solve, uses: invoker/say, with: { prompt: "${{ rollout.id }}" } }
  - { id: check, run: [sh, -c, "exit ${{ rollout.sample == 1 ? 1 : 0 }}"] }
  - { id: rank, uses: judger/crowd, scope: group, if: "${{ rollout.sample != 2 }}" }
  - { id: again, uses: judger/crowd, scope: group }
reward: "${{ rank.output?.reward }}"
`, c.component())
	totals := b.run()
	assert.Equal(t, map[string]int{trace.Completed: 3, trace.Failed: 1}, totals.Status)
	assert.Equal(t, []string{"a~0,a~3", "a~0,a~2,a~3"}, c.calls)
	assert.Equal(t, []any{1., nil, nil, 2.}, b.rewards("a", 4))
	assert.Equal(t, "skipped", b.stage("a~2", "rank").Status)
}

// TestGroupOfNobody: where no sample gets to the stage, nothing is judged.
func TestGroupOfNobody(t *testing.T) {
	c := &crowd{}
	b := start(t, strings.Replace(groupFile, "  - { id: rank", "  - { id: check, run: [\"false\"] }\n  - { id: rank", 1), c.component())
	assert.Equal(t, map[string]int{trace.Failed: 6}, b.run().Status)
	assert.Empty(t, c.calls)
}

// TestGroupJudgeErrs: an error of the judge fails its stage in every rollout of
// the group, one verdict's error that rollout alone; neither is a reward of 0,
// and retry tries the whole group again.
func TestGroupJudgeErrs(t *testing.T) {
	one := func(_ int, r *judger.GroupRequest) ([]judger.Verdict, error) {
		out := byPlace(r)
		out[1] = judger.Verdict{Status: judger.JudgeError, Explanation: "can't tell"}
		return out, nil
	}
	for _, c := range []struct {
		name, more string
		judge      func(int, *judger.GroupRequest) ([]judger.Verdict, error)
		calls      int
		rewards    []any
		status     map[string]int
		words      string
	}{
		{"all", "", func(int, *judger.GroupRequest) ([]judger.Verdict, error) { return nil, errors.New("no") }, 1,
			[]any{nil, nil, nil}, map[string]int{trace.Failed: 3}, "judge_error: no"},
		{"too few", "", func(_ int, r *judger.GroupRequest) ([]judger.Verdict, error) { return byPlace(r)[:2], nil }, 1,
			[]any{nil, nil, nil}, map[string]int{trace.Failed: 3}, "it gave 2 verdicts for 3 rollouts"},
		{"one", "", one, 1, []any{1., nil, 3.}, map[string]int{trace.Failed: 1, trace.Completed: 2}, "judge_error: can't tell"},
		{"one goes on", ", on_error: continue", one, 1, []any{1., nil, 3.}, map[string]int{trace.Completed: 3}, "judge_error: can't tell"},
		{"tried again", ", retry: { attempts: 3 }", func(call int, r *judger.GroupRequest) ([]judger.Verdict, error) {
			if call == 1 {
				return one(call, r)
			}
			return byPlace(r), nil
		}, 2, []any{1., 2., 3.}, map[string]int{trace.Completed: 3}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			judge := &crowd{judge: c.judge}
			text := strings.Replace(groupFile, ", { id: b, note: n }", "", 1)
			text = strings.Replace(text, "scope: group", "scope: group"+c.more, 1)
			if strings.Contains(c.more, "continue") {
				text += "reward: \"${{ rank.output?.reward }}\"\n"
			}
			b := start(t, text, judge.component())
			assert.Equal(t, c.status, b.run().Status)
			assert.Len(t, judge.calls, c.calls)
			assert.Equal(t, c.rewards, b.rewards("a", 3))
			assert.Contains(t, b.stage("a~1", "rank").Error, c.words)
			assert.Equal(t, c.calls, b.stage("a~1", "rank").Try)
		})
	}
}

// TestGroupWaitsForTheParked: while a sample is parked, its group is not
// judged; the others wait, and say for whom. Once it was answered, the group is
// judged with all of them, and without it when it was given up.
func TestGroupWaitsForTheParked(t *testing.T) {
	for _, answer := range []bool{true, false} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			c := &crowd{}
			b := start(t, `penstock: v1
tasks: { inline: [{ id: a }], samples: 3 }
workspace: { keep: never }
stages:
  - { id: solve, uses: invoker/say, with: { prompt: "${{ rollout.id }}" } }
  - { id: check, run: [sh, -c, "exit ${{ rollout.sample == 1 ? 1 : 0 }}"], on_error: park }
  - { id: rank, uses: judger/crowd, scope: group, if: "${{ rollout.sample != 2 }}" }
  - { id: again, uses: judger/crowd, scope: group }
reward: "${{ again.output.reward }}"
`, c.component())
			assert.Equal(t, map[string]int{trace.Parked: 1, trace.Queued: 2}, b.run().Status)
			assert.Empty(t, c.calls)
			assert.Equal(t, "waits for its group: a~1 is parked in stage check", b.rollout("a~0").Error)
			assert.Equal(t, "rank", b.rollout("a~0").Phase)
			assert.Equal(t, "again", b.rollout("a~2").Phase)
			assert.DirExists(t, b.folder.Work("a~0"))
			assert.Equal(t, map[string]int{trace.Parked: 1, trace.Queued: 2}, b.run().Status, "resumed without an answer")
			assert.Empty(t, c.calls)

			parks, err := b.store.Parks(t.Context())
			require.NoError(t, err)
			require.Len(t, parks, 1)
			if answer {
				a := Answer{Park: parks[0].ID, Output: json.RawMessage(`{"exit_code":0,"text":"fine"}`)}
				require.NoError(t, Reply(t.Context(), b.store, b.engine.Pipeline, a))
				assert.Equal(t, map[string]int{trace.Completed: 3}, b.run().Status)
				assert.Equal(t, []string{"a~0,a~1", "a~0,a~1,a~2"}, c.calls)
				assert.Equal(t, []any{1., 2., 3.}, b.rewards("a", 3))
			} else {
				require.NoError(t, Abandon(t.Context(), b.folder, b.store, parks[0].ID))
				assert.Equal(t, map[string]int{trace.Completed: 2, run.Abandoned: 1}, b.run().Status)
				assert.Equal(t, []string{"a~0", "a~0,a~2"}, c.calls)
				assert.Equal(t, []any{1., nil, 2.}, b.rewards("a", 3))
			}
			assert.Empty(t, b.rollout("a~0").Error)
			assert.NoDirExists(t, b.folder.Work("a~0"))
		})
	}
}

// TestGroupOverAnInterrupt: a run that ends while samples wait, or while they
// are judged, goes on with them; no sample has half a verdict.
func TestGroupOverAnInterrupt(t *testing.T) {
	for _, name := range []string{"waiting", "judging"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := &crowd{judge: func(call int, r *judger.GroupRequest) ([]judger.Verdict, error) {
				if name == "judging" && call == 1 {
					cancel()
					return nil, context.Canceled
				}
				return byPlace(r), nil
			}}
			stop := component.Component{
				Descriptor: component.Descriptor{Kind: component.Judger, Name: "stop", Protocol: component.Protocol, Output: judger.Output},
				Open: func(context.Context, json.RawMessage) (any, error) {
					return judgerFunc(func(r *judger.Request) (judger.Verdict, error) {
						if name == "waiting" && r.Rollout().Sample() == 2 && ctx.Err() == nil {
							cancel()
							return judger.Verdict{}, context.Canceled
						}
						return judger.Skip("nothing"), nil
					}), nil
				},
			}
			b := start(t, `penstock: v1
tasks: { inline: [{ id: a }], samples: 3 }
concurrency: { rollouts: 1 }
stages:
  - { id: solve, uses: invoker/say, with: { prompt: "${{ rollout.id }}" } }
  - { id: stop, uses: judger/stop }
  - { id: rank, uses: judger/crowd, scope: group }
reward: "${{ rank.output.reward }}"
`, c.component(), stop)
			totals, err := b.engine.Run(ctx)
			require.NoError(t, err)
			assert.Equal(t, map[string]int{trace.Cancelled: 3}, totals.Status)
			assert.Equal(t, map[string]int{trace.Completed: 3}, b.run().Status)
			assert.Equal(t, []any{1., 2., 3.}, b.rewards("a", 3))
			assert.Equal(t, "a~0,a~1,a~2", c.calls[len(c.calls)-1])
		})
	}
}

type judgerFunc func(r *judger.Request) (judger.Verdict, error)

func (f judgerFunc) Judge(_ context.Context, r *judger.Request) (judger.Verdict, error) { return f(r) }
