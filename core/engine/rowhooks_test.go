package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/hook"
)

const rowsOnly = `penstock: v1
tasks: { inline: [{ id: a, word: kumquat }], samples: 3 }
stages:
  - { id: size, uses: judger/length, with: { text: four } }
  - { id: rows, uses: converter/list, hooks: HOOKS }
  - { id: plain, uses: converter/list }
`

// called gives each rollout a session of one call, as an agent would leave it.
func (b *bench) called(sample int) {
	b.Helper()
	ctx, id := b.Context(), fmt.Sprintf("a~%d", sample)
	session := &trace.Session{ID: fmt.Sprintf("s-%d", sample), Rollout: id, Task: "a", Stage: "solve", Round: 1, Try: 1,
		Attempt: id + "~solve~1~1", ModelEntry: "policy"}
	require.NoError(b, b.store.PutSession(ctx, session))
	said := []chat.Part{{Type: chat.Text, Text: fmt.Sprintf("reply %d", sample)}}
	require.NoError(b, b.store.PutCall(ctx, &trace.Call{
		ID: session.ID + ".1", Session: session.ID, Seq: 1, Status: trace.CallOK, Capture: "exact", Lineage: session.ID + "/main0", Kind: trace.Main,
		PromptIDs: []int32{1, 2}, SampledIDs: []int32{7, int32(sample)}, Logprobs: []float64{-1, -0.5}, Finish: "stop",
		Chat:   &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "hello"}}}}},
		Parsed: &chat.Reply{Parts: said}, Served: &chat.Reply{Parts: said},
	}))
	require.NoError(b, b.store.PutStage(ctx, &trace.StageResult{Rollout: id, Stage: "solve", Round: 1, Try: 1, Session: session.ID, Status: "completed",
		Output: json.RawMessage(fmt.Sprintf(`{"text":"reply %d"}`, sample))}, nil))
}

func onRows(hooks string) string {
	return string(bytes.ReplaceAll([]byte(rowsOnly), []byte("HOOKS"), []byte(hooks)))
}

// written are the rows of a file.
func (b *bench) written(name string) []*converter.Row {
	b.Helper()
	data, err := os.ReadFile(b.folder.Path(name))
	require.NoError(b, err)
	var out []*converter.Row
	for line := range bytes.Lines(data) {
		r := &converter.Row{}
		require.NoError(b, json.Unmarshal(line, r))
		out = append(out, r)
	}
	return out
}

func (b *bench) withCalls() *bench {
	for sample := range 3 {
		b.called(sample)
	}
	return b
}

// rewards gives sample 1 another reward and masks its last token, and denies
// sample 2.
func rewards(_ context.Context, e *hook.Event) (hook.Result, error) {
	var row converter.Row
	if err := json.Unmarshal([]byte(e.Subject().String("")), &row); err != nil {
		return hook.Result{}, err
	}
	switch row.Sample {
	case 1:
		half := 0.5
		row.Reward, row.LossMask[3], row.Logprobs[3] = &half, 0, nil
		value, err := chat.Marshal(row)
		return hook.Result{Action: hook.Replace, Value: value, Report: json.RawMessage(`{"halved":true}`)}, err
	case 2:
		return hook.Result{Action: hook.Deny, Reason: "too " + e.Task().String("word")}, nil
	}
	return hook.Pass(), nil
}

// TestRowHooks: a row is changed or left out under the stage that has the
// hook, and only there; what was left out is counted and said; the originals
// stay.
func TestRowHooks(t *testing.T) {
	b := start(t, onRows("[hook/rewards]"), changes("rewards", rewards, "row")).withCalls()
	totals := b.run()
	rows := b.written("rows.list.jsonl")
	assert.Equal(t, map[string]int{"rows": 2, "plain": 3}, totals.Rows)
	assert.Equal(t, map[string]int{"rows": 1}, totals.Denied)
	require.Len(t, rows, 3, "the other stage writes all of them to the same file")

	for _, e := range b.events {
		if e.Type == "rows.written" && e.Stage == "rows" {
			assert.Equal(t, 2, e.Count)
			assert.Equal(t, 1, e.Denied)
			assert.Equal(t, "1 rows denied by hooks; the first was a~2~solve~1~1/main0/0: hook/rewards denied: too kumquat", e.Message)
		}
	}
	edits, err := b.store.RowEdits(t.Context(), "a~1")
	require.NoError(t, err)
	require.Len(t, edits, 1)
	assert.Equal(t, "rows", edits[0].Stage)
	assert.JSONEq(t, `{"reward":4,"loss_mask":[0,0,1,1],"logprobs":[null,null,-1,-0.5]}`, string(edits[0].Edits[0].Before))
	assert.JSONEq(t, `{"reward":0.5,"loss_mask":[0,0,1,0],"logprobs":[null,null,-1,null]}`, string(edits[0].Edits[0].After))
	assert.JSONEq(t, `{"halved":true}`, string(edits[0].Edits[0].Report))
	edits, err = b.store.RowEdits(t.Context(), "a~2")
	require.NoError(t, err)
	assert.True(t, edits[0].Denied)
	edits, err = b.store.RowEdits(t.Context(), "a~0")
	require.NoError(t, err)
	assert.Empty(t, edits)
}

// said is the message beside the rows of a stage.
func (b *bench) said(stage string) string {
	for _, e := range b.events {
		if e.Type == "rows.written" && e.Stage == stage {
			return e.Message
		}
	}
	return ""
}

