package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/component"
)

// programFormat marks, in a component's schema, a text that is a program, or a
// list that is a program and its arguments.
const programFormat = "program"

// programs finds the programs that the settings of a component name. Their
// relative paths start at the folder of the file, and those that the file
// itself spells out must be there.
type programs struct {
	c    *check
	d    component.Descriptor
	at   *yaml.Node // where the component is named
	root schemaNode
}

// findPrograms looks through what `with` gives for one of the schemas.
func (c *check) findPrograms(at, n *yaml.Node, s *side, d component.Descriptor) {
	if absent(s.raw) {
		return
	}
	p := &programs{c: c, d: d, at: at}
	if json.Unmarshal(s.raw, &p.root) != nil {
		return
	}
	p.visit(s.raw, n, false, 0)
	for _, name := range sortedNames(p.root.Properties) {
		var of schemaNode
		if k, _ := lookup(n, name); k == nil && json.Unmarshal(p.root.Properties[name], &of) == nil && of.Format == programFormat {
			p.byDefault(name, of)
		}
	}
}

func sortedNames(of map[string]json.RawMessage) []string {
	names := make([]string, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// visit follows a value and its schema. ownPath says that the program gets a
// PATH from the settings, in which only it can look.
func (p *programs) visit(schema json.RawMessage, n *yaml.Node, ownPath bool, depth int) {
	var s schemaNode
	if n == nil || depth > maxDepth || json.Unmarshal(schema, &s) != nil {
		return
	}
	for prefix, defs := range map[string]map[string]json.RawMessage{"#/$defs/": p.root.Defs, "#/definitions/": p.root.Definitions} {
		if name, ok := strings.CutPrefix(s.Ref, prefix); ok {
			p.visit(defs[name], n, ownPath, depth+1)
		}
	}
	for _, alts := range [][]json.RawMessage{s.OneOf, s.AnyOf, s.AllOf} {
		for _, a := range alts {
			p.visit(a, n, ownPath, depth+1)
		}
	}
	if s.Format == programFormat {
		p.c.program(n, ownPath)
		return
	}
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			p.visit(s.Items, item, ownPath, depth+1)
		}
	case yaml.MappingNode:
		_, env := lookup(n, "env")
		if path, _ := lookup(env, "PATH"); path != nil {
			ownPath = true
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			of := s.Properties[n.Content[i].Value]
			if of == nil {
				of = s.Additional
			}
			p.visit(of, n.Content[i+1], ownPath, depth+1)
		}
	}
}

// byDefault checks the program that the component starts when none is given.
func (p *programs) byDefault(name string, s schemaNode) {
	var argv []string
	var one string
	if json.Unmarshal(s.Default, &argv) != nil && json.Unmarshal(s.Default, &one) == nil {
		argv = []string{one}
	}
	if len(argv) == 0 || p.c.missing(argv[0]) == nil {
		return
	}
	p.c.f.errorf(p.c.f.at(p.at), "no-program", fmt.Sprintf("install it, or say where it is: with: { %s: /path/to/%s }", name, argv[0]),
		"%s starts '%s', and there is no such program in PATH", p.d.ID(), argv[0])
}

// known checks the program that the component says it starts for settings such
// as those given, unless they name one.
func (c *check) known(at *yaml.Node, raw json.RawMessage, d component.Descriptor) {
	var given map[string]any
	if json.Unmarshal(raw, &given) != nil || given["command"] != nil {
		return
	}
	for _, p := range d.Programs {
		var with map[string]any
		if json.Unmarshal(p.With, &with) != nil || !within(with, given) {
			continue
		}
		if c.missing(p.Program) != nil {
			hint := "say where it is: with: { command: /path/to/" + p.Program + " }"
			if p.Install != "" {
				hint = "install it: " + p.Install + ", or " + hint
			}
			c.f.errorf(c.f.at(at), "no-program", hint, "%s starts '%s', and there is no such program in PATH", d.ID(), p.Program)
		}
		return
	}
}

// within tells whether all of some settings are among those given.
func within(some, given map[string]any) bool {
	for name, value := range some {
		if !reflect.DeepEqual(given[name], value) {
			return false
		}
	}
	return true
}

