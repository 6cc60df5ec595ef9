package trace

import (
	"context"
	"database/sql"
	"slices"
	"strings"
)

// PutCall stores a call and returns once it is committed. A call can't be
// stored twice. Slices and maps that are empty come back nil.
func (s *Store) PutCall(ctx context.Context, c *Call) error {
	p, err := s.packCall(c, s.index.base(c))
	if err == nil {
		err = s.write(ctx, func(t *tx) error { return putCall(t, c, p) })
	}
	if err == nil {
		c.Stored = p.size()
		s.stored.add(p.blobs)
		s.index.add(c.Session, p.entry)
	}
	return describe(err, "store call %s", c.ID)
}

func putCall(t *tx, c *Call, p *packed) error {
	for _, b := range p.blobs {
		if _, err := t.exec("INSERT OR IGNORE INTO blobs (hash, data) VALUES (?, ?)", b.key[:], b.data); err != nil {
			return err
		}
	}
	_, err := t.exec(`INSERT INTO calls (id, session, seq, parent, lineage, kind, status, base, delivered, body)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		c.ID, c.Session, c.Seq, c.Parent, c.Lineage, string(c.Kind), c.Status, p.base, c.Delivered, p.body)
	return err
}

// SetDelivered notes that the terminal event of a call went out.
func (s *Store) SetDelivered(ctx context.Context, call string) error {
	err := s.write(ctx, func(t *tx) error {
		r, err := t.exec("UPDATE calls SET delivered = 1 WHERE id = ?", call)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return orNotFound(err)
		}
		return nil
	})
	return describe(err, "mark call %s as delivered", call)
}

func orNotFound(err error) error {
	if err == nil {
		return ErrNotFound
	}
	return err
}

// storedCall is a row of the table.
type storedCall struct {
	id, base  string
	delivered bool
	body      []byte
}

// Calls returns the calls of a session in order of arrival, as they were
// written, with the lineages that can be told only now: see relabel. They
// share memory and must not be changed.
func (s *Store) Calls(ctx context.Context, session string) ([]*Call, error) {
	out, err := s.calls(ctx, session)
	return out, describe(err, "read the calls of %s", session)
}

func (s *Store) calls(ctx context.Context, session string) ([]*Call, error) {
	rows, err := query(ctx, s.readers, func(row *sql.Rows) (c storedCall, err error) {
		err = row.Scan(&c.id, &c.base, &c.delivered, &c.body)
		return c, err
	}, "SELECT id, base, delivered, body FROM calls WHERE session = ? ORDER BY rowid", session)
	if err != nil {
		return nil, err
	}
	r := newRestorer(ctx, s)
	all := make([]*restored, 0, len(rows))
	for _, row := range rows {
		v, err := r.call(row.id, row.base, row.body)
		if err != nil {
			return nil, describe(err, "call %s", row.id)
		}
		v.call.Delivered = row.delivered
		all = append(all, v)
	}
	slices.SortStableFunc(all, func(a, b *restored) int { return a.call.Seq - b.call.Seq })
	relabel(session, all)
	out := make([]*Call, len(all))
	for i, v := range all {
		out[i] = v.call
	}
	return out, nil
}

// Call returns one call as Calls does, or ErrNotFound.
func (s *Store) Call(ctx context.Context, id string) (*Call, error) {
	session, _, _ := cutLast(id, ".")
	calls, err := s.calls(ctx, session)
	if err != nil {
		return nil, describe(err, "read call %s", id)
	}
	for _, c := range calls {
		if c.ID == id {
			return c, nil
		}
	}
	return nil, describe(ErrNotFound, "read call %s", id)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
