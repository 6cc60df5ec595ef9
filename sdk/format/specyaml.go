package format

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// SpecError is what is wrong with a format file, and where. Line and Col count
// from 1.
type SpecError struct {
	File      string
	Line, Col int
	Message   string
	Hint      string
}

func (e *SpecError) Error() string {
	s := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Message)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// ParseSpec reads a format file strictly. Its error joins a *SpecError for
// each thing that is wrong.
func ParseSpec(file string, data []byte) (*Spec, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, syntaxError(file, data, err)
	}
	if len(doc.Content) == 0 {
		return nil, &SpecError{file, 1, 1, "the file is empty", "a format needs at least name, calls and render"}
	}
	d := specDecoder{file: file}
	var s Spec
	d.extend(doc.Content[0], 0)
	putVars(doc.Content[0])
	d.value(doc.Content[0], reflect.ValueOf(&s).Elem(), "format")
	if len(d.errs) == 0 {
		d.check(&s, doc.Content[0])
	}
	if len(d.errs) == 0 {
		d.tried(try(&s), doc.Content[0])
	}
	if len(d.errs) > 0 {
		return nil, errors.Join(d.errs...)
	}
	return &s, nil
}

// syntaxError takes the position out of yaml's message, which has the line
// alone.
func syntaxError(file string, data []byte, err error) error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if _, e := fmt.Sscanf(msg, "line %d:", &line); e == nil {
		_, msg, _ = strings.Cut(msg, ": ")
	}
	hint := ""
	if rows := strings.Split(string(data), "\n"); line <= len(rows) {
		for _, row := range rows[max(0, line-2):line] {
			if strings.HasPrefix(row, "\t") {
				hint = "YAML is indented with spaces, and this line starts with a tab"
			}
		}
	}
	return &SpecError{file, line, 1, msg, hint}
}

type specDecoder struct {
	file string
	errs []error
}

func (d *specDecoder) fail(n *yaml.Node, hint, format string, a ...any) {
	d.errs = append(d.errs, &SpecError{d.file, n.Line, n.Column, fmt.Sprintf(format, a...), hint})
}

func (d *specDecoder) value(n *yaml.Node, v reflect.Value, where string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), where)
	case reflect.Struct:
		d.object(n, v, where)
	case reflect.Slice:
		d.list(n, v, where)
	case reflect.Map:
		d.table(n, v, where)
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
			d.fail(n, "", "%s must be true or false", where)
			return
		}
		v.SetBool(n.Value == "true")
	case reflect.String:
		switch {
		case n.Kind != yaml.ScalarNode:
			d.fail(n, "", "%s must be text", where)
		case n.Tag == "!!int", n.Tag == "!!float", n.Tag == "!!bool":
			d.fail(n, fmt.Sprintf("put it in quotes: %q", n.Value), "%s must be text", where)
		case n.Tag != "!!null":
			v.SetString(n.Value)
		}
	}
}

func (d *specDecoder) object(n *yaml.Node, v reflect.Value, where string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, "", "%s must be a mapping", where)
		return
	}
	fields := map[string]int{}
	for i := range v.NumField() {
		fields[v.Type().Field(i).Tag.Get("yaml")] = i
	}
	seen := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if line, twice := seen[key.Value]; twice {
			d.fail(key, "", "%q is given twice, first in line %d", key.Value, line)
			continue
		}
		seen[key.Value] = key.Line
		f, ok := fields[key.Value]
		if !ok {
			d.fail(key, suggest(key.Value, keys(fields)), "%s has no key %q", where, key.Value)
			continue
		}
		d.value(val, v.Field(f), key.Value)
	}
}

// list takes one scalar for a list of one.
func (d *specDecoder) list(n *yaml.Node, v reflect.Value, where string) {
	items := n.Content
	if n.Kind == yaml.ScalarNode {
		items = []*yaml.Node{n}
	} else if n.Kind != yaml.SequenceNode {
		d.fail(n, "", "%s must be a list", where)
		return
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		d.value(item, out.Index(i), fmt.Sprintf("%s[%d]", where, i))
		if item.Kind == yaml.ScalarNode && v.Type().Elem().Kind() == reflect.String && out.Index(i).Len() == 0 && (item.Value == "" || item.Tag == "!!null") {
			d.fail(item, "leave it out where there is none", "%s is empty, and nothing would be everywhere", where)
		}
	}
	v.Set(out)
}

func (d *specDecoder) table(n *yaml.Node, v reflect.Value, where string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, "", "%s must be a mapping", where)
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i < len(n.Content); i += 2 {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(n.Content[i+1], item, n.Content[i].Value)
		v.SetMapIndex(reflect.ValueOf(n.Content[i].Value), item)
	}
}

