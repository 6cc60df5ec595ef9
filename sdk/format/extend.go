package format

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// own are the keys that a format doesn't inherit.
var own = []string{"name", "extends", "summary", "aliases", "detect"}

// maxExtends bounds a chain of formats that extend each other.
const maxExtends = 8

// extend puts the declarations of the format that n extends under its own.
func (d *specDecoder) extend(n *yaml.Node, depth int) {
	if n.Kind != yaml.MappingNode {
		return
	}
	at := find(n, "extends")
	if at == n || at.Kind != yaml.ScalarNode {
		return
	}
	data, ok := source(at.Value)
	if !ok || depth == maxExtends {
		hint := suggest(at.Value, shippedNames())
		if ok {
			hint = "formats extend each other in a circle"
		}
		d.fail(at, hint, "there is no format %q to extend", at.Value)
		return
	}
	var base yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&base); err != nil {
		d.fail(at, "", "format %s doesn't load: %v", at.Value, err)
		return
	}
	root := base.Content[0]
	d.extend(root, depth+1)
	place(root, at.Line, at.Column)
	for i := 0; i < len(root.Content); {
		if slices.Contains(own, root.Content[i].Value) {
			root.Content = slices.Delete(root.Content, i, i+2)
			continue
		}
		i += 2
	}
	merge(n, root)
}

// place makes errors in what is inherited point at the line that inherits it.
func place(n *yaml.Node, line, col int) {
	n.Line, n.Column = line, col
	for _, c := range n.Content {
		place(c, line, col)
	}
}

// merge adds to a mapping what base has and it lacks, and drops its nulls.
func merge(n, base *yaml.Node) {
	for i := 0; i < len(base.Content); i += 2 {
		key, val := base.Content[i], base.Content[i+1]
		k := 0
		for k < len(n.Content) && n.Content[k].Value != key.Value {
			k += 2
		}
		switch {
		case k >= len(n.Content):
			n.Content = append(n.Content, key, val)
		case n.Content[k+1].Tag == "!!null":
			n.Content = slices.Delete(n.Content, k, k+2)
		case n.Content[k+1].Kind == yaml.MappingNode && val.Kind == yaml.MappingNode:
			merge(n.Content[k+1], val)
		}
	}
}

// putVars puts the values of vars in for ${name} in all texts.
func putVars(n *yaml.Node) {
	vars := find(n, "vars")
	if vars == n || vars.Kind != yaml.MappingNode {
		return
	}
	var pairs []string
	for i := 0; i < len(vars.Content); i += 2 {
		pairs = append(pairs, "${"+vars.Content[i].Value+"}", vars.Content[i+1].Value)
	}
	r := strings.NewReplacer(pairs...)
	var walk func(*yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode {
			n.Value = r.Replace(n.Value)
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	walk(n)
}
