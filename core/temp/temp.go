// Package temp makes the folders that penstock has in the system's folder for
// temporary files, and removes those whose owners died before they could.
//
// A folder is held by a shared lock on itself, which its owners have for as
// long as they live, however they end. Who gets it alone may remove the folder.
// What never enters: what is in the folders.
package temp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The kinds of folders. A letter each, since sockets have short paths.
const (
	Plugin = "p" // of a plugin's socket and documents
	Agent  = "a" // the TMPDIR of a program
)

// young is the age up to which a folder is left alone: its owner may be about
// to take the lock.
const young = time.Minute

// Folder is a folder that this process holds.
type Folder struct {
	Path string
	lock *os.File
}

// Make makes a folder in base, which only this user can enter, and holds it.
func Make(base, kind string) (*Folder, error) {
	path, err := os.MkdirTemp(base, "penstock-"+kind)
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	f := &Folder{Path: path}
	// Where the file system has no locks on folders, nobody else gets one.
	if lock, err := open(path); err == nil {
		_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
		f.lock = lock
	}
	return f, nil
}

// Remove removes the folder with all that is in it.
func (f *Folder) Remove() error {
	if f == nil {
		return nil
	}
	err := os.RemoveAll(f.Path)
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
		f.lock = nil
	}
	return err
}

// open opens a folder, which is no link.
func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
}

// Sweep removes the folders of this user in the bases that nobody holds and
// that are older than a minute. It stops when ctx ends.
func Sweep(ctx context.Context, log *slog.Logger, bases ...string) {
	for _, base := range bases {
		for _, kind := range []string{Plugin, Agent} {
			found, err := filepath.Glob(filepath.Join(base, "penstock-"+kind+"[0-9]*"))
			if err != nil {
				continue
			}
			for _, path := range found {
				if ctx.Err() != nil {
					return
				}
				if left, err := abandoned(path); err == nil && left != nil {
					log.Debug("remove a folder whose owner died", "path", path, "error", os.RemoveAll(path))
					left.Close()
				}
			}
		}
	}
}

// abandoned returns the folder, locked, if it is this user's and nobody holds
// it; else nil.
func abandoned(path string) (*os.File, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(s.Uid) != os.Geteuid() || time.Since(info.ModTime()) < young {
			f.Close()
			return nil, nil
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
