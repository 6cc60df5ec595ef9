package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/agent/workspace"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
	sdkrollout "github.com/penstock-dev/penstock/sdk/rollout"
)

// rollout is one task x one sample on its way through the stages.
type rollout struct {
	*Engine
	task  pipeline.Task
	state trace.Rollout
	// env is what expressions see; results are the checkpoints behind it.
	env     pipeline.Env
	results map[string]*trace.StageResult
	first   bool                         // no earlier part of the run had it
	inputs  map[string]json.RawMessage   // by stage id: what hooks put in place of its input, for one pass
	done    map[visit]*trace.StageResult // by an earlier part of the run
	visits  map[string]int               // of each stage so far
	where   place                        // of the innermost loop
	stopped stopped                      // the last loop that could not go on
	broke   bool                         // the stage's output is not what it promised
	repair  string                       // what the stage's next try is told of the one before
	exit    string                       // why the last agent ended so, if not ok
	order   []string                     // invoker stages that ran, the last one gives the final text
	ws      *agent.Workspace
	cohort  *cohort         // the task's samples; nil where no stage judges them together
	counted map[string]bool // stages with scope group that it came to, or never will
	judged  map[string]bool // those of them that it has a verdict of
	waits   string          // why its group can't come together, if it waits for that
	seat    *seat           // among the rollouts in flight
	replay  string          // the id of the replay, if it is only judged again
	wentOn  string          // in a replay: the snapshot of the workspace by who went on in it
	// replayed is when the replay began.
	replayed time.Time
	// made gives what judges see of a rollout that never ran, its workspace
	// copied to dir.
	made      func(dir string) (*sdkrollout.Data, error)
	begun     time.Time // when its clock was set going; zero while that stands still
	ranBefore float64   // seconds before that
}

// newRollout returns nil for a rollout that an earlier part of the run ended.
func newRollout(e *Engine, t pipeline.Task, sample int, earlier map[string]*trace.Rollout) *rollout {
	old := earlier[rolloutID(t, sample)]
	if old == nil {
		r := fresh(e, t, sample)
		r.first = true
		return r
	}
	if old.Status == trace.Completed || old.Status == trace.Failed || old.Status == trace.Parked || old.Abandoned {
		return nil
	}
	r := fresh(e, t, sample)
	r.state = *old
	return r
}

// fresh is a rollout that nothing is known of.
func fresh(e *Engine, t pipeline.Task, sample int) *rollout {
	r := &rollout{
		Engine: e, task: t, results: map[string]*trace.StageResult{}, inputs: map[string]json.RawMessage{},
		done: map[visit]*trace.StageResult{}, visits: map[string]int{}, counted: map[string]bool{}, judged: map[string]bool{},
	}
	r.state = trace.Rollout{ID: rolloutID(t, sample), Task: t.ID, Sample: sample}
	r.env = pipeline.Env{
		Task:    t.Data,
		Rollout: pipeline.RolloutEnv{ID: r.state.ID, Sample: sample, Status: trace.Running},
		Run:     pipeline.RunEnv{ID: e.Folder.ID, Dir: e.Folder.Dir},
		Stages:  map[string]pipeline.StageEnv{},
	}
	return r
}

func rolloutID(t pipeline.Task, sample int) string { return fmt.Sprintf("%s~%d", t.ID, sample) }

// errInterrupted ends a rollout that the run's end interrupted; resume goes on
// with it.
var errInterrupted = errors.New("interrupted")

// run takes the rollout through its stages. Its error is one of penstock, such
// as a store that can't be written; everything else is in the state.
func (r *rollout) run(ctx context.Context) error {
	if r.state.Started.IsZero() {
		r.state.Started = time.Now().UTC()
	}
	r.begun, r.ranBefore = time.Now(), r.state.Seconds
	r.state.Status, r.state.ExitStatus, r.state.Error, r.state.Ended = trace.Running, "", "", time.Time{}
	// The store is written also while the run is being interrupted.
	store := context.WithoutCancel(ctx)
	if err := r.restore(store); err != nil {
		return err
	}
	if err := r.Store.PutRollout(store, &r.state); err != nil {
		return err
	}
	r.Events.Emit(run.Event{Type: run.RolloutStarted, Rollout: r.state.ID})
	_, err := r.walk(ctx, r.Pipeline.Stages)
	var waits *waitsError
	switch {
	case errors.As(err, &waits):
		r.state.Status, r.state.Error, r.waits = trace.Queued, waits.Error(), waits.why
	case errors.Is(err, errInterrupted):
		r.state.Status, r.state.ExitStatus = trace.Cancelled, "cancelled"
	case err != nil:
		return err
	case r.state.Status == trace.Running:
		r.state.Status, r.state.Phase = trace.Completed, ""
		r.setReward()
	}
	return r.finish(store)
}

