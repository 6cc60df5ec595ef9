package pipeline

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/core/pipeline/units"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// get is the value of a key; nil when it is left out or was reported as wrong.
func (f *File) get(n *yaml.Node, key string) *yaml.Node {
	_, v := lookup(n, key)
	if v == nil || f.bad[v] {
		return nil
	}
	return v
}

// text is a text with its references resolved.
func (f *File) text(n *yaml.Node, key string) string {
	v := f.get(n, key)
	if v == nil {
		return ""
	}
	return f.resolve(v, v.Value)
}

func (f *File) texts(n *yaml.Node, key string) []string {
	v := f.get(n, key)
	if v == nil {
		return nil
	}
	return f.items(v)
}

func (f *File) items(list *yaml.Node) []string {
	var out []string
	for _, item := range list.Content {
		if !f.bad[item] {
			out = append(out, f.resolve(item, item.Value))
		}
	}
	return out
}

func (f *File) integer(n *yaml.Node, key string) int {
	v := f.get(n, key)
	if v == nil {
		return 0
	}
	i, _ := wholeNumber(v) // checked by the decoder
	return int(i)
}

func (f *File) integerPtr(n *yaml.Node, key string) *int {
	if f.get(n, key) == nil {
		return nil
	}
	i := f.integer(n, key)
	return &i
}

func (f *File) numberPtr(n *yaml.Node, key string) *float64 {
	v := f.get(n, key)
	if v == nil {
		return nil
	}
	x, _ := realNumber(v) // checked by the decoder
	return &x
}

func (f *File) boolean(n *yaml.Node, key string) bool {
	v := f.get(n, key)
	var b bool
	return v != nil && v.Decode(&b) == nil && b
}

func (f *File) duration(n *yaml.Node, key string) time.Duration {
	v := f.get(n, key)
	if v == nil {
		return 0
	}
	d, _, _ := readDuration(v) // checked by the decoder
	return d
}

func (f *File) size(n *yaml.Node, key string) int64 {
	v := f.get(n, key)
	if v == nil {
		return 0
	}
	s, _ := units.Size(v.Value) // checked by the decoder
	return s
}

var reference = regexp.MustCompile(`\$\{(env|file):([^{}]*)\}`)
var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// maxSecret bounds a file that ${file:} names.
const maxSecret = 1 << 20

// resolve replaces ${env:NAME} and ${file:PATH} in s, text of the node n. What
// can't be resolved is reported and stays as it is.
func (f *File) resolve(n *yaml.Node, s string) string {
	if !strings.Contains(s, "${") {
		return s
	}
	return reference.ReplaceAllStringFunc(s, func(ref string) string {
		m := reference.FindStringSubmatch(ref)
		value, hint, err := f.referenced(m[1], m[2])
		if err != nil {
			if !f.unseen(n) {
				p := f.at(n)
				if i := strings.Index(n.Value, ref); i >= 0 {
					p = f.within(n, utf8.RuneCountInString(n.Value[:i]))
				}
				f.errorf(p, "unset", hint, "%s", err)
			}
			return ref
		}
		f.secrets[value] = true
		return value
	})
}

func (f *File) referenced(kind, name string) (value, hint string, err error) {
	if kind == "env" {
		if !envName.MatchString(name) {
			return "", "write ${env:NAME}", fmt.Errorf("'%s' is no name of an environment variable", name)
		}
		v, ok := f.opts.Env(name)
		if !ok {
			return "", "set it, or check the file without it: --no-env", fmt.Errorf("the environment variable %s is not set", name)
		}
		return v, "", nil
	}
	b, err := readAtMost(f.abs(name), maxSecret)
	if err != nil {
		return "", "", fmt.Errorf("the file of ${file:%s} can't be read: %w", name, pathCause(err))
	}
	return strings.TrimRight(string(b), "\r\n"), "", nil
}

// readAtMost reads a file, or a pipe, of a bounded size.
func readAtMost(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && info.Mode()&os.ModeNamedPipe == 0 {
		return nil, errors.New("it is no file with an end")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // it was only read
	b, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("it is larger than %d bytes", most)
	}
	return b, err
}

// pathCause is what went wrong with a file, without its path.
func pathCause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (f *File) secretList() []string {
	var out []string
	for s := range f.secrets {
		if s != "" {
			out = append(out, s)
		}
	}
	// Longest first, so that a secret that holds another goes as a whole.
	sort.Slice(out, func(i, j int) bool {
		if len(out[i]) != len(out[j]) {
			return len(out[i]) > len(out[j])
		}
		return out[i] < out[j]
	})
	return out
}

// toJSON is a tree as JSON, keys in order. Text goes through leaf, which may
// be nil; it returns the JSON of a text node.
func (f *File) toJSON(n *yaml.Node, leaf func(*yaml.Node) []byte) ([]byte, error) {
	return f.appendJSON(nil, n, leaf)
}

func (f *File) appendJSON(b []byte, n *yaml.Node, leaf func(*yaml.Node) []byte) ([]byte, error) {
	var err error
	switch n.Kind {
	case yaml.MappingNode:
		b = append(b, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, quoted(n.Content[i].Value)...), ':')
			if b, err = f.appendJSON(b, n.Content[i+1], leaf); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, item := range n.Content {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = f.appendJSON(b, item, leaf); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	}
	s, err := scalarJSON(n, leaf)
	if err != nil {
		return nil, &nodeError{n, err}
	}
	return append(b, s...), nil
}

// nodeError is an error about one node.
type nodeError struct {
	node *yaml.Node
	err  error
}

func (e *nodeError) Error() string { return e.err.Error() }
func (e *nodeError) Unwrap() error { return e.err }

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func scalarJSON(n *yaml.Node, leaf func(*yaml.Node) []byte) ([]byte, error) {
	switch n.Tag {
	case "!!null":
		return []byte("null"), nil
	case "!!bool":
		var v bool
		if err := n.Decode(&v); err != nil {
			return nil, fmt.Errorf("'%s' is no boolean", n.Value)
		}
		return strconv.AppendBool(nil, v), nil
	case "!!int", "!!float":
		if jsonNumber.MatchString(n.Value) {
			return []byte(n.Value), nil
		}
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, fmt.Errorf("'%s' is no number", n.Value)
		}
		if x, ok := v.(float64); ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
			return nil, fmt.Errorf("%s is no number that JSON knows", n.Value)
		}
		return chat.Marshal(v)
	}
	if leaf != nil {
		return leaf(n), nil
	}
	return quoted(n.Value), nil
}
