// Package run is the run folder on disk: its layout, its lock, the file that
// describes the run, what its inputs were, and the log of events. Nothing is
// read back from the log, and inputs are only shown; the database under trace/
// is the only truth.
//
// What never enters: how rollouts are run, and what is in the database.
package run

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/oklog/ulid/v2"

	"github.com/penstock-dev/penstock/core/shell"
)

// Folder is an open, locked run folder. The lock dies with the process.
type Folder struct {
	Dir string // absolute
	ID  string // r-<ULID>

	lock *os.File
	// fresh is a folder that WriteFile has not made a run folder of yet; made
	// says that the folder itself is new, too. link is what then shall link to
	// it, or "".
	fresh, made bool
	link        string
}

// NewID returns a fresh id with the given prefix letter, such as r-<ULID>.
func NewID(prefix string) string { return prefix + "-" + ulid.Make().String() }

// ErrInUse is wrapped by the error for a folder that another process holds.
var ErrInUse = errors.New("run folder is in use")

// folders are those that a run folder begins with, files what a run may have
// written before its run.json.
var (
	folders = []string{"trace", "artifacts", "work", inputs}
	files   = []string{"events.jsonl", "gateway.json", "lock"}
)

// Create makes the folder of a new run. With an empty dir it is <runs>/<run
// id>, and <runs>/latest links to it once the run's file is written. A dir
// that is given must be new or empty. A run whose file is never written leaves
// nothing: Close takes away what there is of it.
func Create(dir, runs string) (*Folder, error) {
	f := &Folder{ID: NewID("r"), Dir: dir, fresh: true}
	if dir == "" {
		f.Dir = filepath.Join(runs, f.ID)
		f.link = filepath.Join(runs, "latest")
	}
	abs, err := filepath.Abs(f.Dir)
	if err != nil {
		return nil, fmt.Errorf("create run folder: %w", err)
	}
	f.Dir = abs
	switch entries, err := os.ReadDir(f.Dir); {
	case errors.Is(err, os.ErrNotExist):
		f.made = true
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("create run folder: %s is a file; choose another with --out", f.Dir)
	case err != nil:
		return nil, fmt.Errorf("create run folder: %w", err)
	case len(entries) > 0:
		if !f.neverBegan(entries) {
			return nil, f.taken(dir)
		}
		if err := f.acquire(); err != nil {
			return nil, err
		}
		if _, err := os.Lstat(f.Path("run.json")); err == nil { // whoever held the lock has begun
			f.fresh = false
			return nil, errors.Join(f.taken(dir), f.Close())
		}
		f.clear()
	}
	for _, sub := range append([]string{""}, folders...) {
		if err := os.MkdirAll(filepath.Join(f.Dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("create run folder: %w", err)
		}
	}
	if f.lock != nil {
		return f, nil
	}
	return f, f.acquire()
}

// neverBegan says whether all that is in a folder is what a run that was killed
// before its run.json was written leaves: nothing that ran, and nothing else's.
func (f *Folder) neverBegan(entries []os.DirEntry) bool {
	locked := false
	for _, e := range entries {
		locked = locked || e.Name() == "lock"
		known := slices.Contains(files, e.Name()) || e.IsDir() && slices.Contains(folders, e.Name())
		if !known {
			return false
		}
	}
	for _, sub := range []string{"artifacts", "work"} {
		if inside, err := os.ReadDir(f.Path(sub)); err == nil && len(inside) > 0 {
			return false
		}
	}
	return locked
}

// clear takes away what a run that never began has left, but for the lock.
func (f *Folder) clear() {
	for _, sub := range folders {
		os.RemoveAll(f.Path(sub))
	}
	for _, name := range files {
		if name != "lock" {
			os.Remove(f.Path(name))
		}
	}
}

// taken says what is in a folder that should be empty, and what can be done.
func (f *Folder) taken(given string) error {
	if _, err := os.Stat(f.Path("run.json")); err != nil {
		return fmt.Errorf("create run folder: %s is not empty; choose another with --out", f.Dir)
	}
	return fmt.Errorf("create run folder: %s holds a run already; choose another with --out, or go on with that run: penstock resume %s", f.Dir, shell.Quote(given))
}

// discard takes away a run that never began: what Create made and what was
// written since, and nothing else.
func (f *Folder) discard() {
	f.clear()
	os.Remove(f.Path("lock"))
	if f.made {
		os.Remove(f.Dir) // stays where there is something else in it
	}
}

// relink points a symbolic link at a new target in one step.
func relink(link, target string) error {
	temp := link + "." + target
	if err := os.Symlink(target, temp); err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	if err := os.Rename(temp, link); err != nil {
		os.Remove(temp)
		return fmt.Errorf("link %s: %w", link, err)
	}
	return nil
}

// Open locks the folder of an earlier run.
func Open(dir string) (*Folder, error) {
	f, err := View(dir)
	if err != nil {
		return nil, err
	}
	return f, f.acquire()
}

// View finds the folder of a run without locking it, for those who only read.
func View(dir string) (*Folder, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, fmt.Errorf("open run folder: %w", err)
	}
	f := &Folder{Dir: abs}
	d, err := f.ReadFile()
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open run folder: %s has no run.json, so it is no run folder, or one of a run that never began; remove it, or begin anew with --out", dir)
	}
	if err != nil {
		return nil, err
	}
	f.ID = d.Run
	return f, nil
}

