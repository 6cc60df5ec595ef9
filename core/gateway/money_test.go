package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/sdk/chat"
)

func usd(v float64) *float64 { return &v }

// priced gives the model prices.
func priced(input, output float64) setting {
	return func(_ *gateway.Options, m *gateway.Model) { m.Prices = &cost.Prices{Input: input, Output: output} }
}

func spending(v float64) func(*gateway.SessionSpec) {
	return func(s *gateway.SessionSpec) { s.Budget.USD = v }
}

// TestCostOfCalls: what a call cost and how that is known, in its record and in
// what the session has used.
func TestCostOfCalls(t *testing.T) {
	counted := upstream.Chunk{
		Deltas: []chat.Delta{{Type: chat.DeltaText, Text: "hi"}, {Type: chat.DeltaPartEnd}}, Finish: finished,
		PromptTokens: 1000, CachedTokens: 600, CacheWriteTokens: 300, OutputTokens: 50,
	}
	billed := counted
	billed.Cost = usd(0.25)
	uncounted := upstream.Chunk{Deltas: counted.Deltas, Finish: finished}
	prices := &cost.Prices{Input: 10, Output: 100, CacheRead: usd(1), CacheWrite: usd(12)}
	estimate := (100*10 + 600*1 + 300*12 + 50*100) / 1e6
	cut := errors.New("reset")
	for _, c := range []struct {
		name   string
		prices *cost.Prices
		list   []upstream.Chunk
		err    error // of the stream, or of the request where there is no chunk
		usd    *float64
		basis  cost.Basis
	}{
		{"priced", prices, []upstream.Chunk{counted}, nil, &estimate, cost.Estimated},
		{"billed", prices, []upstream.Chunk{billed}, nil, usd(0.25), cost.Billed},
		{"billed, no prices", nil, []upstream.Chunk{billed}, nil, usd(0.25), cost.Billed},
		{"no prices", nil, []upstream.Chunk{counted}, nil, nil, cost.Unknown},
		{"no counts", prices, []upstream.Chunk{uncounted}, nil, nil, cost.Unknown},
		{"free", &cost.Prices{}, []upstream.Chunk{counted}, nil, usd(0), cost.Estimated},
		{"refused", prices, nil, &upstream.StatusError{Status: 429}, nil, ""},
		{"cut", prices, []upstream.Chunk{{Deltas: []chat.Delta{{Type: chat.DeltaText, Text: strings.Repeat("x", 300)}}, PromptTokens: 1000, OutputTokens: 1}}, cut,
			usd((1000*10 + 101*100) / 1e6), cost.Estimated},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := replies("anthropic")
			p.reply = func(context.Context, *upstream.Request) (upstream.Stream, error) {
				if c.list == nil {
					return nil, c.err
				}
				s := &chunks{list: c.list}
				s.wait = func(i int) error {
					if i == len(c.list) {
						return c.err
					}
					return nil
				}
				return s, nil
			}
			b := fronting(t, p, func(_ *gateway.Options, m *gateway.Model) { m.Prices = c.prices })
			s := b.session(t)
			post(t, s, ask("hello", true))
			rec := b.store.only(t)
			assert.Equal(t, string(c.basis), rec.CostBasis)
			assert.Equal(t, c.basis, s.Stats().Cost.Basis)
			if c.usd == nil {
				assert.Nil(t, rec.Cost)
				assert.Nil(t, s.Stats().Cost.Amount())
				return
			}
			require.NotNil(t, rec.Cost)
			assert.InDelta(t, *c.usd, *rec.Cost, 1e-12)
			assert.InDelta(t, *c.usd, s.Stats().Cost.USD, 1e-12)
		})
	}
}

// TestSideCallsCost: a call of a side conversation is paid for as any other, a
// reply that is sent again is not.
func TestSideCallsCost(t *testing.T) {
	b := start(t, says("ok"+imEnd, 10), priced(1, 1))
	s := b.session(t)
	require.Equal(t, 200, post(t, s, ask("a title", false)).status)
	require.Equal(t, 200, post(t, s, ask("work", false, addTool)).status)
	again := request(t, s, ask("work", false, addTool))
	again.Header.Set("X-Stainless-Retry-Count", "1")
	require.Equal(t, 200, do(t, again).status)
	calls := b.store.all()
	require.Len(t, calls, 3)
	assert.Equal(t, []trace.Kind{trace.Side, trace.Main, trace.Retry}, []trace.Kind{calls[0].Kind, calls[1].Kind, calls[2].Kind})
	assert.Empty(t, calls[2].CostBasis)
	assert.InDelta(t, *calls[0].Cost+*calls[1].Cost, s.Stats().Cost.USD, 1e-12)
	assert.Equal(t, 1, s.Stats().Turns)
}