func (r *rollout) finish(ctx context.Context) error {
	r.clock()
	r.state.Ended = time.Now().UTC()
	r.state.Error = r.Redact.String(r.state.Error)
	if err := r.Store.PutRollout(ctx, &r.state); err != nil {
		return err
	}
	if err := r.dropWorkspace(); err != nil {
		r.warn("", fmt.Sprintf("workspace could not be removed: %v", err))
	}
	if err := r.cleanWorkspace(); err != nil {
		r.warn("", fmt.Sprintf("secrets may be left in the workspace that is kept: %v", err))
	}
	usage, message := r.state.Usage, ""
	if r.state.Status == trace.Completed {
		message = r.exit
	}
	r.Events.Emit(run.Event{
		Type: run.RolloutEnded, Rollout: r.state.ID, Stage: r.state.Phase, Status: r.state.Status,
		ExitStatus: r.state.ExitStatus, Error: r.state.Error, Message: message, Reward: r.state.Reward, Usage: &usage,
		Seconds: r.state.Seconds,
	})
	return nil
}

func (r *rollout) warn(stage, message string) {
	r.Events.Emit(run.Event{Type: run.Warned, Rollout: r.state.ID, Stage: stage, Message: message})
}

// restore reads the checkpoints of an earlier part of the run.
func (r *rollout) restore(ctx context.Context) error {
	if r.first {
		return nil
	}
	done, err := r.Store.Stages(ctx, r.state.ID)
	if err != nil {
		return err
	}
	for _, s := range done {
		r.done[visit{s.Stage, s.Round}] = s
	}
	return nil
}

// take makes a stage's result visible to the stages after it.
func (r *rollout) take(s *pipeline.Stage, res *trace.StageResult) {
	r.results[s.ID] = res
	r.env.Stages[s.ID] = pipeline.StageEnv{Status: res.Status, ExitStatus: res.ExitStatus, Error: res.Error, Output: res.Output}
	if s.Kind == "invoker" && res.Status != "skipped" {
		r.order = append(r.order, s.ID)
	}
	r.exited(s, res)
}

// exited notes how the last agent ended.
func (r *rollout) exited(s *pipeline.Stage, res *trace.StageResult) {
	if s.Kind == "invoker" && res.Status != "skipped" {
		r.state.ExitStatus, r.exit = res.ExitStatus, res.Error
	}
}

// step runs one stage: its condition, its tries, its events.
func (r *rollout) step(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) error {
	res.Started = time.Now().UTC()
	defer func() { res.Ended = time.Now().UTC() }()
	if !r.wanted(s, res) {
		return nil
	}
	if s.Group {
		return r.join(ctx, s, res)
	}
	r.Events.Emit(run.Event{Type: run.StageStarted, Rollout: r.state.ID, Stage: s.ID, Kind: stageKind(s)})
	if err := r.hooked(ctx, s, res); err != nil {
		return err
	}
	if r.state.Status != trace.Running {
		return nil // it failed, or was parked, in a loop's body
	}
	r.stageEnded(s, res)
	return nil
}

// wanted evaluates a stage's condition. A stage that doesn't run has its result.
func (r *rollout) wanted(s *pipeline.Stage, res *trace.StageResult) bool {
	if s.If == nil {
		return true
	}
	ok, err := s.If.Bool(r.env)
	switch {
	case err != nil:
		res.Status, res.Error = trace.Failed, fmt.Sprintf("if: %v", err)
	case !ok:
		res.Status = "skipped"
		r.Events.Emit(run.Event{Type: run.StageEnded, Rollout: r.state.ID, Stage: s.ID, Kind: stageKind(s), Status: res.Status})
	}
	return err == nil && ok
}

