package gateway

import (
	"fmt"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// A budget in money is never overspent knowingly: before a call goes out, the
// most that it can cost is set aside, and when it has ended, what it did cost is
// counted instead. Where less is left than that, calls under way are waited for,
// as they mostly cost less; then the reply is bounded to what is left; and where
// that buys no reply worth having, the call is refused.

const (
	// shortReply is the shortest reply that a call is bounded to, in tokens.
	shortReply = 256
	// longReply is taken for the length of a reply that nothing bounds.
	longReply = 8192
	// budgetName is the name of edits that a budget makes.
	budgetName = "budget"
)

// purse is the money of a session with a budget.
type purse struct {
	spent   float64
	held    float64 // for calls under way
	holders int
	freed   chan struct{} // closed when a call gives back; nil while none waits
}

// setAside holds an amount. Where that isn't left, it says what is, and gives a
// channel that is closed when a call under way has been counted, nil if there is
// none.
func (s *Session) setAside(usd float64) (left float64, wait <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.money
	left = s.spec.Budget.USD - m.spent - m.held
	switch {
	case usd <= left:
		m.held += usd
		m.holders++
		return left, nil, true
	case m.holders == 0:
		return left, nil, false
	case m.freed == nil:
		m.freed = make(chan struct{})
	}
	return left, m.freed, false
}

// pay counts what a call cost in place of what was held for it. What can't be
// told is counted as all that was held.
func (s *Session) pay(c cost.Cost, held float64, holds bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Cost = s.stats.Cost.Add(c)
	m := &s.money
	m.spent += c.USD
	if c.Basis == cost.Unknown {
		m.spent += held
	}
	if !holds {
		return
	}
	m.held -= held
	if m.holders--; m.holders == 0 {
		m.held = 0
	}
	if m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
}

// overUSD refuses a call of which not even a short reply is sure to be paid.
func (s *Session) overUSD(prompt, reply int, usd float64) *wire.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overBudget("%.4f of %g USD are used, and a prompt of %d tokens with a reply of %d can cost %.4f", s.money.spent, s.spec.Budget.USD, prompt, reply, usd)
}

// pay ends what the call holds of the budget.
func (c *call) pay(spent cost.Cost) {
	c.s.pay(spent, c.held, c.holds)
	c.s.giveTokensBack(c.heldTokens)
	c.held, c.holds, c.heldTokens = 0, false, 0
}

// afford sets aside what the call can cost.
func (c *call) afford() *failure {
	if f := c.affordTokens(); f != nil {
		return f
	}
	if c.s.spec.Budget.USD <= 0 {
		return nil
	}
	prices, want := c.s.prices, longReply
	if most := c.rec.Effective.MaxTokens; most != nil {
		want = *most
	}
	n, exact := c.promptSize()
	for {
		most := prices.Most(n, want)
		left, wait, ok := c.s.setAside(most)
		short := min(want, max(shortReply, c.req.LeastTokens))
		least := prices.Most(n, short)
		switch {
		case ok:
			c.held, c.holds = most, true
			return nil
		case !exact:
			n, exact = c.promptCount(), true
		case wait != nil:
			if f := c.queue(wait); f != nil {
				return f
			}
		case left < least || prices.Output <= 0:
			return &failure{trace.CallBudget, c.s.overUSD(n, short, least)}
		default:
			tokens := int((left - prices.Most(n, 0)) / (prices.Output / 1e6))
			want = c.bound(tokens, fmt.Sprintf("max_tokens: the session's budget has money left for %d tokens of a reply", tokens))
		}
		if c.ctx.Err() != nil {
			return c.cancelled()
		}
	}
}

// queue waits for another call to be counted.
func (c *call) queue(wait <-chan struct{}) *failure {
	c.open(c.head())
	select {
	case <-wait:
	case <-c.ctx.Done():
		return c.cancelled()
	case <-c.in.r.Context().Done():
		return fail(trace.CallCancelled, wire.Invalid, "the client left while its call waited for others of the budget")
	}
	return nil
}

// bound bounds the reply, and records why.
func (c *call) bound(tokens int, why string) int {
	e := trace.Edit{
		Hook: budgetName, Point: string(hook.Request), Action: string(hook.Replace),
		Reason: why,
	}
	e.Before, _ = chat.Marshal(map[string]any{"/sampling/max_tokens": c.rec.Effective.MaxTokens})
	e.After, _ = chat.Marshal(map[string]any{"/sampling/max_tokens": tokens})
	c.rec.Edits = append(c.rec.Edits, e)
	c.rec.Effective.MaxTokens = &tokens
	return tokens
}

// promptSize is how many tokens the prompt has; where that isn't known here,
// how many it has at most.
func (c *call) promptSize() (n int, exact bool) {
	if c.rec.Usage.Input > 0 {
		return c.rec.Usage.Input, true
	}
	return c.promptBytes(), false
}

// promptBytes is more than the tokens of a prompt, none of which is shorter than
// a byte.
func (c *call) promptBytes() int {
	if c.m.Format == nil {
		return len(c.body) + templateRoom
	}
	return len(c.prompt.Text)
}

// promptCount has the upstream count the tokens of the prompt. Where it can't,
// they are guessed.
func (c *call) promptCount() int {
	n, err := c.count()
	if err == nil {
		return n
	}
	if err != upstream.ErrNoCount {
		c.g.log.Warn("the upstream doesn't count a prompt", "call", c.rec.ID, "error", err)
	}
	const imageTokens = 2000
	size, images := c.promptBytes(), 0
	for _, m := range c.conv.Messages {
		for _, p := range m.Parts {
			for _, q := range append([]chat.Part{p}, p.Content...) {
				if q.Type == chat.Image {
					size -= len(q.Data)
					images++
				}
			}
		}
	}
	return guessTokens(size) + images*imageTokens
}

// guessTokens is about how many tokens a text has, rather more than fewer.
func guessTokens(bytes int) int { return max(bytes, 0)/3 + 1 }

// price is what the call cost.
func (c *call) price() cost.Cost {
	u := c.rec.Usage
	switch {
	case !c.reached:
		return cost.Cost{}
	case c.billed != nil:
		return cost.Cost{USD: *c.billed, Basis: cost.Billed}
	case c.prices == nil || u.Input+u.Output == 0:
		return cost.Cost{Basis: cost.Unknown}
	}
	if c.rec.Status != trace.CallOK && c.rec.Parsed != nil && c.rec.SampledIDs == nil {
		// A reply that was cut came without its count.
		size := 0
		for _, p := range c.rec.Parsed.Parts {
			size += len(p.Text) + len(p.Arguments)
		}
		u.Output = max(u.Output, guessTokens(size))
	}
	return cost.Cost{USD: c.prices.Of(u), Basis: cost.Estimated}
}