// answering is a stream that says who gives it, as that of a failover list.
type answering struct {
	upstream.Stream
	by upstream.Upstream
}

func (a answering) By() upstream.Upstream { return a.by }

// TestCostOfWhoAnswered: the prices are those of the upstream that generated.
func TestCostOfWhoAnswered(t *testing.T) {
	list := []upstream.Chunk{{Deltas: said.Deltas, Finish: finished, PromptTokens: 1e6}}
	cheap := &provider{info: upstream.Info{Parses: true, Prices: &cost.Prices{Input: 2}}}
	free := &provider{info: upstream.Info{Parses: true}}
	for by, want := range map[*provider]string{cheap: "2 estimated", free: "<nil> unknown"} {
		p := replies("")
		p.info.Prices = &cost.Prices{Input: 7}
		p.reply = func(context.Context, *upstream.Request) (upstream.Stream, error) {
			return answering{&chunks{list: list}, by}, nil
		}
		b := fronting(t, p)
		post(t, b.session(t), ask("hello", false))
		rec := b.store.only(t)
		got := "<nil> " + rec.CostBasis
		if rec.Cost != nil {
			got = fmt.Sprint(*rec.Cost, " ", rec.CostBasis)
		}
		assert.Equal(t, want, got)
	}
}

// TestBudgetOfMoney: a session never costs more than its budget. The last reply
// is bounded to what is left, and what can't be paid for is refused in the
// dialect, as over budget.
func TestBudgetOfMoney(t *testing.T) {
	for _, d := range dialects[:2] {
		t.Run(d.name, func(t *testing.T) {
			asked := []int{}
			e := &engine{reply: func(_ context.Context, r *upstream.Request) (upstream.Stream, error) {
				asked = append(asked, *r.Sampling.MaxTokens)
				// It uses all that it may.
				return stream(strings.Repeat("x", *r.Sampling.MaxTokens-1)+imEnd, 1000), nil
			}}
			b := start(t, e, priced(1, 1e4), func(_ *gateway.Options, m *gateway.Model) {
				most := 1000
				m.Sampling.MaxTokens = &most
			})
			s := b.session(t, spending(25)) // 2500 tokens of replies and a bit
			statuses := []int{}
			for range 4 {
				path, body := d.request(true)
				a := send(t, s, "POST", path, body)
				statuses = append(statuses, a.status)
				if a.status != 200 {
					assert.Contains(t, a.body, "budget")
					assert.Contains(t, a.body, "of 25 USD are used")
				}
			}
			assert.Equal(t, []int{200, 200, 200, 403}, statuses)
			assert.Equal(t, []int{1000, 1000, 499}, asked)
			st := s.Stats()
			assert.LessOrEqual(t, st.Cost.USD, 25.0)
			assert.Greater(t, st.Cost.USD, 24.0)
			assert.True(t, st.BudgetHit)
			calls := b.store.all()
			require.Len(t, calls, 4)
			assert.Empty(t, calls[0].Edits)
			require.Len(t, calls[2].Edits, 1, "that the reply was bounded is recorded")
			assert.Equal(t, "budget", calls[2].Edits[0].Hook)
			assert.JSONEq(t, `{"/sampling/max_tokens":1000}`, string(calls[2].Edits[0].Before))
			assert.JSONEq(t, `{"/sampling/max_tokens":499}`, string(calls[2].Edits[0].After))
			assert.Equal(t, trace.CallBudget, calls[3].Status)
			assert.Empty(t, calls[3].CostBasis)
		})
	}
}

