package rows

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/converter"
)

// world is a store with one rollout of one stage.
type world struct {
	*testing.T
	store   *trace.Store
	rollout *trace.Rollout
	seq     map[string]int
}

func newWorld(t *testing.T) *world {
	s, err := trace.Open(filepath.Join(t.TempDir(), "penstock.db"), trace.StoreOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	reward := 0.5
	w := &world{t, s, &trace.Rollout{ID: "t1~0", Task: "t1", Status: trace.Completed, ExitStatus: "ok",
		Reward: &reward, Components: map[string]float64{"c": 1}}, map[string]int{}}
	w.session("s-1", 1, 1)
	return w
}

func (w *world) session(id string, round, try int) {
	require.NoError(w, w.store.PutSession(context.Background(), &trace.Session{ID: id, Rollout: w.rollout.ID, Task: "t1",
		Stage: "solve", Round: round, Try: try, Attempt: fmt.Sprintf("t1~0~solve~%d~%d", round, try)}))
}

// call stores a call of session s-1 with prompt and sampled ids and a logprob
// of -id for each of the latter.
func (w *world) call(lineage string, parent *trace.Call, prompt, sampled []int32, change ...func(*trace.Call)) *trace.Call {
	return w.callOf("s-1", lineage, parent, prompt, sampled, change...)
}

func (w *world) callOf(session, lineage string, parent *trace.Call, prompt, sampled []int32, change ...func(*trace.Call)) *trace.Call {
	w.seq[session]++
	c := &trace.Call{ID: fmt.Sprintf("%s.%d", session, w.seq[session]), Session: session, Seq: w.seq[session], Status: trace.CallOK,
		ModelEntry: "policy", ModelServed: "m", Engine: "script", Format: "f", Tokenizer: "tok", Capture: "exact",
		Lineage: session + "/" + lineage + "0", Kind: trace.Kind(lineage), PromptIDs: prompt, SampledIDs: sampled, Finish: "stop", Raw: "x",
		Chat:   &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: fmt.Sprint(prompt)}}}}},
		Parsed: &chat.Reply{Parts: []chat.Part{{Type: chat.Text, Text: fmt.Sprint(sampled)}}}}
	for _, id := range sampled {
		c.Logprobs = append(c.Logprobs, -float64(id))
	}
	if parent != nil {
		c.Parent, c.Extends = parent.ID, true
	}
	for _, f := range change {
		f(c)
	}
	require.NoError(w, w.store.PutCall(context.Background(), c))
	return c
}

func (w *world) rows() []*converter.Row {
	rows, err := ForRollout(context.Background(), w.store, "r-1", w.rollout)
	require.NoError(w, err)
	for _, r := range rows {
		w.check(r)
	}
	return rows
}

// check holds what is true of every row with ids.
func (w *world) check(r *converter.Row) {
	require.Equal(w, converter.Schema, r.Schema)
	if r.InputIDs == nil {
		require.Nil(w, r.LossMask)
		require.Nil(w, r.Logprobs)
		require.Nil(w, r.PromptLen)
		return
	}
	require.Len(w, r.LossMask, len(r.InputIDs))
	require.Len(w, r.Logprobs, len(r.InputIDs))
	for i := range r.InputIDs {
		require.Equal(w, r.LossMask[i] == 1, r.Logprobs[i] != nil, "mask 1 goes with a logprob, at %d", i)
	}
	for i := range *r.PromptLen {
		require.Zero(w, r.LossMask[i], "the prompt is never trained")
	}
}

func trained(r *converter.Row) (ids []int32) {
	for i, m := range r.LossMask {
		if m == 1 {
			ids = append(ids, r.InputIDs[i])
		}
	}
	return ids
}

