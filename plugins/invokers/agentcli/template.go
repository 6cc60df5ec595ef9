package agentcli

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// View is what the texts of a recipe are filled from.
type View struct {
	Prompt    string // what the agent is asked
	System    string // what its system prompt shall say, or ""
	BaseURL   string // the gateway's root, without /v1
	TokenURL  string // the same with the key in its path, for programs that send none
	Token     string // the key for it
	Model     string // the model as the gateway serves it
	ModelName string // the same as the recipe's `model` spells it
	Context   int    // tokens that the model takes, 0 if not known
	MaxTurns  int    // most replies of the model, 0 for no limit
	Session   string // id of the session
	Workspace string // the working folder
	Home      string // the private home
	API       string // the one of `apis` that is used
	MCP       []MCPServer
	// Tools are the program's own tools that it shall have; SetTools says that
	// they were given, be it as an empty list.
	Tools    []string
	SetTools bool
	Option   map[string]any
	Var      map[string]string
}

// MCPServer is an MCP server on standard input and output.
type MCPServer struct {
	Name    string
	Command string
	Args    []string
	Env     map[string]string
}

// functions are what templates may call beside those of the language.
var functions = template.FuncMap{
	"json": func(v any) (string, error) {
		b, err := chat.Marshal(v)
		return string(b), err
	},
	"join": func(sep string, list []string) string { return strings.Join(list, sep) },
}

// text is one template of a recipe.
type text struct {
	path string
	t    *template.Template
}

// texts are the templates of a recipe, in parts that are rendered apart.
type texts struct {
	model   *text
	stdin   *text
	vars    map[string]*text
	env     map[string]*text
	files   map[string]*text
	argv    []argument
	address map[string]bool // variables that carry the address or the key
}

type argument struct {
	when *text // nil: always
	args []*text
}

// compiler parses the templates of a recipe for one of its APIs.
type compiler struct {
	r    *Recipe
	d    *decoder
	uses map[string]bool // fields of View
}

func (r *Recipe) compile(api string) (*texts, map[string]bool, error) {
	c := &compiler{r: r, d: &decoder{file: r.file, nodes: r.nodes}, uses: map[string]bool{}}
	t := &texts{env: map[string]*text{}, files: map[string]*text{}, vars: map[string]*text{}, address: map[string]bool{}}
	t.model, t.stdin = c.text("/model", r.Model), c.text("/stdin", r.Stdin)
	for name, value := range r.APIs[api].Vars {
		t.vars[name] = c.text("/apis/"+api+"/vars/"+name, value)
	}
	for _, env := range []struct {
		path   string
		values map[string]string
	}{{"/quiet/", r.Quiet}, {"/env/", r.Env}, {"/apis/" + api + "/env/", r.APIs[api].Env}} {
		for name, value := range env.values {
			t.env[name] = c.text(env.path+name, value)
			t.address[name] = strings.Contains(value, ".BaseURL") || strings.Contains(value, ".Token") // .TokenURL is one, too
		}
	}
	for path, data := range r.Files {
		t.files[path] = c.text("/files/"+path, data)
	}
	for i, a := range r.Argv {
		at := fmt.Sprintf("/argv/%d", i)
		arg := argument{}
		if a.When != "" {
			arg.when = c.text(at+"/when", "{{if "+a.When+"}}yes{{end}}")
		}
		for j, value := range a.Args {
			arg.args = append(arg.args, c.text(fmt.Sprintf("%s/args/%d", at, j), value))
		}
		t.argv = append(t.argv, arg)
	}
	c.flags()
	return t, c.uses, c.d.err()
}

func (c *compiler) text(path, value string) *text {
	t, err := template.New("t").Option("missingkey=error").Funcs(functions).Parse(value)
	if err != nil {
		c.d.template(path, err)
		return nil
	}
	c.walk(t.Root)
	return &text{path, t}
}

// walk notes the fields of View that a template uses.
func (c *compiler) walk(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, item := range n.Nodes {
				c.walk(item)
			}
		}
	case *parse.ActionNode:
		c.walk(n.Pipe)
	case *parse.PipeNode:
		if n != nil {
			for _, command := range n.Cmds {
				c.walk(command)
			}
		}
	case *parse.CommandNode:
		for _, arg := range n.Args {
			c.walk(arg)
		}
	case *parse.FieldNode:
		c.uses[n.Ident[0]] = true
	case *parse.VariableNode:
		if len(n.Ident) > 1 && n.Ident[0] == "$" {
			c.uses[n.Ident[1]] = true
		}
	case *parse.ChainNode:
		c.walk(n.Node)
	case *parse.IfNode:
		c.branch(&n.BranchNode)
	case *parse.RangeNode:
		c.branch(&n.BranchNode)
	case *parse.WithNode:
		c.branch(&n.BranchNode)
	}
}