// TestBudgetOfMoneySideBySide: calls at once never overspend together, and none
// is refused for what others only hold.
func TestBudgetOfMoneySideBySide(t *testing.T) {
	var running, most atomic.Int32
	e := &engine{reply: func(context.Context, *upstream.Request) (upstream.Stream, error) {
		now := running.Add(1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		s := stream("ok"+imEnd, 10)
		s.wait = func(i int) error {
			time.Sleep(5 * time.Millisecond)
			if i == len(s.list)-1 {
				running.Add(-1)
			}
			return nil
		}
		return s, nil
	}}
	b := start(t, e, priced(0, 1e3), func(o *gateway.Options, _ *gateway.Model) { o.KeepAlive = 2 * time.Millisecond })
	s := b.session(t, spending(2.5)) // a call can cost 1 and costs 0.003
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			a := post(t, s, ask(fmt.Sprint("hello ", i), true))
			assert.Equal(t, 200, a.status, a.body)
			assert.Equal(t, "ok", at(joined(t, eventsOf(t, a)), "content", 0, "text"))
		})
	}
	all.Wait()
	assert.EqualValues(t, 2, most.Load(), "what two of them can cost is there, not that of three")
	assert.False(t, s.Stats().BudgetHit)
	assert.InDelta(t, 12*0.003, s.Stats().Cost.USD, 1e-9)
}

// TestBudgetOfMoneyThatIsntTold: a reply that can be neither billed nor counted
// takes all that was set aside for it.
func TestBudgetOfMoneyThatIsntTold(t *testing.T) {
	p := replies("anthropic", said)
	b := fronting(t, p, priced(0, 1e3))
	s := b.session(t, spending(1.5))
	require.Equal(t, 200, post(t, s, ask("hello", false)).status)
	assert.Equal(t, cost.Unknown, s.Stats().Cost.Basis)
	require.Equal(t, 200, post(t, s, ask("again", false)).status)
	assert.Equal(t, 500, *p.seen()[1].Sampling.MaxTokens)
	assert.Equal(t, 403, post(t, s, ask("and again", false)).status)
}

// TestBudgetCountsPrompts: where only the upstream knows how long a prompt is,
// it is asked once its size in bytes may not fit; one that doesn't count has it
// guessed.
func TestBudgetCountsPrompts(t *testing.T) {
	long := strings.Repeat("word ", 2000) // 10,000 bytes
	image := `[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + strings.Repeat("A", 100_000) + `"}}]`
	for name, c := range map[string]struct {
		budget float64
		tokens int // as the upstream counts, 0 for not at all
		body   string
		status int
		asked  int // how often it was asked
	}{
		"bytes fit":            {100, 2500, ask(long, false), 200, 0},
		"counted, fits":        {5, 2500, ask(long, false), 200, 1},
		"counted, too much":    {5, 6000, ask(long, false), 403, 1},
		"guessed, fits":        {6, 0, ask(long, false), 200, 1},
		"guessed, too much":    {3, 0, ask(long, false), 403, 1},
		"images aren't texts":  {6, 0, strings.Replace(ask("X", false), `"X"`, image, 1), 200, 1},
		"images are something": {2, 0, strings.Replace(ask("X", false), `"X"`, image, 1), 403, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := replies("anthropic", said)
			asked := 0
			p.count = func(*upstream.Request) (int, error) {
				if asked++; c.tokens == 0 {
					return 0, upstream.ErrNoCount
				}
				return c.tokens, nil
			}
			b := fronting(t, p, priced(1e3, 1e-3)) // 1 for a thousand tokens of the prompt
			a := post(t, b.session(t, spending(c.budget)), c.body)
			assert.Equal(t, c.status, a.status, a.body)
			assert.Equal(t, c.asked, asked)
		})
	}
}

// TestBudgetLeavesRoomToThink: a reply isn't bounded below what its thinking
// needs, which the provider would refuse.
func TestBudgetLeavesRoomToThink(t *testing.T) {
	p := replies("anthropic", said)
	b := fronting(t, p, priced(0, 1e3))
	for budget, status := range map[float64]int{1: 200, 0.6: 200, 0.5: 403} {
		s := b.session(t, spending(budget))
		a := post(t, s, ask("hello", false, `"thinking":{"type":"enabled","budget_tokens":512}`))
		assert.Equal(t, status, a.status, "%v: %s", budget, a.body)
	}
}

