package trace

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// older writes a store as the program did that knew the schema up to v.
func older(t *testing.T, v int) string {
	t.Helper()
	defer func(all []string) { migrations = all }(migrations)
	migrations = migrations[:v]
	s, path := openStore(t, StoreOptions{})
	ctx := context.Background()
	ro := &Rollout{ID: "a~0", Task: "a", Status: Completed}
	require.NoError(t, s.PutStage(ctx, &StageResult{Rollout: ro.ID, Stage: "solve", Round: 1, Try: 1, Status: Completed, Output: json.RawMessage(`{"text":"42"}`)}, ro))
	require.NoError(t, s.PutSession(ctx, &Session{ID: "s-1", Rollout: ro.ID, Stage: "solve", Round: 1, Try: 1}))
	require.NoError(t, s.PutCall(ctx, talk("s-1", 1)))
	if v >= withReplays {
		require.NoError(t, s.write(ctx, func(t *tx) error {
			for _, r := range []*Replay{{ID: "j-1", Rollout: ro.ID, Stage: "answer"}, {ID: "j-1", Rollout: ro.ID}} {
				body, err := encode(r)
				if err != nil {
					return err
				}
				if _, err := t.exec("INSERT INTO replays (id, rollout, stage, body) VALUES (?, ?, ?, ?)", r.ID, r.Rollout, r.Stage, body); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	require.NoError(t, s.Close())
	return path
}

// TestOlderStoresAreRead: as they are, and after they were brought up to date.
func TestOlderStoresAreRead(t *testing.T) {
	for v := 1; v < len(migrations); v++ {
		path := older(t, v)
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		s, err := Open(path, StoreOptions{ReadOnly: true})
		require.NoError(t, err, "schema %d", v)
		readsOlder(t, s, v)
		require.NoError(t, s.Close())
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, before, after, "reading changes nothing")

		s, err = Open(path, StoreOptions{})
		require.NoError(t, err, "schema %d", v)
		readsOlder(t, s, v)
		require.NoError(t, s.PutReplays(t.Context(), []*Replay{{ID: "j-2", Rollout: "a~0"}}))
		require.NoError(t, s.PutPark(t.Context(), &Park{ID: "p-1", Rollout: "a~0"}, nil, nil))
		require.NoError(t, s.Close())
	}
	empty := filepath.Join(t.TempDir(), "empty.db")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, err := Open(empty, StoreOptions{ReadOnly: true})
	assert.ErrorContains(t, err, "no run was recorded in it")
}

// readsOlder reads all that a store of schema v has, and has not.
func readsOlder(t *testing.T, s *Store, v int) {
	t.Helper()
	ctx := t.Context()
	ro, err := s.Rollout(ctx, "a~0")
	require.NoError(t, err)
	assert.Equal(t, Completed, ro.Status)
	stages, err := s.Stages(ctx, "a~0")
	require.NoError(t, err)
	assert.Len(t, stages, 1)
	calls, err := s.Calls(ctx, "s-1")
	require.NoError(t, err)
	assert.Len(t, calls, 1)
	replays, err := s.Replays(ctx, "a~0")
	require.NoError(t, err)
	if v >= withReplays {
		require.Len(t, replays, 2)
		assert.Equal(t, "answer", replays[0].Stage)
	} else {
		assert.Empty(t, replays)
	}
	parks, err := s.Parks(ctx)
	require.NoError(t, err)
	assert.Empty(t, parks)
	_, err = s.Park(ctx, "p-1")
	assert.ErrorIs(t, err, ErrNotFound)
	edits, err := s.RowEdits(ctx, "a~0")
	require.NoError(t, err)
	assert.Empty(t, edits)
	_, err = s.RowEdit(ctx, "rows", "x")
	assert.ErrorIs(t, err, ErrNotFound)
}
