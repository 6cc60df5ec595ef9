package trace

import (
	"context"
	"database/sql"
	"fmt"
)

// migrations brings a store from each schema version to the next; the version
// is how many have run. Only ever append: stores of all versions exist. One that
// is open for reading stays as it is: what reads a table that came later says
// since when it is there, and every version has the columns that are read.
var migrations = []string{
	`
CREATE TABLE meta (
	key TEXT PRIMARY KEY,
	value BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE tasks (
	id TEXT PRIMARY KEY,
	seq INTEGER NOT NULL,
	data BLOB NOT NULL
);

CREATE TABLE rollouts (
	id TEXT PRIMARY KEY,
	task TEXT NOT NULL,
	sample INTEGER NOT NULL,
	status TEXT NOT NULL,
	reward REAL,
	body BLOB NOT NULL
);

CREATE TABLE sessions (
	id TEXT PRIMARY KEY,
	rollout TEXT NOT NULL,
	body BLOB NOT NULL
);
CREATE INDEX sessions_rollout ON sessions (rollout);

-- body holds the call as compress.go writes it; it needs the body of base,
-- unless that is ''.
CREATE TABLE calls (
	id TEXT PRIMARY KEY,
	session TEXT NOT NULL,
	seq INTEGER NOT NULL,
	parent TEXT NOT NULL,
	lineage TEXT NOT NULL,
	kind TEXT NOT NULL,
	status TEXT NOT NULL,
	base TEXT NOT NULL,
	delivered INTEGER NOT NULL DEFAULT 0,
	body BLOB NOT NULL
);
CREATE UNIQUE INDEX calls_session ON calls (session, seq);

CREATE TABLE blobs (
	hash BLOB PRIMARY KEY,
	data BLOB NOT NULL
);

CREATE TABLE stages (
	rollout TEXT NOT NULL,
	stage TEXT NOT NULL,
	round INTEGER NOT NULL,
	try INTEGER NOT NULL,
	status TEXT NOT NULL,
	body BLOB NOT NULL,
	UNIQUE (rollout, stage, round, try)
);

CREATE TABLE verdicts (
	rollout TEXT NOT NULL,
	stage TEXT NOT NULL,
	round INTEGER NOT NULL,
	try INTEGER NOT NULL,
	reward REAL,
	body BLOB NOT NULL,
	PRIMARY KEY (rollout, stage, round, try)
);

CREATE TABLE selections (
	stage TEXT NOT NULL,
	rollout TEXT NOT NULL,
	PRIMARY KEY (stage, rollout)
) WITHOUT ROWID;
`,
	`
-- What the hooks of a converter stage did with a row.
CREATE TABLE row_edits (
	stage TEXT NOT NULL,
	row TEXT NOT NULL,
	body BLOB NOT NULL,
	PRIMARY KEY (stage, row)
) WITHOUT ROWID;
`,
	`
CREATE TABLE parks (
	id TEXT PRIMARY KEY,
	rollout TEXT NOT NULL,
	status TEXT NOT NULL,
	body BLOB NOT NULL
);
CREATE INDEX parks_rollout ON parks (rollout);
`,
	`
-- Verdicts of judging again, beside those of the run; stage is '' for the reward.
CREATE TABLE replays (
	id TEXT NOT NULL,
	rollout TEXT NOT NULL,
	stage TEXT NOT NULL,
	body BLOB NOT NULL,
	UNIQUE (id, rollout, stage)
);
CREATE INDEX replays_rollout ON replays (rollout);
`,
	`
-- Each pass of a loop has verdicts of its own.
CREATE TABLE replays_by_round (
	id TEXT NOT NULL,
	rollout TEXT NOT NULL,
	stage TEXT NOT NULL,
	round INTEGER NOT NULL,
	body BLOB NOT NULL,
	UNIQUE (id, rollout, stage, round)
);
INSERT INTO replays_by_round SELECT id, rollout, stage, 0, body FROM replays ORDER BY rowid;
DROP TABLE replays;
ALTER TABLE replays_by_round RENAME TO replays;
CREATE INDEX replays_rollout ON replays (rollout);
`,
}

// The versions that brought a table.
const (
	withRowEdits = 2
	withParks    = 3
	withReplays  = 4
)

// queryer is what a database and a connection have in common.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// version reads the schema's version and refuses one from the future.
func version(ctx context.Context, q queryer) (int, error) {
	var v int
	if err := q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
		return 0, err
	}
	if v > len(migrations) {
		return 0, fmt.Errorf("a newer penstock wrote it: its schema is %d, this program knows %d", v, len(migrations))
	}
	return v, nil
}

// migrate brings the schema up to date, each step in a transaction.
func migrate(ctx context.Context, conn *sql.Conn) error {
	v, err := version(ctx, conn)
	if err != nil {
		return err
	}
	for ; v < len(migrations); v++ {
		step := fmt.Sprintf("BEGIN IMMEDIATE; %s; PRAGMA user_version = %d; COMMIT", migrations[v], v+1)
		if _, err := conn.ExecContext(ctx, step); err != nil {
			conn.ExecContext(ctx, "ROLLBACK")
			return fmt.Errorf("migrate the schema to %d: %w", v+1, err)
		}
	}
	return nil
}
