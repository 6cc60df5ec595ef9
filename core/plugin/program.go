package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/penstock-dev/penstock/core/shell"
)

// command is what a plugin's argv starts.
type command struct {
	argv  []string
	files []string
	sum   string // sha256 in hex of what runs
	kept  bool   // in the cache, under its sha256
}

// program resolves what a plugin's argv starts and hashes it. A lone program
// is copied into the cache and run from there, so that what was hashed is
// what runs. A script or an argv with arguments needs its surroundings and is
// run where it lies; the files among its arguments and those that belong to
// it are part of the hash, which is taken again at each start.
func (c cache) program(argv, files []string) (command, error) {
	path, err := executable(argv[0])
	if err != nil {
		return command{}, err
	}
	if len(argv) == 1 && len(files) == 0 && !isScript(path) {
		kept, sum, err := c.keep(path, 0o700)
		return command{argv: []string{kept}, sum: sum, kept: true}, err
	}
	argv = append([]string{path}, argv[1:]...)
	sum, err := hashTogether(argv, files)
	return command{argv: argv, files: files, sum: sum}, err
}

// same says that what would start now is not what was hashed.
func (c command) same() error {
	if c.kept {
		return nil
	}
	now, err := hashTogether(c.argv, c.files)
	if err != nil {
		return err
	}
	if now != c.sum {
		return fmt.Errorf("its files have changed since they were hashed: they were %s and are %s; start the run anew", c.sum, now)
	}
	return nil
}

// executable finds a program and checks that it can be run.
func executable(name string) (string, error) {
	path := name
	if !strings.ContainsRune(name, filepath.Separator) {
		found, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("there is no program %q in PATH", name)
		}
		path = found
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s does not exist", path)
	case err != nil:
		return "", err
	case info.IsDir():
		return "", fmt.Errorf("%s is a folder; write {go: %s} to build it", path, path)
	case info.Mode()&0o111 == 0:
		return "", fmt.Errorf("%s may not be run: chmod +x %s", path, shell.Quote(path))
	}
	return filepath.Abs(path)
}

func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	start := make([]byte, 2)
	n, _ := f.Read(start)
	return bytes.Equal(start[:n], []byte("#!"))
}

// hashTogether hashes an argv with every regular file that it names, and more
// files.
func hashTogether(argv, files []string) (string, error) {
	var all strings.Builder
	add := func(path string) error {
		sum, err := hashFile(path)
		fmt.Fprintf(&all, "file %s %s\n", filepath.Base(path), sum)
		return err
	}
	for i, arg := range argv {
		if i > 0 {
			fmt.Fprintf(&all, "arg %q\n", arg)
		}
		if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() {
			if err := add(arg); err != nil {
				return "", err
			}
		}
	}
	for _, f := range files {
		if err := add(f); err != nil {
			return "", fmt.Errorf("files: %w", err)
		}
	}
	return hashText(all.String()), nil
}
