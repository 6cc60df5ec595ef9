// Package pool makes one upstream of several: replicas of a server, among
// which a session keeps to one so that its turns meet a warm cache, and lists
// of servers that stand in for each other. It bounds how many generations run
// on each at once, and tries again where a request can't have run: where no
// connection came about, or the server refused with 429, 503 or 529. Once a
// reply has begun nothing is tried again.
//
// What never enters: any server's protocol.
package pool

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/cost"
)

// Options bound a pool. Zero values get their defaults.
type Options struct {
	Concurrency int           // generations at once on each replica; 0 is no bound
	Tries       int           // of one request, the first included; default 5
	Backoff     time.Duration // the first wait, doubled at each round; default 500 ms
	MaxBackoff  time.Duration // default 15 s
	// MaxWait is the longest Retry-After that is waited for; a server that
	// wants more has its refusal passed on. Default 60 s.
	MaxWait time.Duration
	Prices  *cost.Prices // of each replica; nil where they aren't known
	Log     *slog.Logger
}

// Pool is several replicas as one upstream.
type Pool struct {
	o        Options
	replicas []*replica
	turn     atomic.Uint64 // of requests without an affinity key
}

type replica struct {
	u     upstream.Upstream
	name  string
	slots chan struct{} // nil for no bound
}

// New makes a pool of replicas, at least one, which it closes in the end.
func New(o Options, replicas ...upstream.Upstream) (*Pool, error) {
	if len(replicas) == 0 {
		return nil, errors.New("a pool needs an upstream")
	}
	if o.Tries <= 0 {
		o.Tries = 5
	}
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&o.Backoff, 500 * time.Millisecond}, {&o.MaxBackoff, 15 * time.Second}, {&o.MaxWait, time.Minute}} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pool{o: o}
	for _, u := range replicas {
		r := &replica{u: u, name: upstream.InfoOf(u).Server}
		if o.Concurrency > 0 {
			r.slots = make(chan struct{}, o.Concurrency)
		}
		p.replicas = append(p.replicas, r)
	}
	return p, nil
}

// Kind implements upstream.Upstream.
func (p *Pool) Kind() string { return p.replicas[0].u.Kind() }

// Info implements upstream.Describer: the first replica's, with the shortest
// context of all, as replicas are taken to be alike.
func (p *Pool) Info() upstream.Info {
	info := upstream.InfoOf(p.replicas[0].u)
	info.Prices = p.o.Prices
	for _, r := range p.replicas[1:] {
		if n := upstream.InfoOf(r.u).Context; n > 0 && (info.Context == 0 || n < info.Context) {
			info.Context = n
		}
	}
	return info
}

// Close closes the replicas.
func (p *Pool) Close() error {
	var errs []error
	for _, r := range p.replicas {
		errs = append(errs, r.u.Close())
	}
	return errors.Join(errs...)
}

// Count implements upstream.Counter.
func (p *Pool) Count(ctx context.Context, r *upstream.Request) (int, error) {
	return count(ctx, p.order(r.AffinityKey)[0].u, r)
}

func count(ctx context.Context, u upstream.Upstream, r *upstream.Request) (int, error) {
	if c, ok := u.(upstream.Counter); ok {
		return c.Count(ctx, r)
	}
	return 0, upstream.ErrNoCount
}

// order is in which order replicas are asked for a key: the same at each time,
// and hardly another one when a replica comes or goes (rendezvous hashing).
func (p *Pool) order(key string) []*replica {
	out := slices.Clone(p.replicas)
	if len(out) == 1 {
		return out
	}
	if key == "" {
		n := int(p.turn.Add(1)-1) % len(out)
		return append(out[n:], out[:n]...)
	}
	weight := make(map[*replica]uint64, len(out))
	for i, r := range out {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s\x00%s\x00%d", key, r.name, p.twin(i))
		weight[r] = mix(h.Sum64())
	}
	slices.SortStableFunc(out, func(a, b *replica) int {
		switch {
		case weight[a] > weight[b]:
			return -1
		case weight[a] < weight[b]:
			return 1
		}
		return 0
	})
	return out
}

// twin tells replicas of one name apart.
func (p *Pool) twin(i int) (n int) {
	for _, r := range p.replicas[:i] {
		if r.name == p.replicas[i].name {
			n++
		}
	}
	return n
}

// mix spreads a hash over all its bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Generate implements upstream.Upstream. When all tries are used up the error
// is that of the last one.
func (p *Pool) Generate(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
	order := p.order(r.AffinityKey)
	soonest := time.Duration(-1) // when a replica of this round wants to be asked again
	for try := 0; ; try++ {
		at := order[try%len(order)]
		s, err := at.generate(ctx, r)
		if err == nil {
			return s, nil
		}
		after, again := upstream.NotRun(err)
		if !again || try+1 >= p.o.Tries || ctx.Err() != nil {
			return nil, err
		}
		if soonest < 0 || after < soonest {
			soonest = after
		}
		p.o.Log.WarnContext(ctx, "a request is tried again", "server", at.name, "try", try+1, "after", after, "error", err)
		if (try+1)%len(order) != 0 {
			continue // another replica may take it at once
		}
		if soonest > p.o.MaxWait {
			return nil, err
		}
		if err := wait(ctx, max(soonest, p.backoff(try/len(order)))); err != nil {
			return nil, err
		}
		soonest = -1
	}
}

// backoff is the wait after a round, a random half of it taken off.
func (p *Pool) backoff(round int) time.Duration {
	d := p.o.MaxBackoff
	if round < 30 {
		d = min(d, p.o.Backoff<<round)
	}
	return d/2 + rand.N(d/2+1)
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// generate asks a replica once it has a slot, which the stream gives back.
func (r *replica) generate(ctx context.Context, q *upstream.Request) (upstream.Stream, error) {
	if r.slots == nil {
		return r.u.Generate(ctx, q)
	}
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s, err := r.u.Generate(ctx, q)
	if err != nil {
		<-r.slots
		return nil, err
	}
	return &held{s: s, free: sync.OnceFunc(func() { <-r.slots })}, nil
}

// held is a stream that holds a slot until it is over.
type held struct {
	s    upstream.Stream
	free func()
}

func (h *held) Next() (upstream.Chunk, error) {
	c, err := h.s.Next()
	if err != nil || c.Finish != (upstream.Finish{}) {
		h.free()
	}
	return c, err
}

func (h *held) Close() error {
	err := h.s.Close()
	h.free()
	return err
}
