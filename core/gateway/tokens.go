package gateway

import (
	"fmt"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/wire"
)

// A budget in tokens is not overspent knowingly either: a prompt that has no
// room in it is refused before it goes out, and a reply is bounded by what is
// left. Of calls side by side the prompts are set aside; their replies are
// counted when they are there.

// affordTokens sets aside what the prompt has, and bounds the reply.
func (c *call) affordTokens() *failure {
	most := c.s.spec.Budget.Tokens
	if most <= 0 {
		return nil
	}
	n, exact := c.promptSize()
	left, ok := c.s.setTokensAside(n)
	if !exact && left < longReply {
		if ok {
			c.s.giveTokensBack(n)
		}
		n = c.promptCount()
		left, ok = c.s.setTokensAside(n)
	}
	if !ok {
		return &failure{trace.CallBudget, c.s.overTokens(n)}
	}
	c.heldTokens = n
	if want := c.rec.Effective.MaxTokens; want == nil || *want > left {
		c.bound(left, fmt.Sprintf("max_tokens: the session's budget has %d tokens left for a reply", left))
	}
	return nil
}

// tokens is what a session has used and set aside of a budget in tokens.
func (s *Session) tokens() int {
	return s.spec.Used.Tokens + s.stats.Usage.Input + s.stats.Usage.Output + s.heldTokens
}

// setTokensAside holds n tokens, if a reply has room beside them: left of them.
func (s *Session) setTokensAside(n int) (left int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left = s.spec.Budget.Tokens - s.tokens() - n; left <= 0 {
		return 0, false
	}
	s.heldTokens += n
	return left, true
}

// giveTokensBack ends what is held for a call that has been counted.
func (s *Session) giveTokensBack(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heldTokens -= n
}

// overTokens refuses a prompt of n tokens.
func (s *Session) overTokens(n int) *wire.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overBudget("%d tokens of %d are used, and the prompt has %d", s.tokens(), s.spec.Budget.Tokens, n)
}