// find returns the node at a path of keys, or the deepest there is.
func find(n *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		for i := 0; i < len(n.Content)-1; i += 2 {
			if n.Content[i].Value == key {
				n = n.Content[i+1]
				break
			}
		}
	}
	return n
}

// check holds what types can't say.
func (d *specDecoder) check(s *Spec, root *yaml.Node) {
	need := func(ok bool, what string, path ...string) {
		if !ok {
			d.fail(find(root, path...), "", "%s", what)
		}
	}
	oneOf := func(value string, allowed []string, path ...string) {
		for _, a := range allowed {
			if value == a {
				return
			}
		}
		d.fail(find(root, path...), suggest(value, allowed), "%s is %q, want one of %s",
			strings.Join(path, "."), value, strings.Join(quoteAll(allowed), ", "))
	}
	need(s.Name != "" && !strings.ContainsAny(s.Name, "/ \t\n"), "a format needs a name, without spaces and slashes", "name")
	need(s.Render != nil, "a format needs render")
	oneOf(s.IDs, choices["ids"], "ids")
	if r := s.Reasoning; r != nil {
		need(r.Open != "" && r.Close != "", "reasoning needs open and close", "reasoning")
	}
	for _, f := range s.Frames {
		need(f.Open != "" || f.Close != "", "a frame needs open or close", "frames")
	}
	if c := s.Calls; c != nil {
		need(c.Tagged != nil || c.JSON != nil || c.Header != nil || c.Literal || c.Nested != nil || c.Messages != nil,
			"calls need a grammar: tagged, json, header, literal, nested or messages", "calls")
		if m := c.Messages; m != nil {
			need(m.Start != "" && (m.Channel != "" || len(m.ContentTo) > 0) && m.Message != "" && len(m.End) > 0,
				"messages need start, channel or content_to, message and end", "calls", "messages")
			for _, text := range slices.Concat([]string{m.Start, m.Channel, m.Constrain, m.Message}, m.End) {
				need(text == "" || strings.TrimSpace(text) != "", "the markers of messages are more than spaces", "calls", "messages")
			}
		}
		need(len(c.Open) > 0 || c.Bare != "" || c.Messages != nil, "calls need open, or bare to say where they come without it", "calls")
		oneOf(c.Bare, choices["bare"], "calls", "bare")
		oneOf(c.UnknownTools, choices["unknown_tools"], "calls", "unknown_tools")
		d.checkTagged(c.Tagged, need, oneOf)
		if n := c.Nested; n != nil {
			need(n.Mark != "" && named(n.Open) && n.Close != "" && n.Item != "", "nested needs mark, open with {name}, close and item", "calls", "nested")
		}
		if j := c.JSON; j != nil {
			need(j.SingleKey || len(j.Name) > 0 && len(j.Arguments) > 0, "json needs name and arguments, or single_key", "calls", "json")
		}
		if h := c.Header; h != nil {
			need(len(h.Sep) > 0, "header needs sep", "calls", "header")
		}
	}
	if r := s.Render; r != nil {
		oneOf(r.Thinking, choices["thinking"], "render", "thinking")
		oneOf(r.Keep, choices["keep"], "render", "keep")
		need(r.User != "" && r.Assistant != "", "render needs user and assistant", "render")
	}
}

func (d *specDecoder) checkTagged(t *TaggedSpec, need func(bool, string, ...string), oneOf func(string, []string, ...string)) {
	if t == nil {
		return
	}
	at := []string{"calls", "tagged"}
	need(strings.Contains(t.Open, "{name}"), "tagged.open needs {name}", append(at, "open")...)
	need(named(t.Param), "tagged.param needs {name}, and text before it", append(at, "param")...)
	need(len(t.Variants) == 0 || t.Mark != "", "tagged.variants needs mark, which they are other ways to write", append(at, "variants")...)
	need(t.ParamClose != "", "tagged needs param_close", at...)
	oneOf(t.Trim, choices["trim"], append(at, "trim")...)
	oneOf(t.End, choices["end"], append(at, "end")...)
}

// named reports whether a tag has a place for a name, and begins before it.
func named(tag string) bool { return strings.Index(strings.TrimLeft(tag, " "), "{name}") > 0 }

func keys(m map[string]int) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

func quoteAll(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return out
}

// suggest is "did you mean" with the nearest of names, or nothing.
func suggest(name string, names []string) string {
	if n := Nearest(name, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return ""
}

// Nearest returns the name that differs least from name, "" when all are far
// from it.
func Nearest(name string, names []string) string {
	best, found := max(2, len(name)/3)+1, ""
	for _, n := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(n)); d < best {
			best, found = d, n
		}
	}
	return found
}

// distance is the number of bytes to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, diag+1)
		}
	}
	return row[len(b)]
}
