// Package command is the invoker of any command line. It knows nothing of the
// program: the stage says how it is started, where it finds the gateway, and
// where in its output the answer is. What never enters: any one program.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// Config is what a stage's `with:` sets once.
type Config struct {
	Output    string            `json:"output,omitempty" enum:"text,json,jsonl" desc:"what the program prints: text (the default), one JSON value, or a JSON value a line, of which the last one that has text_at counts"`
	TextAt    string            `json:"text_at,omitempty" desc:"JSON Pointer of the answer in JSON output; default the value itself"`
	ExitCodes map[string]string `json:"exit_codes,omitempty" desc:"exit status by exit code, of ok, agent_error, max_turns, budget and infra_error; default 0 is ok and all else agent_error"`
}

// Input is what `with:` gives for each rollout. In all of it $PENSTOCK_NAME
// and ${PENSTOCK_NAME} stand for what variables returns.
type Input struct {
	Command schema.Argv       `json:"command" desc:"the program and its arguments, or the program alone; a relative path starts at the folder of the pipeline file"`
	Env     map[string]string `json:"env,omitempty" desc:"environment; $PENSTOCK_BASE_URL, _TOKEN, _MODEL, _SESSION, _WORKSPACE and _HOME are filled in, here and everywhere"`
	Stdin   string            `json:"stdin,omitempty" desc:"standard input"`
	Files   map[string]string `json:"files,omitempty" desc:"files by path, written first; a relative path is in the workspace, one that begins with ~/ in the home"`
}

type command struct{ cfg Config }

// New checks the config.
func New(cfg Config) (invoker.Invoker, error) {
	switch cfg.Output {
	case "":
		cfg.Output = "text"
	case "text", "json", "jsonl":
	default:
		return nil, fmt.Errorf("output is %q, want text, json or jsonl", cfg.Output)
	}
	if cfg.TextAt != "" && (cfg.Output == "text" || cfg.TextAt[0] != '/') {
		return nil, errors.New("text_at is a JSON Pointer, such as /result, and goes with output json or jsonl")
	}
	for code, status := range cfg.ExitCodes {
		if n, err := strconv.Atoi(code); err != nil || n < 0 || n > 255 {
			return nil, fmt.Errorf("exit_codes: %q is no exit code", code)
		}
		switch status {
		case invoker.OK, invoker.AgentError, invoker.MaxTurns, invoker.Budget, invoker.InfraError:
		default:
			return nil, fmt.Errorf("exit_codes: %s: %q is none of ok, agent_error, max_turns, budget, infra_error", code, status)
		}
	}
	return &command{cfg}, nil
}

// variables are what a program may want to know of its session. Without a
// model there is no address and no token.
func variables(s invoker.Session) map[string]string {
	v := map[string]string{"PENSTOCK_SESSION": s.ID, "PENSTOCK_WORKSPACE": s.Workspace, "PENSTOCK_HOME": s.Home}
	if s.BaseURL != "" {
		v["PENSTOCK_BASE_URL"], v["PENSTOCK_TOKEN"], v["PENSTOCK_MODEL"] = s.BaseURL, s.Token, s.Model
	}
	return v
}

