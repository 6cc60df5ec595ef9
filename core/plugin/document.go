package plugin

import (
	"errors"
	"fmt"
	"os"
)

// document writes what is too large for a message to a file in a folder, by
// default that of the system, which only this user can read.
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
