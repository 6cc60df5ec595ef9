package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// ReplayOptions choose what is judged again.
type ReplayOptions struct {
	Tasks []string // none is all of them
	// Tell is called with what each rollout came to, when it is stored, in the
	// order of the tasks and one call at a time.
	Tell func(*Judgement) error
}

// Judgement is what judging a rollout again came to. Without Replays it was not
// judged, and Why says why not.
type Judgement struct {
	Rollout     string
	Replays     []*trace.Replay
	Why         string
	NoWorkspace bool // the run kept none that a judge could look into
}

// CheckReplay says why the judgers of p can't judge what a run has, whose stages
// have these kinds: they come after stages that the run doesn't have.
func CheckReplay(p *pipeline.Pipeline, kinds map[string]string, stages []string) (err error) {
	judges := map[string]bool{}
	p.Each(func(s *pipeline.Stage) {
		switch {
		case s.Kind == component.Judger:
			judges[s.ID] = true
		case s.Kind != component.Converter && kinds[s.ID] != s.Kind && err == nil:
			err = fmt.Errorf("%s: stage %s: the run has no %s of this id, and no agent or program is run again; the run has: %s",
				p.Path, s.ID, s.Kind, names(kinds))
		}
	})
	switch {
	case err != nil:
		return err
	case len(judges) == 0:
		return fmt.Errorf("%s: no stage of it judges", p.Path)
	}
	for _, id := range stages {
		if !judges[id] {
			return fmt.Errorf("--stage: %s has no judger stage %s; it has: %s", p.Path, id, names(judges))
		}
	}
	return nil
}

func names[V any](of map[string]V) string {
	text := ""
	for i, n := range slices.Sorted(maps.Keys(of)) {
		if i > 0 {
			text += ", "
		}
		text += n
	}
	return text
}