// Acceptance case 28: a turn that extends another by ids goes into its row,
// with mask 0 on what was inserted.
func TestCase28TurnsThatExtendMakeOneRow(t *testing.T) {
	w := newWorld(t)
	a := w.call("main", nil, []int32{1, 2}, []int32{10, 11}, func(c *trace.Call) { c.Weights = "v1" })
	b := w.call("main", a, []int32{1, 2, 10, 11, 3}, []int32{12}, func(c *trace.Call) { c.Weights, c.Finish = "v2", "length" })
	rows := w.rows()
	require.Len(t, rows, 1)
	r := rows[0]
	assert.Equal(t, []int32{1, 2, 10, 11, 3, 12}, r.InputIDs)
	assert.Equal(t, []int8{0, 0, 1, 1, 0, 1}, r.LossMask)
	assert.Equal(t, -11.0, *r.Logprobs[3])
	assert.Equal(t, 2, *r.PromptLen)
	assert.Equal(t, []string{a.ID, b.ID}, r.Calls)
	assert.Equal(t, []string{"v1", "v2"}, r.WeightVersions)
	assert.Equal(t, "length", r.FinishReason)
	assert.Equal(t, "t1~0~solve~1~1/main0/0", r.Row)
	assert.Equal(t, "s-1/main0", r.Lineage)
	assert.Equal(t, "main", r.LineageKind)
	assert.Equal(t, "t1", r.Group)
	assert.Equal(t, "tok", r.TokenizerHash)
	assert.Equal(t, converter.Integrity{Calls: 2}, r.Integrity)
	assert.Nil(t, r.Messages)
}

// Acceptance case 28 goes on: on divergence the row is split, the reason is
// counted, and no token is trained twice.
func TestCase28ForkSplitsAndIsCounted(t *testing.T) {
	w := newWorld(t)
	a := w.call("main", nil, []int32{1}, []int32{10})
	w.call("main", a, []int32{1, 10, 2}, []int32{11})
	w.call("main", nil, []int32{9, 10, 2}, []int32{12}, func(c *trace.Call) { c.Parent, c.Fork = "s-1.2", "reasoning_dropped" })
	rows := w.rows()
	require.Len(t, rows, 2)
	assert.Equal(t, []int32{10, 11}, trained(rows[0]))
	assert.Equal(t, []int32{12}, trained(rows[1]))
	assert.Equal(t, "t1~0~solve~1~1/main0/1", rows[1].Row)
	assert.Equal(t, rows[0].Row, rows[1].ParentRow)
	assert.Equal(t, map[string]int{"reasoning_dropped": 1}, rows[0].Integrity.Drift)
	assert.Empty(t, rows[0].Integrity.Warn)
	assert.Equal(t, []string{"call s-1.3 begins with 0 of the 4 ids of call s-1.2: reasoning_dropped"}, rows[1].Integrity.Warn)
}

// Fault A11: a turn whose prompt departs at some place from the ids of the turn
// before, sampled ones included, forks there. Ids and logprobs of the two are
// never joined, and the place is said.
func TestFaultA11ForksAreToldWithTheirPlace(t *testing.T) {
	for at := range 5 { // of the ids 1 2 10 11 12
		w := newWorld(t)
		a := w.call("main", nil, []int32{1, 2}, []int32{10, 11, 12})
		other := append([]int32{1, 2, 10, 11, 12}[:at:at], 90, 91, 92, 93, 94, 95, 96)
		w.call("main", nil, other, []int32{13}, func(c *trace.Call) { c.Parent, c.Fork = a.ID, "reasoning_dropped" })
		rows := w.rows()
		require.Len(t, rows, 2, "at %d", at)
		assert.Equal(t, []int32{1, 2, 10, 11, 12}, rows[0].InputIDs)
		assert.Equal(t, append(other, 13), rows[1].InputIDs)
		assert.Equal(t, []int32{13}, trained(rows[1]), "what the first one sampled is trained there alone")
		assert.Equal(t, []string{fmt.Sprintf("call s-1.2 begins with %d of the 5 ids of call s-1.1: reasoning_dropped", at)}, rows[1].Integrity.Warn)
		assert.Empty(t, rows[1].Integrity.Fatal)
	}
}

