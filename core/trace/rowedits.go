package trace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// RowEdit is what the hooks of a converter stage did with one row. Rows that
// they left alone have none.
type RowEdit struct {
	Stage string `json:"stage"` // the converter stage
	Row   string `json:"row"`
	// Original is the sha256 in hex of the row as the hooks were shown it, in
	// its JSON form.
	Original string `json:"original"`
	Denied   bool   `json:"denied,omitempty"` // it is not written
	// Changed holds the fields of the row that differ from the original, as an
	// object; a field that is gone is null.
	Changed json.RawMessage `json:"changed,omitempty"`
	Edits   []Edit          `json:"edits"`
}

// rowsSeen names the value that says that hooks have seen all rows of a stage.
func rowsSeen(stage string) string { return "rows seen by hooks/" + stage }

// BeginRowEdits forgets what hooks did with the rows of a stage, before they
// are shown all of them again.
func (s *Store) BeginRowEdits(ctx context.Context, stage string) error {
	err := s.write(ctx, func(t *tx) error {
		if _, err := t.exec("DELETE FROM meta WHERE key = ?", rowsSeen(stage)); err != nil {
			return err
		}
		_, err := t.exec("DELETE FROM row_edits WHERE stage = ?", stage)
		return err
	})
	return describe(err, "forget the row edits of %s", stage)
}

// EndRowEdits notes that the hooks of a stage have seen all of its rows.
func (s *Store) EndRowEdits(ctx context.Context, stage string) error {
	return s.PutMeta(ctx, rowsSeen(stage), []byte("1"))
}

// RowEditsEnded says whether the hooks of a stage have seen all of its rows.
func (s *Store) RowEditsEnded(ctx context.Context, stage string) (bool, error) {
	_, err := s.Meta(ctx, rowsSeen(stage))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// PutRowEdit stores what hooks did with a row.
func (s *Store) PutRowEdit(ctx context.Context, e *RowEdit) error {
	body, err := encode(e)
	if err == nil {
		err = s.write(ctx, func(t *tx) error {
			_, err := t.exec(`INSERT INTO row_edits (stage, row, body) VALUES (?, ?, ?)
				ON CONFLICT (stage, row) DO UPDATE SET body = excluded.body`, e.Stage, e.Row, body)
			return err
		})
	}
	return describe(err, "store the edit of row %s", e.Row)
}

// RowEdit returns what the hooks of a stage did with a row, or ErrNotFound.
func (s *Store) RowEdit(ctx context.Context, stage, row string) (*RowEdit, error) {
	out, err := one(added(ctx, s, withRowEdits, scan[RowEdit], "SELECT body FROM row_edits WHERE stage = ? AND row = ?", stage, row))
	return out, describe(err, "read the edit of row %s", row)
}

// RowEdits returns what hooks did with the rows of a rollout, by stage and row.
func (s *Store) RowEdits(ctx context.Context, rollout string) ([]*RowEdit, error) {
	out, err := added(ctx, s, withRowEdits, scan[RowEdit], `SELECT body FROM row_edits WHERE row >= ? AND row < ? ORDER BY stage, row`,
		fmt.Sprintf("%s~", rollout), fmt.Sprintf("%s\x7f", rollout))
	return out, describe(err, "read the row edits of %s", rollout)
}
