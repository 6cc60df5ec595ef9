package point

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// watchTimeout bounds one call of an observing hook.
const watchTimeout = 10 * time.Second

// Watch gives hooks that only watch their copies. Each has a queue of its own,
// so that a slow one delays neither what passes by nor other hooks.
type Watch struct {
	size int
	log  *slog.Logger

	mu      sync.Mutex
	queues  map[*Hook]chan doc.Doc
	dropped map[string]int
	closed  bool
	ctx     context.Context
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// NewWatch makes a Watch whose queues hold so many events. Close ends it.
func NewWatch(size int, log *slog.Logger) *Watch {
	w := &Watch{size: size, log: log, queues: map[*Hook]chan doc.Doc{}, dropped: map[string]int{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Dropped counts, by the name of the hook, the events that observing hooks
// missed because they were too slow.
func (w *Watch) Dropped() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.dropped)
}

// Send queues one event for each of the hooks that watches the point, and
// counts it as dropped where the queue is full. The hooks stay where they are
// in memory until w is closed: a use of a hook is known by its address.
func (w *Watch) Send(hooks []Hook, p hook.Point, event doc.Doc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range hooks {
		if w.closed || !slices.Contains(hooks[i].Observes, p) {
			continue
		}
		select {
		case w.queue(&hooks[i]) <- event:
		default:
			w.dropped[hooks[i].Name]++
		}
	}
}

// queue is the queue of one use of a hook, with the goroutine that empties it.
func (w *Watch) queue(h *Hook) chan doc.Doc {
	q := w.queues[h]
	if q == nil {
		q = make(chan doc.Doc, w.size)
		w.queues[h] = q
		w.done.Go(func() { w.run(h, q) })
	}
	return q
}

func (w *Watch) run(h *Hook, q chan doc.Doc) {
	for event := range q {
		ctx, cancel := context.WithTimeout(w.ctx, watchTimeout)
		if _, err := Call(ctx, w.log, h, event); err != nil {
			w.log.Warn("observing hook failed", "hook", h.Name, "error", err)
		}
		cancel()
	}
}

// Close lets the queues run empty until ctx ends, and then cancels. It may be
// called twice.
func (w *Watch) Close(ctx context.Context) {
	w.mu.Lock()
	first := !w.closed
	if first {
		w.closed = true
		for _, q := range w.queues {
			close(q)
		}
	}
	w.mu.Unlock()
	stop := context.AfterFunc(ctx, w.cancel)
	w.done.Wait()
	stop()
	w.cancel()
	if !first {
		return
	}
	for name, n := range w.Dropped() {
		w.log.Warn("observing hook was too slow", "hook", name, "dropped", n)
	}
}
