package trace

import (
	"context"
	"encoding/json"
	"time"
)

// The statuses of a park.
const (
	ParkWaiting   = "waiting"
	ParkAnswered  = "answered"
	ParkAbandoned = "abandoned"
)

// The reasons of a park.
const (
	ParkError      = "error"       // the stage failed
	ParkContract   = "contract"    // what the stage wrote isn't what it promised
	ParkCap        = "cap"         // a loop used up its passes
	ParkNoProgress = "no_progress" // a loop goes round without getting further
)

// Park is a rollout that stopped and waits for a person. Stage is the one that
// it was in, whose output an answer stands in for; Loop, if not "", is the
// loop around it that could not go on.
type Park struct {
	ID      string `json:"id"`
	Rollout string `json:"rollout"`
	Task    string `json:"task"`
	Stage   string `json:"stage"`
	Round   int    `json:"round"`
	Loop    string `json:"loop,omitempty"`
	Pass    int    `json:"pass,omitempty"` // of the loop, from 1
	Max     int    `json:"max,omitempty"`  // passes that the loop may take
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Output is what the stage wrote last, Raw the text of it that fitted no
	// schema.
	Output json.RawMessage `json:"output,omitempty"`
	Raw    string          `json:"raw,omitempty"`
	// Schema is that of an answer.
	Schema    json.RawMessage `json:"schema,omitempty"`
	Cost      *float64        `json:"cost"`
	CostBasis string          `json:"cost_basis,omitempty"`
	Parked    time.Time       `json:"parked"`

	Status   string          `json:"status"`
	Answer   json.RawMessage `json:"answer,omitempty"`
	Ended    time.Time       `json:"ended,omitzero"`
	Notified bool            `json:"notified"`
	// Told are the places in the file's notify of those that were told.
	Told []int `json:"told,omitempty"`
}

// PutPark stores a park and, in the same transaction, what changed with it: a
// stage's result and the rollout's state, each unless it is nil.
func (s *Store) PutPark(ctx context.Context, p *Park, res *StageResult, ro *Rollout) error {
	park, err := encode(p)
	if err != nil {
		return describe(err, "store park %s", p.ID)
	}
	var stage, rollout []byte
	if res != nil {
		stage, err = encode(res)
	}
	if err == nil && ro != nil {
		rollout, err = encode(ro)
	}
	if err == nil {
		err = s.write(ctx, func(t *tx) error {
			if _, err := t.exec(`INSERT INTO parks (id, rollout, status, body) VALUES (?, ?, ?, ?)
				ON CONFLICT (id) DO UPDATE SET status = excluded.status, body = excluded.body`, p.ID, p.Rollout, p.Status, park); err != nil {
				return err
			}
			if res != nil {
				if err := putStage(t, res, stage); err != nil {
					return err
				}
			}
			if ro != nil {
				return putRollout(t, ro, rollout)
			}
			return nil
		})
	}
	return describe(err, "store park %s of %s", p.ID, p.Rollout)
}

// Parks returns all parks, the oldest first.
func (s *Store) Parks(ctx context.Context) ([]*Park, error) {
	out, err := added(ctx, s, withParks, scan[Park], "SELECT body FROM parks ORDER BY rowid")
	return out, describe(err, "read the parks")
}

// Park returns one park, or ErrNotFound.
func (s *Store) Park(ctx context.Context, id string) (*Park, error) {
	out, err := one(added(ctx, s, withParks, scan[Park], "SELECT body FROM parks WHERE id = ?", id))
	return out, describe(err, "read park %s", id)
}
