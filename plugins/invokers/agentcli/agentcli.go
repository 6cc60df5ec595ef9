// Package agentcli is the invoker of agent programs that a recipe describes: a
// YAML file that says how the program is got, started, pointed at the gateway
// and read. A new program is a file. What never enters: the name of any one
// program.
package agentcli

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/plugins/invokers/streamjson"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/schema"
)

//go:embed recipes/*.yaml
var builtin embed.FS

// Config is what a stage's `with:` sets once.
type Config struct {
	Recipe   string                       `json:"recipe" format:"name-or-file" desc:"a recipe that ships with penstock, or the path of one's own, which ends in .yaml"`
	API      string                       `json:"api,omitempty" desc:"the protocol that the program speaks, where it has a choice; default the recipe's"`
	MCP      map[string]streamjson.Server `json:"mcp,omitempty" desc:"MCP servers on standard input and output, by name"`
	System   string                       `json:"system,omitempty" desc:"what the program's system prompt says"`
	MaxTurns int                          `json:"max_turns,omitempty" desc:"most replies of the model; 0 is no limit"`
	// Tools is a pointer because an empty list is not the same as none given.
	Tools   *[]string         `json:"tools,omitempty" desc:"the program's own tools, exactly; an empty list is no tools; absent is the program's default set"`
	Options map[string]any    `json:"options,omitempty" desc:"settings of this program alone, as its recipe names them"`
	Command schema.Argv       `json:"command,omitempty" desc:"the program and its first arguments, or the program alone; a relative path starts at the folder of the pipeline file; default the recipe's"`
	Args    []string          `json:"args,omitempty" desc:"further arguments"`
	Env     map[string]string `json:"env,omitempty" desc:"added to the environment; wins over the recipe's, save address and key"`
}

// Input is what `with:` gives for each rollout.
type Input struct {
	Prompt string `json:"prompt" desc:"what the agent is asked" min:"1"`
}

type agentCLI struct {
	cfg    Config
	recipe *Recipe
	texts  *texts
	option map[string]any
	expect streamjson.Expect
}

// New checks the config and the recipe, and fills the recipe's texts once, so
// that what is wrong with them is known before a run.
func New(cfg Config) (invoker.Invoker, error) {
	r, err := find(cfg.Recipe)
	if err != nil {
		return nil, &schema.Error{Pointer: "/recipe", Message: err.Error()}
	}
	return open(r, cfg)
}

func open(r *Recipe, cfg Config) (invoker.Invoker, error) {
	a := &agentCLI{cfg: cfg, recipe: r}
	if a.cfg.API == "" {
		a.cfg.API = r.API
	}
	if _, known := r.APIs[a.cfg.API]; !known {
		return nil, &schema.Error{Pointer: "/api", Message: fmt.Sprintf("%s speaks %s, not %q", r.Name, strings.Join(r.apiNames(), ", "), cfg.API)}
	}
	t, uses, err := r.compile(a.cfg.API)
	if err != nil {
		return nil, &schema.Error{Pointer: "/recipe", Message: err.Error()}
	}
	a.texts = t
	if a.option, err = r.options(cfg.Options); err != nil {
		return nil, err
	}
	if err := a.servers(); err != nil {
		return nil, err
	}
	if err := a.try(); err != nil {
		return nil, err
	}
	if err := a.check(uses); err != nil {
		return nil, err
	}
	if cfg.Tools != nil {
		a.expect.Tools = append([]string{}, *cfg.Tools...)
	}
	a.expect.Servers = slices.Sorted(maps.Keys(cfg.MCP))
	return a, nil
}

// find reads the recipe of a name, or a file.
func find(name string) (*Recipe, error) {
	if strings.ContainsRune(name, '/') || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read recipe: %w", err)
		}
		return Parse(name, data)
	}
	data, err := builtin.ReadFile("recipes/" + name + ".yaml")
	if err != nil {
		hint := "there are " + strings.Join(Names(), ", ")
		if near := format.Nearest(name, Names()); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		return nil, fmt.Errorf("there is no recipe %q (%s; a file of your own has a path that ends in .yaml)", name, hint)
	}
	return Parse(name+".yaml", data)
}

// Names lists the recipes that ship with penstock.
func Names() []string {
	files, _ := fs.Glob(builtin, "recipes/*.yaml") // the pattern is good
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return files
}

// options are the recipe's defaults and what was given over them.
func (r *Recipe) options(given map[string]any) (map[string]any, error) {
	out := map[string]any{}
	for name, o := range r.Options {
		out[name] = o.Default
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		at := "/options/" + name
		o, known := r.Options[name]
		if !known {
			return nil, &schema.Error{Pointer: at, Message: fmt.Sprintf("%s has no option %q, it has [%s]", r.Name, name, strings.Join(slices.Sorted(maps.Keys(r.Options)), ", "))}
		}
		v := given[name]
		if o.Default != nil && kind(v) != kind(o.Default) {
			return nil, &schema.Error{Pointer: at, Message: fmt.Sprintf("is %s, want %s", kind(v), kind(o.Default))}
		}
		if s, isText := v.(string); isText && len(o.Enum) > 0 && !slices.Contains(o.Enum, s) {
			return nil, &schema.Error{Pointer: at, Message: fmt.Sprintf("is %q, want one of %s", s, strings.Join(o.Enum, ", "))}
		}
		out[name] = v
	}
	return out, nil
}

func kind(v any) string {
	switch v.(type) {
	case bool:
		return "true or false"
	case string:
		return "text"
	case int, int64, float64:
		return "a number"
	case []any:
		return "a list"
	}
	return "an object"
}

// servers refuses MCP servers that can't be started.
func (a *agentCLI) servers() error {
	if err := streamjson.CheckServers(a.cfg.MCP); err != nil {
		return &schema.Error{Pointer: "/mcp", Message: err.Error()}
	}
	return nil
}

