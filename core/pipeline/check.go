package pipeline

import (
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
)

// check is the second step: everything that needs the plugins' own words.
type check struct {
	f       *File
	cat     Catalog
	schemas schemaSet
	types   map[string]*Type // of schemas
	p       *Pipeline
	reads   []Read
	// compared are the comparisons of all expressions with values of enums.
	compared []comparison
	used     map[string]bool // components, by kind/name
	called   map[string]bool // models
	ids      map[*yaml.Node]string
	flat     []placed          // every stage, those within loops included
	passed   map[string]string // why stages may be passed over, by id
	// programWords are the texts that name a program.
	programWords map[*yaml.Node]bool
	// contained says that the programs of the stage at hand may be those of an
	// image, so that it is no fault when this machine lacks them.
	contained bool
}

// Check checks the file against its plugins. The error is Diagnostics and
// holds every error of the file, those of Parse included; warnings are in
// Pipeline.Warnings. Check may be called again with another catalog.
func (f *File) Check(cat Catalog) (*Pipeline, error) {
	before := f.found
	f.found = append(Diagnostics(nil), before...)
	defer func() { f.found = before }()
	c := &check{f: f, cat: cat, types: map[string]*Type{}, used: map[string]bool{}, called: map[string]bool{}, programWords: map[*yaml.Node]bool{}}
	c.p = &Pipeline{
		Path: f.abso, Dir: f.dir, Name: f.name(), Source: []byte(f.src.text), Tasks: f.tasks, Samples: f.samples,
		Models: map[string]*Model{}, Hashes: map[string]string{f.abso: hash([]byte(f.src.text))},
	}
	c.models()
	c.stages()
	c.workspace()
	c.concurrency()
	c.notify()
	c.unused()
	errs, warnings := f.found.tidy(f.path).split()
	if len(errs) > 0 {
		return nil, append(errs, warnings...).tidy(f.path)
	}
	p := c.p
	p.Warnings, p.reads, p.secrets = warnings, c.reads, f.secretList()
	for name := range c.used {
		p.Plugins = append(p.Plugins, name)
	}
	sort.Strings(p.Plugins)
	resolved, err := c.resolved()
	if err != nil {
		return nil, fileError(f.path, err.Error())
	}
	p.Resolved = resolved
	return p, nil
}

// typeOf is the type of a schema, read once.
func (c *check) typeOf(schema []byte) *Type {
	t, ok := c.types[string(schema)]
	if !ok {
		t = typeOf(schema)
		c.types[string(schema)] = t
	}
	return t
}

func (f *File) name() string {
	if n := f.text(f.root, "name"); n != "" {
		return n
	}
	base := strings.TrimSuffix(filepath.Base(f.abso), filepath.Ext(f.abso))
	if base == "pipeline" {
		return filepath.Base(f.dir)
	}
	return base
}

func (c *check) resolved() ([]byte, error) {
	tree, err := c.f.toJSON(c.f.root, nil)
	if err != nil {
		return nil, err
	}
	return chat.Marshal(stored{
		Path: c.f.abso, SHA256: c.p.Hashes[c.f.abso], Set: c.f.opts.Set, Samples: c.f.samples, Tasks: c.f.tasksPath,
		Source: c.f.src.text, Enable: c.f.opts.Enable, Files: c.p.Hashes, Pipeline: tree,
	})
}

// maxHashed is the largest file that gives a pipeline its meaning, such as the
// rules of a script.
const maxHashed = 256 << 20

// hashFile notes the hash of a file that gives the pipeline its meaning.
func (c *check) hashFile(n *yaml.Node, path string) {
	if reference.MatchString(path) {
		return // it isn't known without the environment
	}
	b, err := readAtMost(path, maxHashed)
	if err != nil {
		c.f.errorf(c.f.at(n), "no-file", "a relative path starts at the folder of the pipeline file: "+filepath.Dir(c.f.path),
			"the file '%s' can't be read: %s", n.Value, pathCause(err))
		return
	}
	c.p.Hashes[path] = hash(b)
}

func (c *check) models() {
	node := c.f.get(c.f.root, "models")
	if node == nil {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		c.p.ModelOrder = append(c.p.ModelOrder, key.Value)
		c.p.Models[key.Value] = c.model(key, value)
	}
}

