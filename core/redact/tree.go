package redact

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Tree redacts every file below a folder, in place, and counts those that it
// changed. Links are not followed; what can't be read or written is left and
// is in the error. Nobody else may write there meanwhile.
func (r *Redactor) Tree(dir string) (changed int, err error) {
	if r == nil {
		return 0, nil
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("redact %s: %w", dir, err)
	}
	defer root.Close()
	var errs []error
	walk := func(path string, d fs.DirEntry, err error) error {
		hit := false
		if err == nil && d.Type().IsRegular() {
			hit, err = r.file(root, path)
		}
		if hit {
			changed++
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("redact %s: %w", dir, err))
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	}
	_ = fs.WalkDir(root.FS(), ".", walk) // its errors were given to walk
	return changed, errors.Join(errs...)
}

// file redacts one file. The new one takes the place of the old, so that other
// links to that stay as they are.
func (r *Redactor) file(root *os.Root, path string) (bool, error) {
	in, err := root.Open(path)
	if err != nil {
		return false, err
	}
	defer in.Close() // it was only read
	look := r.Writer(io.Discard)
	if _, err := io.Copy(look, in); err != nil {
		return false, err
	}
	if err := look.Close(); err != nil || len(look.Found()) == 0 {
		return false, err
	}
	info, err := in.Stat()
	if err == nil {
		_, err = in.Seek(0, io.SeekStart)
	}
	if err != nil {
		return false, err
	}
	temp := path + ".redacting"
	out, err := root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm()|0o200)
	if err != nil {
		return false, err
	}
	w := r.Writer(out)
	_, err = io.Copy(w, in)
	err = errors.Join(err, w.Close(), out.Chmod(info.Mode().Perm()), out.Close())
	if err == nil {
		err = root.Rename(temp, path)
	}
	if err != nil {
		return false, errors.Join(err, root.Remove(temp))
	}
	return true, root.Chtimes(path, info.ModTime(), info.ModTime())
}