// program notes the word of a command line that names the program, and
// reports one that the file spells out and that can't be started.
func (c *check) program(n *yaml.Node, ownPath bool) {
	f := c.f
	word := n
	if n.Kind == yaml.SequenceNode {
		if len(n.Content) == 0 {
			return
		}
		word = n.Content[0]
	}
	if !isText(word) || f.bad[word] {
		return
	}
	c.programWords[word] = true
	if strings.Contains(word.Value, opening) {
		return
	}
	before := len(f.found)
	name := f.resolve(word, word.Value)
	f.found = f.found[:before] // what can't be resolved is reported where the value is read
	if name == "" || strings.Contains(name, "$") || ownPath && !strings.Contains(name, "/") {
		return
	}
	if c.contained {
		return
	}
	f.startable(word, name, n.Kind == yaml.SequenceNode, true)
}

// missing is why the stage at hand can't start a program of this machine, nil
// where it may be another's.
func (c *check) missing(path string) error {
	if c.contained {
		return nil
	}
	return c.f.missing(path)
}

// missing is why a program can't be started, nil where that isn't asked.
func (f *File) missing(path string) error {
	if f.opts.Program == nil || f.opts.NoEnv {
		return nil
	}
	return f.opts.Program(path)
}

// startable reports a program that can't be started. list says that it begins
// a command line, agent that it runs in a rollout's workspace.
func (f *File) startable(n *yaml.Node, name string, list, agent bool) bool {
	err := f.missing(programPath(f.dir, name))
	switch {
	case err == nil:
		return true
	case !errors.Is(err, fs.ErrNotExist):
		f.errorf(f.at(n), "no-program", "", "the program '%s' can't be started: %s", name, err)
	case strings.Contains(name, "/"):
		f.errorf(f.at(n), "no-program", f.pathHint(name, list, agent), "there is no program '%s'", name)
	default:
		f.errorf(f.at(n), "no-program", f.nameHint(name, list), "there is no program '%s' in PATH", name)
	}
	return false
}

// asList is the hint for a command line that was given as one text.
func asList(name string, list bool) string {
	words := strings.Fields(name)
	if list || len(words) < 2 {
		return ""
	}
	return "a text is one program; with arguments it is a list: [" + strings.Join(words, ", ") + "]"
}

func (f *File) pathHint(name string, list, agent bool) string {
	switch hint := asList(name, list); {
	case hint != "":
		return hint
	case strings.HasPrefix(name, "~"):
		return "~ means nothing here; write ${env:HOME}" + name[1:]
	case filepath.IsAbs(name):
		return ""
	}
	hint := "a relative path starts at the folder of the pipeline file: " + filepath.Dir(f.path)
	if agent {
		hint += fmt.Sprintf("; a program of the workspace is started by a shell: [sh, -c, %s]", name)
	}
	return hint
}

func (f *File) nameHint(name string, list bool) string {
	if hint := asList(name, list); hint != "" {
		return hint
	}
	if info, err := os.Stat(filepath.Join(f.dir, name)); err == nil && !info.IsDir() {
		return "did you mean './" + name + "'? Only with a / it is a file beside the pipeline's"
	}
	return "install it, or give its path; a relative path has a / and starts at the folder of the pipeline file"
}

// programPath is a program as it is started: a relative path starts at dir, a
// name is looked for in PATH. What begins with $ is for the component to fill
// in.
func programPath(dir, name string) string {
	if !strings.Contains(name, "/") || filepath.IsAbs(name) || strings.HasPrefix(name, "$") || strings.HasPrefix(name, "~") {
		return name
	}
	return filepath.Join(dir, name)
}

// value is the text of a leaf without expressions.
func (c *check) value(n *yaml.Node) string {
	text := c.f.resolve(n, n.Value)
	if c.programWords[n] {
		return programPath(c.f.dir, text)
	}
	return text
}

// programDir is where the program of a leaf with expressions starts, "" for
// any other leaf.
func (c *check) programDir(n *yaml.Node) string {
	if c.programWords[n] {
		return c.f.dir
	}
	return ""
}

// startAt makes the program of a value that an expression gave, a text or a
// command line, one of the folder dir; "" leaves it.
func startAt(dir string, raw json.RawMessage) json.RawMessage {
	if dir == "" {
		return raw
	}
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return quoted(programPath(dir, name))
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 || json.Unmarshal(list[0], &name) != nil {
		return raw
	}
	out := append([]byte{'['}, quoted(programPath(dir, name))...)
	for _, item := range list[1:] {
		out = append(append(out, ','), item...)
	}
	return append(out, ']')
}
