package trace

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"iter"
)

// PutTasks adds tasks, or replaces those of the same id.
func (s *Store) PutTasks(ctx context.Context, tasks []Task) error {
	err := s.write(ctx, func(t *tx) error {
		for _, task := range tasks {
			if _, err := t.exec(`INSERT INTO tasks (id, seq, data) VALUES (?, ?, ?)
				ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, data = excluded.data`,
				task.ID, task.Seq, nonNil(task.Data)); err != nil {
				return err
			}
		}
		return nil
	})
	return describe(err, "store %d tasks", len(tasks))
}

// Tasks returns the tasks in the order of their file.
func (s *Store) Tasks(ctx context.Context) ([]Task, error) {
	out, err := query(ctx, s.readers, func(row *sql.Rows) (t Task, err error) {
		err = row.Scan(&t.ID, &t.Seq, (*[]byte)(&t.Data))
		return t, err
	}, "SELECT id, seq, data FROM tasks ORDER BY seq, id")
	return out, describe(err, "read the tasks")
}

// PutMeta stores a value of the run under a name.
func (s *Store) PutMeta(ctx context.Context, key string, v []byte) error {
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", key, nonNil(v))
		return err
	})
	return describe(err, "store %s", key)
}

// Meta returns the value under a name, or ErrNotFound.
func (s *Store) Meta(ctx context.Context, key string) ([]byte, error) {
	out, err := one(query(ctx, s.readers, scanBytes, "SELECT value FROM meta WHERE key = ?", key))
	return out, describe(err, "read %s", key)
}

// PutSession adds a session or replaces what is known of it. Once it is
// closed, the store forgets what it kept of it in memory.
func (s *Store) PutSession(ctx context.Context, x *Session) error {
	body, err := encode(x)
	if err == nil {
		err = s.write(ctx, func(t *tx) error {
			_, err := t.exec(`INSERT INTO sessions (id, rollout, body) VALUES (?, ?, ?)
				ON CONFLICT (id) DO UPDATE SET rollout = excluded.rollout, body = excluded.body`, x.ID, x.Rollout, body)
			return err
		})
	}
	if !x.Closed.IsZero() {
		s.index.forget(x.ID)
	}
	return describe(err, "store session %s", x.ID)
}

// Sessions returns the sessions of a rollout in the order in which they were
// opened; those of all rollouts if it is "".
func (s *Store) Sessions(ctx context.Context, rollout string) ([]*Session, error) {
	where, args := "", []any(nil)
	if rollout != "" {
		where, args = "WHERE rollout = ? ", []any{rollout}
	}
	out, err := query(ctx, s.readers, scan[Session], "SELECT body FROM sessions "+where+"ORDER BY rowid", args...)
	return out, describe(err, "read the sessions of rollout %q", rollout)
}

// PutRollout adds a rollout or replaces its state.
func (s *Store) PutRollout(ctx context.Context, r *Rollout) error {
	body, err := encode(r)
	if err == nil {
		err = s.write(ctx, func(t *tx) error { return putRollout(t, r, body) })
	}
	return describe(err, "store rollout %s", r.ID)
}

func putRollout(t *tx, r *Rollout, body []byte) error {
	_, err := t.exec(`INSERT INTO rollouts (id, task, sample, status, reward, body) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET task = excluded.task, sample = excluded.sample, status = excluded.status,
			reward = excluded.reward, body = excluded.body`,
		r.ID, r.Task, r.Sample, r.Status, r.Reward, body)
	return err
}

// inOrder sorts rollouts, as r, by task and sample.
const inOrder = ` LEFT JOIN tasks ON tasks.id = r.task
	ORDER BY tasks.seq IS NULL, tasks.seq, r.task, r.sample, r.id`

// Rollouts returns all rollouts in task and sample order.
func (s *Store) Rollouts(ctx context.Context) ([]*Rollout, error) {
	out, err := query(ctx, s.readers, scan[Rollout], "SELECT r.body FROM rollouts r"+inOrder)
	return out, describe(err, "read the rollouts")
}

// EachRollout goes through all rollouts in task and sample order, one at a time: a
// run may have more than fit into memory.
func (s *Store) EachRollout(ctx context.Context) iter.Seq2[*Rollout, error] {
	return func(yield func(*Rollout, error) bool) {
		rows, err := s.readers.QueryContext(ctx, "SELECT r.body FROM rollouts r"+inOrder)
		if err != nil {
			yield(nil, describe(err, "read the rollouts"))
			return
		}
		defer rows.Close()
		for rows.Next() {
			r, err := scan[Rollout](rows)
			if !yield(r, describe(err, "read the rollouts")) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, describe(err, "read the rollouts"))
		}
	}
}

// Rollout returns one rollout, or ErrNotFound.
func (s *Store) Rollout(ctx context.Context, id string) (*Rollout, error) {
	out, err := one(query(ctx, s.readers, scan[Rollout], "SELECT body FROM rollouts WHERE id = ?", id))
	return out, describe(err, "read rollout %s", id)
}

// Checkpoint is the result of a stage, and the state of its rollout after it,
// which may be nil.
type Checkpoint struct {
	Result  *StageResult
	Rollout *Rollout
}

