// Package rows turns the calls of a rollout into training rows: one row for
// each chain of calls whose token ids extend each other. What never enters:
// files, and the form of any trainer.
package rows

import (
	"context"
	"fmt"
	"iter"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/converter"
)

// ForRollout returns the rows of one rollout: those of the last try of each
// stage and round, in the order in which their sessions were opened. Each
// sampled token has mask 1 in one row at most.
func ForRollout(ctx context.Context, s *trace.Store, run string, r *trace.Rollout) ([]*converter.Row, error) {
	sessions, err := s.Sessions(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	var out []*converter.Row
	for _, session := range lastTries(sessions) {
		calls, err := s.Calls(ctx, session.ID)
		if err != nil {
			return nil, fmt.Errorf("rows of rollout %s: %w", r.ID, err)
		}
		b := newBuilder(run, r, session, calls)
		out = append(out, b.build()...)
	}
	return out, nil
}

// Selected gives the rows of all rollouts that are selected for a converter
// stage, in task and sample order. It holds one rollout at a time, and ends
// after an error.
func Selected(ctx context.Context, s *trace.Store, run, stage string) iter.Seq2[*converter.Row, error] {
	return func(yield func(*converter.Row, error) bool) {
		ids, err := s.Selected(ctx, stage)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, id := range ids {
			rows, err := rowsOf(ctx, s, run, id)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
		}
	}
}

func rowsOf(ctx context.Context, s *trace.Store, run, rollout string) ([]*converter.Row, error) {
	r, err := s.Rollout(ctx, rollout)
	if err != nil {
		return nil, err
	}
	return ForRollout(ctx, s, run, r)
}

// lastTries leaves out the sessions of tries that another try followed, and
// those of judges.
func lastTries(sessions []*trace.Session) []*trace.Session {
	type place struct {
		stage string
		round int
	}
	last := map[place]int{}
	for _, s := range sessions {
		at := place{s.Stage, s.Round}
		last[at] = max(last[at], s.Try)
	}
	var out []*trace.Session
	for _, s := range sessions {
		if s.Judge {
			continue // what a judge's model said is no one's to learn
		}
		if s.Try == last[place{s.Stage, s.Round}] {
			out = append(out, s)
		}
	}
	return out
}
