package agentcli

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/invoker"
)

// Version is the value of a recipe's key `penstock`.
const Version = "recipe/v1"

// Recipe says how an agent program is started and read. Texts of Env, Quiet,
// Files, Argv, Stdin, Model and Vars are templates of text/template over View;
// Quiet is environment like Env, set apart because it is there to keep the
// program from talking to anybody but the model.
type Recipe struct {
	Penstock  string            `yaml:"penstock"`
	Name      string            `yaml:"name"`
	Summary   string            `yaml:"summary"`
	Program   string            `yaml:"program"`
	Install   Install           `yaml:"install"`
	Validated Validated         `yaml:"validated"`
	API       string            `yaml:"api"` // the one of APIs that holds unless another is asked for
	APIs      map[string]API    `yaml:"apis"`
	Model     string            `yaml:"model"`
	Options   map[string]Option `yaml:"options"`
	Env       map[string]string `yaml:"env"`
	Quiet     map[string]string `yaml:"quiet"`
	Files     map[string]string `yaml:"files"`
	Argv      []Arg             `yaml:"argv"`
	Stdin     string            `yaml:"stdin"`
	Idle      Idle              `yaml:"idle"`
	Output    string            `yaml:"output"`
	Result    Result            `yaml:"result"`
	Quirks    []string          `yaml:"quirks"`

	file  string
	nodes map[string]*yaml.Node
}

// Install says how the program is got. Node is the range of Node versions that
// it needs, "" for a native program.
type Install struct {
	Npm     string `yaml:"npm"`
	Command string `yaml:"command"`
	Version string `yaml:"version"`
	Node    string `yaml:"node"`
}

// Validated is the version that the recipe was last seen to work with, as the
// program itself tells it, and the day.
type Validated struct {
	Version string `yaml:"version"`
	Date    string `yaml:"date"`
}

// API is one protocol that the program can be pointed at.
type API struct {
	Dialect string            `yaml:"dialect"` // of the gateway
	Vars    map[string]string `yaml:"vars"`
	Env     map[string]string `yaml:"env"`
}

// Option is a setting of this program alone, given under `options:`.
type Option struct {
	Desc    string   `yaml:"desc"`
	Default any      `yaml:"default"`
	Enum    []string `yaml:"enum"`
}

// Arg is one argument, or several that are there when When holds: a pipeline
// of text/template, such as .MCP.
type Arg struct {
	When string   `yaml:"when"`
	Args []string `yaml:"args"`
}

// Idle is how long the program waits for a silent gateway, and whether comments
// of an event stream count as a sign of life for it. It is for people who set
// the gateway's keep-alive.
type Idle struct {
	Limit    string `yaml:"limit"`
	Comments string `yaml:"comments"` // count, or ignored
}

// Result says how the outcome is read of standard output.
type Result struct {
	// Reader is stream-json for the lines that Claude Code writes, or empty.
	Reader string `yaml:"reader"`
	// Text and Error are what may be found; the last match counts. Error
	// makes the outcome an agent_error, unless a text follows it in a later
	// line: the program had asked again.
	Text   []Pick `yaml:"text"`
	Error  []Pick `yaml:"error"`
	Status []Pick `yaml:"status"`
	// Part is last_paragraph where text output ends with the answer.
	Part string `yaml:"part"`
	// ExitCodes are exit statuses by exit code.
	ExitCodes map[string]string `yaml:"exit_codes"`
}

// Pick is a value of JSON output: of the document, or of the lines that have
// the values of Where at these JSON Pointers. Set is the exit status that a
// match means.
type Pick struct {
	Where map[string]string `yaml:"where"`
	At    string            `yaml:"at"`
	Set   string            `yaml:"set"`
}

// Parse reads a recipe strictly. File is for messages. The error joins an
// *Error for each thing that is wrong.
func Parse(file string, data []byte) (*Recipe, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, syntaxError(file, err)
	}
	if len(doc.Content) == 0 {
		return nil, &Error{file, 1, 1, "the file is empty", "a recipe begins with penstock: " + Version}
	}
	d := &decoder{file: file, nodes: map[string]*yaml.Node{}}
	r := &Recipe{file: file}
	d.value(doc.Content[0], reflect.ValueOf(r).Elem(), "")
	r.nodes = d.nodes
	if len(d.errs) == 0 {
		d.check(r)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return r, nil
}

