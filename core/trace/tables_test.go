package trace

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRolloutsComeInTaskAndSampleOrder(t *testing.T) {
	s, _ := openStore(t, StoreOptions{})
	ctx := context.Background()
	require.NoError(t, s.PutTasks(ctx, []Task{
		{ID: "zeta", Seq: 0, Data: json.RawMessage(`{"id":"zeta", "n":9007199254740993}`)},
		{ID: "alpha", Seq: 1, Data: json.RawMessage(`{"id":"alpha"}`)},
	}))
	tasks, err := s.Tasks(ctx)
	require.NoError(t, err)
	require.Len(t, tasks, 2)
	assert.Equal(t, `{"id":"zeta", "n":9007199254740993}`, string(tasks[0].Data))

	reward := 0.5
	for _, r := range []*Rollout{
		{ID: "alpha~1", Task: "alpha", Sample: 1, Status: Running},
		{ID: "gone~0", Task: "gone", Status: Failed},
		{ID: "zeta~10", Task: "zeta", Sample: 10},
		{ID: "zeta~9", Task: "zeta", Sample: 9},
		{ID: "alpha~0", Task: "alpha", Reward: &reward, Components: map[string]float64{"x": 0.1}},
	} {
		require.NoError(t, s.PutRollout(ctx, r))
		require.NoError(t, s.Select(ctx, "rows", r.ID))
		require.NoError(t, s.Select(ctx, "rows", r.ID), "to select again changes nothing")
	}
	require.NoError(t, s.PutRollout(ctx, &Rollout{ID: "alpha~1", Task: "alpha", Sample: 1, Status: Completed}))
	want := []string{"zeta~9", "zeta~10", "alpha~0", "alpha~1", "gone~0"}
	all, err := s.Rollouts(ctx)
	require.NoError(t, err)
	var got []string
	for _, r := range all {
		got = append(got, r.ID)
	}
	assert.Equal(t, want, got)
	selected, err := s.Selected(ctx, "rows")
	require.NoError(t, err)
	assert.Equal(t, want, selected)
	none, err := s.Selected(ctx, "other")
	require.NoError(t, err)
	assert.Empty(t, none)

	r, err := s.Rollout(ctx, "alpha~1")
	require.NoError(t, err)
	assert.Equal(t, Completed, r.Status)
	assert.Nil(t, r.Reward, "no reward is null, never 0")
	_, err = s.Rollout(ctx, "alpha~2")
	assert.ErrorIs(t, err, ErrNotFound)
}

func TestStagesAreTheLastTryInTheOrderReached(t *testing.T) {
	s, _ := openStore(t, StoreOptions{})
	ctx := context.Background()
	put := func(stage string, round, try int, status, output string) {
		r := &StageResult{Rollout: "a~0", Stage: stage, Round: round, Try: try, Status: status,
			Started: time.Unix(1, 0).UTC(), Ended: time.Unix(2, 0).UTC()}
		if output != "" {
			r.Output = json.RawMessage(output)
		}
		require.NoError(t, s.PutStage(ctx, r, &Rollout{ID: "a~0", Task: "a", Phase: stage}))
	}
	put("solve", 1, 1, Failed, "")
	put("judge", 1, 1, Completed, `{"reward": 1.0, "status":"scored"}`)
	put("solve", 2, 1, Completed, `{"text":"status","usage":{"input":1,"output":2}}`)
	put("solve", 1, 2, Completed, "")
	put("judge", 2, 1, Failed, `{"reward":null,"status":"judge_error"}`)
	put("judge", 1, 1, Completed, `{"reward": 1.0, "status":"scored"}`)

	got, err := s.Stages(ctx, "a~0")
	require.NoError(t, err)
	var order []string
	for _, r := range got {
		order = append(order, r.Stage)
	}
	assert.Equal(t, []string{"solve", "judge", "solve", "judge"}, order)
	assert.Equal(t, 2, got[0].Try)
	assert.Equal(t, `{"reward": 1.0, "status":"scored"}`, string(got[1].Output), "the output keeps its bytes")
	assert.Equal(t, time.Unix(2, 0).UTC(), got[0].Ended)

	r, err := s.Rollout(ctx, "a~0")
	require.NoError(t, err)
	assert.Equal(t, "judge", r.Phase)

	rows, err := s.readers.Query("SELECT stage, round, reward FROM verdicts ORDER BY round")
	require.NoError(t, err)
	defer rows.Close()
	var verdicts int
	for rows.Next() {
		var stage string
		var round int
		var reward *float64
		require.NoError(t, rows.Scan(&stage, &round, &reward))
		verdicts++
		assert.Equal(t, "judge", stage)
		assert.Equal(t, round == 1, reward != nil)
	}
	assert.Equal(t, 2, verdicts)
}

