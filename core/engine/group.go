package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/penstock-dev/penstock/core/agent/workspace"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/model"
	sdkrollout "github.com/penstock-dev/penstock/sdk/rollout"
	sdkworkspace "github.com/penstock-dev/penstock/sdk/workspace"
)

// member is a sample that came to a stage which judges groups. Until its
// gathering is done, its rollout and its result belong to the first of them.
type member struct {
	*rollout
	res *trace.StageResult
	dir string // of its artifacts
}

func bySample(a, b *member) int { return cmp.Compare(a.state.Sample, b.state.Sample) }

// join takes a rollout to a stage that judges groups, and returns once the
// whole group is judged. It gives up its place in flight while it waits, so
// that more samples than may be in flight can come together.
func (r *rollout) join(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) error {
	m := &member{rollout: r, res: res}
	r.counted[s.ID] = true
	g := r.cohort.of(s.ID)
	r.pause()
	g.come(m)
	r.seat.leave()
	if err := g.wait(ctx, m); err != nil {
		return err
	}
	if g.came[0] == m {
		// It is alone with all members: the others wait until it is done.
		err := r.seat.take(ctx)
		if err == nil {
			err = judgeGroup(ctx, s, g.came)
		}
		g.finish(err)
		if err == nil {
			r.proceed()
		}
		return err
	}
	if r.state.Status != trace.Running {
		return nil // it failed there, and does nothing more
	}
	if err := r.seat.take(ctx); err != nil {
		return err
	}
	r.proceed()
	return nil
}

// judgeGroup judges the members of a group, and leaves the checkpoints of all
// of them in one transaction: after a crash the whole group has its verdicts, or
// is judged again.
func judgeGroup(ctx context.Context, s *pipeline.Stage, members []*member) error {
	if err := triesOfGroup(ctx, s, members); err != nil {
		return err
	}
	all := make([]trace.Checkpoint, len(members))
	for i, m := range members {
		m.judged[s.ID] = true
		m.clean(m.res)
		m.fails(s, m.res)
		m.clock()
		m.res.Ended = time.Now().UTC()
		all[i] = trace.Checkpoint{Result: m.res, Rollout: &m.state}
	}
	if err := members[0].Store.PutStages(context.WithoutCancel(ctx), all); err != nil {
		return err
	}
	for _, m := range members {
		m.stageEnded(s, m.res)
	}
	return nil
}

// triesOfGroup judges the members of a group until that needs no other try, or
// has none left.
func triesOfGroup(ctx context.Context, s *pipeline.Stage, members []*member) error {
	lead := members[0]
	used, err := lead.triesUsed(ctx, s, lead.res.Round)
	if err != nil {
		return err
	}
	started := time.Now().UTC()
	for _, m := range members {
		used = max(used, m.res.Try)
		m.res.Started = started
		m.Events.Emit(run.Event{Type: run.StageStarted, Rollout: m.state.ID, Stage: s.ID, Kind: stageKind(s)})
	}
	for n := 1; ; n++ {
		erred, err := tryGroup(ctx, s, members, used+n)
		if err != nil {
			return err
		}
		if erred == nil || n >= s.Retry.Attempts || !contains(s.Retry.On, judgeError) {
			return nil
		}
		if over, err := lead.spentUp(ctx, s, lead.res); err != nil || over {
			return err
		}
		for _, m := range erred {
			m.retried(s, m.res, n, judgeError)
		}
	}
}

// tryGroup runs one try of a group, and returns the members that the judge
// erred about. Their clocks go while it judges.
func tryGroup(ctx context.Context, s *pipeline.Stage, members []*member, try int) (erred []*member, err error) {
	lead := members[0]
	select {
	case lead.judging <- struct{}{}:
		defer func() { <-lead.judging }()
	case <-ctx.Done():
		return nil, errInterrupted
	}
	for _, m := range members {
		m.proceed()
		defer m.pause()
		res := m.res
		res.Try, res.Attempt = try, attempt(m.state.ID, s.ID, res.Round, try)
		res.Status, res.ExitStatus, res.Error, res.Output, res.Text = trace.Completed, "", "", nil, ""
		if m.dir, err = m.verdictDir(s, res); err != nil {
			return nil, err
		}
	}
	verdicts, failed := groupVerdicts(ctx, s, members)
	if ctx.Err() != nil && failed != nil {
		return nil, errInterrupted
	}
	for i, m := range members {
		var v judger.Verdict
		if failed == nil {
			v = verdicts[i]
		}
		if m.hear(m.dir, v, failed, m.res) != "" {
			erred = append(erred, m)
			continue
		}
		m.promise(s, m.res)
	}
	return erred, nil
}