// stageEnded tells of a stage that ran.
func (r *rollout) stageEnded(s *pipeline.Stage, res *trace.StageResult) {
	reward, label := given(s, res)
	r.Events.Emit(run.Event{
		Type: run.StageEnded, Rollout: r.state.ID, Stage: s.ID, Kind: stageKind(s), Attempt: res.Attempt, Session: res.Session,
		Status: res.Status, ExitStatus: res.ExitStatus, Error: res.Error, Seconds: time.Since(res.Started).Seconds(), Reward: reward, Label: label,
	})
}

// hooked runs a stage between its hooks.
func (r *rollout) hooked(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) error {
	if len(r.hooks[s.ID]) == 0 {
		return r.try(ctx, s, res)
	}
	used, err := r.triesUsed(ctx, s, res.Round)
	if err != nil {
		return err
	}
	res.Attempt = attempt(r.state.ID, s.ID, res.Round, used+1)
	defer delete(r.inputs, s.ID)
	if ok, err := r.before(ctx, s, res); err != nil || !ok {
		return err
	}
	if err := r.try(ctx, s, res); err != nil {
		return err
	}
	return r.after(ctx, s, res)
}

func attempt(rollout, stage string, round, try int) string {
	return fmt.Sprintf("%s~%s~%d~%d", rollout, stage, round, try)
}

// given is what a judge gave.
func given(s *pipeline.Stage, res *trace.StageResult) (reward *float64, label string) {
	if s.Kind != "judger" || res.Output == nil {
		return nil, ""
	}
	var v judger.Verdict
	if json.Unmarshal(res.Output, &v) != nil {
		return nil, ""
	}
	return v.Reward, v.Label
}

// try runs a stage until it needs no other try, or has none left.
func (r *rollout) try(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) error {
	used, err := r.triesUsed(ctx, s, res.Round)
	if err != nil {
		return err
	}
	used = max(used, res.Try)
	repairs := s.Repair
	r.repair = ""
	for n := 1; ; n++ {
		res.Try = used + n
		res.Attempt = attempt(r.state.ID, s.ID, res.Round, res.Try)
		res.Status, res.ExitStatus, res.Error, res.Output, res.Text = trace.Completed, "", "", nil, ""
		r.broke = false
		why, err := r.once(ctx, s, res)
		if err != nil {
			return err
		}
		if ctx.Err() != nil && cutShort(why) {
			return errInterrupted
		}
		broken := r.promise(s, res)
		repair := broken != nil && repairs > 0
		if !repair && (n >= s.Retry.Attempts || !contains(s.Retry.On, why)) {
			return nil
		}
		if over, err := r.spentUp(ctx, s, res); err != nil || over {
			return err
		}
		if repair {
			repairs--
			used++
			n--
			r.repair = broken.Error()
			r.Events.Emit(run.Event{
				Type: run.StageRetried, Rollout: r.state.ID, Stage: s.ID, Kind: stageKind(s), Attempt: res.Attempt, Reason: contract, Error: res.Error,
				Message: fmt.Sprintf("the answer could not be used; the agent is told why, %d of %d times", s.Repair-repairs, s.Repair),
			})
			continue
		}
		r.retried(s, res, n, why)
	}
}

// retried tells of a try that another one follows.
func (r *rollout) retried(s *pipeline.Stage, res *trace.StageResult, n int, why string) {
	r.Events.Emit(run.Event{
		Type: run.StageRetried, Rollout: r.state.ID, Stage: s.ID, Kind: stageKind(s), Attempt: res.Attempt,
		ExitStatus: why, Error: res.Error, Message: fmt.Sprintf("try %d of %d ended with %s, which retry.on names", n, s.Retry.Attempts, why),
	})
}

// cutShort says that a try may have ended so because the run was interrupted:
// an agent, a judge or a server that is told to end fails in ways of its own.
func cutShort(why string) bool {
	return !slices.Contains([]string{"", invoker.OK, invoker.Budget, "timeout", invoker.MaxTurns}, why)
}

