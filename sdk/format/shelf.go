package format

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// shelf holds the format files that plugins register, by name, for other
// files to extend and for `format: auto` to choose from.
var shelf = struct {
	sync.Mutex
	byName map[string]*shelved
}{byName: map[string]*shelved{}}

// shelved is a format file of which only the title is read so far.
type shelved struct {
	title
	data []byte
	spec func() (*Spec, error) // reads the rest, once
}

// title is what a list of formats says of one.
type title struct {
	Name    string   `yaml:"name"`
	Summary string   `yaml:"summary"`
	Aliases []string `yaml:"aliases"`
}

var titleKeys = []string{"name", "summary", "aliases"}

func newShelved(file string, data []byte) (*shelved, error) {
	t := readTitle(data)
	if t.Name == "" { // it may be written in another way
		s, err := ParseSpec(file, data)
		if err != nil {
			return nil, err
		}
		t = title{s.Name, s.Summary, s.Aliases}
	}
	if t.Name+".yaml" != file {
		return nil, fmt.Errorf("the format in %s is named %s", file, t.Name)
	}
	return &shelved{title: t, data: data, spec: sync.OnceValues(func() (*Spec, error) {
		s, err := ParseSpec(file, data)
		if err == nil && (s.Name != t.Name || s.Summary != t.Summary || !slices.Equal(s.Aliases, t.Aliases)) {
			err = fmt.Errorf("%s: name, summary and aliases can't be told before the rest is read: write each as plain text on lines of its own", file)
		}
		if err != nil {
			return nil, err
		}
		return s, nil
	})}, nil
}

// readTitle reads the keys of a title and the lines that belong to them, and
// nothing else: to read a whole file takes a hundred times as long. The title
// is empty where that doesn't work.
func readTitle(data []byte) (t title) {
	var lines []byte
	in := false
	for line := range bytes.Lines(data) {
		switch {
		case len(bytes.TrimSpace(line)) == 0 || line[0] == '#':
			continue
		case line[0] != ' ' && line[0] != '-': // a list may begin at the margin
			key, _, _ := bytes.Cut(line, []byte(":"))
			in = slices.Contains(titleKeys, string(key))
		}
		if in {
			lines = append(lines, line...)
		}
	}
	if yaml.Unmarshal(lines, &t) != nil {
		return title{}
	}
	return t
}

// format makes the format of the file.
func (s *shelved) format() (Format, error) {
	spec, err := s.spec()
	if err != nil {
		return nil, err
	}
	return New(spec)
}

// shelve adds a file. It panics where two have one name.
func shelve(s *shelved) {
	shelf.Lock()
	defer shelf.Unlock()
	if _, twice := shelf.byName[s.Name]; twice {
		panic(fmt.Sprintf("two format files are named %s.yaml", s.Name))
	}
	shelf.byName[s.Name] = s
}

// onShelf are the files, by name in order.
func onShelf() []*shelved {
	shelf.Lock()
	defer shelf.Unlock()
	var out []*shelved
	for _, s := range shelf.byName {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *shelved) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Shipped are the declared formats that this program has, by name in order. It
// panics on a file that doesn't load, as that is a mistake of the program's
// author.
func Shipped() []*Spec {
	var out []*Spec
	for _, s := range onShelf() {
		spec, err := s.spec()
		if err != nil {
			panic(err.Error())
		}
		out = append(out, spec)
	}
	return out
}

func shippedNames() []string {
	var out []string
	for _, s := range onShelf() {
		out = append(out, s.Name)
	}
	return out
}

// source is the file of a shipped format, and its aliases' as well.
func source(name string) ([]byte, bool) {
	shelf.Lock()
	defer shelf.Unlock()
	if s, ok := shelf.byName[name]; ok {
		return s.data, true
	}
	for _, s := range shelf.byName {
		if slices.Contains(s.Aliases, name) {
			return s.data, true
		}
	}
	return nil, false
}
