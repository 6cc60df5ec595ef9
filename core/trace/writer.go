package trace

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
)

// writer is the one goroutine that writes. It commits whatever is queued in
// one transaction and never waits for more.
type writer struct {
	db    *sql.DB
	tx    *tx
	queue chan *write
	ended chan struct{} // closed when the goroutine has ended

	mu     sync.RWMutex // held to queue; guards closed
	closed bool
}

// write is a change that waits to be committed.
type write struct {
	run  func(*tx) error
	done chan error
}

// maxBatch bounds a transaction, so that the first of a batch doesn't wait
// for an endless queue.
const maxBatch = 256

func openWriter(path, synchronous string) (*writer, error) {
	name, err := dsn(path, url.Values{"_pragma": {
		"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(" + synchronous + ")",
	}})
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err == nil {
		err = migrate(ctx, conn)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	w := &writer{
		db: db, tx: &tx{conn: conn, statements: map[string]*sql.Stmt{}},
		queue: make(chan *write, maxBatch), ended: make(chan struct{}),
	}
	go w.loop()
	return w, nil
}

// do queues a change and returns when it is committed. The context counts
// only until the change is queued. run may be called twice, the second time
// after the first was rolled back.
func (w *writer) do(ctx context.Context, run func(*tx) error) error {
	x := &write{run: run, done: make(chan error, 1)}
	if err := w.enqueue(ctx, x); err != nil {
		return err
	}
	return <-x.done
}

func (w *writer) enqueue(ctx context.Context, x *write) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case w.queue <- x:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *writer) loop() {
	defer close(w.ended)
	batch := make([]*write, 0, maxBatch)
	for first := range w.queue {
		batch = w.drain(append(batch[:0], first))
		w.commit(batch)
		clear(batch)
	}
}

// drain adds what is queued already to batch.
func (w *writer) drain(batch []*write) []*write {
	for len(batch) < maxBatch {
		select {
		case x, ok := <-w.queue:
			if !ok {
				return batch
			}
			batch = append(batch, x)
		default:
			return batch
		}
	}
	return batch
}

// commit commits a batch. If one of it fails, each gets a transaction of its
// own, so that it fails alone.
func (w *writer) commit(batch []*write) {
	err := w.tx.commit(func() error {
		for _, x := range batch {
			if err := x.run(w.tx); err != nil {
				return err
			}
		}
		return nil
	})
	for _, x := range batch {
		if err != nil && len(batch) > 1 {
			x.done <- w.tx.commit(func() error { return x.run(w.tx) })
		} else {
			x.done <- err
		}
	}
}

func (w *writer) close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	close(w.queue)
	w.mu.Unlock()
	<-w.ended
	return errors.Join(w.tx.close(), w.db.Close())
}

// tx is a transaction on the writing connection.
type tx struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
}

// exec runs a statement, which stays prepared.
func (t *tx) exec(query string, args ...any) (sql.Result, error) {
	s := t.statements[query]
	if s == nil {
		var err error
		if s, err = t.conn.PrepareContext(context.Background(), query); err != nil {
			return nil, err
		}
		t.statements[query] = s
	}
	return s.Exec(args...)
}

func (t *tx) commit(run func() error) error {
	if _, err := t.exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin to write: %w", err)
	}
	err := run()
	if err == nil {
		if _, err = t.exec("COMMIT"); err == nil {
			return nil
		}
		err = fmt.Errorf("commit: %w", err)
	}
	// SQLite has rolled back itself where the disk is full or broken.
	if _, rollback := t.exec("ROLLBACK"); rollback != nil && !strings.Contains(rollback.Error(), "no transaction is active") {
		return errors.Join(err, rollback)
	}
	return err
}

func (t *tx) close() error {
	var errs []error
	for _, s := range t.statements {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, t.conn.Close())...)
}