func TestBranchMasksWhatItShares(t *testing.T) {
	w := newWorld(t)
	a := w.call("main", nil, []int32{1}, []int32{10})
	w.call("main", a, []int32{1, 10, 2}, []int32{11})
	b := w.call("continuation", a, []int32{1, 10, 3}, []int32{12})
	w.call("continuation", b, []int32{1, 10, 3, 12, 4}, []int32{13})
	rows := w.rows()
	require.Len(t, rows, 2)
	assert.Equal(t, []int32{10, 11}, trained(rows[0]))
	assert.Equal(t, []int32{1, 10, 3, 12, 4, 13}, rows[1].InputIDs)
	assert.Equal(t, []int32{12, 13}, trained(rows[1]))
	assert.Equal(t, 3, *rows[1].PromptLen)
	assert.Equal(t, rows[0].Row, rows[1].ParentRow)
	assert.Equal(t, "t1~0~solve~1~1/continuation0/0", rows[1].Row)
}

// Acceptance case 27: what the record says must hold.
func TestCase27BrokenExtensionIsFatalAndNeverJoined(t *testing.T) {
	w := newWorld(t)
	a := w.call("main", nil, []int32{1}, []int32{10})
	b := w.call("main", a, []int32{1, 99, 2}, []int32{11})
	rows := w.rows()
	require.Len(t, rows, 2)
	assert.Empty(t, rows[0].Integrity.Fatal)
	assert.Equal(t, []string{"call " + b.ID + " is said to extend call " + a.ID +
		", but its prompt does not begin with the ids of that one"}, rows[1].Integrity.Fatal)
	assert.Equal(t, []int32{1, 99, 2, 11}, rows[1].InputIDs)
}

func TestCase27LogprobsOfAnotherLengthAreFatal(t *testing.T) {
	w := newWorld(t)
	w.call("main", nil, []int32{1}, []int32{10, 11}, func(c *trace.Call) { c.Logprobs = c.Logprobs[:1] })
	rows := w.rows()
	require.Len(t, rows, 1)
	assert.Equal(t, []string{"call s-1.1 has 1 logprobs for 2 sampled tokens"}, rows[0].Integrity.Fatal)
	assert.Empty(t, trained(rows[0]))
}

// A secret takes the ids of its call, and of all that build on it. What came
// before stays good.
func TestRedactedTokensAreFatal(t *testing.T) {
	w := newWorld(t)
	redacted := func(c *trace.Call) {
		c.PromptIDs, c.SampledIDs, c.Logprobs = nil, nil, nil
		c.Warnings = []trace.Warning{{Kind: trace.WarnRedacted}}
	}
	a := w.call("main", nil, []int32{1}, []int32{10})
	b := w.call("main", a, nil, nil, redacted)
	c := w.call("main", b, nil, nil, redacted)
	w.call("compaction", c, []int32{5}, []int32{12})
	rows := w.rows()
	require.Len(t, rows, 3)
	assert.Empty(t, rows[0].Integrity.Fatal)
	assert.Equal(t, []int32{10}, trained(rows[0]))
	assert.Equal(t, []string{
		"redacted_tokens: call s-1.2 had a secret in its tokens, whose ids are not kept",
		"redacted_tokens: call s-1.3 had a secret in its tokens, whose ids are not kept",
	}, rows[1].Integrity.Fatal)
	assert.Empty(t, rows[1].InputIDs)
	assert.Equal(t, []int32{12}, trained(rows[2]))
}

func TestRedactedTextIsAWarning(t *testing.T) {
	w := newWorld(t)
	w.call("main", nil, nil, nil, func(c *trace.Call) {
		c.Capture, c.Warnings = "text", []trace.Warning{{Kind: trace.WarnRedacted}}
	})
	rows := w.rows()
	require.Len(t, rows, 1)
	assert.Empty(t, rows[0].Integrity.Fatal)
	assert.Equal(t, []string{"redacted_tokens: call s-1.1 had a secret in its text, which a mark stands for"}, rows[0].Integrity.Warn)
}