func (c *check) model(key, n *yaml.Node) *Model {
	f := c.f
	m := &Model{
		Name: key.Value, Model: f.text(n, "model"), ServeAs: f.text(n, "serve_as"), Aliases: f.texts(n, "aliases"),
		UnknownModels: f.text(n, "unknown_models"), Capture: f.text(n, "capture"), Context: f.integer(n, "context"), Family: f.text(n, "family"),
	}
	if f.bad[n] {
		return m
	}
	if m.Model == "" {
		m.Model = m.Name
	}
	if m.ServeAs == "" {
		m.ServeAs = m.Name
	}
	if m.UnknownModels == "" {
		m.UnknownModels = "reject"
	}
	if s := f.get(n, "sampling"); s != nil {
		m.Sampling = c.sampling(s)
	}
	if p := f.get(n, "prices"); p != nil {
		m.Prices = c.prices(p)
	}
	m.Upstream = c.upstream(n)
	if m.Capture == "" {
		m.Capture = "text"
		if m.Upstream.Kind == "script" {
			m.Capture = "exact"
		}
	}
	c.format(n, m)
	m.Template = c.pathOrName(f.get(n, "template"), ".jinja", ".j2", ".txt", ".json")
	m.Tokenizer = c.pathOrName(f.get(n, "tokenizer"), ".json", ".model")
	c.capture(key, n, m)
	c.provider(key, n, m)
	m.Hooks = c.hooks(f.get(n, "hooks"), modelPoints...)
	return m
}

func (c *check) prices(n *yaml.Node) *cost.Prices {
	f := c.f
	p := &cost.Prices{CacheRead: f.numberPtr(n, "cache_read"), CacheWrite: f.numberPtr(n, "cache_write")}
	if v := f.numberPtr(n, "input"); v != nil {
		p.Input = *v
	}
	if v := f.numberPtr(n, "output"); v != nil {
		p.Output = *v
	}
	return p
}

func (c *check) sampling(n *yaml.Node) chat.Sampling {
	f := c.f
	s := chat.Sampling{
		Temperature: f.numberPtr(n, "temperature"), TopP: f.numberPtr(n, "top_p"), TopK: f.integerPtr(n, "top_k"),
		MaxTokens: f.integerPtr(n, "max_tokens"), Stop: f.texts(n, "stop"),
	}
	if seed := f.integerPtr(n, "seed"); seed != nil {
		wide := int64(*seed)
		s.Seed = &wide
	}
	return s
}

// format reads `format`: a file when it has a slash or ends in .yaml.
func (c *check) format(n *yaml.Node, m *Model) {
	f := c.f
	v := f.get(n, "format")
	if v == nil {
		return
	}
	m.Format = f.resolve(v, v.Value)
	switch {
	case m.Format == "upstream":
		if m.Upstream.Kind == "script" {
			f.errorf(f.at(v), "format", "name a format", "an upstream of kind script renders and parses nothing itself")
		}
	case m.Format == "auto":
		if !f.enabled["format: auto"] {
			f.errorf(f.at(v), "not-built", "name the format; there are: "+strings.Join(c.cat.Names(component.Format), ", "), "'format: auto' is not built yet")
		}
	case strings.HasPrefix(m.Format, "format/"):
		f.errorf(f.at(v), "format", "write "+strings.TrimPrefix(m.Format, "format/"), "a format is named without 'format/'")
	case strings.Contains(m.Format, "/"), strings.HasSuffix(m.Format, ".yaml"):
		m.Format, m.FormatFile = f.abs(m.Format), true
		if f.exists(v, m.Format, false) {
			c.hashFile(v, m.Format)
		}
	default:
		c.describe(v, component.Format, m.Format)
	}
}

// pathOrName is a path when it looks like one: ./x, ../x, /x or an ending.
func (c *check) pathOrName(v *yaml.Node, endings ...string) string {
	if v == nil {
		return ""
	}
	s := c.f.resolve(v, v.Value)
	path := strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") || filepath.IsAbs(s)
	for _, e := range endings {
		path = path || strings.HasSuffix(s, e)
	}
	if !path {
		return s
	}
	s = c.f.abs(s)
	if info, err := os.Stat(s); err == nil && info.IsDir() {
		return s
	}
	if c.f.exists(v, s, false) {
		c.hashFile(v, s)
	}
	return s
}