// Replay judges what the store has of each rollout again, and stores what that
// came to beside it, under an id of its own. Agents and programs are not run
// again; nothing that is there is changed.
func (e *Engine) Replay(ctx context.Context, id string, o ReplayOptions) error {
	all, err := e.Store.Rollouts(ctx)
	if err != nil {
		return err
	}
	byTask := map[string][]*trace.Rollout{}
	for _, r := range all {
		byTask[r.Task] = append(byTask[r.Task], r)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	slots := make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	told := inTurn{tell: o.Tell}
	for _, t := range e.Pipeline.Tasks {
		if len(o.Tasks) > 0 && !slices.Contains(o.Tasks, t.ID) {
			continue
		}
		slots <- struct{}{}
		turn := told.next()
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			judged, err := e.replayTask(ctx, id, t, byTask[t.ID])
			if err == nil {
				err = told.of(turn, judged)
			}
			if err != nil {
				stop(fmt.Errorf("task %s: %w", t.ID, err))
			}
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return ctx.Err()
}

// inTurn tells of tasks in the order in which they began, whichever is done
// first.
type inTurn struct {
	tell func(*Judgement) error

	mu    sync.Mutex
	begun int
	due   int                  // whose turn it is
	early map[int][]*Judgement // that are done before their turn
}

func (o *inTurn) next() int {
	o.begun++
	return o.begun - 1
}

func (o *inTurn) of(turn int, judged []*Judgement) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.early == nil {
		o.early = map[int][]*Judgement{}
	}
	o.early[turn] = judged
	for {
		ready, ok := o.early[o.due]
		if !ok {
			return nil
		}
		delete(o.early, o.due)
		o.due++
		for _, j := range ready {
			if err := o.tell(j); err != nil {
				return err
			}
		}
	}
}

// replayed is a rollout that is judged again.
type replayed struct {
	*rollout
	stored  map[visit]*trace.StageResult
	steps   [][]step // for each stage of the pipeline what it had the rollout do
	out     *Judgement
	stopped bool // it got no further than this
}

// replayTask judges the samples of a task again, stage by stage: those of a
// group together, all else of each sample on its own.
func (e *Engine) replayTask(ctx context.Context, id string, t pipeline.Task, samples []*trace.Rollout) ([]*Judgement, error) {
	var all []*replayed
	for _, old := range samples {
		a, err := e.restored(ctx, id, t, old)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	for i, s := range e.Pipeline.Stages {
		var err error
		if s.Group && e.judges(s) {
			err = groupAgain(ctx, s, i, all)
		} else {
			err = atOnce(all, func(a *replayed) error { return a.through(ctx, i) })
		}
		if err != nil {
			return nil, err
		}
	}
	var out []*Judgement
	for _, a := range all {
		if err := a.end(ctx); err != nil {
			return nil, err
		}
		out = append(out, a.out)
	}
	return out, nil
}

func atOnce(all []*replayed, f func(*replayed) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, a := range all {
		wg.Go(func() { errs[i] = f(a) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// restored is a rollout as the store has it, before its first stage.
func (e *Engine) restored(ctx context.Context, id string, t pipeline.Task, old *trace.Rollout) (*replayed, error) {
	r := fresh(e, t, old.Sample)
	r.state, r.replay, r.replayed = *old, id, time.Now()
	r.state.Status, r.state.Error, r.state.Reward, r.state.Components = trace.Running, "", nil, nil
	a := &replayed{rollout: r, stored: map[visit]*trace.StageResult{}, out: &Judgement{Rollout: old.ID}}
	done, err := e.Store.Stages(ctx, old.ID)
	if err != nil {
		return nil, err
	}
	for _, d := range done {
		a.stored[visit{d.Stage, d.Round}] = d
	}
	for _, s := range e.Pipeline.Stages {
		of, err := a.walked(nil, s)
		if err != nil {
			return nil, err
		}
		a.steps = append(a.steps, of)
	}
	return a, nil
}

// through takes the rollout through what the i-th stage had it do, and judges in
// the stages that are chosen.
func (a *replayed) through(ctx context.Context, i int) error {
	for n, st := range a.steps[i] {
		switch {
		case a.stopped:
			return nil
		case !a.judges(st.stage):
			a.pass(st)
			continue
		}
		res := a.anew(st, a.worksNext(i, n))
		if err := a.step(ctx, st.stage, res); err != nil {
			return err
		}
		a.noted(st, res)
	}
	return nil
}

// groupAgain has the i-th stage judge those samples together that came to it.
func groupAgain(ctx context.Context, s *pipeline.Stage, i int, all []*replayed) error {
	var came []*replayed
	var results []*trace.StageResult
	var group []*member
	for _, a := range all {
		if a.stopped {
			continue
		}
		res := a.anew(a.steps[i][0], a.worksNext(i, 0))
		came, results = append(came, a), append(results, res)
		if a.wanted(s, res) {
			group = append(group, &member{rollout: a.rollout, res: res})
		}
	}
	if len(group) > 0 {
		slices.SortFunc(group, bySample)
		if err := triesOfGroup(ctx, s, group); err != nil {
			return err
		}
	}
	for n, a := range came {
		a.noted(a.steps[i][0], results[n])
	}
	return nil
}

// anew is the result of a step that is judged again, before it is. Next is the
// snapshot of the workspace by those who went on in it, if any did.
func (a *replayed) anew(st step, next string) *trace.StageResult {
	res := &trace.StageResult{Rollout: a.state.ID, Stage: st.stage.ID, Round: st.visit.round}
	if was := a.stored[st.visit]; was != nil {
		res.Try = was.Try
	}
	a.wentOn = next
	a.out.NoWorkspace = a.out.NoWorkspace || a.worked() && !a.kept()
	return res
}

// pass takes over what the store has of a step. Where the rollout ended in it,
// it goes no further here either.
func (a *replayed) pass(st step) {
	s, res := st.stage, a.stored[st.visit]
	switch {
	case s.Kind == component.Converter || s.Loop != nil && res == nil:
	case res == nil && s.Kind == component.Judger: // of another pipeline
	case res == nil:
		a.stopped, a.out.Why = true, "it didn't get to stage "+s.ID
	case res.Status == trace.Parked, res.Status == trace.Failed && s.OnError != pipeline.OnErrorContinue && !(s.Loop != nil && jumps(s.Loop.Else)):
		a.stopped, a.out.Why = true, fmt.Sprintf("it %s in stage %s", res.Status, s.ID)
	default:
		a.take(s, res)
	}
}

// kept says whether the run kept the rollout's workspace.
func (r *rollout) kept() bool {
	_, err := os.Stat(r.Folder.Work(r.state.ID))
	return err == nil
}

// then is the snapshot of the workspace as it was when the judge of a replay
// saw it, "" where that is the workspace itself.
func (r *rollout) then(ws *agent.Workspace) string {
	if r.wentOn != "" && ws.HasSnapshot(r.wentOn) {
		return r.wentOn
	}
	return ""
}

// noted keeps what a stage came to beside what the run has of it.
func (a *replayed) noted(st step, res *trace.StageResult) {
	s := st.stage
	a.clean(res)
	n := &trace.Replay{
		ID: a.replay, Rollout: a.state.ID, Task: a.state.Task, Stage: s.ID, Round: res.Round, Uses: s.Uses(), Attempt: res.Attempt,
		Session: res.Session, Now: res.Output, Error: res.Error, Time: time.Now().UTC(),
	}
	if was := a.stored[st.visit]; was != nil {
		n.Was, n.WasError = was.Output, was.Error
	}
	n.Same = alike(n.Was, n.Now) && (n.WasError == "") == (n.Error == "")
	a.out.Replays = append(a.out.Replays, n)
	a.fails(s, res)
	if res.Status == trace.Failed && s.OnError == pipeline.OnErrorPark {
		a.state.Status = trace.Failed // nobody is asked
	}
	a.take(s, res)
	a.stopped = a.state.Status != trace.Running
}

// end works the reward out and stores what was judged.
func (a *replayed) end(ctx context.Context) error {
	if len(a.out.Replays) == 0 {
		return nil
	}
	old, err := a.Store.Rollout(ctx, a.state.ID)
	if err != nil {
		return err
	}
	n := &trace.Replay{ID: a.replay, Rollout: a.state.ID, Task: a.state.Task, Time: time.Now().UTC()}
	if !a.stopped {
		a.setReward()
	}
	if n.Was, err = chat.Marshal(map[string]*float64{"reward": old.Reward}); err != nil {
		return fmt.Errorf("encode reward: %w", err)
	}
	if n.Now, err = chat.Marshal(map[string]*float64{"reward": a.state.Reward}); err != nil {
		return fmt.Errorf("encode reward: %w", err)
	}
	n.Same = alike(n.Was, n.Now)
	n.Error = a.Redact.String(a.state.Error)
	a.out.Replays = append(a.out.Replays, n)
	return a.Store.PutReplays(context.WithoutCancel(ctx), a.out.Replays)
}

// alike says whether two verdicts are worth the same: their rewards, labels and
// components are. What they say about it may differ each time.
func alike(a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	var x, y judger.Verdict
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return same(a, b)
	}
	equal := x.Reward == nil && y.Reward == nil || x.Reward != nil && y.Reward != nil && *x.Reward == *y.Reward
	return equal && x.Label == y.Label && x.Status == y.Status && x.Tampered == y.Tampered && maps.Equal(x.Components, y.Components)
}

// NewReplayID makes the id of a replay.
func NewReplayID() string { return run.NewID("j") }
