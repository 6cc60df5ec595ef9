// Package claudecode is the invoker of Claude Code, run headless behind the
// gateway. What never enters: anything that the program says on the wire.
package claudecode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/plugins/invokers/streamjson"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// Config is what a stage's `with:` sets once.
type Config struct {
	MaxTurns     int                          `json:"max_turns,omitempty" desc:"most replies of the model; 0 is no limit"`
	MCP          map[string]streamjson.Server `json:"mcp,omitempty" desc:"MCP servers on standard input and output, by name; no others are loaded"`
	System       string                       `json:"system,omitempty" desc:"replaces the program's system prompt"`
	AppendSystem string                       `json:"append_system,omitempty" desc:"added at the end of the system prompt"`
	// Tools is a pointer because an empty list is not the same as none given.
	Tools          *[]string         `json:"tools,omitempty" desc:"the program's own tools, exactly; an empty list is no tools; absent is the program's default set, unchecked"`
	Bare           *bool             `json:"bare,omitempty" desc:"no memory, hooks, CLAUDE.md or reminders; default true"`
	Command        schema.Argv       `json:"command,omitempty" default:"[\"claude\"]" desc:"the program and its arguments, or the program alone; a relative path starts at the folder of the pipeline file; default claude"`
	PermissionMode string            `json:"permission_mode,omitempty" enum:"bypassPermissions,acceptEdits,dontAsk,default,plan" desc:"default bypassPermissions"`
	Args           []string          `json:"args,omitempty" desc:"further arguments"`
	Env            map[string]string `json:"env,omitempty" desc:"added to the environment; wins over what is set here, save address and key"`
}

// Input is what `with:` gives for each rollout.
type Input struct {
	Prompt string `json:"prompt" desc:"what the agent is asked"`
}

type claude struct {
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
	if len(cfg.Command) == 0 {
		cfg.Command = schema.Argv{"claude"}
	}
	switch cfg.PermissionMode {
	case "":
		cfg.PermissionMode = "bypassPermissions"
	case "bypassPermissions", "acceptEdits", "dontAsk", "default", "plan":
	default:
		return nil, fmt.Errorf("permission_mode is %q; behind a gateway it is bypassPermissions, acceptEdits, dontAsk, default or plan", cfg.PermissionMode)
	}
	expect := streamjson.Expect{Servers: slices.Sorted(maps.Keys(cfg.MCP))}
	if cfg.Tools != nil {
		expect.Tools = append([]string{}, *cfg.Tools...)
		for _, t := range expect.Tools {
			if t == "" || strings.ContainsAny(t, ", ") {
				return nil, fmt.Errorf("tools: %q is no name of a tool", t)
			}
		}
	}
	return &claude{cfg, expect}, nil
}

func (c *claude) Plan(_ context.Context, r *invoker.PlanRequest) (*invoker.Plan, error) {
	var in Input
	if err := r.DecodeInput(&in); err != nil {
		return nil, err
	}
	s := r.Session
	if s.BaseURL == "" {
		return nil, errors.New("the stage names no model, and Claude Code behind the gateway needs one")
	}
	p := &invoker.Plan{
		Argv: c.argv(s), Env: c.env(s),
		Stdin: in.Prompt, Output: invoker.JSONL, HoldFirstCall: true,
	}
	file, err := streamjson.MCPFile(c.cfg.MCP)
	if err != nil {
		return nil, err
	}
	p.Files = []invoker.File{{Path: "~/mcp.json", Data: file}}
	return p, nil
}

func (c *claude) argv(s invoker.Session) []string {
	argv := append(slices.Clone(c.cfg.Command),
		"-p", "--output-format", "stream-json", "--verbose",
		"--model", s.Model,
		"--permission-mode", c.cfg.PermissionMode,
		"--no-session-persistence",
		"--strict-mcp-config", "--mcp-config", s.Home+"/mcp.json",
	)
	if c.cfg.Bare == nil || *c.cfg.Bare {
		argv = append(argv, "--bare")
	}
	if c.cfg.Tools != nil {
		// "" is the explicit empty set: without the flag the program would
		// offer, and with bypassPermissions run, all of its tools.
		argv = append(argv, "--tools", strings.Join(*c.cfg.Tools, ","))
	}
	if turns := streamjson.MaxTurns(c.cfg.MaxTurns, s.MaxTurns); turns > 0 {
		argv = append(argv, "--max-turns", strconv.Itoa(turns))
	}
	if c.cfg.System != "" {
		argv = append(argv, "--system-prompt", c.cfg.System)
	}
	if c.cfg.AppendSystem != "" {
		argv = append(argv, "--append-system-prompt", c.cfg.AppendSystem)
	}
	return append(argv, c.cfg.Args...)
}

// env makes what the program sends depend on the conversation alone: no
// updates, telemetry or side traffic, no header that changes, every tool in
// the request from the first turn on, and one model for all calls.
func (c *claude) env(s invoker.Session) map[string]string {
	env := map[string]string{
		"IS_SANDBOX":                               "1", // bypassPermissions as root
		"DISABLE_AUTOUPDATER":                      "1",
		"DISABLE_TELEMETRY":                        "1",
		"DISABLE_ERROR_REPORTING":                  "1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		"CLAUDE_CODE_DISABLE_TERMINAL_TITLE":       "1",
		"CLAUDE_CODE_ATTRIBUTION_HEADER":           "0",
		"ENABLE_TOOL_SEARCH":                       "false",
		"ANTHROPIC_MODEL":                          s.Model,
		"ANTHROPIC_SMALL_FAST_MODEL":               s.Model,
		"ANTHROPIC_DEFAULT_HAIKU_MODEL":            s.Model,
		"ANTHROPIC_DEFAULT_SONNET_MODEL":           s.Model,
		"ANTHROPIC_DEFAULT_OPUS_MODEL":             s.Model,
		"CLAUDE_CODE_SUBAGENT_MODEL":               s.Model,
	}
	maps.Copy(env, c.cfg.Env)
	env["ANTHROPIC_BASE_URL"] = s.BaseURL
	env["ANTHROPIC_API_KEY"] = s.Token
	return env
}

func (c *claude) Line(_ context.Context, r *invoker.LineRequest) (invoker.LineResult, error) {
	return streamjson.Line(c.expect, r)
}

func (c *claude) Result(_ context.Context, r *invoker.ResultRequest) (*invoker.Result, error) {
	return streamjson.Result(r), nil
}

func init() {
	invoker.Register("claude-code", New, invoker.Input[Input](), invoker.AlwaysCalls(),
		invoker.Summary("runs Claude Code headless behind the gateway"))
}
