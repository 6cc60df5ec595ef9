package trace

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRowEdits(t *testing.T) {
	s, _ := openStore(t, StoreOptions{})
	ctx := context.Background()
	put := func(stage, row, reason string) {
		require.NoError(t, s.PutRowEdit(ctx, &RowEdit{Stage: stage, Row: row, Denied: true, Changed: json.RawMessage(`{}`),
			Edits: []Edit{{Hook: "hook/a", Point: "row", Action: "deny", Reason: reason}}}))
	}
	put("rows", "t~1~solve~1~1/main0/0", "old")
	put("rows", "t~1~solve~1~1/main0/0", "new")
	put("other", "t~1~solve~1~1/main0/0", "theirs")
	put("rows", "t~10~solve~1~1/main0/0", "tenth")
	put("rows", "t~1x~0~solve~1~1/main0/0", "another task")

	e, err := s.RowEdit(ctx, "rows", "t~1~solve~1~1/main0/0")
	require.NoError(t, err)
	assert.Equal(t, "new", e.Edits[0].Reason)
	_, err = s.RowEdit(ctx, "rows", "t~2~solve~1~1/main0/0")
	assert.ErrorIs(t, err, ErrNotFound)

	of, err := s.RowEdits(ctx, "t~1")
	require.NoError(t, err)
	require.Len(t, of, 2, "those of this rollout alone")
	assert.Equal(t, "other", of[0].Stage)

	ended, err := s.RowEditsEnded(ctx, "rows")
	require.NoError(t, err)
	assert.False(t, ended)
	require.NoError(t, s.EndRowEdits(ctx, "rows"))
	ended, err = s.RowEditsEnded(ctx, "rows")
	require.NoError(t, err)
	assert.True(t, ended)

	require.NoError(t, s.BeginRowEdits(ctx, "rows"))
	ended, err = s.RowEditsEnded(ctx, "rows")
	require.NoError(t, err)
	assert.False(t, ended)
	of, err = s.RowEdits(ctx, "t~1")
	require.NoError(t, err)
	assert.Len(t, of, 1, "the other stage keeps its own")
}
