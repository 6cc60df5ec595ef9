package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveAll removes a tree as os.RemoveAll does, and also one with folders
// that their owner may not write to, as module caches have them.
func RemoveAll(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	// The root keeps chmod from following a link out of the tree.
	root, openErr := os.OpenRoot(filepath.Dir(path))
	if openErr != nil {
		return err
	}
	defer root.Close()
	unlock(root, filepath.Base(path))
	return os.RemoveAll(path)
}

func unlock(root *os.Root, name string) {
	info, err := root.Lstat(name)
	if err != nil || !info.IsDir() {
		return
	}
	if info.Mode()&0o700 != 0o700 {
		_ = root.Chmod(name, 0o700)
	}
	dir, err := root.OpenRoot(name)
	if err != nil {
		return
	}
	defer dir.Close()
	for _, e := range readDir(dir) {
		if e.IsDir() {
			unlock(dir, e.Name())
		}
	}
}

// readDir lists a folder, sorted by name.
func readDir(dir *os.Root) []fs.DirEntry {
	entries, _ := fs.ReadDir(dir.FS(), ".")
	return entries
}
