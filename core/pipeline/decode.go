package pipeline

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/core/pipeline/units"
)

// decoder checks a tree against the tables. Values that are wrong are
// reported once and then left out by the accessors in values.go.
type decoder struct {
	f       *File
	enabled map[string]bool
}

// check reports all that is wrong with the value of the key name.
func (d *decoder) check(n *yaml.Node, s *shape, name string) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" && s.kind != kFree {
		d.wrong(n, "give it a value or leave the key out", "%s has no value", label(name))
		return
	}
	switch s.kind {
	case kFree:
		return
	case kObject:
		d.object(n, s, name)
	case kDict:
		d.dict(n, s, name)
	case kList:
		d.list(n, s, name)
	case kEither:
		d.either(n, s, name)
	default:
		d.scalar(n, s, name)
	}
}

func label(name string) string { return "'" + name + "'" }

func (d *decoder) wrong(n *yaml.Node, hint, format string, args ...any) {
	d.f.errorf(d.f.at(n), "wrong-kind", hint, format, args...)
	d.f.bad[n] = true
}

func (d *decoder) object(n *yaml.Node, s *shape, name string) {
	if n.Kind != yaml.MappingNode {
		hint := "its keys: " + strings.Join(s.names(), ", ")
		if sample := s.sample(); sample != "" {
			hint = "such as " + key(name) + ": " + sample + "; " + hint
		}
		d.wrong(n, hint, "%s is an object, this is %s", label(name), quotedKind(n))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		f := s.field(key.Value)
		switch {
		case f == nil && s.rest:
		case f == nil:
			d.f.errorf(d.f.at(key), "unknown-key", suggest("known keys: ", key.Value, s.names()), "unknown key %s in %s", label(key.Value), label(name))
			d.f.bad[value] = true
			d.f.means(n, nearest(key.Value, s.names()))
		case f.feature != "" && !f.apart && !d.enabled[f.feature]:
			d.notBuilt(key, key.Value)
			d.f.bad[value] = true
		default:
			d.check(value, f.shape, key.Value)
		}
	}
	for _, f := range s.fields {
		if k, _ := lookup(n, f.name); !f.required || k != nil || d.f.meant[n][f.name] {
			continue
		}
		if n == d.f.root {
			d.f.errorf(d.f.at(n), "missing-key", "begin the file with '"+f.name+": "+f.shape.sample()+"'", "%s is missing", label(f.name))
			continue
		}
		d.f.errorf(d.f.at(n), "missing-key", suchAs(f.name, f.shape), "%s of %s is missing", label(f.name), label(name))
	}
}

// notBuilt refuses a part of the language that is known but not enabled.
func (d *decoder) notBuilt(n *yaml.Node, what string) {
	d.f.errorf(d.f.at(n), "not-built", "remove it; this version of penstock can't run it", "'%s' is not built yet", what)
}

func (d *decoder) dict(n *yaml.Node, s *shape, name string) {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, suchAs(name, s), "%s is an object of names, this is %s", label(name), quotedKind(n))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		d.check(n.Content[i+1], s.of, n.Content[i].Value)
	}
}

func (d *decoder) list(n *yaml.Node, s *shape, name string) {
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, listHint(n, name, s), "%s is a list, this is %s", label(name), quotedKind(n))
		return
	}
	for i, item := range n.Content {
		d.check(item, s.of, name+"["+strconv.Itoa(i)+"]")
	}
}

func (d *decoder) either(n *yaml.Node, s *shape, name string) {
	var want []string
	for _, alt := range s.alts {
		if fits(n, alt) {
			d.check(n, alt, name)
			return
		}
		want = append(want, wanted(alt))
	}
	d.wrong(n, suchAs(name, s), "%s is %s, this is %s", label(name), strings.Join(want, " or "), quotedKind(n))
}

// fits tells apart the alternatives of an either by what the node is.
func fits(n *yaml.Node, s *shape) bool {
	switch s.kind {
	case kObject, kDict:
		return n.Kind == yaml.MappingNode
	case kList:
		return n.Kind == yaml.SequenceNode
	}
	return n.Kind == yaml.ScalarNode && isText(n)
}

func wanted(s *shape) string {
	switch s.kind {
	case kObject:
		return "{" + strings.Join(s.names(), ", ") + "}"
	case kList:
		return "a list"
	}
	return s.doc
}

func isText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!str" || n.Tag == "!!timestamp")
}