// filler replaces the variables; longer names come first, so that none is
// taken for the beginning of another.
func filler(v map[string]string) *strings.Replacer {
	names := slices.SortedFunc(maps.Keys(v), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, n := range names {
		pairs = append(pairs, "${"+n+"}", v[n], "$"+n, v[n])
	}
	return strings.NewReplacer(pairs...)
}

func (c *command) Plan(_ context.Context, r *invoker.PlanRequest) (*invoker.Plan, error) {
	var in Input
	if err := r.DecodeInput(&in); err != nil {
		return nil, err
	}
	if len(in.Command) == 0 || in.Command[0] == "" {
		return nil, errors.New("command is empty")
	}
	v := variables(r.Session)
	fill := filler(v)
	p := &invoker.Plan{Env: v, Stdin: fill.Replace(in.Stdin), Output: invoker.Output(c.cfg.Output)}
	for _, a := range in.Command {
		p.Argv = append(p.Argv, fill.Replace(a))
	}
	for name, value := range in.Env {
		p.Env[name] = fill.Replace(value)
	}
	for _, path := range slices.Sorted(maps.Keys(in.Files)) {
		p.Files = append(p.Files, invoker.File{Path: path, Data: fill.Replace(in.Files[path])})
	}
	if r.Session.BaseURL == "" {
		if name := unfilled(p); name != "" {
			return nil, fmt.Errorf("%s is used, but the stage names no model", name)
		}
	}
	return p, nil
}

// unfilled finds a variable that there is none of without a model.
func unfilled(p *invoker.Plan) string {
	all := append([]string{p.Stdin}, p.Argv...)
	all = slices.AppendSeq(all, maps.Values(p.Env))
	for _, f := range p.Files {
		all = append(all, f.Data)
	}
	for _, name := range []string{"PENSTOCK_BASE_URL", "PENSTOCK_TOKEN", "PENSTOCK_MODEL"} {
		for _, text := range all {
			if strings.Contains(text, "$"+name) || strings.Contains(text, "${"+name+"}") {
				return "$" + name
			}
		}
	}
	return ""
}

func (c *command) Result(_ context.Context, r *invoker.ResultRequest) (*invoker.Result, error) {
	out := &invoker.Result{ExitStatus: invoker.OK}
	if r.Exit != 0 || r.Signal != "" {
		out.ExitStatus = invoker.AgentError
		out.Error = failure(r)
	}
	if status, ok := c.cfg.ExitCodes[strconv.Itoa(r.Exit)]; ok && r.Signal == "" {
		if out.ExitStatus = status; status == invoker.OK {
			out.Error = ""
		}
	}
	text, err := c.text(r.Stdout)
	if err != nil && out.ExitStatus == invoker.OK {
		out.ExitStatus, out.Error = invoker.AgentError, err.Error()
	}
	out.Text = text
	return out, nil
}

func (c *command) text(stdout string) (string, error) {
	switch c.cfg.Output {
	case "json":
		if text, ok := at([]byte(stdout), c.cfg.TextAt); ok {
			return text, nil
		}
		return "", fmt.Errorf("the output is no JSON with a value at %q", c.cfg.TextAt)
	case "jsonl":
		for rest := stdout; rest != ""; {
			from := strings.LastIndexByte(strings.TrimRight(rest, "\n"), '\n') + 1
			if text, ok := at([]byte(rest[from:]), c.cfg.TextAt); ok {
				return text, nil
			}
			rest = rest[:from]
		}
		return "", fmt.Errorf("no line of the output is JSON with a value at %q", c.cfg.TextAt)
	}
	return strings.TrimRight(stdout, "\r\n"), nil
}

// at returns the value at a JSON Pointer: a string's own text, any other
// value as JSON.
func at(data []byte, pointer string) (string, bool) {
	data = bytes.TrimSpace(data)
	if !json.Valid(data) {
		return "", false
	}
	if pointer != "" {
		for token := range strings.SplitSeq(pointer[1:], "/") {
			token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
			var ok bool
			if data, ok = step(data, token); !ok {
				return "", false
			}
		}
	}
	if data[0] != '"' {
		return string(data), string(data) != "null"
	}
	var text string
	err := json.Unmarshal(data, &text)
	return text, err == nil
}

func step(data []byte, token string) ([]byte, bool) {
	switch data[0] {
	case '{':
		var object map[string]json.RawMessage
		if json.Unmarshal(data, &object) != nil {
			return nil, false
		}
		v, ok := object[token]
		return v, ok
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(data, &list) != nil {
			return nil, false
		}
		i, err := strconv.Atoi(token)
		if token == "-1" {
			i = len(list) - 1
		}
		if err != nil || i < 0 || i >= len(list) {
			return nil, false
		}
		return list[i], true
	}
	return nil, false
}

func failure(r *invoker.ResultRequest) string {
	message := fmt.Sprintf("the program ended with exit code %d", r.Exit)
	if r.Signal != "" {
		message = "the program ended with signal " + r.Signal
	}
	if tail := strings.TrimSpace(r.Stderr); tail != "" {
		const most = 2000
		if len(tail) > most {
			tail = "…" + strings.ToValidUTF8(tail[len(tail)-most:], "")
		}
		message += "; its stderr ends: " + tail
	}
	return message
}

func init() {
	invoker.Register("command", New, invoker.Input[Input](),
		invoker.Summary("runs any command line; the stage says how it finds the gateway and where its answer is"))
}
