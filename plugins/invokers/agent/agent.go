// Package agent is the invoker of the reference agent, `penstock dev agent`.
// It needs no network and no account. What never enters: the agent itself.
package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/penstock-dev/penstock/plugins/invokers/streamjson"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// Config is what a stage's `with:` sets once.
type Config struct {
	MaxTurns int                          `json:"max_turns,omitempty" desc:"most replies of the model; 0 is no limit"`
	MCP      map[string]streamjson.Server `json:"mcp,omitempty" desc:"MCP servers on standard input and output, by name"`
	System   string                       `json:"system,omitempty" desc:"system prompt"`
	Tools    []string                     `json:"tools,omitempty" desc:"the agent's own tools: bash, or none (the default)"`
	Command  schema.Argv                  `json:"command,omitempty" default:"[\"penstock\",\"dev\",\"agent\"]" desc:"the program and its arguments, or the program alone; a relative path starts at the folder of the pipeline file; default penstock dev agent"`
	Args     []string                     `json:"args,omitempty" desc:"further arguments"`
}

// Input is what `with:` gives for each rollout.
type Input struct {
	Prompt string `json:"prompt" desc:"what the agent is asked" min:"1"`
}

type agent struct {
	cfg    Config
	expect streamjson.Expect
}

// New checks the config.
func New(cfg Config) (invoker.Invoker, error) {
	if cfg.MaxTurns < 0 {
		return nil, errors.New("max_turns is negative")
	}
	if err := streamjson.CheckServers(cfg.MCP); err != nil {
		return nil, err
	}
	for _, t := range cfg.Tools {
		if t != "bash" {
			return nil, fmt.Errorf("tools: the agent has no tool %q of its own, only bash", t)
		}
	}
	if len(cfg.Command) == 0 {
		cfg.Command = []string{"penstock", "dev", "agent"}
	}
	expect := streamjson.Expect{Tools: append([]string{}, cfg.Tools...), Servers: slices.Sorted(maps.Keys(cfg.MCP))}
	return &agent{cfg, expect}, nil
}

func (a *agent) Plan(_ context.Context, r *invoker.PlanRequest) (*invoker.Plan, error) {
	var in Input
	if err := r.DecodeInput(&in); err != nil {
		return nil, err
	}
	s := r.Session
	if s.BaseURL == "" {
		return nil, errors.New("the stage names no model, and the agent needs one")
	}
	p := &invoker.Plan{
		Argv: append(slices.Clone(a.cfg.Command), "--output-format", "stream-json", "--model", s.Model),
		Env: map[string]string{
			"ANTHROPIC_BASE_URL": s.BaseURL,
			"ANTHROPIC_API_KEY":  s.Token,
			"ANTHROPIC_MODEL":    s.Model,
		},
		Stdin: in.Prompt, Output: invoker.JSONL, HoldFirstCall: true,
	}
	if turns := streamjson.MaxTurns(a.cfg.MaxTurns, s.MaxTurns); turns > 0 {
		p.Argv = append(p.Argv, "--max-turns", strconv.Itoa(turns))
	}
	if a.cfg.System != "" {
		p.Argv = append(p.Argv, "--system", a.cfg.System)
	}
	if slices.Contains(a.cfg.Tools, "bash") {
		p.Argv = append(p.Argv, "--bash")
	}
	if len(a.cfg.MCP) > 0 {
		file, err := streamjson.MCPFile(a.cfg.MCP)
		if err != nil {
			return nil, err
		}
		p.Files = []invoker.File{{Path: "~/mcp.json", Data: file}}
		p.Argv = append(p.Argv, "--mcp-config", s.Home+"/mcp.json")
	}
	p.Argv = append(p.Argv, a.cfg.Args...)
	return p, nil
}

func (a *agent) Line(_ context.Context, r *invoker.LineRequest) (invoker.LineResult, error) {
	return streamjson.Line(a.expect, r)
}

func (a *agent) Result(_ context.Context, r *invoker.ResultRequest) (*invoker.Result, error) {
	return streamjson.Result(r), nil
}

func init() {
	invoker.Register("agent", New, invoker.Input[Input](), invoker.AlwaysCalls(),
		invoker.Summary("runs penstock's small reference agent: Messages API, MCP tools, a shell if asked"))
}
