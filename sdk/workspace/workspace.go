// Package workspace lets a judger look into the copy of the workspace that it
// is given, and run a command in it:
//
//	w, err := workspace.Open(r.Rollout())
//	if err != nil {
//		return judger.Verdict{}, err
//	}
//	defer w.Close()
//	text, err := w.ReadFile("answer.txt")
//	result, err := w.Run(ctx, workspace.Command{Argv: []string{"go", "test", "./..."}, Timeout: time.Minute})
//
// An agent has written what is in there, so that nothing of it is trusted:
// no path leads out of the workspace, neither by .. nor by a symbolic link,
// and a command has a limit of time and of output. In a judger inside penstock
// it is kept from all else like the agent was, and leaves no process behind: see
// Runner. In a process of its own it ends with its process group. A WASM module
// sees no files: there Open fails.
package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/sdk/rollout"
)

// MaxFile is the most that ReadFile reads, in bytes.
const MaxFile = 16 << 20

// ErrNone says that there is no workspace: no program has run, or the judger is
// a WASM module.
var ErrNone = errors.New("the rollout has no workspace here")

// Workspace is a judger's own copy of the files that an agent left. Its
// methods may be called from several goroutines.
type Workspace struct {
	dir    string
	root   *os.Root
	before *os.Root // as the agent found it; nil where that isn't known
}

// Open opens the copy that a judger is given. Close closes it.
func Open(r rollout.Rollout) (*Workspace, error) {
	dir := r.Workspace()
	if dir == "" {
		return nil, ErrNone
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the workspace: %w", err)
	}
	w := &Workspace{dir: dir, root: root}
	if before := r.WorkspaceBefore(); before != "" {
		if w.before, err = os.OpenRoot(before); err != nil {
			root.Close()
			return nil, fmt.Errorf("open the workspace as it was: %w", err)
		}
	}
	return w, nil
}

// Close closes the workspace. Its files stay until the judge's call is over.
func (w *Workspace) Close() error {
	if w.before != nil {
		_ = w.before.Close()
	}
	return w.root.Close()
}

// Dir is the path of the workspace.
func (w *Workspace) Dir() string { return w.dir }

// ReadFile reads a file by its path below the workspace. One over MaxFile, one
// that is no regular file, and one that a link leads out to are errors; one
// that isn't there is fs.ErrNotExist.
func (w *Workspace) ReadFile(name string) ([]byte, error) {
	f, err := w.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s of the workspace: %w", name, err)
	}
	if len(data) > MaxFile {
		return nil, fmt.Errorf("read %s of the workspace: it is over %d bytes", name, MaxFile)
	}
	return data, nil
}

// Open opens a file for reading, of any length. One that is no regular file,
// and one that a link leads out to, are errors; one that isn't there is
// fs.ErrNotExist.
func (w *Workspace) Open(name string) (io.ReadCloser, error) { return w.open(name) }

func (w *Workspace) open(name string) (*os.File, error) {
	// Asked before it is opened: opening a named pipe would wait for a writer.
	info, err := w.root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	var f *os.File
	if err == nil {
		f, err = w.root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of the workspace: %w", name, err)
	}
	return f, nil
}

// WriteFile puts a file in the place of whatever has this path below the
// workspace, such as a test that the agent may have changed. Folders on the way
// are made, in the place of what is there and is none, or is a link that leads
// out.
func (w *Workspace) WriteFile(name string, data []byte) error {
	dir, err := path.Dir(name), error(nil)
	if dir != "." {
		err = w.folder(dir)
	}
	if err == nil {
		err = w.Remove(name)
	}
	if err == nil {
		err = w.root.WriteFile(name, data, 0o755)
	}
	if err != nil {
		return fmt.Errorf("write %s of the workspace: %w", name, err)
	}
	return nil
}

// folder makes a folder and those on the way to it.
func (w *Workspace) folder(dir string) error {
	parts := strings.Split(path.Clean(dir), "/")
	for i := range parts {
		at := strings.Join(parts[:i+1], "/")
		if info, err := w.root.Stat(at); err == nil && info.IsDir() {
			continue
		}
		if err := w.root.RemoveAll(at); err != nil {
			return err
		}
		if err := w.root.Mkdir(at, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Clear removes all that a pattern of path.Match names, so that what is there
// after a command is of that command. What stands in the way of a folder of the
// pattern goes, too, a link included, as Files follows none.
func (w *Workspace) Clear(pattern string) error {
	if err := w.clear(".", strings.Split(path.Clean(pattern), "/")); err != nil {
		return fmt.Errorf("clear %s of the workspace: %w", pattern, err)
	}
	return nil
}

func (w *Workspace) clear(dir string, pattern []string) error {
	if pattern[0] == ".." {
		return errors.New("it leads out")
	}
	all, err := fs.ReadDir(w.root.FS(), dir)
	if err != nil {
		return err
	}
	for _, d := range all {
		ok, err := path.Match(pattern[0], d.Name())
		at := path.Join(dir, d.Name())
		switch {
		case err != nil || !ok:
		case len(pattern) == 1:
			err = w.root.RemoveAll(at)
		case d.IsDir():
			err = w.clear(at, pattern[1:])
		default:
			if err = w.root.RemoveAll(at); err == nil {
				err = w.root.Mkdir(at, 0o755)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove removes a file or a folder of the workspace, with all that is in it. A
// link goes, and what it leads to stays. What isn't there is no error.
func (w *Workspace) Remove(name string) error {
	if err := w.root.RemoveAll(name); err != nil {
		return fmt.Errorf("remove %s of the workspace: %w", name, err)
	}
	return nil
}

// Exists says whether there is a file or folder of this path in the workspace.
func (w *Workspace) Exists(name string) bool {
	_, err := w.root.Stat(name)
	return err == nil
}

// Lstat says what has this path in the workspace; of a link, the link itself.
func (w *Workspace) Lstat(name string) (fs.FileInfo, error) { return w.root.Lstat(name) }

// Had says whether there was a file or folder of this path when the first agent
// began. Links that an agent made and that lead out, and what is neither a file
// nor a folder, are left out of the copy, so that they look as if removed.
func (w *Workspace) Had(name string) bool {
	if w.before == nil {
		return false
	}
	_, err := w.before.Lstat(name)
	return err == nil
}

// Files lists the paths of all regular files below the workspace, sorted, with
// slashes. Links are not followed.
func (w *Workspace) Files() ([]string, error) {
	var out []string
	err := fs.WalkDir(w.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out = append(out, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the workspace: %w", err)
	}
	slices.Sort(out)
	return out, nil
}
