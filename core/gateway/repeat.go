package gateway

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"sync"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// Clients that lose a connection ask again in the same words, without saying
// so. Such a repeat gets the reply of the first request, so that no turn is
// generated, counted or recorded twice: it joins a generation whose client is
// gone, and a reply whose end was never delivered is replayed. A request that
// an SDK marks as a retry joins any. All else is a call of its own: asking the
// same thing twice is an honest way to vote.

// keptRepeats is how many of a session's latest requests a repeat is looked
// up among.
const keptRepeats = 64

// requestKey identifies a request, streamed or not.
type requestKey [sha256.Size]byte

// repeatable is a request whose reply a repeat may get.
type repeatable struct {
	key  requestKey
	call string        // the id of the call that generates
	id   string        // of its reply
	done chan struct{} // closed when the reply is there, or won't be

	// The rest is guarded by repeats.mu.
	out       *output // of the client that waits for the reply
	ended     bool
	reply     *chat.Reply // nil if the call failed
	delivered bool
}

// repeats are the latest requests of a session.
type repeats struct {
	mu    sync.Mutex
	byKey map[requestKey]*repeatable
	order []*repeatable // oldest first
}

// enter looks for the request that this one repeats. There being none, it is
// entered as the first of its kind.
func (r *repeats) enter(key requestKey, call, id string, out *output, marked bool) (e *repeatable, repeat bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.byKey[key]; e != nil && e.joinable(marked) {
		e.out = out
		return e, true
	}
	e = &repeatable{key: key, call: call, id: id, done: make(chan struct{}), out: out}
	if r.byKey == nil {
		r.byKey = map[requestKey]*repeatable{}
	}
	r.byKey[key] = e
	r.order = append(r.order, e)
	if len(r.order) > keptRepeats {
		oldest := r.order[0]
		r.order = r.order[1:]
		if r.byKey[oldest.key] == oldest {
			delete(r.byKey, oldest.key)
		}
	}
	return e, false
}

// joinable says whether a repeat gets this request's reply.
func (e *repeatable) joinable(marked bool) bool {
	switch {
	case !e.ended:
		return marked || e.out.gone()
	case e.reply == nil:
		return false
	default:
		return marked || !e.delivered
	}
}

// finish enters the reply of a call.
func (r *repeats) finish(e *repeatable, reply *chat.Reply, delivered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.delivered = e.delivered || delivered
	if !e.ended {
		e.ended, e.reply, e.out = true, reply, nil
		close(e.done)
	}
}

// fail ends a request that got no reply. One that has ended stays as it is.
func (r *repeats) fail(e *repeatable) {
	if e == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !e.ended {
		e.ended, e.out = true, nil
		close(e.done)
	}
}

func (r *repeats) replyOf(e *repeatable) *chat.Reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.reply
}

// repeat serves the reply of the request that this one repeats, if there is
// one. If that one fails while this one waits for it, this one is a call of
// its own.
func (c *call) repeat() *failure {
	marked, _ := strconv.Atoi(c.in.r.Header.Get("X-Stainless-Retry-Count"))
	key := keyOf(c.in.dialect.Name(), c.req)
	id := c.in.dialect.ReplyID + randomHex(12)
	for {
		e, repeat := c.s.repeats.enter(key, c.rec.ID, id, c.out, marked > 0)
		if !repeat {
			c.first = e
			return nil
		}
		c.open(&chat.Reply{ID: e.id, Model: c.m.served()})
		select {
		case <-e.done:
		case <-c.ctx.Done():
			return c.cancelled()
		}
		if reply := c.s.repeats.replyOf(e); reply != nil {
			return c.replay(e, reply)
		}
		id = e.id // a reply under it may have begun
	}
}

// replay serves a reply that an earlier call generated.
func (c *call) replay(e *repeatable, reply *chat.Reply) *failure {
	c.rec.Kind, c.rec.Replays = trace.Retry, e.call
	c.rec.Served, c.rec.Status = reply, trace.CallOK
	c.open(&chat.Reply{ID: reply.ID, Model: reply.Model, Usage: chat.Usage{Input: reply.Usage.Input, Cached: reply.Usage.Cached, CacheWrite: reply.Usage.CacheWrite}})
	s := &serving{c: c, stream: c.req.Stream}
	s.all(reply.Parts)
	if err := c.out.deltas(s.take()); err != nil {
		return fail(trace.CallError, wire.Internal, "write the reply: %v", err)
	}
	if err := c.commit(200); err != nil {
		c.g.log.Error("a repeated call could not be recorded", "call", c.rec.ID, "error", err)
		return fail(trace.CallError, wire.Internal, "the call could not be recorded")
	}
	out, err := c.end(reply)
	if err != nil {
		return fail(trace.CallError, wire.Internal, "write the reply: %v", err)
	}
	c.s.repeats.finish(e, reply, out)
	if out {
		c.delivered(e.call, c.rec.ID)
	}
	return nil
}

// keyOf is the same for requests that say the same, whether the reply shall be
// streamed or not: clients whose stream broke ask for a whole reply.
func keyOf(dialect string, r *wire.Request) (key requestKey) {
	h := sha256.New()
	var n [8]byte
	add := func(b []byte) {
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	add([]byte(dialect))
	for name, value := range rawjson.Of(r.Envelope).Fields() {
		switch string(name) {
		case "stream", "stream_options":
		default:
			add(name)
			add(value.Raw())
		}
	}
	for _, m := range r.Messages {
		add(m)
	}
	h.Sum(key[:0])
	return key
}
