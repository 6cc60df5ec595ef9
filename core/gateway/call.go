package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// call is one model call on its way through the gateway. One goroutine, that
// of the HTTP handler, does it all, and goes on to the end when the client is
// gone.
type call struct {
	g   *Gateway
	s   *Session
	m   *Model
	in  *inbound
	out *output
	ctx context.Context // the session's; not the client's
	rec *trace.Call

	req    *wire.Request
	first  *repeatable        // what a repeat of this request may join
	conv   *chat.Conversation // what is rendered: as received, then after hooks
	tools  []byte             // the tools as JSON, once a hook wants them
	link   *trace.Link        // until it is added or dropped
	prompt *token.Prompt      // empty where the upstream renders by itself

	body    []byte           // as received
	own     bool             // the upstream speaks the client's dialect and gets its bytes
	changed upstream.Changed // what of them has to be written anew
	tail    []byte           // the end of a reply that the client gets as it came

	counting       bool // tokens only
	reserved, turn bool // taken out of the budget, not settled yet
	reached        bool // the upstream took it
	committed      bool

	prices *cost.Prices // of who generates, nil where they aren't known
	billed *float64     // what the upstream says it charges
	held   float64      // of the budget in US dollars, while holds
	// heldTokens are of the budget in tokens.
	heldTokens int
	holds      bool
}

// serveGeneration serves one model call.
func (g *Gateway) serveGeneration(in *inbound) {
	s, refused := g.authorize(in)
	if refused != nil {
		in.fail(refused)
		return
	}
	if in.r.Method != http.MethodPost {
		in.wrongMethod(http.MethodPost)
		return
	}
	seq, ok := s.begin()
	if !ok {
		in.fail(g.unknown(in.tokens))
		return
	}
	defer s.end()
	if why := s.full(); why != "" {
		in.fail(wire.Errorf(wire.Forbidden, "this call can't be recorded: %s", why))
		return
	}
	c := g.newCall(in, s, seq)
	in.id = c.rec.ID // clients show it, so that their errors lead to the record
	in.w.Header().Set("Request-Id", in.id)
	c.serve()
}

func (g *Gateway) newCall(in *inbound, s *Session, seq int) *call {
	return &call{
		g: g, s: s, m: s.spec.Model, in: in, ctx: s.ctx, rec: s.record(in, seq), prices: s.prices,
		out: &output{
			in: in, control: http.NewResponseController(in.w),
			timeout: g.o.WriteTimeout, every: g.o.KeepAlive, early: in.dialect.StartEarly,
		},
	}
}

// serveCount answers how long a prompt is, as its generation would say. It is
// no call: nothing is generated, recorded or taken out of the budget.
func (g *Gateway) serveCount(in *inbound) {
	s, refused := g.authorize(in)
	if refused != nil {
		in.fail(refused)
		return
	}
	if in.r.Method != http.MethodPost {
		in.wrongMethod(http.MethodPost)
		return
	}
	s.touch()
	c := g.newCall(in, s, 0)
	defer c.out.close()
	defer c.release()
	c.counting = true
	for _, step := range []func() *failure{c.decode, c.change, c.place, c.sanitize, c.assemble, c.measure} {
		if f := step(); f != nil {
			in.fail(f.err)
			return
		}
	}
	in.body(http.StatusOK, in.dialect.Dialect.(wire.TokenCounter).Count(c.rec.Usage.Input))
}

// measure has the upstream count a prompt whose tokens aren't known here.
func (c *call) measure() *failure {
	if c.m.Tokenizer != nil && c.m.Format != nil {
		return nil
	}
	n, err := c.count()
	switch {
	case errors.Is(err, upstream.ErrNoCount):
		return fail(trace.CallInvalid, wire.NoRoute, "the model's tokenizer isn't known, so tokens can't be counted")
	case err != nil:
		return c.upstreamFailure(err)
	}
	c.rec.Usage.Input = n
	return nil
}

// count asks the upstream how long the prompt is.
func (c *call) count() (int, error) {
	u, ok := c.m.Upstream.(upstream.Counter)
	if !ok {
		return 0, upstream.ErrNoCount
	}
	return u.Count(c.ctx, c.request())
}

// record begins the record of a call.
func (s *Session) record(in *inbound, seq int) *trace.Call {
	m := s.spec.Model
	rec := &trace.Call{
		ID: fmt.Sprintf("%s.%d", s.ID(), seq), Session: s.ID(), Seq: seq,
		Dialect: in.dialect.Name(), Method: in.r.Method, Path: in.path,
		Headers:    headersToKeep(in.r.Header, in.tokens),
		ModelEntry: m.Entry, ModelServed: m.Name, Engine: m.Upstream.Kind(),
		Format: m.FormatName, Template: m.FormatHash, Capture: m.Capture,
		Received: time.Now(),
	}
	if q := queryToKeep(in.r.URL.Query(), in.tokens); q != "" {
		rec.Path += "?" + q
	}
	if m.Tokenizer != nil && m.Capture == CaptureExact {
		rec.Tokenizer = m.Tokenizer.Hash()
	}
	return rec
}

