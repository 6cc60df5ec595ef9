package run

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"unicode/utf8"
)

// inputs is the folder of what the run depends on, so that a change of it can
// be shown. It decides nothing: what a file was is told by its hash.
const inputs = "inputs"

// maxInput is the size of files that are kept, in bytes: those that people
// write, not tokenizers.
const maxInput = 1 << 20

// KeepInputs copies the texts among files, which are hashes by path, under
// their hashes; redact takes out of them what must not be kept. A file that is
// no longer the one of its hash is left out.
func (f *Folder) KeepInputs(files map[string]string, redact func([]byte) []byte) error {
	if err := os.MkdirAll(f.Path(inputs), 0o700); err != nil {
		return fmt.Errorf("make the folder of inputs: %w", err)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		text, ok := ReadInput(path)
		if sum := sha256.Sum256(text); !ok || hex.EncodeToString(sum[:]) != files[path] {
			continue
		}
		if _, err := os.Stat(f.Path(inputs, files[path])); err == nil {
			continue
		}
		err := Replace(f.Path(inputs, files[path]), func(out *os.File) error {
			_, err := out.Write(redact(text))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Input is the text that was kept under a hash.
func (f *Folder) Input(sum string) (text []byte, ok bool, err error) {
	text, err = os.ReadFile(f.Path(inputs, sum))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read an input of the run: %w", err)
	}
	return text, true, nil
}

// ReadInput reads a file if it is a text of a size that is kept.
func ReadInput(path string) ([]byte, bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxInput {
		return nil, false
	}
	text, err := os.ReadFile(path)
	return text, err == nil && utf8.Valid(text) && !bytes.ContainsRune(text, 0)
}
