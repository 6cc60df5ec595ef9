package plugin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/penstock-dev/penstock/sdk/component"
)

// cache is a folder of what can be made again: builds, copies of programs
// under their sha256, descriptions and compiled modules.
type cache struct{ dir string }

// folder makes and returns a folder of the cache.
func (c cache) folder(name string) (string, error) {
	if c.dir == "" {
		return "", errors.New("there is no cache folder for plugins")
	}
	dir := filepath.Join(c.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the plugin cache: %w; set PENSTOCK_CACHE to a folder that can be written", err)
	}
	return dir, nil
}

// goFolders are the go command's own caches where the environment names none:
// without a home it would not know where to put them.
func (c cache) goFolders(env func(string) string) []string {
	if env("HOME") != "" {
		return nil
	}
	var out []string
	if env("GOCACHE") == "" && env("XDG_CACHE_HOME") == "" {
		out = append(out, "GOCACHE="+filepath.Join(c.dir, "go-build"))
	}
	if env("GOPATH") == "" {
		out = append(out, "GOPATH="+filepath.Join(c.dir, "go"))
	}
	return out
}

// keep copies a file to a path that is named by its sha256, and returns both.
// The copy is what runs, so that nothing can change between the hash and the
// start.
func (c cache) keep(path string, mode os.FileMode) (kept, digest string, err error) {
	dir, err := c.folder("bin")
	if err != nil {
		return "", "", err
	}
	if digest, err = hashFile(path); err != nil {
		return "", "", err
	}
	kept = filepath.Join(dir, digest)
	if have, err := hashFile(kept); err == nil && have == digest {
		return kept, digest, nil
	}
	digest, err = copyHashed(path, dir, mode)
	if err != nil {
		return "", "", fmt.Errorf("copy into the plugin cache: %w", err)
	}
	return filepath.Join(dir, digest), digest, nil
}

// copyHashed copies a file into a folder, to the name that is its sha256.
func copyHashed(path, dir string, mode os.FileMode) (string, error) {
	in, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	tmp, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(tmp, sum), in)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Close()); err != nil {
		return "", err
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	return digest, os.Rename(tmp.Name(), filepath.Join(dir, digest))
}

// hashFile returns the sha256 of a file in hex.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func hashText(text string) string { return hashBytes([]byte(text)) }

// hashBytes returns a sha256 in hex.
func hashBytes(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// write puts a file in place whole.
func write(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// description is what a program of this sha256 said before.
func (c cache) description(digest string) ([]component.Descriptor, bool) {
	data, err := os.ReadFile(filepath.Join(c.dir, "describe", digest+".json"))
	if err != nil {
		return nil, false
	}
	all, err := parseDescription(data)
	return all, err == nil
}

func (c cache) describe(digest string, all []component.Descriptor) error {
	dir, err := c.folder("describe")
	if err != nil {
		return err
	}
	data, err := json.Marshal(description{all})
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, digest+".json"), data)
}

// description is the JSON form of what a program holds.
type description struct {
	Components []component.Descriptor `json:"components"`
}

// parseDescription reads the answer of describe. Unknown fields are those of
// a newer sdk.
func parseDescription(data []byte) ([]component.Descriptor, error) {
	var d description
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&d); err != nil {
		return nil, fmt.Errorf("its description is not JSON: %w", err)
	}
	return d.Components, nil
}