func (f *Folder) acquire() error {
	l, err := os.OpenFile(filepath.Join(f.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock run folder: %w", err)
	}
	if err := syscall.Flock(int(l.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(l.Name())
		l.Close()
		return fmt.Errorf("%w: %s is held by process %s", ErrInUse, f.Dir, strings.TrimSpace(string(holder)))
	}
	f.lock = l
	if err := l.Truncate(0); err == nil {
		fmt.Fprintf(l, "%d\n", os.Getpid())
	}
	return nil
}

// Close gives the lock back. A run whose file was never written is gone then.
func (f *Folder) Close() error {
	if f.lock == nil {
		return nil
	}
	if f.fresh {
		f.discard()
	}
	err := f.lock.Close()
	f.lock = nil
	return err
}

// Path joins names to the folder's path.
func (f *Folder) Path(names ...string) string {
	return filepath.Join(append([]string{f.Dir}, names...)...)
}

// Database is the path of the run's store.
func (f *Folder) Database() string { return f.Path("trace", "penstock.db") }

// Artifacts makes and returns the folder artifacts/<rollout>/<stage>/<round>.<try>.
func (f *Folder) Artifacts(rollout, stage string, round, try int) (string, error) {
	dir := f.Path("artifacts", Escape(rollout), Escape(stage), fmt.Sprintf("%d.%d", round, try))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make artifacts folder: %w", err)
	}
	return dir, nil
}

// Work is the folder of a rollout's workspace, home and snapshots.
func (f *Folder) Work(rollout string) string { return f.Path("work", Escape(rollout)) }

// maxName is the length of a file name that every file system takes, with
// room for what is put before or behind it.
const maxName = 200

// Escape makes a file name of an id: every byte outside [A-Za-z0-9._~-] is
// percent-encoded, and so are names of dots alone. One that gets too long is
// cut, and told apart by a hash of the whole id.
func Escape(id string) string {
	name := escape(id)
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(id))
	return name[:maxName-33] + "~" + hex.EncodeToString(sum[:16])
}

func escape(id string) string {
	const safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-"
	if strings.Trim(id, ".") == "" {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	var b strings.Builder
	for i := range len(id) {
		if strings.IndexByte(safe, id[i]) >= 0 {
			b.WriteByte(id[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", id[i])
		}
	}
	return b.String()
}

// Replace writes a file as a whole: a temporary one is filled by write and
// takes the name only when all is on disk.
func Replace(path string, write func(*os.File) error) error { return replace(path, true, write) }

// Artifact is Replace for a file that only shows what the database holds: a kill
// leaves it whole or not there, a loss of power may leave it empty.
func Artifact(path string, write func(*os.File) error) error { return replace(path, false, write) }

func replace(path string, sync bool, write func(*os.File) error) error {
	t, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(t.Name())
	err = write(t)
	if err == nil && sync {
		err = t.Sync()
	}
	if e := t.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(t.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
