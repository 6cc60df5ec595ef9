package pipeline

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/component"
)

// setAside marks all of the file that its judgers don't need, when they alone
// will run: the other stages, the models that no judger asks, and what tells
// people. Of those a reference that can't be resolved is no error.
func (f *File) setAside() {
	var keep []*yaml.Node
	aside := []*yaml.Node{f.get(f.root, "notify"), f.get(f.root, "workspace")}
	models := map[string]bool{}
	f.eachStage(f.get(f.root, "stages"), func(n *yaml.Node) {
		if !f.judges(n) {
			aside = append(aside, n)
			return
		}
		keep = append(keep, n)
		if m := f.get(n, "model"); m != nil {
			models[m.Value] = true
		}
	})
	for name, n := range f.entries("models") {
		if models[name] {
			keep = append(keep, n)
		} else {
			aside = append(aside, n)
		}
	}
	for key, n := range f.entries("plugins") {
		_, name, _ := strings.Cut(key, "/") // a format is named without its kind
		if !slices.ContainsFunc(keep, func(k *yaml.Node) bool { return mentions(k, key) || mentions(k, name) }) {
			aside = append(aside, n)
		}
	}
	f.aside = map[*yaml.Node]bool{}
	for _, n := range aside {
		f.putAside(n)
	}
}

func (f *File) putAside(n *yaml.Node) {
	if n == nil {
		return
	}
	f.aside[n] = true
	for _, c := range n.Content {
		f.putAside(c)
	}
}

// judges says whether a stage is a judger that will run.
func (f *File) judges(n *yaml.Node) bool {
	uses, id := f.get(n, "uses"), f.get(n, "id")
	if uses == nil || !strings.HasPrefix(uses.Value, component.Judger+"/") {
		return false
	}
	return len(f.opts.Judges) == 0 || id != nil && slices.Contains(f.opts.Judges, id.Value)
}

// eachStage visits the stages of a list that are no loops, those within loops
// included.
func (f *File) eachStage(list *yaml.Node, visit func(*yaml.Node)) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}
	for _, n := range list.Content {
		if n.Kind != yaml.MappingNode {
			continue
		}
		if l := f.get(n, "loop"); l != nil && l.Kind == yaml.MappingNode {
			f.eachStage(f.get(l, "stages"), visit)
			continue
		}
		visit(n)
	}
}

// entries are those of an object of the file, by key.
func (f *File) entries(of string) map[string]*yaml.Node {
	out := map[string]*yaml.Node{}
	n := f.get(f.root, of)
	if n == nil || n.Kind != yaml.MappingNode {
		return out
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		out[n.Content[i].Value] = n.Content[i+1]
	}
	return out
}

// unseen says that what a node refers to outside of the file may be missing.
func (f *File) unseen(n *yaml.Node) bool { return f.opts.NoEnv || f.aside[n] }