func (c *compiler) branch(n *parse.BranchNode) {
	c.walk(n.Pipe)
	c.walk(n.List)
	c.walk(n.ElseList)
}

var foreign = regexp.MustCompile(`^\{\{-? *\.(Prompt|System)\b`)

// flags refuses an argument that begins with a text of others before "--": one
// that begins with "-" would be taken for a flag.
func (c *compiler) flags() {
	for i, a := range c.r.Argv {
		for j, value := range a.Args {
			if value == "--" {
				return
			}
			if m := foreign.FindStringSubmatch(value); m != nil {
				c.d.failAt(fmt.Sprintf("/argv/%d/args/%d", i, j), "give it on stdin, as --flag={{."+m[1]+"}}, or after --",
					"an argument that begins with {{.%s}} could be taken for a flag", m[1])
			}
		}
	}
}

var templateError = regexp.MustCompile(`(?s)^template: t:(\d+)(?::(\d+))?: (?:executing "t" at )?(.*)$`)

var viewFields = []string{
	"Prompt", "System", "BaseURL", "TokenURL", "Token", "Model", "ModelName", "Context", "MaxTurns", "Session", "Workspace", "Home", "API", "MCP", "Tools",
	"SetTools", "Option", "Var",
}

var noField = regexp.MustCompile(`can't evaluate field (\w+) in type .*View`)

// template reports what a template's parser or its run said.
func (d *decoder) template(path string, err error) {
	n := d.nodes[path]
	for n == nil && path != "" {
		path = path[:max(0, strings.LastIndexByte(path, '/'))]
		n = d.nodes[path]
	}
	m := templateError.FindStringSubmatch(err.Error())
	if m == nil {
		d.fail(n, "", "%s: %v", strings.TrimPrefix(path, "/"), err)
		return
	}
	at := *n
	line, _ := strconv.Atoi(m[1])
	at.Line += line - 1
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		at.Line, at.Column = at.Line+1, 1
	}
	text, hint := m[3], ""
	if f := noField.FindStringSubmatch(text); f != nil {
		text, hint = fmt.Sprintf("there is no .%s", f[1]), "there are ."+strings.Join(viewFields, " .")
	}
	d.fail(&at, hint, "%s: %s", strings.TrimPrefix(path, "/"), text)
}

// render fills a text.
func (t *text) render(v *View) (string, error) {
	if t == nil {
		return "", nil
	}
	var b strings.Builder
	if err := t.t.Execute(&b, v); err != nil {
		return "", &renderError{t.path, err}
	}
	return b.String(), nil
}

// renderError is a text that can't be filled, with where it stands.
type renderError struct {
	path string
	err  error
}

func (e *renderError) Error() string { return strings.TrimPrefix(e.path, "/") + ": " + e.err.Error() }
func (e *renderError) Unwrap() error { return e.err }

// rendered is a recipe with all of its texts filled.
type rendered struct {
	argv  []string
	env   map[string]string
	files map[string]string
	stdin string
}

// render fills everything. V is changed: its Var and ModelName are filled
// first.
func (t *texts) render(v *View) (out *rendered, err error) {
	fill := func(x *text) string {
		s, e := x.render(v)
		if err == nil {
			err = e
		}
		return s
	}
	v.ModelName = v.Model
	if name := fill(t.model); name != "" {
		v.ModelName = name
	}
	v.Var = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(t.vars)) {
		v.Var[name] = fill(t.vars[name])
	}
	out = &rendered{env: map[string]string{}, files: map[string]string{}, stdin: fill(t.stdin)}
	for _, a := range t.argv {
		if a.when != nil && fill(a.when) == "" {
			continue
		}
		for _, x := range a.args {
			out.argv = append(out.argv, fill(x))
		}
	}
	for name, x := range t.env {
		if value := fill(x); value != "" { // an empty one is not set
			out.env[name] = value
		}
	}
	for path, x := range t.files {
		out.files[path] = fill(x)
	}
	return out, err
}

// checkFile refuses a file that its reader would refuse.
func checkFile(path, data string) error {
	if strings.HasSuffix(path, ".json") && !json.Valid([]byte(data)) {
		var v any
		return fmt.Errorf("it makes no valid JSON: %w", json.Unmarshal([]byte(data), &v))
	}
	if strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".yml") {
		var v any
		if err := yaml.Unmarshal([]byte(data), &v); err != nil {
			return fmt.Errorf("it makes no valid YAML: %w", err)
		}
	}
	return nil
}
