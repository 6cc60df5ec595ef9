package gateway

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// output is the client's side of one call. Its methods may be called from
// the call and from the timer that keeps a silent stream alive.
type output struct {
	in      *inbound
	control *http.ResponseController
	timeout time.Duration // for one write
	every   time.Duration // between keep-alives

	broken atomic.Bool // a write failed

	mu      sync.Mutex
	stream  wire.Stream // nil for a whole reply
	head    chat.Reply  // what opens a streamed reply
	early   bool        // it goes out ahead of the first keep-alive
	started bool        // the stream's opening was written
	status  int         // of the answer, 0 before its headers are out
	buf     bytes.Buffer
	last    time.Time // of the last write
	timer   *time.Timer
	closed  bool // the handler is at its end
}

// gone says that the client doesn't listen any more. It never waits for a
// write.
func (o *output) gone() bool { return o.broken.Load() || o.in.r.Context().Err() != nil }

// answered is the status that the client got, 0 for none.
func (o *output) answered() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.status
}

// open accepts a streamed reply: from now on silence is bridged. A stream
// that is open already only gets another head.
func (o *output) open(s wire.Stream, head *chat.Reply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.head = *head
	if o.stream != nil {
		return
	}
	o.stream, o.last = s, time.Now()
	o.timer = time.AfterFunc(o.every, o.tick)
}

// counted sets what the opening says of the prompt's tokens, unless it is out.
func (o *output) counted(input, cached, cacheWrite int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.head.Usage.Input, o.head.Usage.Cached, o.head.Usage.CacheWrite = input, cached, cacheWrite
}

// tick writes a keep-alive when the stream was silent for long enough.
func (o *output) tick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.gone() {
		return
	}
	silent := time.Since(o.last)
	if silent >= o.every {
		if o.early && o.begin() != nil {
			return
		}
		if o.stream.KeepAlive(&o.buf) != nil {
			return
		}
		o.write()
		silent = 0
	}
	o.timer.Reset(o.every - silent)
}

// begin writes the opening of a stream into the buffer, once.
func (o *output) begin() error {
	if o.started {
		return nil
	}
	o.started = true
	return o.stream.Start(&o.buf, &o.head)
}

// deltas writes and flushes the deltas of one chunk. A client that is gone is
// no error.
func (o *output) deltas(ds []chat.Delta) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(ds) == 0 || o.gone() {
		return nil
	}
	if err := o.begin(); err != nil {
		return err
	}
	for i := range ds {
		if err := o.stream.Delta(&o.buf, ds[i]); err != nil {
			return err
		}
	}
	o.write()
	return nil
}

// finish writes the end of a streamed reply; true when it went out.
func (o *output) finish(r *chat.Reply) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone() {
		return false, nil
	}
	if err := o.begin(); err != nil {
		return false, err
	}
	if err := o.stream.Finish(&o.buf, r); err != nil {
		return false, err
	}
	return o.terminal(), nil
}

// finishRaw writes the end of a reply that is passed on; true when it went out.
func (o *output) finishRaw(raw []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone() {
		return false
	}
	o.started = true
	o.buf.Write(raw)
	return o.terminal()
}

// terminal sends the end of a stream. It went out if it could be written: clients
// close the connection as soon as they have it.
func (o *output) terminal() bool {
	o.write()
	o.closed = true // nothing may follow the end
	return !o.broken.Load()
}

// pass writes and flushes what the upstream sent, as it is.
func (o *output) pass(raw []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(raw) == 0 || o.gone() {
		return
	}
	o.started = true
	o.buf.Write(raw)
	o.write()
}

// whole writes a whole reply; true when it went out. It has no keep-alives.
// Spaces ahead of the JSON would need the status first, and a failure could no
// longer be told by its own, on which clients repeat, wait or give up. Nor do
// they help: for a whole reply clients bound the time to its end, not the
// silence. A client that gives up and asks again joins the generation, see
// repeat.go.
func (o *output) whole(body []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone() {
		return false
	}
	o.status = http.StatusOK
	o.deadline()
	if o.in.body(http.StatusOK, body) != nil || o.control.Flush() != nil {
		o.broken.Store(true)
	}
	return !o.broken.Load()
}

// fail answers an error. In a reply that has begun it is an event, and the
// connection has to be cut after it: abort says so.
func (o *output) fail(e *wire.Error) (abort bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.status == 0 {
		if !o.gone() {
			o.deadline()
			o.status = o.in.fail(e)
		}
		return false
	}
	if o.stream != nil && !o.gone() {
		o.buf.Reset()
		e.RequestID = o.in.id
		if o.stream.Error(&o.buf, e) == nil {
			o.write()
		}
	}
	return true
}

// write sends the buffer. The caller holds the lock.
func (o *output) write() {
	if o.status == 0 {
		h := o.in.w.Header()
		h.Set("Content-Type", wire.StreamType(o.in.dialect.Dialect))
		h.Set("X-Accel-Buffering", "no")
		o.status = http.StatusOK
		o.in.w.WriteHeader(o.status)
	}
	o.deadline()
	if _, err := o.in.w.Write(o.buf.Bytes()); err != nil {
		o.broken.Store(true)
	} else if o.control.Flush() != nil {
		o.broken.Store(true)
	}
	o.buf.Reset()
	o.last = time.Now()
}

func (o *output) deadline() {
	// A writer without deadlines is a test's recorder, which never blocks.
	_ = o.control.SetWriteDeadline(time.Now().Add(o.timeout))
}

// interrupt ends a write that blocks when ctx ends; the result stops that.
func (o *output) interrupt(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = o.control.SetWriteDeadline(time.Now().Add(time.Second)) })
}

// close ends the timer. Nothing is written afterwards.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.timer != nil {
		o.timer.Stop()
	}
	// The connection may serve another request.
	_ = o.control.SetWriteDeadline(time.Time{})
}
