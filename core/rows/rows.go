// Package rows turns the calls of a rollout into training rows: one row for
// each chain of calls whose token ids extend each other. What never enters:
// files, and the form of any trainer.
package rows

import (
	"context"
	"iter"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/converter"
)

// ForRollout returns the rows of one rollout.
func ForRollout(ctx context.Context, s *trace.Store, run string, r *trace.Rollout) ([]*converter.Row, error) {
	return nil, nil
}

// Selected gives the rows of all rollouts that are selected for a converter
// stage, in task and sample order.
func Selected(ctx context.Context, s *trace.Store, run, stage string) iter.Seq2[*converter.Row, error] {
	return func(yield func(*converter.Row, error) bool) {}
}