func TestMissingLogprobIsMaskedNeverZero(t *testing.T) {
	w := newWorld(t)
	a := w.call("main", nil, []int32{1}, []int32{10, 11, 12}, func(c *trace.Call) {
		c.Logprobs[1] = math.NaN()
		c.Logprobs[2] = math.Inf(-1)
	})
	w.call("main", a, []int32{1, 10, 11, 12, 2}, []int32{13}, func(c *trace.Call) { c.Logprobs = nil })
	rows := w.rows()
	require.Len(t, rows, 1)
	assert.Equal(t, []int8{0, 1, 0, 0, 0, 0}, rows[0].LossMask)
	assert.Equal(t, []string{"2 sampled tokens of call s-1.1 have no logprob and are masked",
		"call s-1.2 has no logprobs: its 1 sampled tokens are masked"}, rows[0].Integrity.Warn)
	b, err := json.Marshal(rows[0])
	require.NoError(t, err)
	assert.Contains(t, string(b), `"logprobs":[null,-10,null,null,null,null]`)
}

// Acceptance case 30: one bad record does not lose the rollout.
func TestCase30BadCallsAreSkippedWithReason(t *testing.T) {
	w := newWorld(t)
	a := w.call("main", nil, []int32{1}, []int32{10})
	w.call("main", a, []int32{1, 10, 2}, []int32{11}, func(c *trace.Call) { c.Status = trace.CallError })
	w.call("main", a, []int32{1, 10, 7}, nil, func(c *trace.Call) { c.Raw = "" })
	w.call("main", a, nil, []int32{5})
	w.call("main", nil, nil, nil, func(c *trace.Call) { c.Status, c.Raw, c.Lineage, c.Kind = trace.CallInvalid, "", "", "" })
	w.call("main", a, []int32{1, 10, 2}, []int32{12})
	rows := w.rows()
	require.Len(t, rows, 1)
	assert.Equal(t, []int32{10, 12}, trained(rows[0]))
	assert.Equal(t, 6, rows[0].Integrity.Calls)
	assert.Equal(t, []string{
		"call s-1.2 is in no row: its status is error after something was sampled",
		"call s-1.3 is in no row: it sampled nothing",
		"call s-1.4 is in no row: it has no prompt ids",
	}, rows[0].Integrity.Warn)
}

func TestGapInTheSessionIsCounted(t *testing.T) {
	w := newWorld(t)
	w.seq["s-1"] = 2
	w.call("main", nil, []int32{1}, []int32{10})
	rows := w.rows()
	require.Len(t, rows, 1)
	assert.Equal(t, 2, rows[0].Integrity.Missing)
	assert.Equal(t, []string{"2 calls of the session are not in the store"}, rows[0].Integrity.Warn)
}

// Acceptance case 24: a session whose trace had no room says so in its rows.
func TestCase24IncompleteSessionsSaySo(t *testing.T) {
	w := newWorld(t)
	w.call("main", nil, []int32{1}, []int32{10})
	require.NoError(t, w.store.PutSession(t.Context(), &trace.Session{ID: "s-1", Rollout: w.rollout.ID, Stage: "solve", Round: 1, Try: 1,
		Attempt: "t1~0~solve~1~1", Incomplete: "it takes too much", Unrecorded: 4}))
	rows := w.rows()
	require.Len(t, rows, 1)
	assert.Equal(t, 4, rows[0].Integrity.Missing)
	assert.Equal(t, []string{"the session is incomplete, 4 calls were refused: it takes too much"}, rows[0].Integrity.Warn)
}

