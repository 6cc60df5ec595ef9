// Package lock is the file penstock.lock, which lies beside a pipeline and
// says which plugins it may run:
//
//	penstock: lock/v1
//	plugins:
//	  hook/mask:
//	    wasm: 8c5f...
//	  judger/exact42:
//	    linux/amd64: 03ab...
//	    linux/arm64: 77d0...
//
// It is written by a command of the user's alone. Without an entry a plugin
// runs; with one, only what was locked does. What is compared is the sha256 of
// what runs: a module has one everywhere, a program one for each system.
package lock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/core/shell"
)

// Name is the name of the file.
const Name = "penstock.lock"

const (
	version  = "lock/v1"
	wasm     = "wasm"
	preamble = "# Which plugins may run: the sha256 of each. Written by penstock plugin lock.\n"
)

// Path is the lock file of a pipeline file.
func Path(pipeline string) string { return filepath.Join(filepath.Dir(pipeline), Name) }

// File is a lock file: by plugin key, by system, the sha256 in hex.
type File struct {
	Penstock string                       `yaml:"penstock"`
	Plugins  map[string]map[string]string `yaml:"plugins"`
}

// Plugin is one plugin as it was loaded.
type Plugin struct {
	Key    string `json:"plugin"`
	SHA256 string `json:"sha256"`
	Wasm   bool   `json:"-"`
}

// system is where a sha256 holds.
func system(isWasm bool) string {
	if isWasm {
		return wasm
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}

// Read reads the lock file of a pipeline; one that isn't there is empty.
func Read(pipeline string) (*File, error) {
	path := Path(pipeline)
	f := &File{Penstock: version}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the lock: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(f); err != nil {
		return nil, &Unreadable{path, plain(err), "penstock plugin lock " + shell.Quote(pipeline)}
	}
	if f.Penstock != version {
		return nil, fmt.Errorf("%s: it is of version %q, want %q", path, f.Penstock, version)
	}
	return f, nil
}

// Unreadable is a lock file that is none: empty, cut off, or of something else.
type Unreadable struct {
	path, why, anew string
}

func (u *Unreadable) Error() string {
	return fmt.Sprintf("%s is no lock file: %s\nno plugin runs until it is mended or written anew, for what is there now, with: %s", u.path, u.why, u.anew)
}

// Why says what is wrong with the file at Path.
func (u *Unreadable) Why() string { return u.why }

// Path is the file.
func (u *Unreadable) Path() string { return u.path }

// goTypes are the names of our types in yaml's messages.
var goTypes = regexp.MustCompile("cannot unmarshal !!([a-z]+)(?: `[^`]*`)? into \\S+")

// plain says in a line what is wrong with a lock file.
func plain(err error) string {
	if errors.Is(err, io.EOF) {
		return "it is empty"
	}
	text, more, _ := strings.Cut(strings.TrimPrefix(err.Error(), "yaml: "), ":\n")
	if more != "" {
		text, _, _ = strings.Cut(strings.TrimSpace(more), "\n")
	}
	text = goTypes.ReplaceAllString(text, "want a mapping of names to sums, this is of kind $1")
	return strings.TrimSuffix(text, " in type lock.File")
}

// want is the sha256 that a key is locked to here.
func (f *File) want(key string) (string, bool) {
	e := f.Plugins[key]
	if sum, ok := e[wasm]; ok {
		return sum, true
	}
	sum, ok := e[system(false)]
	return sum, ok
}

// Holder holds plugins to the lock file of a pipeline.
type Holder struct {
	pipeline string
	file     *File
	locked   bool
	accept   string // the command that accepts what is there
}

// Hold reads the lock file of a pipeline. With locked, a plugin without an
// entry is refused, too. Dirs are the plugin folders of the command line,
// which the command that accepts needs as well.
func Hold(pipeline string, locked bool, dirs ...string) (*Holder, error) {
	f, err := Read(pipeline)
	if err != nil {
		return nil, err
	}
	h := &Holder{pipeline: pipeline, file: f, locked: locked, accept: "penstock plugin lock " + shell.Quote(pipeline)}
	for _, d := range dirs {
		h.accept += " --plugin-dir " + shell.Quote(d)
	}
	return h, nil
}

// Refused is a plugin that the lock file doesn't allow.
type Refused struct {
	why, accept string
}

func (r *Refused) Error() string { return r.why + "\naccept what is there with: " + r.accept }

// Allow says why a plugin of this sha256 may not run. It is asked before the
// plugin is started for the first time.
func (h *Holder) Allow(key, sha256 string) error {
	want, ok := h.file.want(key)
	switch {
	case ok && want != sha256:
		return &Refused{fmt.Sprintf("the plugin %s is not what %s says\n  locked %s\n  here   %s", key, Path(h.pipeline), want, sha256), h.accept}
	case !ok && h.locked:
		return &Refused{fmt.Sprintf("the plugin %s has no entry for %s in %s", key, system(false), Path(h.pipeline)), h.accept}
	}
	return nil
}

// Together is one error of several refusals, with the command once; nil for
// none.
func Together(all []*Refused) error {
	if len(all) == 0 {
		return nil
	}
	last := all[len(all)-1]
	var why []string
	for _, r := range all {
		why = append(why, r.why)
	}
	return &Refused{strings.Join(why, "\n"), last.accept}
}

// Change is what a Write did to one plugin.
type Change struct {
	Plugin
	Before string `json:"before,omitempty"` // "" for one that is new
}

// Write locks plugins to what was loaded and returns what changed. Entries of
// plugins that are not among them stay, as pipelines in one folder share the
// file; so do the sums of other systems, unless the plugin changed on this one.
func Write(pipeline string, plugins []Plugin) ([]Change, error) {
	f, err := Read(pipeline)
	if err != nil {
		return nil, err
	}
	return f.write(pipeline, plugins)
}

// WriteAnew is Write in the place of a file that is Unreadable.
func WriteAnew(pipeline string, plugins []Plugin) ([]Change, error) {
	return (&File{Penstock: version}).write(pipeline, plugins)
}

func (f *File) write(pipeline string, plugins []Plugin) ([]Change, error) {
	if f.Plugins == nil {
		f.Plugins = map[string]map[string]string{}
	}
	var changes []Change
	for _, p := range plugins {
		on := system(p.Wasm)
		before := f.Plugins[p.Key][on]
		if before == p.SHA256 {
			continue
		}
		changes = append(changes, Change{p, before})
		sums := f.Plugins[p.Key]
		if _, was := sums[wasm]; sums == nil || before != "" || p.Wasm || was {
			sums = map[string]string{}
		}
		sums[on] = p.SHA256
		f.Plugins[p.Key] = sums
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
	if len(changes) == 0 {
		return nil, nil
	}
	return changes, f.save(Path(pipeline))
}

// save puts the file in place whole; yaml sorts the keys.
func (f *File) save(path string) error {
	var b bytes.Buffer
	b.WriteString(preamble)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(f), e.Close()); err != nil {
		return fmt.Errorf("write the lock: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), Name+".*")
	if err != nil {
		return fmt.Errorf("write the lock: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b.Bytes())
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the lock: %w", err)
	}
	return nil
}
