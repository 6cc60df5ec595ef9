package trace

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// The durabilities of a store.
const (
	Normal = "normal" // survives kill -9 of the process
	Fsync  = "fsync"  // survives power loss
)

// StoreOptions is how a store is opened. Durability is Normal unless given.
type StoreOptions struct {
	Durability string
	ReadOnly   bool
}

// Errors that callers tell apart.
var (
	ErrNotFound = errors.New("not found")
	ErrClosed   = errors.New("the store is closed")
	ErrReadOnly = errors.New("the store is open for reading only")
)

// Store is the durable store of a run: one SQLite file. What a method has
// written is committed when it returns. Its methods may be called from
// several goroutines; one process writes at a time, others may read.
type Store struct {
	readers *sql.DB
	schema  int     // its version
	writer  *writer // nil when read only
	codec   *codec
	index   index
	stored  recent    // blobs known to be committed
	packing sync.Pool // of *packing
}

// Open opens the store at path and, unless o.ReadOnly, makes it if there is
// none. A store that an older program wrote is brought up to date, or for reading
// taken as it is; one that a newer program wrote is refused.
func Open(path string, o StoreOptions) (_ *Store, err error) {
	s := &Store{}
	defer func() {
		if err != nil {
			s.Close()
			err = fmt.Errorf("open the trace store %s: %w", path, err)
		}
	}()
	if s.codec, err = newCodec(); err != nil {
		return nil, err
	}
	synchronous := "NORMAL"
	switch o.Durability {
	case "", Normal:
	case Fsync:
		synchronous = "FULL"
	default:
		return nil, fmt.Errorf("durability %q is neither %s nor %s", o.Durability, Normal, Fsync)
	}
	if o.ReadOnly {
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
	} else {
		if err := create(path); err != nil {
			return nil, err
		}
		if s.writer, err = openWriter(path, synchronous); err != nil {
			return nil, err
		}
	}
	if s.readers, s.schema, err = openReaders(path); err != nil {
		return nil, err
	}
	return s, nil
}

// create makes an empty file that only its owner can read; SQLite gives its
// other files the same mode.
func create(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// dsn is the address of the database with query parameters.
func dsn(path string, query url.Values) (string, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "file", Path: absolute, RawQuery: query.Encode()}).String(), nil
}

// openReaders also returns the version of the schema.
func openReaders(path string) (*sql.DB, int, error) {
	name, err := dsn(path, url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(10000)", "query_only(1)"}})
	if err != nil {
		return nil, 0, err
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, 0, err
	}
	db.SetMaxOpenConns(4)
	v, err := version(context.Background(), db)
	if err == nil && v == 0 {
		err = errors.New("it is empty: no run was recorded in it")
	}
	if err != nil {
		db.Close()
		return nil, 0, err
	}
	return db, v, nil
}

// Close commits what is queued and closes the store. It may be called twice.
func (s *Store) Close() error {
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.readers.Close())
	}
	// The last connection to close puts the log into the database, which a
	// reader can't.
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.codec != nil {
		s.codec.close()
	}
	return errors.Join(errs...)
}

func (s *Store) write(ctx context.Context, f func(*tx) error) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	return s.writer.do(ctx, f)
}

// recent is a bounded set of keys.
type recent struct {
	mu   sync.Mutex
	keys map[key]struct{}
}

// maxRecent keeps the set below a megabyte or two.
const maxRecent = 1 << 14

func (r *recent) has(k key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.keys[k]
	return ok
}

func (r *recent) add(blobs []blob) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil || len(r.keys) > maxRecent {
		r.keys = map[key]struct{}{}
	}
	for _, b := range blobs {
		r.keys[b.key] = struct{}{}
	}
}