// groupVerdicts asks the judger once. What it asks a model, and what that
// costs, is counted once: with the first of the rollouts.
func groupVerdicts(ctx context.Context, s *pipeline.Stage, members []*member) ([]judger.Verdict, error) {
	lead := members[0]
	judge, ok := lead.judgers[s.ID].(judger.GroupJudger)
	if !ok {
		return nil, fmt.Errorf("%s judges no groups", s.Uses())
	}
	input, err := lead.input(s)
	if err != nil {
		return nil, err
	}
	copied, err := os.MkdirTemp(lead.Folder.Path("work"), "judge.*")
	if err != nil {
		return nil, fmt.Errorf("copy workspaces: %w", err)
	}
	defer workspace.RemoveAll(copied)
	seen := make([]*sdkrollout.Data, len(members))
	for i, m := range members {
		dir := filepath.Join(copied, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, fmt.Errorf("copy workspaces: %w", err)
		}
		if seen[i], err = m.data(ctx, m.res.Attempt, filepath.Join(dir, "workspace")); err != nil {
			return nil, err
		}
	}
	used, err := lead.begin(ctx, s, lead.res)
	if err != nil {
		return nil, err
	}
	limit := used.limit(s)
	asked, session, err := lead.openJudge(ctx, s, lead.res, used, time.Now().Add(limit))
	if err != nil {
		return nil, err
	}
	request, err := chat.Marshal(struct {
		Input    json.RawMessage    `json:"input"`
		Task     json.RawMessage    `json:"task"`
		Rollouts []*sdkrollout.Data `json:"rollouts"`
		Session  *model.Session     `json:"session,omitempty"`
	}{input, lead.task.Data, seen, session})
	if err != nil {
		return nil, fmt.Errorf("encode judge request: %w", err)
	}
	judging, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	judging = sdkworkspace.WithRunner(judging, &judged{rollout: lead.rollout, stage: s, dir: copied})
	verdicts, err := judge.JudgeGroup(judging, judger.NewGroupRequest(doc.Bytes(request)))
	if err == nil && len(verdicts) != len(members) {
		err = fmt.Errorf("it gave %d verdicts for %d rollouts", len(verdicts), len(members))
	}
	cost := &judger.Verdict{}
	if err == nil {
		cost = &verdicts[0]
	}
	lead.closeJudge(ctx, s, asked, cost)
	return verdicts, late(judging, limit, err)
}

// passed notes that a rollout is through a stage. One that wasn't judged there
// never will be.
func (r *rollout) passed(s *pipeline.Stage) {
	if s.Group && !r.counted[s.ID] {
		r.counted[s.ID] = true
		r.cohort.of(s.ID).pass()
	}
}

// gone notes that a rollout goes no further in this part of the run: the groups
// that it did not come to are judged without it if it ended, and later if it
// may still come.
func (r *rollout) gone() {
	why := ""
	switch r.state.Status {
	case trace.Cancelled: // so is the run
		return
	case trace.Parked:
		why = fmt.Sprintf("%s is parked in stage %s", r.state.ID, r.state.Phase)
	case trace.Queued:
		why = r.waits
	}
	for _, s := range r.Pipeline.Stages {
		switch {
		case !s.Group || r.counted[s.ID]:
		case why == "":
			r.passed(s)
		default:
			r.cohort.of(s.ID).block(why)
		}
	}
}

// absent does for a rollout that doesn't run what passed and gone do for one
// that does: it ended, or was parked, in an earlier part of the run.
func (e *Engine) absent(ctx context.Context, c *cohort, old *trace.Rollout) error {
	if c == nil {
		return nil
	}
	through := map[string]bool{}
	if old.Status == trace.Parked {
		done, err := e.Store.Stages(context.WithoutCancel(ctx), old.ID)
		if err != nil {
			return err
		}
		for _, d := range done {
			through[d.Stage] = true
		}
	}
	for id, g := range c.groups {
		if old.Status == trace.Parked && !through[id] {
			g.block(fmt.Sprintf("%s is parked in stage %s", old.ID, old.Phase))
		} else {
			g.pass()
		}
	}
	return nil
}

// waitsError ends a rollout whose group can't come together before a person
// has answered; it goes on when the run is resumed.
type waitsError struct{ why string }

func (e *waitsError) Error() string { return "waits for its group: " + e.why }
