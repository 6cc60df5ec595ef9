package pool

import (
	"context"
	"errors"
	"log/slog"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/cost"
)

// Failover is a list of upstreams, of which each stands in for the one before
// it.
type Failover struct {
	list []upstream.Upstream
	log  *slog.Logger
}

// NewFailover makes one upstream of a list, which it closes in the end. All of
// them have to render in the same place: either here or by themselves.
func NewFailover(log *slog.Logger, list ...upstream.Upstream) (*Failover, error) {
	if len(list) == 0 {
		return nil, errors.New("a failover list needs an upstream")
	}
	first := upstream.InfoOf(list[0])
	for _, u := range list[1:] {
		if i := upstream.InfoOf(u); i.Parses != first.Parses {
			return nil, errors.New(i.Server + " can't stand in for " + first.Server + ": one of them renders and parses by itself, the other doesn't")
		}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Failover{list, log}, nil
}

// Kind implements upstream.Upstream.
func (f *Failover) Kind() string { return f.list[0].Kind() }

// Info implements upstream.Describer: the first one's, with what any of them
// refuses, the shortest context and the dearest prices. Another one that gets a raw request of a
// dialect that it doesn't speak replies in Deltas alone.
func (f *Failover) Info() upstream.Info {
	info := upstream.InfoOf(f.list[0])
	has := map[upstream.Refusal]bool{}
	info.Refuses = nil
	for _, u := range f.list {
		i := upstream.InfoOf(u)
		if i.Context > 0 && (info.Context == 0 || i.Context < info.Context) {
			info.Context = i.Context
		}
		info.Prices = cost.Dearest(info.Prices, i.Prices)
		for _, r := range i.Refuses {
			if !has[r] {
				has[r] = true
				info.Refuses = append(info.Refuses, r)
			}
		}
	}
	return info
}

// Count implements upstream.Counter, by the first one.
func (f *Failover) Count(ctx context.Context, r *upstream.Request) (int, error) {
	return count(ctx, f.list[0], r)
}

// Close closes all of them.
func (f *Failover) Close() error {
	var errs []error
	for _, u := range f.list {
		errs = append(errs, u.Close())
	}
	return errors.Join(errs...)
}

// Generate implements upstream.Upstream: the first one that takes the request.
// One that can't have run it is passed over; any other error is final. One that
// can't honour what a raw request needs is not asked.
func (f *Failover) Generate(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
	list := f.able(r)
	for i, u := range list {
		s, err := u.Generate(ctx, r)
		if err == nil {
			return &answered{s, u}, nil
		}
		if _, notRun := upstream.NotRun(err); !notRun || i == len(list)-1 || ctx.Err() != nil {
			return nil, err
		}
		f.log.WarnContext(ctx, "an upstream is passed over", "server", upstream.InfoOf(u).Server, "next", upstream.InfoOf(list[i+1]).Server, "error", err)
	}
	return nil, errors.New("a failover list needs an upstream")
}

// able are the upstreams that can do all that a request needs: the first one,
// and of the others, where that is a matter of its dialect, those that speak it.
func (f *Failover) able(r *upstream.Request) []upstream.Upstream {
	if r.Raw == nil || len(r.Raw.Needs) == 0 {
		return f.list
	}
	out := []upstream.Upstream{f.list[0]}
	for _, u := range f.list[1:] {
		if upstream.InfoOf(u).Dialect == r.Raw.Dialect {
			out = append(out, u)
		}
	}
	return out
}

// answered is a stream that says who gives it.
type answered struct {
	upstream.Stream
	by upstream.Upstream
}

// By implements upstream.Answered.
func (a *answered) By() upstream.Upstream { return a.by }