// TestConvertWritesWhatHooksMade: later conversions of a stored run ask no
// hook, and write the rows as the hooks made them.
func TestConvertWritesWhatHooksMade(t *testing.T) {
	calls := 0
	b := start(t, onRows("[hook/rewards]"), changes("rewards", func(ctx context.Context, e *hook.Event) (hook.Result, error) {
		calls++
		return rewards(ctx, e)
	}, "row")).withCalls()
	b.run()
	assert.Equal(t, 3, calls)
	c := Conversion{Folder: b.folder, Store: b.store, Stage: "rows", Name: "list", Converter: list{}, Prefix: b.folder.Path("again")}
	w, err := Convert(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, 3, calls)
	assert.Equal(t, 2, w.Rows)
	assert.Equal(t, 1, w.Denied)
	rows := b.written("again.jsonl")
	require.Len(t, rows, 2)
	assert.Equal(t, 4.0, *rows[0].Reward)
	assert.Equal(t, 0.5, *rows[1].Reward)
	assert.Equal(t, []int8{0, 0, 1, 0}, rows[1].LossMask)

	c.Stage, c.Prefix = "plain", b.folder.Path("plain")
	w, err = Convert(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, 3, w.Rows, "that stage has no hooks")

	// A rollout that changed since is not written as if the hooks had seen it.
	r := b.rollout("a~1")
	r.Status = trace.Failed
	require.NoError(t, b.store.PutRollout(t.Context(), r))
	c.Stage = "rows"
	_, err = Convert(t.Context(), c)
	assert.ErrorContains(t, err, "row a~1~solve~1~1/main0/0 is not the one that the run's hooks saw")
}

// TestRowEvent: what a hook is told of a row.
func TestRowEvent(t *testing.T) {
	var docs []string
	b := start(t, onRows("[hook/look]"), changes("look", func(_ context.Context, e *hook.Event) (hook.Result, error) {
		r := e.Rollout()
		docs = append(docs, fmt.Sprintf("%s %s %s %s %s|%s", e.Point(), e.Subject().String("row"), e.Task().String("word"), r.ID(), r.FinalText(), r.Stage("size").String("/output/reward")))
		messages, err := r.Messages()
		require.NoError(t, err)
		assert.Len(t, messages, 2)
		return hook.Pass(), nil
	}, "row")).withCalls()
	b.run()
	assert.Equal(t, []string{
		"row a~0~solve~1~1/main0/0 kumquat a~0 reply 0|4", "row a~1~solve~1~1/main0/0 kumquat a~1 reply 1|4", "row a~2~solve~1~1/main0/0 kumquat a~2 reply 2|4",
	}, docs)
}

// TestRowHookErrors: closed leaves the row out, open writes it as it was and
// says so once.
func TestRowHookErrors(t *testing.T) {
	b := start(t, onRows("[hook/broken]"), changes("broken", fails, "row")).withCalls()
	totals := b.run()
	assert.Equal(t, 0, totals.Rows["rows"])
	assert.Equal(t, 3, totals.Lost["rows"])
	assert.Empty(t, totals.Denied, "nobody decided that")
	assert.Contains(t, b.said("rows"), "3 rows left out, as a hook failed; the first was a~0~solve~1~1/main0/0: hook/broken failed: no idea")
	assert.Equal(t, trace.Completed, b.rollout("a~0").Status, "the rollout itself is none the worse")

	b = start(t, onRows("[{ uses: hook/broken, on_error: open }]"), changes("broken", fails, "row")).withCalls()
	totals = b.run()
	assert.Equal(t, 3, totals.Rows["rows"])
	assert.Empty(t, totals.Denied)
	assert.Equal(t, []string{"hook/broken failed at 3 rows and was passed over, as its on_error is open; the first time: no idea"}, b.warnings())

	lie := changes("lie", swap(`"loss_mask":[0,0`, `"loss_mask":[1,0`), "row")
	b = start(t, onRows("[hook/lie]"), lie).withCalls()
	totals = b.run()
	assert.Equal(t, 3, totals.Lost["rows"])
	edits, err := b.store.RowEdits(t.Context(), "a~0")
	require.NoError(t, err)
	assert.Contains(t, edits[0].Edits[0].Error, "loss_mask[0] is 1, but the token is not trained in the row")
}

// TestRowObservers get rows as they are written, and can't change them.
func TestRowObservers(t *testing.T) {
	seen := make(chan string, 10)
	watch := observes("watch", func(_ context.Context, e *hook.Event) (hook.Result, error) {
		seen <- e.Subject().String("reward")
		return hook.Result{Action: hook.Deny, Reason: "is not heard"}, nil
	}, "row")
	b := start(t, onRows("[hook/watch, hook/rewards]"), watch, changes("rewards", rewards, "row")).withCalls()
	totals := b.run()
	assert.Equal(t, 2, totals.Rows["rows"])
	for _, want := range []string{"4", "0.5"} {
		select {
		case got := <-seen:
			assert.Equal(t, want, got)
		case <-time.After(10 * time.Second):
			t.Fatal("the observer was not called")
		}
	}
	assert.Empty(t, seen)
}

// TestRowsWrittenAnewAreShownAnew: a resumed run begins with no edits.
func TestRowsWrittenAnewAreShownAnew(t *testing.T) {
	b := start(t, onRows("[hook/rewards]"), changes("rewards", rewards, "row")).withCalls()
	b.run()
	require.NoError(t, b.store.PutRowEdit(t.Context(), &trace.RowEdit{Stage: "rows", Row: "a~0~solve~1~1/main0/0", Denied: true}))
	totals := b.run()
	assert.Equal(t, 2, totals.Rows["rows"])
	edits, err := b.store.RowEdits(t.Context(), "a~0")
	require.NoError(t, err)
	assert.Empty(t, edits)
}