// serve runs the call and answers it. Whatever happens is recorded.
func (c *call) serve() {
	defer c.out.close()
	stop := c.out.interrupt(c.ctx)
	defer stop()
	defer c.release()
	f := c.guarded()
	if f == nil {
		return
	}
	c.s.repeats.fail(c.first) // ahead of the answer, on which a repeat may come
	c.g.log.Debug("call failed", "call", c.rec.ID, "status", f.status, "kind", f.err.Kind, "error", f.err.Message)
	c.rec.Status = f.status
	c.rec.Error = &trace.Problem{Kind: string(f.err.Kind), Message: f.err.Message}
	status := c.out.answered()
	if status == 0 {
		status, _ = c.in.dialect.Error(f.err)
	}
	if err := c.commit(status); err != nil {
		c.g.log.Error("a failed call could not be recorded", "call", c.rec.ID, "error", err)
	}
	if c.out.fail(f.err) {
		// An answer that has begun must not end as if it were whole.
		panic(http.ErrAbortHandler)
	}
}

// guarded runs the call; a panic is a failure of it.
func (c *call) guarded() (f *failure) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		c.g.log.Error("panic in a call", "call", c.rec.ID, "panic", p, "stack", string(debug.Stack()))
		f = fail(trace.CallError, wire.Internal, "penstock failed; its log says more under %s", c.rec.ID)
	}()
	for _, step := range []func() *failure{c.decode, c.wait, c.repeat, c.admit, c.change, c.place, c.sanitize, c.assemble, c.afford, c.generate} {
		if f := step(); f != nil || c.committed {
			return f
		}
	}
	return nil
}

// release gives back what a call holds that didn't get to its end.
func (c *call) release() {
	c.settle(false)
	c.pay(cost.Cost{})
	c.s.repeats.fail(c.first)
	if c.link != nil {
		c.s.graph.Drop(c.link)
		c.link = nil
	}
}

// settle ends the call's reservation in the budget.
func (c *call) settle(reached bool) {
	c.reached = c.reached || reached
	c.s.settle(c.reserved, c.turn, reached)
	if reached && c.rec.Kind == trace.Side {
		c.s.sideCall()
	}
	c.reserved, c.turn = false, false
}

// commit puts the record into the store, once.
func (c *call) commit(status int) error {
	if c.committed {
		return nil
	}
	c.rec.ClientGone = c.out.gone()
	if c.rec.HTTPStatus = status; c.rec.ClientGone {
		c.rec.HTTPStatus = c.out.answered()
	}
	c.rec.Done = time.Now()
	c.committed = true
	if !c.reached {
		c.rec.Usage = chat.Usage{} // it was counted, not used
	}
	c.s.use(c.rec.Usage)
	spent := c.price()
	c.rec.Cost, c.rec.CostBasis = spent.Amount(), string(spent.Basis)
	if spent.Basis == cost.Unknown {
		c.rec.Held = c.held
	}
	c.pay(spent)
	c.s.outcome(c.rec)
	// A session that was cancelled still has its calls recorded.
	err := c.g.calls.PutCall(context.WithoutCancel(c.ctx), c.rec)
	c.s.stored(c.rec.Stored)
	return err
}

// holdLimit is how long a call is held for an agent that doesn't say that it is
// ready, as one does that isn't the program that its invoker expects.
const holdLimit = time.Minute

// wait waits while the session holds its calls, and checks that it takes any.
func (c *call) wait() *failure {
	select {
	case <-c.s.ready:
	default:
		late := time.NewTimer(holdLimit)
		defer late.Stop()
		select {
		case <-c.s.ready:
		case <-late.C:
			c.s.Refuse(fmt.Sprintf("the agent asked the model, but for %s its output has not said that it is ready", holdLimit))
		case <-c.ctx.Done():
			return c.cancelled()
		case <-c.in.r.Context().Done():
			return fail(trace.CallCancelled, wire.Invalid, "the client left while its call was held")
		}
		if c.s.isClosed() {
			return fail(trace.CallCancelled, wire.Unauthorized, "the session was closed while its call was held")
		}
	}
	if reason := c.s.refusal(); reason != "" {
		return fail(trace.CallDenied, wire.Forbidden, "%s", reason)
	}
	return nil
}

// admit checks that the session takes one more call.
func (c *call) admit() *failure {
	if n := c.s.atOnce(); n > c.g.o.Limits.Calls {
		e := wire.Errorf(wire.RateLimited, "the session has %d calls at once, more than the limit of %d", n, c.g.o.Limits.Calls)
		e.RetryAfter = 1
		return &failure{trace.CallInvalid, e}
	}
	if over := c.s.reserve(); over != nil {
		return &failure{trace.CallBudget, over}
	}
	c.reserved = true
	return nil
}

