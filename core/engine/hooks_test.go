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

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// swap replaces text in the subject of a hook.
func swap(from, to string) hookFunc {
	return func(_ context.Context, e *hook.Event) (hook.Result, error) {
		subject := e.Subject().String("")
		if !strings.Contains(subject, from) {
			return hook.Pass(), nil
		}
		return hook.Result{Action: hook.Replace, Value: json.RawMessage(strings.ReplaceAll(subject, from, to))}, nil
	}
}

func deny(reason string) hookFunc {
	return func(context.Context, *hook.Event) (hook.Result, error) {
		return hook.Result{Action: hook.Deny, Reason: reason}, nil
	}
}

func fails(context.Context, *hook.Event) (hook.Result, error) {
	return hook.Result{}, errors.New("no idea")
}

const solo = `penstock: v1
tasks: { inline: [{ id: a, prompt: "two words" }] }
stages:
  - id: solve
    uses: invoker/say
    with: { prompt: "${{ task.prompt }}" }
    hooks: HOOKS
  - id: size
    uses: judger/length
`

// under is the pipeline with a list of hooks under its first stage.
func under(hooks string) string { return strings.ReplaceAll(solo, "HOOKS", hooks) }

// TestStageBeforeReplacesTheInput: hooks act in the file's order, the program
// gets what the last one made, and each change stands beside the original.
func TestStageBeforeReplacesTheInput(t *testing.T) {
	b := start(t, under("[hook/first, hook/second]"),
		changes("first", swap("two", "three"), "stage.before"), changes("second", swap("three", "seventeen"), "stage.before"))
	b.run()
	r := b.rollout("a~0")
	assert.Equal(t, trace.Completed, r.Status)
	assert.Equal(t, float64(len("seventeen words")), *r.Reward)
	s := b.stage("a~0", "solve")
	require.Len(t, s.Edits, 2)
	for i, want := range []struct{ hook, before, after string }{
		{"hook/first", "two words", "three words"}, {"hook/second", "three words", "seventeen words"},
	} {
		e := s.Edits[i]
		assert.Equal(t, want.hook, e.Hook)
		assert.Equal(t, "stage.before", e.Point)
		assert.Equal(t, "replace", e.Action)
		assert.JSONEq(t, `{"id":"solve","input":{"prompt":"`+want.before+`"}}`, string(e.Before))
		assert.JSONEq(t, `{"id":"solve","input":{"prompt":"`+want.after+`"}}`, string(e.After))
	}
}

// TestStageAfterReplacesTheOutput: later stages read what the hook made; a
// judge's reward can be changed as well.
func TestStageAfterReplacesTheOutput(t *testing.T) {
	text := strings.Replace(under("[hook/hide]"), "uses: judger/length\n", "uses: judger/length\n    hooks: [hook/halve]\n", 1)
	b := start(t, text, changes("hide", swap("two words", "four"), "stage.after"), changes("halve", swap(`"reward":4`, `"reward":2`), "stage.after"))
	b.run()
	assert.Equal(t, 2.0, *b.rollout("a~0").Reward)
	s := b.stage("a~0", "solve")
	assert.Equal(t, "four", field(t, s.Output, "text"))
	require.Len(t, s.Edits, 1)
	assert.Contains(t, string(s.Edits[0].Before), "two words")
	assert.Contains(t, string(b.stage("a~0", "size").Edits[0].Before), `"reward":4`)
}

func field(t *testing.T, raw json.RawMessage, name string) any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal(raw, &v))
	return v[name]
}

// TestStageEvent: what hooks are told of a stage and of its rollout.
func TestStageEvent(t *testing.T) {
	var mu sync.Mutex
	docs := map[string]string{}
	look := hookFunc(func(_ context.Context, e *hook.Event) (hook.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		s, r := e.Subject(), e.Rollout()
		docs[string(e.Point())+" "+s.String("id")] = fmt.Sprintf("%s %s|%s|%s %s %s|%s", s.String("status"), s.String("input"), s.String("/output/text"),
			e.Task().String("prompt"), r.ID(), r.String("attempt"), r.FinalText())
		assert.Empty(t, r.Workspace(), "the workspace is the stage's own")
		return hook.Pass(), nil
	})
	text := strings.Replace(under("[hook/look]"), "uses: judger/length\n", "uses: judger/length\n    hooks: [hook/look]\n", 1)
	b := start(t, text, changes("look", look, "stage.before", "stage.after"))
	b.run()
	assert.Equal(t, map[string]string{
		"stage.before solve": ` {"prompt":"two words"}||two words a~0 a~0~solve~1~1|`,
		"stage.after solve":  `completed |two words|two words a~0 a~0~solve~1~1|two words`,
		"stage.before size":  ` {}||two words a~0 a~0~size~1~1|two words`,
		"stage.after size":   `completed ||two words a~0 a~0~size~1~1|two words`,
	}, docs)
	assert.Empty(t, b.stage("a~0", "solve").Edits, "a hook that only continues leaves no edit")
}