// Acceptance case 29 as far as kinds are told: side calls and sub-agents have
// rows of their own kind, retries and probes none.
func TestCase29KindsAreKeptApart(t *testing.T) {
	w := newWorld(t)
	w.call("probe", nil, []int32{1}, []int32{10})
	w.call("side", nil, []int32{2}, []int32{11})
	w.call("main", nil, []int32{3}, []int32{12})
	w.call("sub_agent", nil, []int32{4}, []int32{13})
	w.call("retry", nil, []int32{3}, []int32{14})
	var kinds []string
	for _, r := range w.rows() {
		assert.Equal(t, []string{"call s-1.5 is in no row: its reply was thrown away and asked for again"}, r.Integrity.Warn)
		kinds = append(kinds, r.LineageKind)
	}
	assert.Equal(t, []string{"side", "main", "sub_agent"}, kinds)
}

func TestOnlyTheLastTryOfEachRoundMakesRows(t *testing.T) {
	w := newWorld(t)
	w.session("s-2", 1, 2)
	w.session("s-3", 2, 1)
	for _, s := range []string{"s-1", "s-2", "s-3"} {
		w.callOf(s, "main", nil, []int32{1}, []int32{2})
	}
	var got []string
	for _, r := range w.rows() {
		got = append(got, r.Row)
	}
	assert.Equal(t, []string{"t1~0~solve~1~2/main0/0", "t1~0~solve~2~1/main0/0"}, got)
}

// Acceptance case 31 and fault 26: the reward is the rollout's, and nothing
// says how often it counts but the ids that group rows.
func TestCase31RewardIsTheRollouts(t *testing.T) {
	w := newWorld(t)
	w.call("main", nil, []int32{1}, []int32{10})
	w.call("sub_agent", nil, []int32{2}, []int32{11})
	for _, r := range w.rows() {
		assert.Equal(t, 0.5, *r.Reward)
		assert.Equal(t, map[string]float64{"c": 1}, r.Components)
		assert.Equal(t, [4]string{"r-1", "t1~0", "t1", "s-1"}, [4]string{r.Run, r.Rollout, r.Group, r.Session})
	}
	w.rollout.Reward = nil
	b, err := json.Marshal(w.rows()[0])
	require.NoError(t, err)
	assert.Contains(t, string(b), `"reward":null`)
}

func TestTextRowsHaveMessagesAndNoIDs(t *testing.T) {
	w := newWorld(t)
	plain := func(c *trace.Call) {
		c.Capture, c.PromptIDs, c.SampledIDs, c.Logprobs, c.Extends = "text", nil, nil, nil, false
		c.Chat.Tools = []chat.Tool{{Name: "calc"}}
	}
	a := w.call("main", nil, []int32{1}, []int32{10}, plain)
	w.call("main", a, []int32{1, 10, 2}, []int32{11}, plain)
	rows := w.rows()
	require.Len(t, rows, 1)
	require.Len(t, rows[0].Messages, 2)
	assert.Equal(t, chat.Message{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Text, Text: "[11]"}}}, rows[0].Messages[1])
	assert.Equal(t, "calc", rows[0].Tools[0].Name)
	b, err := json.Marshal(rows[0])
	require.NoError(t, err)
	assert.Contains(t, string(b), `"input_ids":null,"loss_mask":null,"logprobs":null,"prompt_len":null`)
}

func TestOtherSamplingInARowIsSaid(t *testing.T) {
	w := newWorld(t)
	hot, cold := 1.0, 0.0
	a := w.call("main", nil, []int32{1}, []int32{10}, func(c *trace.Call) { c.Effective.Temperature = &hot })
	b := w.call("main", a, []int32{1, 10, 2}, []int32{11}, func(c *trace.Call) { c.Effective.Temperature = &hot })
	w.call("main", b, []int32{1, 10, 2, 11}, []int32{12}, func(c *trace.Call) { c.Effective.Temperature = &cold })
	rows := w.rows()
	require.Len(t, rows, 1)
	assert.Equal(t, []string{"call s-1.3 was sampled with other settings than the first of the row"}, rows[0].Integrity.Warn)
}

