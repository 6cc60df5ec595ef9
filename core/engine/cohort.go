package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/penstock-dev/penstock/core/pipeline"
)

// cohort is all samples of a task, where stages judge them together.
type cohort struct{ groups map[string]*gathering } // by stage id

// newCohort is nil for a pipeline that judges no groups.
func newCohort(p *pipeline.Pipeline) *cohort {
	var c *cohort
	for _, s := range p.Stages {
		if !s.Group {
			continue
		}
		if c == nil {
			c = &cohort{groups: map[string]*gathering{}}
		}
		c.groups[s.ID] = &gathering{missing: p.Samples, full: make(chan struct{}), blocked: make(chan struct{}), done: make(chan struct{})}
	}
	return c
}

func (c *cohort) of(stage string) *gathering { return c.groups[stage] }

// gathering is where the samples of a task come together for one stage. Each
// of them comes, passes, or blocks it.
type gathering struct {
	mu      sync.Mutex
	missing int       // samples that neither came nor passed
	came    []*member // by sample, once full
	full    chan struct{}
	blocked chan struct{} // a sample may come, but not in this part of the run
	why     string        // of the block
	done    chan struct{} // after it err is set, and the members are their own again
	err     error
}

// come adds a sample that is to be judged.
func (g *gathering) come(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.came = append(g.came, m)
	g.fewer()
}

// pass notes that a sample won't be judged here.
func (g *gathering) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fewer()
}

// fewer is called with the lock held.
func (g *gathering) fewer() {
	if g.missing--; g.missing == 0 {
		slices.SortFunc(g.came, bySample)
		close(g.full)
	}
}

// block has those who wait stop waiting. The first to block says why.
func (g *gathering) block(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why == "" {
		g.why = why
		close(g.blocked)
	}
}

// wait returns when the group is complete: at once for its first member, which
// judges it, and after that for the others. An error says that the member goes
// no further.
func (g *gathering) wait(ctx context.Context, m *member) error {
	select {
	case <-g.full:
	case <-g.blocked:
		return &waitsError{g.why}
	case <-ctx.Done():
		if !g.withdraw() {
			return errInterrupted
		}
	}
	if g.came[0] != m {
		<-g.done
		return g.err
	}
	return nil
}

// withdraw is false when the group can't become full any more.
func (g *gathering) withdraw() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.full:
		return true
	default:
		g.missing++ // it came, and is missing again
		return false
	}
}

// finish lets the members go on, with an error or without.
func (g *gathering) finish(err error) {
	g.err = err
	close(g.done)
}

// seat is a rollout's place among those in flight.
type seat struct {
	slots chan struct{}
	taken bool
}

// take waits for a place. It fails only when ctx has ended.
func (s *seat) take(ctx context.Context) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	select {
	case s.slots <- struct{}{}:
		s.taken = true
		return nil
	case <-ctx.Done():
		return errInterrupted
	}
}

// leave gives the place up, if it was taken.
func (s *seat) leave() {
	if s.taken {
		<-s.slots
		s.taken = false
	}
}