// promise fails a try whose output is not what its stage promises, and says
// what is wrong with it.
func (r *rollout) promise(s *pipeline.Stage, res *trace.StageResult) error {
	if res.Status != trace.Completed || res.Output == nil || s.Loop != nil {
		return nil
	}
	if unanswered(s, res) {
		res.Status, res.Error, res.Output = trace.Failed, res.ExitStatus+": "+res.Error, nil
		return nil
	}
	renamed, err := keep(s, res)
	for _, old := range renamed {
		r.warn(s.ID, fmt.Sprintf("it wrote '%s', which output.compat takes for '%s'", old, s.Compat[old]))
	}
	if err != nil {
		r.broke = true
		res.Status, res.Error = trace.Failed, contract+": "+err.Error()
		// Nothing of it is taken; what it was stands beside the error.
		if res.Text == "" {
			res.Text = string(res.Output)
		}
		res.Output = nil
	}
	return err
}

// triesUsed counts the tries of a stage that an earlier part of the run made,
// so that ids of attempts never repeat.
func (r *rollout) triesUsed(ctx context.Context, s *pipeline.Stage, round int) (int, error) {
	if s.Model == "" || r.first {
		return 0, nil
	}
	old, err := r.Store.Sessions(context.WithoutCancel(ctx), r.state.ID)
	if err != nil {
		return 0, err
	}
	used := 0
	for _, o := range old {
		if o.Stage == s.ID && o.Round == round && o.Try > used {
			used = o.Try
		}
	}
	return used, nil
}

// once runs one try. It returns what retry.on is compared with: an exit
// status or judge_error.
func (r *rollout) once(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) (string, error) {
	switch s.Kind {
	case "invoker":
		return r.spawn(ctx, s, res)
	case pipeline.KindRun:
		return r.program(ctx, s, res)
	case "judger":
		return r.judge(ctx, s, res)
	case pipeline.KindLoop:
		return "", r.loop(ctx, s, res)
	case "converter":
		return "", r.Store.Select(context.WithoutCancel(ctx), s.ID, r.state.ID)
	}
	return "", fmt.Errorf("stage %s: a %s is no stage", s.ID, s.Kind)
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return s != ""
		}
	}
	return false
}

// stageKind is the stage's kind in the words of events and graphs.
func stageKind(s *pipeline.Stage) string {
	switch s.Kind {
	case "invoker", pipeline.KindRun:
		return "spawn"
	case "judger":
		return "judge"
	case pipeline.KindLoop:
		return pipeline.KindLoop
	}
	return "convert"
}

// workspace returns the rollout's workspace, made at first use. One that an
// earlier part of the run left is taken up again.
func (r *rollout) workspace() (*agent.Workspace, error) {
	if r.ws != nil {
		return r.ws, nil
	}
	from, err := r.Pipeline.Workspace.FromDir(r.env)
	if err != nil {
		return nil, fmt.Errorf("workspace: from: %w", err)
	}
	r.ws, err = agent.NewWorkspace(agent.WorkspaceOptions{Dir: r.Folder.Work(r.state.ID), From: from})
	return r.ws, err
}

// place makes the workspace as it was before the stage's first try, and the
// home and the artifacts' folder of this try.
func (r *rollout) place(stage string, res *trace.StageResult) (home, artifacts string, err error) {
	ws, err := r.workspace()
	if err != nil {
		return "", "", err
	}
	before := snapshotOf(stage, res.Round)
	if ws.HasSnapshot(before) {
		err = ws.Restore(before)
	} else {
		err = ws.Snapshot(before)
	}
	if err != nil {
		return "", "", err
	}
	if home, err = ws.NewHome(fmt.Sprintf("%s.%d", before, res.Try)); err != nil {
		return "", "", err
	}
	artifacts, err = r.Folder.Artifacts(r.state.ID, stage, res.Round, res.Try)
	return home, artifacts, err
}

// snapshotOf is the name of the workspace as it was before a stage's round.
func snapshotOf(stage string, round int) string { return fmt.Sprintf("%s.%d", stage, round) }

// goesOn says of a status that the rollout may go on in a later part of the run.
func goesOn(status string) bool {
	return status == trace.Cancelled || status == trace.Parked || status == trace.Queued
}

// dropWorkspace removes the workspace as `workspace: keep` says.
func (r *rollout) dropWorkspace() error {
	switch keep := r.Pipeline.Workspace.Keep; {
	case keep == "always", goesOn(r.state.Status):
		return nil
	case keep != "never" && r.state.Status != trace.Completed:
		return nil
	}
	return workspace.RemoveAll(r.Folder.Work(r.state.ID))
}