func (c *check) capture(key, n *yaml.Node, m *Model) {
	at := c.f.get(n, "capture")
	if m.Capture != "exact" || m.Upstream.Kind == "" {
		return
	}
	if at == nil {
		at = key
	}
	if m.Format == "upstream" {
		c.f.errorf(c.f.at(at), "capture", "use 'capture: reported', or a format of ours",
			"model '%s': capture exact needs to render the prompt itself, but 'format: upstream' leaves that to the upstream", m.Name)
	}
	if m.Upstream.Kind != "script" && m.Tokenizer == "" && c.f.get(n, "tokenizer") == nil {
		c.f.errorf(c.f.at(at), "capture", "give it a 'tokenizer', or use 'capture: reported' or 'text'", "model '%s': capture exact needs a tokenizer", m.Name)
	}
}

// hooks reads a list of hooks that can act at one of the points.
func (c *check) hooks(list *yaml.Node, points ...string) []HookUse {
	if list == nil {
		return nil
	}
	var out []HookUse
	for _, n := range list.Content {
		if c.f.bad[n] {
			continue
		}
		uses := n
		use := HookUse{}
		if n.Kind == yaml.MappingNode {
			if uses = c.f.get(n, "uses"); uses == nil {
				continue
			}
			use.FailOpen = c.f.text(n, "on_error") == "open"
		}
		kind, name, ok := strings.Cut(uses.Value, "/")
		if !ok || kind != component.Hook {
			c.wrongKind(uses, kind, name, ok, "a hook is named hook/NAME", []string{component.Hook})
			continue
		}
		d, ok := c.describe(uses, kind, name)
		if !ok {
			continue
		}
		use.Name, use.Descriptor = name, d
		if acts := append(append([]string(nil), d.Observes...), d.Changes...); among(points, acts) == nil {
			c.f.errorf(c.f.at(uses), "hook", "it acts at: "+list3(acts), "%s can't act here: this place has the points %s", d.ID(), strings.Join(points, ", "))
		}
		use.Observes, use.Changes = among(points, d.Observes), among(points, d.Changes)
		use.Config = c.settings(uses, n, d, nil, "").config
		c.guarded(uses, name, out)
		out = append(out, use)
	}
	return out
}

// guarded warns of a guard that sees calls before they are repaired: what the
// repair makes of one, no rule has looked at.
func (c *check) guarded(at *yaml.Node, name string, before []HookUse) {
	if name != "sanitize-tools" {
		return
	}
	for _, b := range before {
		if b.Name == "tool-guard" {
			c.f.warnf(c.f.at(at), "order", "put hook/sanitize-tools before hook/tool-guard", "hook/tool-guard sees calls as the model wrote them, and hook/sanitize-tools repairs them afterwards")
			return
		}
	}
}

// among are those of want that have holds, too.
func among(want, have []string) []string {
	var out []string
	for _, w := range want {
		if contains(have, w) {
			out = append(out, w)
		}
	}
	return out
}

func (c *check) workspace() {
	f := c.f
	n := f.get(f.root, "workspace")
	c.p.Workspace = Workspace{Keep: KeepFailed, dir: f.dir}
	if n == nil {
		return
	}
	if k := f.text(n, "keep"); k != "" {
		c.p.Workspace.Keep = k
	}
	from := f.get(n, "from")
	if from == nil {
		return
	}
	sc := newScope(c.taskType())
	for _, p := range c.flat {
		sc.later[p.stage.ID] = true
	}
	if !strings.Contains(from.Value, opening) && !f.aside[from] {
		f.exists(from, f.abs(f.resolve(from, from.Value)), true)
	}
	b := &builder{c: c, sc: sc, key: "workspace", d: component.Descriptor{Kind: "the", Name: "workspace"}, ok: true}
	if root, _ := b.text(from, stringType, []string{"from"}); root != nil {
		c.p.Workspace.From = &Template{root: root, where: where(f.at(from))}
	}
}

func (c *check) taskType() *Type {
	if c.f.taskType == nil {
		return anyType
	}
	return c.f.taskType
}