func TestSessionsAndMeta(t *testing.T) {
	s, _ := openStore(t, StoreOptions{Durability: Fsync})
	ctx := context.Background()
	opened := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, x := range []*Session{
		{ID: "s-2", Rollout: "a~0", Stage: "solve", Round: 1, Try: 1, Opened: opened},
		{ID: "s-1", Rollout: "a~0", Stage: "solve", Round: 1, Try: 2, Opened: opened},
		{ID: "s-3", Rollout: "b~0"},
		{ID: "s-2", Rollout: "a~0", Stage: "solve", Round: 1, Try: 1, Opened: opened, Closed: opened.Add(time.Minute)},
	} {
		require.NoError(t, s.PutSession(ctx, x))
	}
	got, err := s.Sessions(ctx, "a~0")
	require.NoError(t, err)
	require.Len(t, got, 2)
	assert.Equal(t, "s-2", got[0].ID)
	assert.Equal(t, opened.Add(time.Minute), got[0].Closed)
	assert.True(t, got[1].Closed.IsZero())
	all, err := s.Sessions(ctx, "")
	require.NoError(t, err)
	assert.Len(t, all, 3)

	require.NoError(t, s.PutMeta(ctx, "k", []byte{0, 1}))
	require.NoError(t, s.PutMeta(ctx, "k", nil))
	v, err := s.Meta(ctx, "k")
	require.NoError(t, err)
	assert.Empty(t, v)
	_, err = s.Meta(ctx, "none")
	assert.ErrorIs(t, err, ErrNotFound)
}

// A failing change must not take with it what is committed in its company.
func TestOneFailureInABatchFailsAlone(t *testing.T) {
	s, _ := openStore(t, StoreOptions{})
	ctx := context.Background()
	require.NoError(t, s.PutCall(ctx, talk("s-1", 1)))
	release := make(chan struct{})
	held := make(chan struct{})
	go s.write(ctx, func(*tx) error { close(held); <-release; return nil })
	<-held
	errs := make(chan error, 3)
	for _, c := range []*Call{talk("s-1", 2), talk("s-1", 1), talk("s-2", 1)} {
		go func() { errs <- s.PutCall(ctx, c) }()
	}
	for len(s.writer.queue) < 3 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	failed := 0
	for range 3 {
		if err := <-errs; err != nil {
			failed++
			assert.ErrorContains(t, err, "store call s-1.1: ")
		}
	}
	assert.Equal(t, 1, failed)
	calls, err := s.Calls(ctx, "s-1")
	require.NoError(t, err)
	assert.Len(t, calls, 2)
}

// TestEachRolloutStops: where its reader does, and in the order of the tasks.
func TestEachRolloutStops(t *testing.T) {
	s, _ := openStore(t, StoreOptions{})
	ctx := t.Context()
	require.NoError(t, s.PutTasks(ctx, []Task{{ID: "b", Seq: 0, Data: json.RawMessage(`{}`)}, {ID: "a", Seq: 1, Data: json.RawMessage(`{}`)}}))
	for _, id := range []string{"a", "b"} {
		require.NoError(t, s.PutRollout(ctx, &Rollout{ID: id + "~0", Task: id}))
	}
	var got []string
	for r, err := range s.EachRollout(ctx) {
		require.NoError(t, err)
		got = append(got, r.ID)
	}
	assert.Equal(t, []string{"b~0", "a~0"}, got)
	for range 20 { // more than there are readers
		for _, err := range s.EachRollout(ctx) {
			require.NoError(t, err)
			break
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range s.EachRollout(ended) {
		require.ErrorContains(t, err, "read the rollouts: context canceled")
	}
}
