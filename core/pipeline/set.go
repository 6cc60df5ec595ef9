package pipeline

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// applySet puts one --set value, path=value, into the tree.
func (f *File) applySet(root *yaml.Node, arg string, t *tables) {
	path, value, ok := strings.Cut(arg, "=")
	src := &source{name: "--set " + path, text: arg, set: true}
	at := pos{src, 1, 1}
	if !ok || path == "" {
		src.name = "--set " + arg
		f.errorf(at, "set", "write --set models.policy.format=hermes", "want path=value")
		return
	}
	n := f.setValue(src, path, value)
	if n == nil {
		return
	}
	s := &setter{f: f, src: src, value: n, tables: t}
	s.put(root, t.file, path, 0)
}

// setValue parses the value as YAML. Its positions are those in the argument.
func (f *File) setValue(src *source, path, value string) *yaml.Node {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(value), &doc); err != nil {
		message := err.Error()
		if m := yamlError.FindStringSubmatch(message); m != nil {
			message = m[2]
		}
		f.errorf(pos{src, 1, len([]rune(path)) + 2}, "set", "quote it for YAML and for the shell", "the value is not valid YAML: %s", message)
		return nil
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: 1, Column: 1}
	if len(doc.Content) > 0 {
		n = doc.Content[0]
	}
	shift := len([]rune(path)) + 1
	seen := map[*yaml.Node]bool{}
	var mark func(*yaml.Node)
	mark = func(n *yaml.Node) {
		if seen[n] {
			return
		}
		seen[n] = true
		f.origin[n] = src
		if n.Line <= 1 {
			n.Column += shift
		}
		for _, c := range n.Content {
			mark(c)
		}
		if n.Alias != nil {
			mark(n.Alias)
		}
	}
	mark(n)
	expanded, ok := f.expand(n)
	if !ok {
		return nil
	}
	return expanded
}

// setter walks down a path. Keys that the tables know may be made on the way;
// names that the file chooses must be in it.
type setter struct {
	f      *File
	src    *source
	value  *yaml.Node
	tables *tables
}

func (s *setter) fail(at int, hint, format string, args ...any) {
	s.f.errorf(pos{s.src, 1, at + 1}, "set", hint, format, args...)
}

// put sets rest, which begins at character at of the path, below n.
func (s *setter) put(n *yaml.Node, sh *shape, rest string, at int) {
	if sh != nil && sh.kind == kList && sh.of == s.tables.stage {
		s.stage(n, rest, at)
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		s.key(n, sh, rest, at)
	case yaml.SequenceNode:
		s.item(n, sh, rest, at)
	default:
		if sh != nil && sh.kind != kFree && sh.kind != kEither {
			s.fail(at, "", "there is nothing below %s to set", kindName(n))
			return
		}
		s.become(n)
		s.key(n, sh, rest, at)
	}
}

// become turns a scalar into an object, which a path into free settings wants.
func (s *setter) become(n *yaml.Node) {
	*n = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1, Column: s.value.Column}
	s.f.origin[n] = s.src
}

// split takes the next name off a path. A key that is in the file may hold
// dots; the longest that fits wins.
func split(n *yaml.Node, rest string) (name, more string) {
	for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
		k := n.Content[i].Value
		if len(k) > len(name) && (rest == k || strings.HasPrefix(rest, k+".")) {
			name = k
		}
	}
	if name == "" {
		name, _, _ = strings.Cut(rest, ".")
	}
	return name, strings.TrimPrefix(strings.TrimPrefix(rest, name), ".")
}

func (s *setter) key(n *yaml.Node, sh *shape, rest string, at int) {
	name, more := split(n, rest)
	if name == "" {
		s.fail(at, "", "the path has an empty name")
		return
	}
	if sh != nil && sh.kind == kEither {
		sh = objectAlt(sh)
	}
	below, made := s.below(n, sh, name, at)
	if !made {
		return
	}
	k, v := lookup(n, name)
	if more == "" {
		if k == nil {
			n.Content = append(n.Content, s.newKey(name, at), s.value)
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i] == k {
				n.Content[i+1] = s.value
			}
		}
		return
	}
	if k == nil || v.Kind == yaml.ScalarNode && v.Tag == "!!null" {
		v = &yaml.Node{}
		s.become(v)
		if k == nil {
			n.Content = append(n.Content, s.newKey(name, at), v)
		} else {
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i] == k {
					n.Content[i+1] = v
				}
			}
		}
	}
	s.put(v, below, more, at+len([]rune(rest))-len([]rune(more)))
}

// below is the shape of a key, and whether the path may go there.
func (s *setter) below(n *yaml.Node, sh *shape, name string, at int) (*shape, bool) {
	k, _ := lookup(n, name)
	switch {
	case sh == nil || sh.kind == kFree:
		return nil, true
	case sh.kind == kObject:
		if f := sh.field(name); f != nil {
			return f.shape, true
		}
		if sh.rest || k != nil {
			return nil, true
		}
		s.fail(at, suggest("known keys: ", name, sh.names()), "there is no key '%s'", name)
		return nil, false
	case sh.kind == kDict:
		if k != nil || sh.of.kind == kText {
			return sh.of, true
		}
		s.fail(at, suggest("there are: ", name, keys(n)), "there is no '%s' in the file", name)
		return nil, false
	}
	s.fail(at, "", "there is nothing below it to set")
	return nil, false
}

func objectAlt(sh *shape) *shape {
	for _, a := range sh.alts {
		if a.kind == kObject {
			return a
		}
	}
	return nil
}

func keys(n *yaml.Node) []string {
	var out []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		out = append(out, n.Content[i].Value)
	}
	return out
}

func (s *setter) newKey(name string, at int) *yaml.Node {
	k := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name, Line: 1, Column: at + 1}
	s.f.origin[k] = s.src
	return k
}

func (s *setter) item(n *yaml.Node, sh *shape, rest string, at int) {
	name, more, _ := strings.Cut(rest, ".")
	i, err := strconv.Atoi(name)
	if err != nil || i < 0 || i >= len(n.Content) {
		s.fail(at, "items count from 0", "the list has %d items, and no '%s'", len(n.Content), name)
		return
	}
	if more == "" {
		n.Content[i] = s.value
		return
	}
	var of *shape
	if sh != nil {
		of = sh.of
	}
	s.put(n.Content[i], of, more, at+len([]rune(name))+1)
}

// stage finds a stage by its id, inside loops too.
func (s *setter) stage(n *yaml.Node, rest string, at int) {
	name, more, _ := strings.Cut(rest, ".")
	var ids []string
	stage := findStage(n, name, func(id string) { ids = append(ids, id) })
	switch {
	case stage == nil:
		s.fail(at, suggest("stages: ", name, ids), "there is no stage '%s'", name)
	case more == "":
		s.fail(at, "set a key of it: stages."+name+".with.KEY=VALUE", "a stage can't be set as a whole")
	default:
		s.key(stage, s.tables.stage, more, at+len([]rune(name))+1)
	}
}

// findStage finds a stage by its id, inside loops too. It calls see with every
// id up to there.
func findStage(list *yaml.Node, id string, see func(string)) *yaml.Node {
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	for _, n := range list.Content {
		if _, v := lookup(n, "id"); v != nil {
			see(v.Value)
			if v.Value == id {
				return n
			}
		}
		_, loop := lookup(n, "loop")
		_, inner := lookup(loop, "stages")
		if found := findStage(inner, id, see); found != nil {
			return found
		}
	}
	return nil
}
