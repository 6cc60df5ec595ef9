package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Options are the options of New.
type Options struct {
	// Dir is the rollout's own folder. New makes it; what is there already,
	// left by an earlier part of the run, is taken up again.
	Dir string
	// From is the folder that is copied. Empty: the workspace starts empty.
	From string
	// Limits bound every copy.
	Limits Limits
}

// Workspace is one rollout's folder. Its methods are not for use at the same
// time, nor while a process works in it.
type Workspace struct {
	dir    string
	limits Limits
	notes  []Note
}

// The folders in a workspace's own folder.
const (
	workName  = "work"
	startName = "start" // as copied from From; Diff compares with it
	homesName = "homes"
	snapsName = "snapshots"
	newSuffix = ".new" // being made
)

// New makes a workspace, or takes up the one that is in o.Dir.
func New(o Options) (*Workspace, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("make workspace: %w", err)
	}
	w := &Workspace{dir: dir, limits: o.Limits}
	for _, d := range []string{dir, w.path(homesName), w.path(snapsName)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make workspace: %w", err)
		}
	}
	if !isDir(w.path(startName)) {
		err := w.replace(w.path(startName), func(to string) error {
			if o.From == "" {
				return nil
			}
			return w.copy(o.From, to, userLinks)
		})
		if err != nil {
			return nil, fmt.Errorf("make workspace from %s: %w", o.From, err)
		}
	}
	if !isDir(w.Path()) {
		err := w.replace(w.Path(), func(to string) error { return w.copy(w.path(startName), to, sameLinks) })
		if err != nil {
			return nil, fmt.Errorf("make workspace: %w", err)
		}
	}
	return w, nil
}

// Path is the folder in which agents work.
func (w *Workspace) Path() string { return w.path(workName) }

// Notes tells what copies have left out so far.
func (w *Workspace) Notes() []Note { return w.notes }

// NewHome makes a private, empty home of this name. One that was left by a
// try that did not end is removed first.
func (w *Workspace) NewHome(name string) (string, error) {
	home, err := w.named(homesName, name)
	if err != nil {
		return "", fmt.Errorf("make home: %w", err)
	}
	if err := RemoveAll(home); err != nil {
		return "", fmt.Errorf("make home: %w", err)
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", fmt.Errorf("make home: %w", err)
	}
	return home, nil
}

// Snapshot keeps the workspace as it is now under a name. It is there whole or
// not at all, even when the host is killed meanwhile.
func (w *Workspace) Snapshot(name string) error {
	to, err := w.named(snapsName, name)
	if err == nil {
		err = w.replace(to, func(to string) error { return w.copy(w.Path(), to, sameLinks) })
	}
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", name, err)
	}
	return nil
}

// HasSnapshot tells whether there is a snapshot of this name.
func (w *Workspace) HasSnapshot(name string) bool {
	path, err := w.named(snapsName, name)
	return err == nil && isDir(path)
}

// SnapshotPath is the folder of a snapshot, which is not to be changed.
func (w *Workspace) SnapshotPath(name string) string { return filepath.Join(w.dir, snapsName, name) }

// Restore puts the workspace back to a snapshot, which stays.
func (w *Workspace) Restore(name string) error {
	from, err := w.named(snapsName, name)
	if err == nil && !isDir(from) {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = w.replace(w.Path(), func(to string) error { return w.copy(from, to, sameLinks) })
	}
	if err != nil {
		return fmt.Errorf("restore snapshot %s: %w", name, err)
	}
	return nil
}

// CopyTo copies the workspace into dir, which is made and must otherwise be
// empty, for somebody who trusts what is read there: links that an agent made
// and that lead out of the workspace are left out.
func (w *Workspace) CopyTo(dir string) error { return w.copyTo(w.Path(), dir) }

// CopySnapshotTo copies a snapshot as CopyTo does the workspace.
func (w *Workspace) CopySnapshotTo(name, dir string) error {
	from, err := w.named(snapsName, name)
	if err != nil {
		return fmt.Errorf("copy snapshot %s: %w", name, err)
	}
	return w.copyTo(from, dir)
}

func (w *Workspace) copyTo(from, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("copy workspace: %w", err)
	}
	left, err := os.ReadDir(dir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%s is not empty", dir)
	}
	if err == nil {
		err = w.copy(from, dir, w.trustedLinks)
	}
	if err != nil {
		return fmt.Errorf("copy workspace: %w", err)
	}
	return nil
}

// Remove removes all of the workspace, homes and snapshots included.
func (w *Workspace) Remove() error { return RemoveAll(w.dir) }

func (w *Workspace) path(name string) string { return filepath.Join(w.dir, name) }

func (w *Workspace) named(kind, name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || strings.Trim(name, ".") == "" || strings.HasSuffix(name, newSuffix) {
		return "", fmt.Errorf("%q is no name for a folder", name)
	}
	return filepath.Join(w.dir, kind, name), nil
}

// replace makes a folder beside path and puts it in its place when it is done.
func (w *Workspace) replace(path string, fill func(to string) error) error {
	fresh := path + newSuffix
	if err := RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	if err := fill(fresh); err != nil {
		return errors.Join(err, RemoveAll(fresh))
	}
	// Exchanged in one step, so that a host that is killed here leaves the old
	// folder or the new one, never none.
	err := unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
	if err == nil {
		return RemoveAll(fresh)
	}
	if err := RemoveAll(path); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
