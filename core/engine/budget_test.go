package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// TestWhatTriesUse: what counts of a try is what reached the upstream, for as
// long as the try's session was open.
func TestWhatTriesUse(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	half := 0.5
	calls := []*trace.Call{
		{Kind: trace.Main, Usage: chat.Usage{Input: 100, Output: 10}, Cost: &half, CostBasis: "estimated", Done: at(2)},
		{Kind: trace.SubAgent, Usage: chat.Usage{Input: 50, Output: 5}, CostBasis: "unknown", Held: 0.25, Done: at(4)},
		{Kind: trace.Main, Status: trace.CallBudget, Done: at(5)}, // it was refused
	}
	var u used
	u.add(&trace.Session{Opened: at(0), Closed: at(9)}, calls)
	assert.Equal(t, 2, u.Calls)
	assert.Equal(t, 1, u.Turns)
	assert.Equal(t, 165, u.Tokens)
	assert.InDelta(t, 0.75, u.USD, 1e-9)
	assert.Equal(t, 9*time.Second, u.wall)
	// One that nobody closed went on until its last call, at the least.
	u.add(&trace.Session{Opened: at(0)}, calls[:2])
	assert.Equal(t, 4, u.Calls)
	assert.Equal(t, 13*time.Second, u.wall)
	u.add(&trace.Session{Opened: at(0)}, nil)
	assert.Equal(t, 13*time.Second, u.wall)

	for want, b := range map[string]pipeline.Budget{
		"":                  {Calls: 5, Turns: 3, Tokens: 331, USD: 1.6, Wall: 14 * time.Second},
		"4 of 4 calls":      {Calls: 4},
		"2 of 1 turns":      {Turns: 1},
		"330 of 330 tokens": {Tokens: 330},
		"1.5000 of 1 USD":   {USD: 1},
		"13s of 13s":        {Wall: 13 * time.Second},
	} {
		assert.Equal(t, want, u.over(b))
	}

	assert.Equal(t, 7*time.Second, u.limit(&pipeline.Stage{Timeout: time.Minute, Budget: pipeline.Budget{Wall: 20 * time.Second}}))
	assert.Equal(t, 5*time.Second, u.limit(&pipeline.Stage{Timeout: 5 * time.Second, Budget: pipeline.Budget{Wall: 20 * time.Second}}))
	assert.Equal(t, time.Minute, u.limit(&pipeline.Stage{Timeout: time.Minute}))
}
