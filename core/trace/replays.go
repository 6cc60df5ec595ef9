package trace

import (
	"context"
	"encoding/json"
	"time"
)

// Replay is what judging a stored rollout again came to at one stage, or what
// its reward came to, beside what the run has. It changes nothing of the run.
type Replay struct {
	ID      string `json:"replay"` // of all that were judged again together
	Rollout string `json:"rollout"`
	Task    string `json:"task"`
	Stage   string `json:"stage,omitempty"` // "" is the rollout's reward
	Round   int    `json:"round,omitempty"` // of the stage, which has several in a loop
	Uses    string `json:"uses,omitempty"`  // the judger
	Attempt string `json:"attempt,omitempty"`
	Session string `json:"session,omitempty"` // in which the judger asked its model
	// Was and Now are verdicts; of a reward they are {"reward"} alone. None is
	// there where the stage was skipped, not reached, or failed with an error.
	Was      json.RawMessage `json:"was"`
	Now      json.RawMessage `json:"now"`
	WasError string          `json:"was_error,omitempty"`
	Error    string          `json:"error,omitempty"`
	// Same says that reward, label and components are what they were.
	Same bool      `json:"same"`
	Time time.Time `json:"time"`
}

// PutReplays adds what judging again came to. What is there already under the
// same id, rollout, stage and round is an error: nothing is written over.
func (s *Store) PutReplays(ctx context.Context, all []*Replay) error {
	bodies := make([][]byte, len(all))
	for i, r := range all {
		var err error
		if bodies[i], err = encode(r); err != nil {
			return describe(err, "store the replay of %s", r.Rollout)
		}
	}
	err := s.write(ctx, func(t *tx) error {
		for i, r := range all {
			if _, err := t.exec("INSERT INTO replays (id, rollout, stage, round, body) VALUES (?, ?, ?, ?, ?)", r.ID, r.Rollout, r.Stage, r.Round, bodies[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return describe(err, "store %d replayed verdicts", len(all))
}

// Replays returns what judging a rollout again came to, the oldest first; those
// of all rollouts if it is "".
func (s *Store) Replays(ctx context.Context, rollout string) ([]*Replay, error) {
	where, args := "", []any(nil)
	if rollout != "" {
		where, args = "WHERE rollout = ? ", []any{rollout}
	}
	out, err := added(ctx, s, withReplays, scan[Replay], "SELECT body FROM replays "+where+"ORDER BY rowid", args...)
	return out, describe(err, "read the replays of rollout %q", rollout)
}
