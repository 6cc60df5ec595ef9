package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// cancelGrace is how long Close waits for calls that it has cancelled.
const cancelGrace = 2 * time.Second

// Session is the credential and the trace of one agent run.
type Session struct {
	g     *Gateway
	spec  SessionSpec
	token string // the gateway itself keeps only its hash
	hash  [sha256.Size]byte
	info  upstream.Info // of the model's
	// prices are the dearest that a call may meet, nil where none are known.
	prices *cost.Prices
	graph  *trace.Graph

	ctx    context.Context // of every call; ends at the deadline
	cancel context.CancelFunc
	ready  chan struct{} // closed by Ready and Refuse
	budget chan struct{} // closed at the first call over budget
	active atomic.Int64  // time of the last activity, in ns

	mu         sync.Mutex
	seq        int
	stats      Stats
	reserved   int // calls that may yet reach the upstream
	money      purse
	heldTokens int   // of prompts under way
	bytes      int64 // of its records
	turns      int   // the same of the main lineage
	aside      bool  // a call of a side conversation reached the upstream
	refused    string
	released   bool // ready is closed
	closed     bool
	calls      int                 // whose handlers are at work
	inflight   int                 // these, and what they leave to be done
	idle       chan struct{}       // closed when inflight falls to 0, while Close waits
	ids        map[string]struct{} // of every tool call so far
	repeats    repeats
}

// Stats is what a session has used so far.
type Stats struct {
	Calls     int // generations that reached the upstream
	Turns     int // those of the main lineage
	Usage     chat.Usage
	Cost      cost.Cost
	BudgetHit bool
	// Fault is why the last call failed, if the fault was not the agent's: the
	// upstream's, that of a format or template which has no way to write the
	// request, or that of a hook that erred and so denied. What the agent made of
	// it says nothing of the agent.
	Fault string
	// Spoilt is why some reply was not the model's any more: a hook erred after
	// the model had answered, and what it denied for that stood in the reply.
	// Unlike a Fault it stays, as the agent went on from there.
	Spoilt       string
	LastActivity time.Time // now, while a call is in flight
}

// Open registers a session: from then on its token is good. The record of
// the session is committed first.
func (g *Gateway) Open(ctx context.Context, spec SessionSpec) (*Session, error) {
	if err := spec.Model.check(); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	if spec.Session.ID == "" {
		return nil, errors.New("open session: it has no id")
	}
	prices := spec.Model.prices()
	if spec.Budget.USD > 0 && prices == nil {
		return nil, fmt.Errorf("open session: a budget in USD needs prices, and model %s has none", spec.Model.Entry)
	}
	if err := g.crowded(); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	now := time.Now()
	if spec.Session.Opened.IsZero() {
		spec.Session.Opened = now
	}
	if spec.Session.ModelEntry == "" {
		spec.Session.ModelEntry = spec.Model.Entry
	}
	record := spec.Session
	if err := g.calls.PutSession(ctx, &record); err != nil {
		return nil, fmt.Errorf("open session %s: %w", spec.Session.ID, err)
	}
	s := &Session{
		g: g, spec: spec, info: upstream.InfoOf(spec.Model.Upstream), prices: prices,
		token:  newToken(),
		graph:  trace.NewGraph(spec.Session.ID),
		ready:  make(chan struct{}),
		budget: make(chan struct{}),
		ids:    map[string]struct{}{},
		money:  purse{spent: spec.Used.USD},
	}
	s.hash = sha256.Sum256([]byte(s.token))
	s.active.Store(now.UnixNano())
	base := context.WithoutCancel(ctx)
	if spec.Deadline.IsZero() {
		s.ctx, s.cancel = context.WithCancel(base)
	} else {
		s.ctx, s.cancel = context.WithDeadline(base, spec.Deadline)
	}
	if !spec.Hold {
		s.Ready()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing.Load() {
		s.cancel()
		return nil, fmt.Errorf("open session %s: the gateway is closing", spec.Session.ID)
	}
	g.sessions[s.hash] = s
	return s, nil
}

// newToken makes a secret of 256 bits.
func newToken() string {
	var b [32]byte
	rand.Read(b[:])
	return "pst-" + hex.EncodeToString(b[:])
}

// Token is the session's secret. It opens this session's model routes and
// nothing else.
func (s *Session) Token() string { return s.token }

// BaseURL is the root for clients that take no key: the token is part of the
// path.
func (s *Session) BaseURL() string { return s.g.URL() + "/s/" + s.token }

// Root is the gateway's root, for clients that send the token as a header.
func (s *Session) Root() string { return s.g.URL() }

// ID is the session's public id.
func (s *Session) ID() string { return s.spec.Session.ID }

// Graph links the calls of the session so far.
func (s *Session) Graph() *trace.Graph { return s.graph }

// Ready releases the calls that are held.
func (s *Session) Ready() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
}

// Refuse refuses all further calls and those that are held.
func (s *Session) Refuse(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reason == "" {
		reason = "this session was refused"
	}
	s.refused = reason
	s.release()
}

func (s *Session) release() {
	if !s.released {
		s.released = true
		close(s.ready)
	}
}

// Stats tells what the session has used so far.
func (s *Session) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	if s.aside && !s.graph.Main() {
		st.Turns = 1 // of a conversation without tools that nothing else makes a side one
	}
	st.LastActivity = time.Unix(0, s.active.Load())
	if s.calls > 0 {
		st.LastActivity = time.Now() // the client waits for us
	}
	return st
}