// TestBudgetWaitsEnd: a call that waits for others of the budget ends with its
// session, or when its client leaves.
func TestBudgetWaitsEnd(t *testing.T) {
	entered := make(chan struct{}, 1)
	b := start(t, slow(entered, nil), priced(0, 1e3), func(o *gateway.Options, _ *gateway.Model) { o.OperatorToken = operator })
	s := b.session(t, spending(1.1))
	waits := func() bool {
		v := decoded(t, b.control(t, operator, "GET", "/sessions/"+s.ID(), "").body)
		return v["in_flight"] == 2.0
	}
	postAside(t, s, ask("first", true))
	<-entered
	left, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = http.DefaultClient.Do(request(t, s, ask("second", false)).WithContext(left))
	}()
	require.Eventually(t, waits, 5*time.Second, time.Millisecond)
	cancel()
	<-gone
	require.Eventually(t, func() bool { return len(b.store.all()) == 1 }, 5*time.Second, time.Millisecond)
	second := b.store.all()[0]
	assert.Equal(t, trace.CallCancelled, second.Status)
	assert.Contains(t, second.Error.Message, "waited for others of the budget")

	postAside(t, s, ask("third", false))
	require.Eventually(t, waits, 5*time.Second, time.Millisecond)
	ctx, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer end()
	_ = s.Close(ctx)
	require.Eventually(t, func() bool { return len(b.store.all()) == 3 }, 5*time.Second, time.Millisecond)
	for _, c := range b.store.all()[1:] {
		assert.Equal(t, trace.CallCancelled, c.Status)
	}
}

func TestBudgetOfMoneyNeedsPrices(t *testing.T) {
	b := controlled(t, says("hi", 10))
	_, err := b.Open(t.Context(), gateway.SessionSpec{Session: trace.Session{ID: "s"}, Model: b.model, Budget: gateway.Budget{USD: 1}})
	assert.ErrorContains(t, err, "a budget in USD needs prices, and model policy has none")
	for _, body := range []string{`{"budget":{"usd":1}}`, `{"budget":{"usd":-1}}`, `{"budget":{"calls":-1}}`} {
		assert.Equal(t, 400, b.control(t, operator, "POST", "/sessions", body).status, body)
	}
}

// TestBudgetGoesOn: what others used of a budget before is gone from it.
func TestBudgetGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		budget, used gateway.Budget
		calls        int // that are answered
		words        string
	}{
		"calls":         {gateway.Budget{Calls: 3}, gateway.Budget{Calls: 2}, 1, "3 of 3 calls"},
		"turns":         {gateway.Budget{Turns: 3}, gateway.Budget{Turns: 2}, 1, "3 of 3 turns"},
		"tokens":        {gateway.Budget{Tokens: 60}, gateway.Budget{Tokens: 30}, 1, "58 tokens of 60 are used, and the prompt has 24"},
		"no room":       {gateway.Budget{Tokens: 1000}, gateway.Budget{Tokens: 999}, 0, "999 tokens of 1000 are used, and the prompt has"},
		"money":         {gateway.Budget{USD: 1}, gateway.Budget{USD: 0.9999}, 0, "0.9999 of 1 USD"},
		"nothing left":  {gateway.Budget{Calls: 2}, gateway.Budget{Calls: 2}, 0, "2 of 2 calls"},
		"another bound": {gateway.Budget{Calls: 2}, gateway.Budget{Tokens: 9000}, 2, "2 of 2 calls"},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, says("one"+imEnd, 10), priced(1, 1000))
			s := b.session(t, func(spec *gateway.SessionSpec) { spec.Budget, spec.Used = c.budget, c.used })
			for range c.calls {
				require.Equal(t, 200, post(t, s, ask("hello", true, addTool)).status)
			}
			a := post(t, s, ask("hello", true, addTool))
			isAnthropicError(t, a, 403, "permission_error")
			assert.Contains(t, a.body, c.words)
			assert.Equal(t, c.calls, s.Stats().Calls) // its own alone
		})
	}
}

// TestUnknownCostIsHeld: a call whose cost isn't known is recorded with what the
// budget counts for it, so that who reads the record counts the same.
func TestUnknownCostIsHeld(t *testing.T) {
	p := replies("anthropic")
	p.reply = func(context.Context, *upstream.Request) (upstream.Stream, error) {
		return &chunks{list: []upstream.Chunk{{Deltas: []chat.Delta{{Type: chat.DeltaText, Text: "hi"}, {Type: chat.DeltaPartEnd}}, Finish: finished}}}, nil
	}
	b := fronting(t, p, priced(1, 100))
	post(t, b.session(t, spending(5)), ask("hello", true))
	rec := b.store.only(t)
	assert.Equal(t, "unknown", rec.CostBasis)
	assert.Greater(t, rec.Held, 0.0)
	assert.Less(t, rec.Held, 5.0)
}