// change runs the hooks of the request.
func (c *call) change() *failure {
	conv, reason, denied, err := c.hookRequest(c.conv)
	switch {
	case c.ctx.Err() != nil:
		return c.cancelled()
	case err != nil:
		return fail(trace.CallError, wire.Internal, "%v", err)
	case denied:
		return fail(trace.CallDenied, wire.Forbidden, "%s", reason)
	}
	if c.own && conv != c.conv {
		c.changed = changes(c.conv, conv)
	}
	c.conv = conv
	return nil
}

// place finds where the call stands in its session, by the conversation as
// received.
func (c *call) place() *failure {
	c.link = c.s.graph.Link(&c.req.Chat)
	c.rec.Parent, c.rec.Lineage, c.rec.Kind, c.rec.Fork = c.link.Base, c.link.Lineage, c.link.Kind, c.link.Class
	c.s.promote(c.link.Earlier)
	if c.link.Kind != trace.Main || c.counting {
		return nil
	}
	if over := c.s.reserveTurn(); over != nil {
		return &failure{trace.CallBudget, over}
	}
	c.turn = true
	return nil
}

// assemble renders the prompt and settles how it is sampled.
func (c *call) assemble() *failure {
	c.rec.Chat = c.conv
	c.rec.Effective = c.m.Sampling.Over(c.conv.Sampling)
	if c.m.training() {
		c.rec.Effective = c.conv.Sampling.Over(c.m.Sampling)
	}
	c.sanitizeSampling()
	if c.m.Format == nil {
		c.prompt = &token.Prompt{}
		return c.fit()
	}
	tokenizer := c.m.Tokenizer
	if c.m.Capture != CaptureExact {
		tokenizer = nil
	}
	prompt, err := token.Assemble(c.ctx, c.m.Format, tokenizer, c.conv, c.previous())
	switch {
	case c.ctx.Err() != nil:
		return c.cancelled()
	case err != nil:
		why := fmt.Sprintf("the request can't be written for the model: %v", err)
		c.s.fault(why)
		return fail(trace.CallInvalid, wire.Invalid, "%s", why)
	}
	c.prompt = prompt
	c.rec.PromptIDs, c.rec.Extends, c.rec.Rendered = prompt.IDs, prompt.Extends, prompt.Text
	if prompt.IDs == nil {
		c.rec.Prompt = prompt.Text
	}
	if prompt.Fork != "" {
		c.rec.Fork = prompt.Fork
	}
	return c.fit()
}

// previous is the turn whose ids the prompt extends. A hook may have added
// or taken away messages before it: then it is found by its place among the
// replies, counted from the newest, if there are as many as before.
func (c *call) previous() *token.Turn {
	parent := c.link.Parent
	if parent == nil || len(parent.PromptIDs) == 0 {
		return nil
	}
	k := c.link.Message
	if c.conv != &c.req.Chat {
		before, after := replies(&c.req.Chat), replies(c.conv)
		i := slices.Index(before, k)
		if i < 0 || len(before) != len(after) {
			c.rec.Fork = "edited_history"
			return nil
		}
		k = after[i]
	}
	return &token.Turn{Message: k, PromptIDs: parent.PromptIDs, SampledIDs: parent.SampledIDs, Ended: parent.Ended}
}

// replies are the indices of the assistant's messages.
func replies(c *chat.Conversation) []int {
	var out []int
	for i := range c.Messages {
		if c.Messages[i].Role == chat.Assistant {
			out = append(out, i)
		}
	}
	return out
}

// fit checks the prompt against the model's context and clamps max_tokens to
// what remains.
func (c *call) fit() *failure {
	c.rec.Usage.Input = len(c.prompt.IDs)
	if c.prompt.IDs == nil && c.m.Tokenizer != nil && c.m.Format != nil {
		c.rec.Usage.Input = len(c.m.Tokenizer.Encode(nil, c.prompt.Text, true))
	}
	switch {
	case c.m.Context <= 0 || c.counting:
		return nil
	case c.rec.Usage.Input == 0:
		return c.clamp()
	}
	remains := c.m.Context - c.rec.Usage.Input
	if remains <= 0 {
		return c.overflow(c.rec.Usage.Input)
	}
	if most := c.rec.Effective.MaxTokens; most == nil || *most > remains {
		c.rec.Effective.MaxTokens = &remains
	}
	return nil
}

// overflow is the failure of a prompt of n tokens that has no room.
func (c *call) overflow(n int) *failure {
	c.rec.Usage = chat.Usage{} // nothing was used
	e := wire.Errorf(wire.ContextOverflow, "prompt is too long: %d tokens > %d maximum", n, c.m.Context-1)
	e.Tokens, e.Limit = n, c.m.Context-1
	return &failure{trace.CallInvalid, e}
}
