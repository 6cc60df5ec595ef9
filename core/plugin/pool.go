package plugin

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock-dev/penstock/sdk/format"
)

// pool holds the instances of a module that were given one config: at most
// one for each processor for calls that stand alone, made as they are needed,
// and as many again for streams, which stay with their instance.
type pool struct {
	wasm  *wasm
	input []byte // of configure
	idle  chan *guest
	made  chan struct{} // a token for each instance there is

	solo chan struct{} // held during a call while the module is on probation

	mu      sync.Mutex
	streams []*host
	closed  bool
	failed  time.Time // when an instance was last thrown away
}

// probation is how long a module of which an instance failed runs one call at
// a time, so that one that loops on every call takes one processor at most.
const probation = 10 * time.Second

// host is an instance that holds streams.
type host struct {
	guest *guest
	turn  chan struct{} // held during a call
	open  int           // streams, under the pool's lock
	dead  error         // under turn
}

func newPool(w *wasm, input []byte) *pool {
	n := max(1, runtime.GOMAXPROCS(0))
	return &pool{wasm: w, input: input, idle: make(chan *guest, n), made: make(chan struct{}, n), solo: make(chan struct{}, 1)}
}

// call calls a method on an instance that is idle, or on a new one.
func (p *pool) call(ctx context.Context, method string, in []byte) ([]byte, error) {
	done, err := p.begin(ctx, method)
	if err != nil {
		return nil, err
	}
	defer done()
	g, err := p.acquire(ctx, method)
	if err != nil {
		return nil, err
	}
	out, err := p.run(ctx, g, method, in)
	if fatal(err) || g.worn() {
		g.close()
		<-p.made
	} else {
		p.release(g)
	}
	return out, err
}

// begin waits for the module's only turn while it is on probation. Whatever
// runs in an instance takes it: calls that stand alone, those of streams, and
// the making of an instance.
func (p *pool) begin(ctx context.Context, method string) (done func(), err error) {
	if !p.onProbation() {
		return func() {}, nil
	}
	select {
	case p.solo <- struct{}{}:
		return func() { <-p.solo }, nil
	case <-ctx.Done():
		return nil, p.cancelled(ctx, method)
	}
}

// run calls a method on an instance. One that ends the instance puts the
// module on probation.
func (p *pool) run(ctx context.Context, g *guest, method string, in []byte) ([]byte, error) {
	out, err := g.run(ctx, method, in)
	if fatal(err) {
		p.fault()
	}
	return out, err
}

func (p *pool) acquire(ctx context.Context, method string) (*guest, error) {
	if ctx.Err() != nil {
		return nil, p.cancelled(ctx, method)
	}
	select {
	case g := <-p.idle:
		return g, nil
	default:
	}
	select {
	case g := <-p.idle:
		return g, nil
	case p.made <- struct{}{}:
		g, err := p.make(ctx)
		if err != nil {
			<-p.made
		}
		return g, err
	case <-ctx.Done():
		return nil, p.cancelled(ctx, method)
	}
}

func (p *pool) cancelled(ctx context.Context, method string) error {
	return &Error{Plugin: p.wasm.key, Method: method, Reason: Cancelled, Message: ctx.Err().Error(), Cause: ctx.Err()}
}

func (p *pool) fault() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = time.Now()
}

func (p *pool) onProbation() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.failed.IsZero() && time.Since(p.failed) < probation
}

func (p *pool) release(g *guest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		g.close()
		return
	}
	p.idle <- g // it has room for all that are made
}

// make makes an instance and gives it the config.
func (p *pool) make(ctx context.Context) (*guest, error) {
	g, err := p.wasm.instantiate(ctx)
	if err != nil {
		if fatal(err) {
			p.fault()
		}
		return nil, err
	}
	if g.functions[exportConfigure] == nil {
		return g, nil
	}
	if _, err := p.run(ctx, g, exportConfigure, p.input); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (p *pool) close(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for {
		select {
		case g := <-p.idle:
			g.close()
		default:
			for _, h := range p.streams {
				h.guest.close()
			}
			p.streams = nil
			return nil
		}
	}
}

var errStreamLost = errors.New("the module's instance that held the stream is gone")

// pin gives a stream its instance: an unused one, then a new one, then the
// one with the fewest streams.
func (p *pool) pin(ctx context.Context) (instance, error) {
	p.mu.Lock()
	var best *host
	for _, h := range p.streams {
		if best == nil || h.open < best.open {
			best = h
		}
	}
	if best != nil && (best.open == 0 || len(p.streams) >= cap(p.made)) {
		best.open++
		p.mu.Unlock()
		return &pinned{pool: p, host: best}, nil
	}
	p.mu.Unlock()
	done, err := p.begin(ctx, format.MethodOpen)
	if err != nil {
		return nil, err
	}
	defer done()
	g, err := p.make(ctx)
	if err != nil {
		return nil, err
	}
	h := &host{guest: g, turn: make(chan struct{}, 1), open: 1}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		g.close()
		return nil, errStreamLost
	}
	p.streams = append(p.streams, h)
	return &pinned{pool: p, host: h}, nil
}

// pinned is a stream's place in an instance.
type pinned struct {
	pool *pool
	host *host
	once sync.Once
}

func (s *pinned) call(ctx context.Context, method string, in []byte) ([]byte, error) {
	h := s.host
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	if h.dead != nil {
		return nil, &Error{Plugin: s.pool.wasm.key, Method: method, Reason: Unavailable, Retryable: true,
			Message: errStreamLost.Error(), Cause: h.dead}
	}
	done, err := s.pool.begin(ctx, method)
	if err != nil {
		return nil, err
	}
	defer done()
	out, err := s.pool.run(ctx, h.guest, method, in)
	if fatal(err) {
		h.dead = err
		h.guest.close()
		s.pool.forget(h)
	}
	return out, err
}

// close gives the place back. An instance that got big is given up when its
// last stream has ended.
func (s *pinned) close(context.Context) error {
	s.once.Do(func() {
		p := s.pool
		p.mu.Lock()
		s.host.open--
		last := s.host.open == 0 && s.host.guest.worn()
		p.mu.Unlock()
		if last {
			p.retire(s.host)
		}
	})
	return nil
}

// retire closes an instance unless a stream came to it meanwhile.
func (p *pool) retire(h *host) {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.open > 0 || h.dead != nil {
		return
	}
	h.dead = errStreamLost
	p.streams = slices.DeleteFunc(p.streams, func(o *host) bool { return o == h })
	h.guest.close()
}

func (p *pool) forget(h *host) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams = slices.DeleteFunc(p.streams, func(o *host) bool { return o == h })
}
