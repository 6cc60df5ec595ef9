package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// observeTimeout bounds one call of an observing hook.
const observeTimeout = 10 * time.Second

// observers give hooks that only watch their copies. Each has a queue of its
// own, so that a slow one delays neither calls nor other hooks.
type observers struct {
	size int
	log  *slog.Logger

	mu      sync.Mutex
	queues  map[watcher]chan doc.Bytes
	dropped map[string]int
	closed  bool
	ctx     context.Context
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// watcher is one use of a hook.
type watcher struct {
	model *Model
	index int
}

func newObservers(size int, log *slog.Logger) *observers {
	o := &observers{size: size, log: log, queues: map[watcher]chan doc.Bytes{}, dropped: map[string]int{}}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

// Dropped counts, by the name of the hook, the events that observing hooks
// missed because they were too slow.
func (g *Gateway) Dropped() map[string]int {
	g.watch.mu.Lock()
	defer g.watch.mu.Unlock()
	return maps.Clone(g.watch.dropped)
}

// send queues one event for each hook that watches the point, and counts it
// as dropped where the queue is full.
func (o *observers) send(s *Session, p hook.Point, subject, tools json.RawMessage) {
	event := s.event(p, subject, tools)
	m := s.spec.Model
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range m.Hooks {
		if o.closed || !slices.Contains(m.Hooks[i].Observes, p) {
			continue
		}
		select {
		case o.queue(watcher{m, i}) <- event:
		default:
			o.dropped[m.Hooks[i].Name]++
		}
	}
}

// queue is the queue of one use of a hook, with the goroutine that empties it.
func (o *observers) queue(w watcher) chan doc.Bytes {
	q := o.queues[w]
	if q == nil {
		q = make(chan doc.Bytes, o.size)
		o.queues[w] = q
		h := &w.model.Hooks[w.index]
		o.done.Go(func() { o.run(h, q) })
	}
	return q
}

func (o *observers) run(h *Hook, q chan doc.Bytes) {
	for event := range q {
		ctx, cancel := context.WithTimeout(o.ctx, observeTimeout)
		if _, err := applyHook(ctx, o.log, h, event); err != nil {
			o.log.Warn("observing hook failed", "hook", h.Name, "error", err)
		}
		cancel()
	}
}

// close lets the queues run empty until ctx ends, and then cancels.
func (o *observers) close(ctx context.Context) {
	o.mu.Lock()
	if !o.closed {
		o.closed = true
		for _, q := range o.queues {
			close(q)
		}
	}
	o.mu.Unlock()
	stop := context.AfterFunc(ctx, o.cancel)
	o.done.Wait()
	stop()
	o.cancel()
	for name, n := range o.dropped {
		o.log.Warn("observing hook was too slow", "hook", name, "dropped", n)
	}
}
