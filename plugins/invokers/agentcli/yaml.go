package agentcli

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/format"
)

// Error is what is wrong with a recipe, and where. Line and Col count from 1.
type Error struct {
	File      string
	Line, Col int
	Message   string
	Hint      string
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Message)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// decoder reads a recipe strictly and collects all that is wrong with it.
// Nodes holds where each text of the recipe came from, by the path of keys.
type decoder struct {
	file  string
	nodes map[string]*yaml.Node
	errs  []error
}

func (d *decoder) fail(n *yaml.Node, hint, text string, a ...any) {
	d.errs = append(d.errs, &Error{d.file, n.Line, n.Column, fmt.Sprintf(text, a...), hint})
}

// failAt is fail at a path of keys, or at the deepest of it that there is.
func (d *decoder) failAt(path, hint, text string, a ...any) {
	at := path
	for d.nodes[at] == nil && at != "" {
		i := strings.LastIndexByte(at, '/')
		at = at[:max(i, 0)]
	}
	d.fail(d.nodes[at], hint, text, a...)
}

// syntaxError takes the position out of yaml's message, which has the line
// alone.
func syntaxError(file string, err error) error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if _, e := fmt.Sscanf(msg, "line %d:", &line); e == nil {
		_, msg, _ = strings.Cut(msg, ": ")
	}
	return &Error{file, line, 1, msg, "YAML is indented with spaces, and text with {{ }} needs quotes"}
}

// value reads n into v; path is where, from the recipe's root.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.nodes[path] = n
	what := strings.TrimPrefix(path, "/")
	if n.Tag == "!!null" && path != "" {
		d.fail(n, "remove the key, or give it a value", "%s is empty", what)
		return
	}
	if v.Type() == reflect.TypeFor[Arg]() && n.Kind == yaml.ScalarNode {
		v.Field(1).Set(reflect.ValueOf([]string{n.Value}))
		d.nodes[path+"/args/0"] = n
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.object(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Map:
		d.table(n, v, path)
	case reflect.String:
		if n.Kind != yaml.ScalarNode {
			d.fail(n, "", "%s must be text", what)
			return
		}
		v.SetString(n.Value)
	case reflect.Interface:
		var any any
		if err := n.Decode(&any); err != nil {
			d.fail(n, "", "%s: %v", what, err)
			return
		}
		v.Set(reflect.ValueOf(any))
	}
}

func (d *decoder) object(n *yaml.Node, v reflect.Value, path string) {
	fields := map[string]int{}
	var names []string
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("yaml"); name != "" {
			fields[name] = i
			names = append(names, name)
		}
	}
	d.each(n, path, func(key, value *yaml.Node) {
		i, known := fields[key.Value]
		if !known {
			hint := "it takes " + strings.Join(names, ", ")
			if near := format.Nearest(key.Value, names); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			d.fail(key, hint, "%s has no key %q", strings.TrimPrefix(or(path, "/a recipe"), "/"), key.Value)
			return
		}
		d.value(value, v.Field(i), path+"/"+key.Value)
	})
}

func (d *decoder) table(n *yaml.Node, v reflect.Value, path string) {
	v.Set(reflect.MakeMap(v.Type()))
	d.each(n, path, func(key, value *yaml.Node) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(value, item, path+"/"+key.Value)
		v.SetMapIndex(reflect.ValueOf(key.Value), item)
	})
}

// each calls f with every key of a mapping, those given twice once.
func (d *decoder) each(n *yaml.Node, path string, f func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, "", "%s must be a mapping", strings.TrimPrefix(or(path, "/a recipe"), "/"))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if line, twice := seen[key.Value]; twice {
			d.fail(key, "", "%q is given twice, first in line %d", key.Value, line)
			continue
		}
		seen[key.Value] = key.Line
		f(key, n.Content[i+1])
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	items := n.Content
	switch n.Kind {
	case yaml.ScalarNode:
		items = []*yaml.Node{n} // one is a list of one
	case yaml.SequenceNode:
	default:
		d.fail(n, "", "%s must be a list", strings.TrimPrefix(path, "/"))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		d.value(item, v.Index(i), fmt.Sprintf("%s/%d", path, i))
	}
}

// oneOf reports a value that is not among those allowed; "" is left to who
// needs one.
func (d *decoder) oneOf(path, value string, allowed ...string) {
	if value == "" || slices.Contains(allowed, value) {
		return
	}
	d.failAt(path, "", "%s is %q, want %s", strings.TrimPrefix(path, "/"), value, strings.Join(allowed, ", "))
}

// err joins what was found, in the order of the file.
func (d *decoder) err() error {
	slices.SortStableFunc(d.errs, func(a, b error) int {
		x, y := a.(*Error), b.(*Error)
		return cmp.Or(cmp.Compare(x.Line, y.Line), cmp.Compare(x.Col, y.Col))
	})
	return errors.Join(d.errs...)
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}