// check refuses settings that the recipe has no place for.
func (a *agentCLI) check(uses map[string]bool) error {
	for _, s := range []struct {
		name  string
		given bool
		used  bool
	}{
		{"system", a.cfg.System != "", uses["System"]},
		{"mcp", len(a.cfg.MCP) > 0, uses["MCP"]},
		{"max_turns", a.cfg.MaxTurns != 0, uses["MaxTurns"]},
		{"tools", a.cfg.Tools != nil, uses["Tools"]},
	} {
		if s.given && !s.used {
			hint := ""
			if s.name == "max_turns" {
				hint = "; `budget: {turns: N}` of the stage bounds any program"
			}
			return &schema.Error{Pointer: "/" + s.name, Message: fmt.Sprintf("%s can't be told this%s", a.recipe.Name, hint)}
		}
	}
	if a.cfg.MaxTurns < 0 {
		return &schema.Error{Pointer: "/max_turns", Message: "is negative"}
	}
	if a.cfg.Tools != nil {
		for _, t := range *a.cfg.Tools {
			if t == "" || strings.ContainsAny(t, ", ") {
				return &schema.Error{Pointer: "/tools", Message: fmt.Sprintf("%q is no name of a tool", t)}
			}
		}
	}
	for name := range a.cfg.Env {
		if a.texts.address[name] {
			return &schema.Error{Pointer: "/env/" + name, Message: "carries the gateway's address or the key, and is set by the recipe"}
		}
	}
	return nil
}

// try fills the texts for a session that isn't there.
func (a *agentCLI) try() error {
	out, err := a.texts.render(a.view(&Input{Prompt: "prompt"}, invoker.Session{
		ID: "s-1", BaseURL: "http://127.0.0.1:1", Token: "token", Model: "model", Workspace: "/workspace", Home: "/home", Context: 32768,
	}))
	d := &decoder{file: a.recipe.file, nodes: a.recipe.nodes}
	var text *renderError
	if errors.As(err, &text) {
		d.template(text.path, text.err)
	}
	if err == nil {
		for _, p := range slices.Sorted(maps.Keys(out.files)) {
			if err := checkFile(p, out.files[p]); err != nil {
				d.failAt("/files/"+p, "", "%s: %v", p, err)
			}
		}
	}
	if err := d.err(); err != nil {
		return &schema.Error{Pointer: "/recipe", Message: err.Error()}
	}
	return nil
}

func (a *agentCLI) view(in *Input, s invoker.Session) *View {
	v := &View{
		Prompt: in.Prompt, System: a.cfg.System, BaseURL: s.BaseURL, TokenURL: s.BaseURL + "/s/" + s.Token, Token: s.Token, Model: s.Model, Context: s.Context,
		MaxTurns: streamjson.MaxTurns(a.cfg.MaxTurns, s.MaxTurns), Session: s.ID, Workspace: s.Workspace, Home: s.Home,
		API: a.cfg.API, SetTools: a.cfg.Tools != nil, Option: a.option,
	}
	if a.cfg.Tools != nil {
		v.Tools = *a.cfg.Tools
	}
	for _, name := range slices.Sorted(maps.Keys(a.cfg.MCP)) {
		m := a.cfg.MCP[name]
		v.MCP = append(v.MCP, MCPServer{Name: name, Command: m.Command[0], Args: append([]string{}, m.Command[1:]...), Env: m.Env})
	}
	return v
}

// Plan implements invoker.Invoker.
func (a *agentCLI) Plan(_ context.Context, r *invoker.PlanRequest) (*invoker.Plan, error) {
	var in Input
	if err := r.DecodeInput(&in); err != nil {
		return nil, err
	}
	if r.Session.BaseURL == "" {
		return nil, fmt.Errorf("the stage names no model, and %s behind the gateway needs one", a.recipe.Name)
	}
	out, err := a.texts.render(a.view(&in, r.Session))
	if err != nil {
		return nil, fmt.Errorf("recipe %s: %w", a.recipe.Name, err)
	}
	program := slices.Clone(a.cfg.Command)
	if len(program) == 0 {
		program = schema.Argv{a.recipe.Program}
	}
	p := &invoker.Plan{
		Argv: append(program, out.argv...), Env: out.env, Stdin: out.stdin,
		Output: invoker.Output(or(a.recipe.Output, "text")), HoldFirstCall: a.recipe.Result.Reader != "", Install: a.recipe.Install.how(),
	}
	p.Argv = append(p.Argv, a.cfg.Args...)
	maps.Copy(p.Env, a.cfg.Env)
	for _, name := range slices.Sorted(maps.Keys(out.files)) {
		p.Files = append(p.Files, invoker.File{Path: name, Data: out.files[name]})
	}
	return p, nil
}

// Line implements invoker.Liner.
func (a *agentCLI) Line(_ context.Context, r *invoker.LineRequest) (invoker.LineResult, error) {
	if a.recipe.Result.Reader == "" {
		return invoker.LineResult{State: r.State}, nil
	}
	return streamjson.Line(a.expect, r)
}

// Result implements invoker.Invoker.
func (a *agentCLI) Result(_ context.Context, r *invoker.ResultRequest) (*invoker.Result, error) {
	if a.recipe.Result.Reader != "" {
		return streamjson.Result(r), nil
	}
	return a.recipe.read(r), nil
}

// programs are what the recipes that ship with penstock can start.
func programs() []component.Program {
	var out []component.Program
	for _, name := range Names() {
		r, err := find(name)
		if err != nil {
			continue // a test holds that there is none
		}
		for _, api := range r.apiNames() {
			out = append(out, r.program(api))
		}
	}
	return out
}
