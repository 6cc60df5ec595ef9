package engine

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream/cost"
)

// A stage's budget holds over all of its tries in one pass: those that failed,
// those whose answer could not be used, and those that an earlier part of the
// run made. What they used is read from the store, so that neither a retry nor
// a resume begins with a fresh budget. Each pass of a loop has its own.

// used is what tries of a stage have used of its budget.
type used struct {
	gateway.Budget
	wall time.Duration
}

// usedOf reads what the tries of a stage have used so far in one pass.
func (r *rollout) usedOf(ctx context.Context, s *pipeline.Stage, round int) (used, error) {
	var u used
	if s.Model == "" {
		t := r.state.Tried[pass(s, round)]
		u.USD, u.wall = t.USD, time.Duration(t.Seconds*float64(time.Second))
		return u, nil
	}
	if s.Budget == (pipeline.Budget{}) {
		return u, nil
	}
	since := r.replayed // what the run itself used is no part of a replay
	ctx = context.WithoutCancel(ctx)
	sessions, err := r.Store.Sessions(ctx, r.state.ID)
	if err != nil {
		return u, err
	}
	for _, o := range sessions {
		if o.Stage != s.ID || o.Round != round || o.Opened.Before(since) {
			continue
		}
		calls, err := r.Store.Calls(ctx, o.ID)
		if err != nil {
			return u, err
		}
		u.add(o, calls)
	}
	return u, nil
}

// pass names one pass of a stage.
func pass(s *pipeline.Stage, round int) string { return s.ID + "/" + strconv.Itoa(round) }

// tried keeps what a try of a stage used that asks no model through the
// gateway, so that it has no session to read it from.
func (r *rollout) tried(ctx context.Context, s *pipeline.Stage, round int, took time.Duration, usd float64) error {
	if s.Model != "" || s.Budget == (pipeline.Budget{}) && !s.Direct {
		return nil
	}
	if r.state.Tried == nil {
		r.state.Tried = map[string]trace.Tried{}
	}
	t := r.state.Tried[pass(s, round)]
	t.Seconds += took.Seconds()
	t.USD += usd
	r.state.Tried[pass(s, round)] = t
	return r.Store.PutRollout(context.WithoutCancel(ctx), &r.state)
}

// add adds what one try used.
func (u *used) add(s *trace.Session, calls []*trace.Call) {
	end := s.Closed
	for _, c := range calls {
		if s.Closed.IsZero() && c.Done.After(end) {
			end = c.Done // penstock was killed; what came later isn't known
		}
		if c.CostBasis == "" {
			continue // it didn't reach the upstream
		}
		u.Calls++
		if c.Kind == trace.Main {
			u.Turns++
		}
		u.Tokens += c.Usage.Input + c.Usage.Output
		u.USD += cost.Read(c.Cost, c.CostBasis).USD + c.Held
	}
	if end.After(s.Opened) {
		u.wall += end.Sub(s.Opened)
	}
}

// over says which part of a budget is used up, "" while none is.
func (u *used) over(b pipeline.Budget) string {
	switch {
	case b.Calls > 0 && u.Calls >= b.Calls:
		return fmt.Sprintf("%d of %d calls", u.Calls, b.Calls)
	case b.Turns > 0 && u.Turns >= b.Turns:
		return fmt.Sprintf("%d of %d turns", u.Turns, b.Turns)
	case b.Tokens > 0 && u.Tokens >= b.Tokens:
		return fmt.Sprintf("%d of %d tokens", u.Tokens, b.Tokens)
	case b.USD > 0 && u.USD >= b.USD:
		return fmt.Sprintf("%.4f of %g USD", u.USD, b.USD)
	case b.Wall > 0 && u.wall >= b.Wall:
		return fmt.Sprintf("%s of %s", u.wall.Round(time.Millisecond), b.Wall)
	}
	return ""
}

// begin is what a try begins with. It is an error where nothing is left: no
// agent ran then whose work could be graded.
func (r *rollout) begin(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) (used, error) {
	u, err := r.usedOf(ctx, s, res.Round)
	if err != nil {
		return u, err
	}
	if what := u.over(s.Budget); what != "" {
		return u, fmt.Errorf("earlier tries used up the stage's budget: %s", what)
	}
	return u, nil
}

// spentUp says whether a stage has no budget left for another try, and tells
// of it: what the last try left is then the stage's result.
func (r *rollout) spentUp(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) (bool, error) {
	u, err := r.usedOf(ctx, s, res.Round)
	if err != nil {
		return false, err
	}
	what := u.over(s.Budget)
	if what != "" {
		r.warn(s.ID, fmt.Sprintf("it is not tried again: its tries used up the stage's budget: %s", what))
	}
	return what != "", nil
}

// budgetOf is a stage's budget as its sessions have it.
func budgetOf(s *pipeline.Stage) gateway.Budget {
	return gateway.Budget{Calls: s.Budget.Calls, Turns: s.Budget.Turns, Tokens: s.Budget.Tokens, USD: s.Budget.USD}
}

// limit is how long a try of a stage may take: its timeout, or what is left of
// its budget of wall time where that is shorter.
func (u *used) limit(s *pipeline.Stage) time.Duration {
	if w := s.Budget.Wall; w > 0 && w-u.wall < s.Timeout {
		return w - u.wall
	}
	return s.Timeout
}
