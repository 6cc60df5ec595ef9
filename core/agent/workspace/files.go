package workspace

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/penstock-dev/penstock/sdk/invoker"
)

// WriteFiles writes the files of a plan: a relative path in the workspace, one
// that starts with "~/" in home. A file that is there is replaced, not written
// through. No path gets out of either folder, by ".." or by a link.
func (w *Workspace) WriteFiles(home string, files []invoker.File) error {
	for _, f := range files {
		if err := w.writeFile(home, f); err != nil {
			return fmt.Errorf("write file %q of the plan: %w", f.Path, err)
		}
	}
	return nil
}

func (w *Workspace) writeFile(home string, f invoker.File) error {
	dir, name := w.Path(), f.Path
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		dir, name = home, rest
	}
	if path.IsAbs(name) {
		return fmt.Errorf("the path is absolute; use one in the workspace, or ~/ for the home")
	}
	if name == "" || strings.HasSuffix(name, "/") || strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("the path names no file")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if parent := path.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o700); err != nil {
			return err
		}
	}
	info, err := root.Lstat(name)
	if err == nil && info.IsDir() {
		return fmt.Errorf("a folder of that name is there")
	}
	if err == nil {
		if err := root.Remove(name); err != nil {
			return err
		}
	}
	mode := fs.FileMode(f.Mode).Perm()
	if mode == 0 {
		mode = 0o600
	}
	return create(root, name, f.Data, mode)
}

// Dir is the folder of a plan, which is made if it isn't there: a path in the
// workspace or, with "~/" before it, in the home. Empty is the workspace.
func (w *Workspace) Dir(home, dir string) (string, error) {
	base, name := w.Path(), dir
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		base, name = home, rest
	}
	if name == "" {
		return base, nil
	}
	root, err := os.OpenRoot(base)
	if err == nil {
		err = root.MkdirAll(name, 0o700)
		_ = root.Close()
	}
	if err != nil {
		return "", fmt.Errorf("make folder %q of the plan: %w", dir, err)
	}
	return filepath.Join(base, name), nil
}

func create(root *os.Root, name, data string, mode fs.FileMode) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(data)
	if err == nil {
		err = file.Chmod(mode) // the umask has no say
	}
	if e := file.Close(); err == nil {
		err = e
	}
	return err
}