// hookFailed notes that something was denied because a hook erred.
func (s *Session) hookFailed(p hook.Point, name string, err error) {
	why := fmt.Sprintf("%s failed at %s: %v", name, p, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == hook.Request {
		s.stats.Fault = why // an agent that asks again may get its reply
	} else if s.stats.Spoilt == "" {
		s.stats.Spoilt = why
	}
}

// fault notes why a call failed that the agent could not have made better.
func (s *Session) fault(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Fault = why
}

// outcome notes whose fault it was that a call failed.
func (s *Session) outcome(c *trace.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.Status == trace.CallOK:
		s.stats.Fault = ""
	case c.Status == trace.CallError && c.Error != nil && c.Error.Kind != string(wire.ContextOverflow):
		s.stats.Fault = c.Error.Message
	}
}

// BudgetHit is closed at the first call over budget.
func (s *Session) BudgetHit() <-chan struct{} { return s.budget }

// Close revokes the token and waits for calls in flight. When ctx ends
// first, they are cancelled; one that outlasts even that is an error here,
// and is still recorded when it ends.
func (s *Session) Close(ctx context.Context) error {
	s.g.mu.Lock()
	delete(s.g.sessions, s.hash)
	if s.overdue() {
		s.g.late[s.hash] = struct{}{}
	}
	s.g.mu.Unlock()

	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.release()
	if s.idle == nil {
		s.idle = make(chan struct{})
		if s.inflight == 0 {
			close(s.idle)
		}
	}
	idle := s.idle
	s.mu.Unlock()

	err := s.wait(ctx, idle)
	if !first {
		return err
	}
	record := s.mark(func(r *trace.Session) { r.Closed = time.Now() })
	if e := s.g.calls.PutSession(context.WithoutCancel(ctx), &record); e != nil {
		err = errors.Join(err, fmt.Errorf("close session %s: %w", s.ID(), e))
	}
	return err
}

// wait waits for idle, and cancels what is in flight when ctx ends first.
func (s *Session) wait(ctx context.Context, idle chan struct{}) error {
	defer s.cancel()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	s.cancel()
	grace := time.NewTimer(cancelGrace)
	defer grace.Stop()
	select {
	case <-idle:
		return nil
	case <-grace.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("close session %s: %d calls don't end", s.ID(), s.inflight)
	}
}

func (s *Session) touch() { s.active.Store(time.Now().UnixNano()) }

// begin counts a call in and numbers it; false when the session is closed.
func (s *Session) begin() (seq int, ok bool) {
	s.touch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ctx.Err() != nil {
		return 0, false
	}
	s.seq++
	s.inflight++
	s.calls++
	return s.seq, true
}

// hold counts in what a call leaves to be done after its handler.
func (s *Session) hold() {
	s.mu.Lock()
	s.inflight++
	s.mu.Unlock()
}

// end counts a call out.
func (s *Session) end() {
	s.touch()
	s.mu.Lock()
	s.calls--
	s.mu.Unlock()
	s.drop()
}

// drop ends a hold.
func (s *Session) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inflight--; s.inflight == 0 && s.idle != nil {
		close(s.idle)
	}
}

// reserve takes a call out of the budget, before it is known whether it will
// reach the upstream.
func (s *Session) reserve() *wire.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, before := s.spec.Budget, s.spec.Used
	if used := before.Tokens + s.stats.Usage.Input + s.stats.Usage.Output; b.Tokens > 0 && used >= b.Tokens {
		return s.overBudget("%d tokens of %d are used", used, b.Tokens)
	}
	if used := before.Calls + s.stats.Calls + s.reserved; b.Calls > 0 && used >= b.Calls {
		return s.overBudget("%d of %d calls are used", used, b.Calls)
	}
	if used := before.Turns + s.stats.Turns; b.Turns > 0 && used >= b.Turns {
		return s.overBudget("%d of %d turns are used", used, b.Turns)
	}
	s.reserved++
	return nil
}

// reserveTurn takes a turn of the main lineage out of the budget.
func (s *Session) reserveTurn() *wire.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.spec.Used.Turns + s.stats.Turns + s.turns
	if b := s.spec.Budget; b.Turns > 0 && used >= b.Turns {
		return s.overBudget("%d of %d turns are used", used, b.Turns)
	}
	s.turns++
	return nil
}

func (s *Session) overBudget(text string, args ...any) *wire.Error {
	if !s.stats.BudgetHit {
		s.stats.BudgetHit = true
		close(s.budget)
	}
	return wire.Errorf(wire.Forbidden, "the session's budget is exhausted: "+text, args...)
}

// settle ends a reservation: the call and the turn count if the call reached
// the upstream.
func (s *Session) settle(call, turn, reached bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call {
		s.reserved--
	}
	if turn {
		s.turns--
	}
	if reached {
		s.stats.Calls++
		if turn {
			s.stats.Turns++
		}
	}
}

// promote counts the calls of what turns out to be the main lineage.
func (s *Session) promote(calls int) {
	s.mu.Lock()
	s.stats.Turns += calls
	s.mu.Unlock()
}

// sideCall notes a call of a side conversation.
func (s *Session) sideCall() {
	s.mu.Lock()
	s.aside = true
	s.mu.Unlock()
}

// atOnce counts the calls in flight.
func (s *Session) atOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Session) use(u chat.Usage) {
	s.mu.Lock()
	s.stats.Usage = s.stats.Usage.Add(u)
	s.mu.Unlock()
}

// refusal is why the session takes no calls, "" while it does.
func (s *Session) refusal() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// claimID takes an id for a tool call; false when an earlier one has it.
func (s *Session) claimID(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.ids[id]; taken {
		return false
	}
	s.ids[id] = struct{}{}
	return true
}