var (
	recipeName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	varName    = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]*$`)
	dialects   = []string{"anthropic", "bedrock", "vertex", "openaichat", "responses", "gemini"}
	statuses   = []string{invoker.OK, invoker.AgentError, invoker.MaxTurns, invoker.Budget, invoker.InfraError}
)

// check holds what types can't say.
func (d *decoder) check(r *Recipe) {
	need := func(ok bool, path, text string) {
		if !ok {
			d.failAt(path, "", "%s", text)
		}
	}
	need(r.Penstock == Version, "/penstock", "a recipe begins with penstock: "+Version)
	need(recipeName.MatchString(r.Name), "/name", "a recipe needs a name of small letters, digits and -")
	need(r.Program != "", "/program", "a recipe needs program, the name of what is started")
	need(len(r.Argv) > 0, "/argv", "a recipe needs argv, the arguments of the program")
	need(r.Install.Npm == "" || r.Install.Command == "", "/install/command", "install has npm or command, not both")
	need(len(r.APIs) > 0, "/apis", "a recipe needs apis, the protocols that the program speaks")
	if _, known := r.APIs[r.API]; !known && len(r.APIs) > 0 {
		d.failAt("/api", "", "api is %q, want one of apis: %s", r.API, strings.Join(r.apiNames(), ", "))
	}
	for name, api := range r.APIs {
		need(api.Dialect != "", "/apis/"+name, "an api needs a dialect: "+strings.Join(dialects, ", "))
		d.oneOf("/apis/"+name+"/dialect", api.Dialect, dialects...)
		for v := range api.Vars {
			need(varName.MatchString(v), "/apis/"+name+"/vars/"+v, "a name in vars has letters, digits and _ only")
		}
	}
	for name := range r.Options {
		need(varName.MatchString(name), "/options/"+name, "an option's name has letters, digits and _ only")
	}
	d.oneOf("/idle/comments", r.Idle.Comments, "count", "ignored")
	if l := r.Idle.Limit; l != "" {
		v, err := time.ParseDuration(l)
		need(err == nil && v > 0, "/idle/limit", "idle.limit is a duration, such as 300s")
	}
	if v := r.Validated; v != (Validated{}) {
		_, err := time.Parse(time.DateOnly, v.Date)
		need(err == nil && v.Version != "", "/validated", "validated has a version and a date, such as 2025-01-31")
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(r.Env)), slices.Collect(maps.Keys(r.Quiet))) {
		need(name != "" && !strings.ContainsAny(name, "= "), "/env/"+name, "a variable's name has no = and no space")
	}
	d.checkResult(r)
}

func (d *decoder) checkResult(r *Recipe) {
	need := func(ok bool, path, text string) {
		if !ok {
			d.failAt(path, "", "%s", text)
		}
	}
	s := r.Result
	d.oneOf("/output", r.Output, "text", "json", "jsonl")
	d.oneOf("/result/reader", s.Reader, "stream-json")
	d.oneOf("/result/part", s.Part, "last_paragraph")
	picks := len(s.Text) + len(s.Error) + len(s.Status)
	switch {
	case s.Reader != "":
		need(picks == 0 && s.Part == "", "/result", "the reader stream-json finds text and errors itself")
		need(r.Output == "jsonl", "/output", "the reader stream-json wants output: jsonl")
	case r.Output == "json" || r.Output == "jsonl":
		need(len(s.Text) > 0, "/result", "result.text says where in the JSON the answer is")
		need(s.Part == "", "/result/part", "part is for output: text")
	default:
		need(picks == 0, "/result", "text output is the answer; text, error and status are for output: json or jsonl")
	}
	for kind, list := range map[string][]Pick{"text": s.Text, "error": s.Error, "status": s.Status} {
		for i, p := range list {
			at := fmt.Sprintf("/result/%s/%d", kind, i)
			d.oneOf(at+"/set", p.Set, statuses...)
			need((kind == "status") == (p.Set != ""), at, "set is an exit status, and for status only")
			need(kind == "status" || p.At != "", at, "at is a JSON Pointer to the text, such as /result")
			for _, pointer := range append(slices.Collect(maps.Keys(p.Where)), p.At) {
				need(pointer == "" || pointer[0] == '/', at, fmt.Sprintf("%q is no JSON Pointer, which begins with /", pointer))
			}
		}
	}
	for code, status := range s.ExitCodes {
		n, err := strconv.Atoi(code)
		need(err == nil && n >= 0 && n <= 255, "/result/exit_codes/"+code, "an exit code is a number up to 255")
		d.oneOf("/result/exit_codes/"+code, status, statuses...)
	}
}

func (r *Recipe) apiNames() []string { return slices.Sorted(maps.Keys(r.APIs)) }

// how tells a person how the program is got.
func (i Install) how() string {
	switch {
	case i.Npm != "" && i.Version != "":
		return "npm install -g " + i.Npm + "@" + i.Version
	case i.Npm != "":
		return "npm install -g " + i.Npm
	default:
		return i.Command
	}
}