// TestStageDenials: deny at each point fails the stage with the reason, no
// reward is null, and on_error: continue goes on without the output.
func TestStageDenials(t *testing.T) {
	ran := false
	judged := strings.Replace(under("[]"), "uses: judger/length\n", "uses: judger/length\n    hooks: [hook/no, hook/never]\n", 1)
	never := changes("never", func(context.Context, *hook.Event) (hook.Result, error) { ran = true; return hook.Pass(), nil }, "stage.before", "stage.after")
	for _, c := range []struct{ name, point, text, stage, error string }{
		{"before an agent", "stage.before", under("[hook/no, hook/never]"), "solve", "hook/no denied at stage.before: not this one"},
		{"after an agent", "stage.after", under("[hook/no]"), "solve", "hook/no denied at stage.after: not this one"},
		{"before a judge", "stage.before", judged, "size", "hook/no denied at stage.before: not this one"},
		{"after a judge", "stage.after", judged, "size", "hook/no denied at stage.after: not this one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := start(t, c.text, changes("no", deny("not this one"), c.point), never)
			totals := b.run()
			r, s := b.rollout("a~0"), b.stage("a~0", c.stage)
			assert.Equal(t, trace.Failed, r.Status)
			assert.Equal(t, c.stage, r.Phase)
			assert.Equal(t, "stage "+c.stage+": "+c.error, r.Error)
			assert.Nil(t, r.Reward)
			assert.Equal(t, 1, totals.Status[trace.Failed])
			assert.Nil(t, s.Output)
			last := s.Edits[len(s.Edits)-1]
			assert.Equal(t, "deny", last.Action)
			assert.Equal(t, "not this one", last.Reason)
			assert.NotEmpty(t, last.Before, "what was denied is kept")
			if c.point == "stage.before" {
				assert.False(t, ran, "a denial ends the list")
			}
		})
	}
	t.Run("on_error continue", func(t *testing.T) {
		b := start(t, under("[hook/no]\n    on_error: continue"), changes("no", deny("not this one"), "stage.after"))
		b.run()
		r := b.rollout("a~0")
		assert.Equal(t, trace.Completed, r.Status)
		assert.Equal(t, "failed", b.stage("a~0", "solve").Status)
	})
}

// TestStageHookErrors: closed is a denial and never a reward of 0; open goes on
// and says so.
func TestStageHookErrors(t *testing.T) {
	for _, point := range []string{"stage.before", "stage.after"} {
		t.Run(point+" closed", func(t *testing.T) {
			b := start(t, under("[hook/broken]"), changes("broken", fails, point))
			b.run()
			r := b.rollout("a~0")
			assert.Equal(t, trace.Failed, r.Status)
			assert.Nil(t, r.Reward)
			assert.Equal(t, "infra_error", r.ExitStatus)
			assert.Equal(t, "stage solve: hook/broken failed at "+point+": no idea", r.Error)
		})
		t.Run(point+" open", func(t *testing.T) {
			b := start(t, under("[{ uses: hook/broken, on_error: open }, hook/next]"), changes("broken", fails, point), changes("next", swap("two", "ten"), point))
			b.run()
			assert.Equal(t, trace.Completed, b.rollout("a~0").Status)
			edits := b.stage("a~0", "solve").Edits
			require.Len(t, edits, 2)
			assert.Equal(t, "no idea", edits[0].Error)
			assert.Equal(t, "replace", edits[1].Action)
			assert.Equal(t, []string{"hook/broken failed at " + point + " and is passed over, as its on_error is open: no idea"}, b.warnings())
		})
	}
}

// TestStageReplacementsAreChecked: what doesn't fit is an error of the hook.
func TestStageReplacementsAreChecked(t *testing.T) {
	to := func(value string) hookFunc {
		return func(context.Context, *hook.Event) (hook.Result, error) {
			return hook.Result{Action: hook.Replace, Value: json.RawMessage(value)}, nil
		}
	}
	ok := `{"text":"x","usage":{"input":0,"output":0},"cost":null,"exit_status":"ok"}`
	for _, c := range []struct{ name, point, value, want string }{
		{"another stage", "stage.before", `{"id":"size","input":{"prompt":"x"}}`, "a hook can't send a stage's input to another"},
		{"input of another kind", "stage.before", `{"id":"solve","input":{"prompt":7}}`, "/prompt"},
		{"unknown input", "stage.before", `{"id":"solve","input":{"prompt":"x","more":1}}`, "more"},
		{"unknown field", "stage.before", `{"id":"solve","input":{"prompt":"x"},"task":{}}`, `unknown field "task"`},
		{"no object", "stage.before", `"x"`, "cannot unmarshal"},
		{"another status", "stage.after", `{"id":"solve","status":"failed","output":` + ok + `}`, "a hook can fail a stage by denying"},
		{"another exit status", "stage.after", `{"id":"solve","status":"completed","output":` + strings.Replace(ok, `"ok"`, `"timeout"`, 1) + `}`, `exit_status is "timeout"`},
		{"no output", "stage.after", `{"id":"solve","status":"completed"}`, "it has no output"},
		{"output of another kind", "stage.after", `{"id":"solve","status":"completed","output":{"text":1}}`, "the output doesn't fit the schema of invoker/say"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := start(t, under("[hook/odd]"), changes("odd", to(c.value), c.point))
			b.run()
			r := b.rollout("a~0")
			assert.Equal(t, trace.Failed, r.Status)
			assert.Contains(t, r.Error, "replaces the "+c.point+" with something else")
			assert.Contains(t, r.Error, c.want)
		})
	}
}