func (d *decoder) scalar(n *yaml.Node, s *shape, name string) {
	if n.Kind != yaml.ScalarNode {
		d.wrong(n, suchAs(name, s), "%s is %s, this is %s", label(name), scalarName(s), kindName(n))
		return
	}
	// A reference may stand for any text; it is checked when it is read.
	switch s.kind {
	case kText:
		if !isText(n) {
			d.wrong(n, `put it in quotes: "`+n.Value+`"`, "%s is text, this is %s", label(name), kindName(n))
		} else if n.Value == "" {
			d.wrong(n, "give it a value or leave the key out", "%s is empty", label(name))
		}
	case kInteger:
		if i, err := wholeNumber(n); err != nil {
			d.wrong(n, unquotedHint(n, name, s), "%s is a whole number, this is %s", label(name), quotedKind(n))
		} else if i < int64(s.min) {
			d.wrong(n, suchAs(name, s), "%s is %d, want at least %d", label(name), i, s.min)
		}
	case kNumber:
		if v, err := realNumber(n); err != nil {
			d.wrong(n, unquotedHint(n, name, s), "%s is a number, this is %s", label(name), quotedKind(n))
		} else if v < 0 {
			d.wrong(n, suchAs(name, s), "%s is %s, want at least 0", label(name), n.Value)
		}
	case kBoolean:
		if n.Tag != "!!bool" {
			d.wrong(n, unquotedHint(n, name, s), "%s is true or false, this is %s", label(name), quotedKind(n))
		}
	case kDuration:
		if _, hint, err := readDuration(n); err != nil {
			d.wrong(n, hint, "%s: %s", label(name), err)
		}
	case kSize:
		if _, err := units.Size(n.Value); err != nil {
			d.wrong(n, "units: "+units.Sizes, "%s: %s", label(name), err)
		}
	case kChoice:
		d.choice(n, s, name)
	case kExpr:
		if !isText(n) || !strings.Contains(n.Value, "${{") {
			d.wrong(n, suchAs(name, s), "%s is an expression, this is %s", label(name), quotedKind(n))
		}
	}
}

func (d *decoder) choice(n *yaml.Node, s *shape, name string) {
	for _, c := range s.choices {
		if n.Value != c {
			continue
		}
		if feature := s.later[c]; feature != "" && !d.enabled[feature] {
			d.notBuilt(n, name+": "+c)
			d.f.bad[n] = true
		}
		return
	}
	hint := suchAs(name, s)
	if near := nearest(n.Value, s.choices); near != "" {
		hint = "did you mean '" + near + "'?"
	}
	d.wrong(n, hint, "%s is '%s', want %s", label(name), n.Value, oneOf(s.choices))
}

func oneOf(choices []string) string {
	if len(choices) == 1 {
		return choices[0]
	}
	return "one of " + strings.Join(choices, ", ")
}

func scalarName(s *shape) string {
	switch s.kind {
	case kInteger:
		return "a whole number"
	case kNumber:
		return "a number"
	case kBoolean:
		return "true or false"
	case kDuration:
		return "a duration such as 30s"
	case kSize:
		return "a size such as 64MiB"
	case kChoice:
		return oneOf(s.choices)
	case kExpr:
		return "an expression"
	}
	return "text"
}

func quotedKind(n *yaml.Node) string {
	if isText(n) {
		return "the text " + shown(n)
	}
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		return n.Value
	}
	return kindName(n)
}

// shown is a scalar as messages show it, a long one only by its begin.
func shown(n *yaml.Node) string {
	const most = 40
	text := n.Value
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "..."
	}
	if isText(n) {
		return "'" + text + "'"
	}
	return text
}

// jsonKind is the kind of a scalar in the words of JSON, "" of anything else.
func jsonKind(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		return ""
	case isText(n):
		return "a string"
	case n.Tag == "!!bool":
		return "a boolean"
	case n.Tag == "!!int", n.Tag == "!!float":
		return "a number"
	}
	return ""
}

func wholeNumber(n *yaml.Node) (int64, error) {
	var i int64
	if n.Tag != "!!int" {
		return 0, fmt.Errorf("%s is no whole number", n.Value)
	}
	err := n.Decode(&i)
	return i, err
}

func realNumber(n *yaml.Node) (float64, error) {
	var v float64
	if n.Tag != "!!int" && n.Tag != "!!float" {
		return 0, fmt.Errorf("%s is no number", n.Value)
	}
	if err := n.Decode(&v); err != nil {
		return 0, err
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s is not finite", n.Value)
	}
	return v, nil
}

// readDuration reads 30s, 10m or 1h30m.
func readDuration(n *yaml.Node) (d time.Duration, hint string, err error) {
	d, err = units.Duration(n.Value)
	switch {
	case errors.Is(err, units.ErrNoUnit):
		hint = "write " + n.Value + "s, " + n.Value + "m or " + n.Value + "h"
	case err != nil:
		hint = "write it as 500ms, 30s, 10m or 1h30m"
	}
	return d, hint, err
}
