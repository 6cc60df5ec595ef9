// Package claudecode is the invoker of Claude Code, run headless behind the
// gateway: its recipe with settings by their own names. What never enters:
// anything that the program says on the wire.
package claudecode

import (
	"errors"
	"strings"

	"github.com/penstock-dev/penstock/plugins/invokers/agentcli"
	"github.com/penstock-dev/penstock/plugins/invokers/streamjson"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// Config is what a stage's `with:` sets once.
type Config struct {
	API          string                       `json:"api,omitempty" enum:"anthropic,bedrock,vertex" desc:"the protocol that the program speaks; default anthropic"`
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
type Input = agentcli.Input

// New checks the config.
func New(cfg Config) (invoker.Invoker, error) {
	options := map[string]any{}
	if cfg.Bare != nil {
		options["bare"] = *cfg.Bare
	}
	if cfg.PermissionMode != "" {
		options["permission_mode"] = cfg.PermissionMode
	}
	if cfg.AppendSystem != "" {
		options["append_system"] = cfg.AppendSystem
	}
	i, err := agentcli.New(agentcli.Config{
		Recipe: "claude-code", API: cfg.API, MCP: cfg.MCP, System: cfg.System, MaxTurns: cfg.MaxTurns, Tools: cfg.Tools,
		Options: options, Command: cfg.Command, Args: cfg.Args, Env: cfg.Env,
	})
	var wrong *schema.Error
	if errors.As(err, &wrong) {
		return nil, &schema.Error{Pointer: strings.TrimPrefix(wrong.Pointer, "/options"), Message: wrong.Message}
	}
	return i, err
}

func init() {
	invoker.Register("claude-code", New, invoker.Input[Input](), invoker.AlwaysCalls(),
		invoker.Summary("runs Claude Code headless behind the gateway"))
}