// TestStageHooksSeeTheLastTry: a stage is shown once, however often it was
// tried, and a program's argv can be replaced.
func TestStageHooksSeeTheLastTry(t *testing.T) {
	calls := 0
	count := func(_ context.Context, e *hook.Event) (hook.Result, error) {
		calls++
		if e.Point() == hook.StageBefore {
			return swap("exit 3", "exit 4")(nil, e)
		}
		return hook.Pass(), nil
	}
	b := start(t, `penstock: v1
tasks: { inline: [{ id: a }] }
stages:
  - { id: check, run: [sh, -c, "exit 3"], hooks: [hook/count], retry: { attempts: 2, on: [agent_error] } }
`, changes("count", count, "stage.before", "stage.after"))
	b.run()
	assert.Equal(t, 2, calls)
	s := b.stage("a~0", "check")
	assert.Equal(t, 2, s.Try)
	assert.Equal(t, 4.0, field(t, s.Output, "exit_code"))
	assert.Equal(t, "failed", s.Status)
}

// TestStageObservers: they get copies after those who change, one that is too
// slow holds nothing up, and what it missed is counted.
func TestStageObservers(t *testing.T) {
	seen, release := make(chan string, 1000), make(chan struct{})
	watch := func(_ context.Context, e *hook.Event) (hook.Result, error) {
		seen <- string(e.Point()) + " " + e.Subject().String("/input/text")
		return hook.Result{Action: hook.Deny, Reason: "is not heard"}, nil
	}
	slow := func(context.Context, *hook.Event) (hook.Result, error) {
		<-release
		return hook.Pass(), nil
	}
	b := start(t, fmt.Sprintf(`penstock: v1
tasks: { inline: [{ id: a }], samples: %d }
stages:
  - { id: size, uses: judger/length, with: { text: two words }, hooks: [hook/watch, hook/slow, hook/change] }
`, watchQueue/2+10), observes("watch", watch, "stage.before", "stage.after"), observes("slow", slow, "stage.before", "stage.after"),
		changes("change", swap("two", "ten"), "stage.before"))
	totals := b.run()
	close(release)
	assert.Equal(t, totals.Rollouts, totals.Status[trace.Completed])
	assert.Equal(t, 20-1, totals.Dropped["hook/slow"], "one is with the hook, its queue is full, the rest is counted")
	assert.Equal(t, totals.Dropped, b.file.Totals.Dropped)
	select {
	case first := <-seen:
		assert.Equal(t, "stage.before ten words", first)
	case <-time.After(10 * time.Second):
		t.Fatal("the observer was not called")
	}
}

// TestStageEditsHoldNoSecret: what a hook said is redacted as all else.
func TestStageEditsHoldNoSecret(t *testing.T) {
	b := start(t, under("[hook/leak]"), changes("leak", swap("two words", "hunter2-hunter2"), "stage.before"))
	b.run()
	e := b.stage("a~0", "solve").Edits[0]
	assert.NotContains(t, string(e.After), "hunter2")
	assert.Contains(t, string(e.After), "[redacted:")
}

// TestStageHooksOfAnInterruptedRun leave no denial behind: resume goes on.
func TestStageHooksOfAnInterruptedRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	wait := func(ctx context.Context, _ *hook.Event) (hook.Result, error) {
		cancel()
		<-ctx.Done()
		return hook.Result{}, ctx.Err()
	}
	b := start(t, under("[hook/wait]"), changes("wait", wait, "stage.before"))
	_, err := b.engine.Run(ctx)
	require.NoError(t, err)
	assert.Equal(t, trace.Cancelled, b.rollout("a~0").Status)
	stages, err := b.store.Stages(t.Context(), "a~0")
	require.NoError(t, err)
	assert.Empty(t, stages)
}

// TestTheMeanOfLargeRewards is no sum on its way to a mean.
func TestTheMeanOfLargeRewards(t *testing.T) {
	text := strings.Replace(under("[]"), `[{ id: a, prompt: "two words" }]`, `[{ id: a, prompt: "two words" }, { id: b, prompt: "more" }]`, 1) + "reward: \"${{ 1.5e308 }}\"\n"
	totals := start(t, text).run()
	require.NotNil(t, totals.RewardMean)
	assert.InEpsilon(t, 1.5e308, *totals.RewardMean, 1e-9)
}