func TestSelectedStreamsInOrder(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	w.call("main", nil, []int32{1}, []int32{10})
	require.NoError(t, w.store.PutTasks(ctx, []trace.Task{{ID: "t1", Seq: 1}, {ID: "t0", Seq: 0}}))
	require.NoError(t, w.store.PutRollout(ctx, w.rollout))
	other := *w.rollout
	other.ID, other.Task = "t0~0", "t0"
	require.NoError(t, w.store.PutRollout(ctx, &other))
	require.NoError(t, w.store.PutSession(ctx, &trace.Session{ID: "s-9", Rollout: other.ID, Stage: "solve", Round: 1, Try: 1, Attempt: "t0~0~solve~1~1"}))
	w.callOf("s-9", "main", nil, []int32{1}, []int32{10})
	require.NoError(t, w.store.Select(ctx, "rows", w.rollout.ID))
	require.NoError(t, w.store.Select(ctx, "rows", other.ID))
	var got []string
	for row, err := range Selected(ctx, w.store, "r-1", "rows") {
		require.NoError(t, err)
		got = append(got, row.Row)
	}
	assert.Equal(t, []string{"t0~0~solve~1~1/main0/0", "t1~0~solve~1~1/main0/0"}, got)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	n := 0
	for _, err := range Selected(cancelled, w.store, "r-1", "rows") {
		require.Error(t, err)
		n++
	}
	assert.Equal(t, 1, n)
}

// Each sampled token is trained at most once, however calls fork.
func TestNoTokenIsTrainedTwice(t *testing.T) {
	w := newWorld(t)
	var all []*trace.Call
	for i := range 60 {
		sampled := []int32{int32(1000 + 2*i), int32(1001 + 2*i)}
		if i == 0 {
			all = append(all, w.call("main", nil, []int32{1}, sampled))
			continue
		}
		p := all[(i*7)%len(all)]
		lineage := "main"
		if i%3 == 0 {
			lineage = "continuation"
		}
		all = append(all, w.call(lineage, p, append(slices.Concat(p.PromptIDs, p.SampledIDs), int32(i)), sampled))
	}
	times := map[int32]int{}
	for _, r := range w.rows() {
		for _, id := range trained(r) {
			times[id]++
		}
	}
	assert.Len(t, times, 120)
	for id, n := range times {
		assert.Equal(t, 1, n, "token %d", id)
	}
}

// Faults 20, 21 and 25 of the first system: keys in every sample, the ids of
// all other segments in each, and the first turn's prompt for all.
func TestFaults20And21And25RowsHoldOnlyTheirOwn(t *testing.T) {
	w := newWorld(t)
	var parent *trace.Call
	for i := range 40 {
		prompt := slices.Repeat([]int32{int32(5000 + i)}, 50)
		parent = w.call("main", parent, prompt, []int32{int32(9000 + i)}, func(c *trace.Call) {
			c.Extends, c.Fork = false, "edited_history"
			c.Headers = map[string]string{"authorization": "canary"}
		})
	}
	rows := w.rows()
	require.Len(t, rows, 40)
	for i, r := range rows {
		b, err := json.Marshal(r)
		require.NoError(t, err)
		assert.NotContains(t, string(b), "canary")
		assert.Less(t, len(b), 3000)
		assert.Equal(t, int32(5000+i), r.InputIDs[0])
	}
}

// Fault 22: one empty record fails the rollout. Fault 23: the policy version
// is not carried. Fault 24: side calls are trained as if they were main.
func TestFaults22To24EmptyRecordsVersionsAndSideCalls(t *testing.T) {
	w := newWorld(t)
	w.call("side", nil, []int32{1}, nil)
	w.call("side", nil, []int32{1}, []int32{2}, func(c *trace.Call) { c.Weights = "step-7" })
	rows := w.rows()
	require.Len(t, rows, 1)
	assert.Equal(t, []string{"step-7"}, rows[0].WeightVersions)
	assert.Equal(t, "main", rows[0].LineageKind, "all that a session without tools has")
	w.call("main", nil, []int32{3}, []int32{4})
	rows = w.rows()
	require.Len(t, rows, 2)
	assert.Equal(t, "side", rows[0].LineageKind)
}
