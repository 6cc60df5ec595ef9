package plugin

import (
	"errors"
	"fmt"
	"os"

	"github.com/penstock-dev/penstock/core/temp"
)

// document writes what is too large for a message to a file in a folder, which
// only this user can read.
func document(dir string, text []byte) (string, error) {
	f, err := os.CreateTemp(dir, "penstock-document-*.json")
	if err != nil {
		return "", fmt.Errorf("hand a document over as a file: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("hand a document over as a file: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return f.Name(), nil
}

// document writes to the folder of the socket, which goes with the program.
func (r *running) document(text []byte) (string, error) { return document(r.group.folder, text) }

// loneDocument writes to a folder of its own, which remove removes.
func loneDocument(text []byte) (path string, remove func(), err error) {
	dir, err := temp.Make(os.TempDir(), temp.Plugin)
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = dir.Remove() }
	if path, err = document(dir.Path, text); err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}