func (c *check) concurrency() {
	n := c.f.get(c.f.root, "concurrency")
	def := 2 * runtime.GOMAXPROCS(0)
	c.p.Concurrency = Concurrency{Rollouts: def, Judge: def}
	if n == nil {
		return
	}
	if v := c.f.integer(n, "rollouts"); v > 0 {
		c.p.Concurrency.Rollouts = v
	}
	if v := c.f.integer(n, "judge"); v > 0 {
		c.p.Concurrency.Judge = v
	}
}

// unused warns of what is declared and not used.
func (c *check) unused() {
	f := c.f
	if f.opts.NoStages {
		return
	}
	models := f.get(f.root, "models")
	for _, name := range c.p.ModelOrder {
		if k, _ := lookup(models, name); !c.called[name] {
			f.warnf(f.at(k), "unused", "", "no stage names the model '%s'", name)
		}
	}
	for _, s := range f.plugins {
		if !c.used[s.Key] && !f.spoiled[s.Key] {
			f.warnf(f.at(f.keys[s.Key]), "unused", "", "nothing uses the plugin '%s'", s.Key)
		}
	}
}

// describe finds a component, or reports that there is none.
func (c *check) describe(n *yaml.Node, kind, name string) (component.Descriptor, bool) {
	id := kind + "/" + name
	if c.f.spoiled[id] {
		return component.Descriptor{}, false
	}
	names := c.cat.Names(kind)
	if !contains(names, name) && c.f.keys[id] == nil {
		c.unknown(n, kind, name, names)
		return component.Descriptor{}, false
	}
	d, err := c.cat.Describe(kind, name)
	if err != nil {
		at := n
		if k := c.f.keys[id]; k != nil {
			at, c.used[id] = k, true
		}
		c.f.errorf(c.f.at(at), "plugin", "", "%s can't be used: %s", id, err)
		return d, false
	}
	c.used[id] = true
	d.Kind, d.Name = kind, name
	return d, true
}

func (c *check) unknown(n *yaml.Node, kind, name string, names []string) {
	near, shown := nearest(name, names), name
	if kind != component.Format {
		shown = kind + "/" + name
		for i := range names {
			names = append(names[:i:i], append([]string{kind + "/" + names[i]}, names[i+1:]...)...)
		}
	}
	hint := ""
	if near != "" {
		hint = "did you mean '" + strings.TrimSuffix(shown, name) + near + "'? "
	}
	switch {
	case len(names) > manyNames && kind == component.Format:
		hint += "`penstock format ls` lists them. "
	case len(names) > manyNames:
		hint += "`penstock plugin ls` lists them. "
	case len(names) > 0:
		hint += "There are: " + strings.Join(names, ", ") + ". "
	}
	own := "A plugin of your own is registered under 'plugins:', " + kind + "/" + name + ": { process: { go: DIR } }"
	if kind == component.Format {
		own = "A format of your own is a YAML file, ./" + name + ".yaml, or a plugin named under 'plugins:'"
	}
	c.f.errorf(c.f.at(n), "unknown-plugin", hint+own, "there is no %s '%s'", kind, name)
}

// wrongKind explains a name that has no kind, or one of another kind than the
// place takes.
func (c *check) wrongKind(n *yaml.Node, kind, name string, slash bool, want string, kinds []string) {
	f := c.f
	switch {
	case !slash:
		hint := want
		for _, k := range kinds {
			if contains(c.cat.Names(k), kind) {
				hint = "did you mean '" + k + "/" + kind + "'?"
			}
		}
		f.errorf(f.at(n), "uses", hint, "'%s' has no kind", n.Value)
	case kind == component.Hook:
		f.errorf(f.at(n), "uses", "name it under 'hooks:' of a model or a stage", "a hook is no stage: it acts on what passes by")
	case kind == component.Format:
		f.errorf(f.at(n), "uses", "write 'format: "+name+"' under a model", "a format is no stage: it belongs to a model")
	case contains(component.Kinds, kind):
		f.errorf(f.at(n), "uses", want, "'%s' is %s %s", n.Value, articleOf(kind), kind)
	default:
		hint := want
		if near := nearest(kind, kinds); near != "" {
			hint = "did you mean '" + near + "/" + name + "'?"
		}
		f.errorf(f.at(n), "uses", hint, "there is no kind of plugin '%s'", kind)
	}
}

func articleOf(word string) string {
	if strings.ContainsAny(word[:1], "aeiou") {
		return "an"
	}
	return "a"
}
