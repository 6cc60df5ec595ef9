package pipeline

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/component"
)

var componentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// loadPlugins reads `plugins:`. An entry that is wrong is left out, and what
// uses it is not reported again.
func (f *File) loadPlugins() {
	node := f.get(f.root, "plugins")
	if node == nil {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if !f.bad[value] {
			if s, ok := f.plugin(key, value); ok {
				f.plugins = append(f.plugins, s)
				f.keys[s.Key] = key
				continue
			}
		}
		f.spoiled[key.Value] = true
		kind, name, _ := strings.Cut(key.Value, "/")
		f.spoiled[nearest(kind, component.Kinds)+"/"+name] = true
	}
}

// PluginFailed reports that a plugin of the file can't be registered. Check
// then tells of it with all else that is wrong.
func (f *File) PluginFailed(s PluginSource, err error) {
	f.pluginError(s, err)
	f.spoiled[s.Key] = true
}

func (f *File) plugin(key, n *yaml.Node) (PluginSource, bool) {
	s := PluginSource{
		Key: key.Value, Grant: f.texts(n, "grant"), MaxInFlight: f.integer(n, "max_in_flight"),
		Override: f.boolean(n, "override"), Name: f.text(n, "name"), Exec: f.argv(f.get(n, "exec")),
	}
	kind, name, _ := strings.Cut(key.Value, "/")
	switch {
	case !contains(component.Kinds, kind) || name == "":
		hint := "write KIND/NAME; kinds: " + strings.Join(component.Kinds, ", ")
		if near := nearest(kind, component.Kinds); near != "" && name != "" {
			hint = "did you mean '" + near + "/" + name + "'?"
		}
		f.errorf(f.at(key), "plugin", hint, "'%s' is no plugin's name", key.Value)
		return s, false
	case !componentName.MatchString(name):
		f.errorf(f.at(key), "plugin", "", "the plugin's name '%s' may hold letters, digits, '.', '_' and '-' only", name)
		return s, false
	}
	if env := f.get(n, "env"); env != nil {
		for i := 0; i+1 < len(env.Content); i += 2 {
			if v := env.Content[i+1]; !f.bad[v] {
				s.Env = append(s.Env, env.Content[i].Value+"="+f.resolve(v, v.Value))
			}
		}
	}
	if l := f.get(n, "limits"); l != nil {
		s.Limits = Limits{Memory: f.size(l, "memory"), Timeout: f.duration(l, "timeout"), In: f.size(l, "in"), Out: f.size(l, "out")}
	}
	for _, name := range f.texts(n, "files") {
		s.Files = append(s.Files, f.abs(name))
	}
	return s, f.transport(key, n, kind, &s)
}

// transport reads process, wasm or exec: exactly one, and one that the kind
// can have.
func (f *File) transport(key, n *yaml.Node, kind string, s *PluginSource) bool {
	var given []string
	for _, t := range []string{"process", "wasm", "exec"} {
		if k, _ := lookup(n, t); k != nil {
			given = append(given, t)
		}
	}
	if len(given) != 1 {
		f.errorf(f.at(key), "plugin", "process: PATH, [argv] or {go: DIR}; wasm: FILE or {go: DIR}; exec: [argv]",
			"plugin '%s' needs exactly one of process, wasm and exec", key.Value)
		return false
	}
	at, v := lookup(n, given[0])
	if f.bad[v] {
		return false
	}
	switch {
	case given[0] == "wasm" && kind == component.Converter,
		given[0] == "exec" && kind != component.Judger && kind != component.Hook:
		f.errorf(f.at(at), "plugin", "use process", "a %s can't be a plugin of transport %s", kind, given[0])
		return false
	case given[0] == "exec":
		return len(s.Exec) > 0
	}
	if v.Kind == yaml.MappingNode {
		return f.goFolder(v, given[0], s)
	}
	if given[0] == "wasm" {
		s.Wasm = f.abs(f.resolve(v, v.Value))
		return f.exists(v, s.Wasm, false)
	}
	if v.Kind == yaml.SequenceNode {
		s.Process = f.argv(v)
		return len(s.Process) > 0
	}
	s.Process = []string{f.abs(f.resolve(v, v.Value))}
	return f.exists(v, s.Process[0], false)
}

func (f *File) goFolder(v *yaml.Node, transport string, s *PluginSource) bool {
	dir := f.get(v, "go")
	if dir == nil {
		return false
	}
	path := f.abs(f.resolve(dir, dir.Value))
	if transport == "wasm" {
		s.WasmGo = path
	} else {
		s.ProcessGo = path
	}
	return f.exists(dir, path, true)
}

// argv is a command line; a program with a slash in it, and any word that
// begins with ./ or ../, is a path of the file.
func (f *File) argv(n *yaml.Node) []string {
	if n == nil {
		return nil
	}
	out := f.items(n)
	switch {
	case len(out) == 0 && !f.hasBad(n):
		f.errorf(f.at(n), "plugin", "", "the command line is empty")
	case len(out) > 0 && strings.Contains(out[0], "/"):
		out[0] = f.abs(out[0])
		if !f.exists(n.Content[0], out[0], false) {
			return nil
		}
	}
	if len(out) > 0 && !f.startable(n.Content[0], out[0], true, false) {
		return nil
	}
	for i, word := range out {
		if strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../") {
			out[i] = f.abs(word)
		}
	}
	return out
}

// exists reports a file or folder that isn't there.
func (f *File) exists(n *yaml.Node, path string, folder bool) bool {
	if reference.MatchString(path) {
		return f.unseen(n) // else it was reported
	}
	info, err := os.Stat(path)
	what := "file"
	if folder {
		what = "folder"
	}
	switch {
	case err != nil:
		f.errorf(f.at(n), "no-file", "a relative path starts at the folder of the pipeline file: "+filepath.Dir(f.path), "the %s '%s' can't be read: %s", what, n.Value, pathCause(err))
		return false
	case info.IsDir() != folder:
		f.errorf(f.at(n), "no-file", "", "'%s' is no %s", n.Value, what)
		return false
	}
	return true
}