// PutStage stores the checkpoint of a stage and the state of its rollout, if
// that is not nil, in one transaction. A verdict among them is also entered
// into the table of verdicts.
func (s *Store) PutStage(ctx context.Context, r *StageResult, ro *Rollout) error {
	return s.PutStages(ctx, []Checkpoint{{r, ro}})
}

// PutStages stores several checkpoints as PutStage does: all of them, or none.
func (s *Store) PutStages(ctx context.Context, all []Checkpoint) error {
	type bodies struct{ stage, rollout []byte }
	encoded := make([]bodies, len(all))
	for i, c := range all {
		// The output may be all that is kept of a program's output.
		body := bytes.NewBuffer(make([]byte, 0, len(c.Result.Output)+len(c.Result.Output)/8+1024))
		err := encodeTo(body, c.Result)
		if err == nil && c.Rollout != nil {
			encoded[i].rollout, err = encode(c.Rollout)
		}
		if err != nil {
			return describe(err, "store stage %s of %s", c.Result.Stage, c.Result.Rollout)
		}
		encoded[i].stage = body.Bytes()
	}
	at := 0
	err := s.write(ctx, func(t *tx) error {
		for i, c := range all {
			at = i
			if err := putStage(t, c.Result, encoded[i].stage); err != nil {
				return err
			}
			if c.Rollout == nil {
				continue
			}
			if err := putRollout(t, c.Rollout, encoded[i].rollout); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return describe(err, "store stage %s of %s", all[at].Result.Stage, all[at].Result.Rollout)
	}
	return nil
}

func putStage(t *tx, r *StageResult, body []byte) error {
	if _, err := t.exec(`INSERT INTO stages (rollout, stage, round, try, status, body) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (rollout, stage, round, try) DO UPDATE SET status = excluded.status, body = excluded.body`,
		r.Rollout, r.Stage, r.Round, r.Try, r.Status, body); err != nil {
		return err
	}
	reward, ok := verdict(r.Output)
	if !ok {
		return nil
	}
	_, err := t.exec(`INSERT OR REPLACE INTO verdicts (rollout, stage, round, try, reward, body) VALUES (?, ?, ?, ?, ?, ?)`,
		r.Rollout, r.Stage, r.Round, r.Try, reward, []byte(r.Output))
	return err
}

// verdict reports whether a stage's output is a verdict, which is the only
// output with a status of its own and a reward.
func verdict(output json.RawMessage) (reward *float64, ok bool) {
	var v struct {
		Status string          `json:"status"`
		Reward json.RawMessage `json:"reward"`
	}
	if json.Unmarshal(output, &v) != nil || v.Reward == nil {
		return nil, false
	}
	switch v.Status {
	case "scored", "skipped", "judge_error", "infra_error":
		return reward, json.Unmarshal(v.Reward, &reward) == nil
	}
	return nil, false
}

// Stages returns the last result of each stage and round of a rollout, in the
// order in which they were reached.
func (s *Store) Stages(ctx context.Context, rollout string) ([]*StageResult, error) {
	out, err := query(ctx, s.readers, scan[StageResult], `SELECT body FROM stages s
		WHERE rollout = ? AND try = (SELECT max(try) FROM stages
			WHERE rollout = s.rollout AND stage = s.stage AND round = s.round)
		ORDER BY (SELECT min(rowid) FROM stages
			WHERE rollout = s.rollout AND stage = s.stage AND round = s.round)`, rollout)
	return out, describe(err, "read the stages of %s", rollout)
}

// Select marks a rollout for a converter stage. To do it again changes
// nothing.
func (s *Store) Select(ctx context.Context, stage, rollout string) error {
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec("INSERT OR IGNORE INTO selections (stage, rollout) VALUES (?, ?)", stage, rollout)
		return err
	})
	return describe(err, "select %s for %s", rollout, stage)
}

// Selected returns the ids of the rollouts that are marked for a converter
// stage, in task and sample order.
func (s *Store) Selected(ctx context.Context, stage string) ([]string, error) {
	out, err := query(ctx, s.readers, func(row *sql.Rows) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, "SELECT r.id FROM selections JOIN rollouts r ON r.id = selections.rollout AND selections.stage = ?"+inOrder, stage)
	return out, describe(err, "read what is selected for %s", stage)
}

// query collects the rows of a query.
func query[T any](ctx context.Context, db *sql.DB, scan func(*sql.Rows) (T, error), text string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// one is the only row of a query.
func one[T any](rows []T, err error) (v T, _ error) {
	if err != nil {
		return v, err
	}
	if len(rows) == 0 {
		return v, ErrNotFound
	}
	return rows[0], nil
}

// added is query for a table that came with a version of the schema. A store of an
// older one holds nothing of it.
func added[T any](ctx context.Context, s *Store, since int, scan func(*sql.Rows) (T, error), text string, args ...any) ([]T, error) {
	if s.schema < since {
		return nil, nil
	}
	return query(ctx, s.readers, scan, text, args...)
}

// scan decodes a row whose only column is the body of a T.
func scan[T any](row *sql.Rows) (*T, error) {
	b, err := scanBytes(row)
	if err != nil {
		return nil, err
	}
	v := new(T)
	return v, decode(b, v)
}

func scanBytes(row *sql.Rows) (b []byte, err error) {
	err = row.Scan(&b)
	return b, err
}

// nonNil is b as a value that isn't NULL.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// describe wraps an error with what was being done.
func describe(err error, text string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(text+": %w", append(args, err)...)
}
