package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
)

// File is a pipeline file that was parsed, before its plugins are known.
type File struct {
	report
	opts ParseOptions
	path string // as given, and as shown
	abso string
	dir  string
	src  *source
	root *yaml.Node
	// origin are the nodes that come from --set, bad those that were reported
	// as wrong.
	origin map[*yaml.Node]*source
	bad    map[*yaml.Node]bool
	// aside holds what the judgers of a file that only judges don't need.
	aside map[*yaml.Node]bool
	// meant are, by object, the keys that an unknown one likely stands for:
	// they are not reported as missing.
	meant   map[*yaml.Node]map[string]bool
	enabled map[string]bool

	tables    *tables
	tasks     []Task
	taskType  *Type
	tasksPath string
	samples   int
	plugins   []PluginSource
	keys      map[string]*yaml.Node // of `plugins:`
	// spoiled are plugins of the file that can't be used, which was reported
	// where they stand.
	spoiled map[string]bool
}

// maxSource bounds a pipeline file, in bytes.
const maxSource = 8 << 20

// Parse reads and parses the file at path: its syntax, keys, values, tasks and
// plugins. The error is Diagnostics. Unless the file could not be read as YAML
// at all, the File is returned beside the error; its Check then reports these
// findings together with its own.
func Parse(path string, o ParseOptions) (*File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fileError(path, "it is a folder; give the pipeline file in it")
	}
	src, err := readAtMost(path, maxSource)
	if err != nil {
		return nil, fileError(path, pathCause(err).Error())
	}
	return ParseSource(path, src, o)
}

func fileError(path, why string) Diagnostics {
	return Diagnostics{{File: path, Severity: Error, Code: "file", Message: "the pipeline file can't be read: " + why}}
}

// ParseSource parses src as if it were the file at path. See Parse.
func ParseSource(path string, src []byte, o ParseOptions) (*File, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fileError(path, err.Error())
	}
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	f := &File{
		opts: o, path: path, abso: abs, dir: filepath.Dir(abs),
		src:    &source{name: path, text: string(src)},
		origin: map[*yaml.Node]*source{}, bad: map[*yaml.Node]bool{}, enabled: map[string]bool{},
		report: report{secrets: map[string]bool{}},
		tables: newTables(), keys: map[string]*yaml.Node{}, spoiled: map[string]bool{}, meant: map[*yaml.Node]map[string]bool{},
	}
	for _, name := range o.Enable {
		f.enabled[name] = true
	}
	if !f.readTree() {
		return nil, f.found.tidy(f.path)
	}
	for _, arg := range o.Set {
		f.applySet(f.root, arg, f.tables)
	}
	if o.JudgeOnly {
		f.setAside()
	}
	d := &decoder{f: f, enabled: f.enabled}
	d.check(f.root, f.tables.file, "pipeline")
	f.loadTasks()
	f.loadPlugins()
	if f.found.Errors() > 0 {
		return f, f.Problems()
	}
	return f, nil
}

// readTree parses the YAML; false means that nothing more can be said.
func (f *File) readTree() bool {
	root := f.parseYAML(f.src)
	if root == nil {
		return false
	}
	// What expand reports, such as repeated keys, leaves a tree that can still
	// be checked.
	f.root, _ = f.expand(root)
	if f.root.Kind != yaml.MappingNode {
		f.errorf(f.at(f.root), "wrong-kind", "a pipeline begins with 'penstock: "+Version+"'", "a pipeline is an object, this is %s", kindName(f.root))
		return false
	}
	return true
}

// Problems are the findings so far, sorted by position.
func (f *File) Problems() Diagnostics {
	return append(Diagnostics(nil), f.found...).tidy(f.path)
}

// PluginSources lists the file's plugins, for the registry.
func (f *File) PluginSources() []PluginSource { return f.plugins }

// Tasks are the tasks as read.
func (f *File) Tasks() []Task { return f.tasks }

// stored is Pipeline.Resolved: what a run keeps of its pipeline.
type stored struct {
	Path     string            `json:"path"`
	SHA256   string            `json:"sha256"`
	Set      []string          `json:"set,omitempty"`
	Samples  int               `json:"samples"`
	Tasks    string            `json:"tasks_file,omitempty"`
	Source   string            `json:"source"`
	Enable   []string          `json:"enable,omitempty"`
	Files    map[string]string `json:"files,omitempty"`
	Pipeline json.RawMessage   `json:"pipeline"`
}

// Restore parses a pipeline from what Pipeline.Resolved kept of it: its source
// with the same --set values. Options that a run keeps are taken from there;
// o gives the tasks (GivenTasks) and the environment.
func Restore(resolved json.RawMessage, o ParseOptions) (*File, error) {
	var s stored
	if err := json.Unmarshal(resolved, &s); err != nil {
		return nil, fileError("run.json", "it holds no pipeline: "+err.Error())
	}
	if s.Path == "" || s.Source == "" {
		return nil, fileError("run.json", "it holds no pipeline")
	}
	o.Set, o.Samples, o.Enable = s.Set, s.Samples, s.Enable
	return ParseSource(s.Path, []byte(s.Source), o)
}

// means notes that an unknown key of an object likely stands for a known one.
func (f *File) means(n *yaml.Node, name string) {
	if f.meant[n] == nil {
		f.meant[n] = map[string]bool{}
	}
	f.meant[n][name] = true
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// SecretValues are the values of all ${env:} and ${file:} references, longest
// first: what must not reach a log, a trace or a file.
func (p *Pipeline) SecretValues() []string { return p.secrets }

// Reads lists every value that an expression of the file reads.
func (p *Pipeline) Reads() []Read { return p.reads }

// Path is the absolute path of the file.
func (f *File) Path() string { return f.abso }

// Mentions says whether a value somewhere in the file is this text.
func (f *File) Mentions(text string) bool { return mentions(f.root, text) }

func mentions(n *yaml.Node, text string) bool {
	if n == nil {
		return false
	}
	return n.Kind == yaml.ScalarNode && n.Value == text ||
		slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return mentions(c, text) })
}

// PluginError is the error of a plugin of the file that can't be registered,
// with the place where the file names it and all else that is wrong so far.
func (f *File) PluginError(s PluginSource, err error) error {
	g := &File{report: report{append(Diagnostics(nil), f.found...), f.secrets}, src: f.src, origin: f.origin, path: f.path, keys: f.keys}
	g.pluginError(s, err)
	return g.Problems()
}

func (f *File) pluginError(s PluginSource, err error) {
	f.errorf(f.at(f.keys[s.Key]), "plugin", "", "the plugin %s can't be used: %s", s.Key, err)
}
