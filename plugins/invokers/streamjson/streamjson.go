// Package streamjson reads what Claude Code, and agents that print as it
// does, write with --output-format stream-json: system/init, which tells what
// tools the agent has, and result, which tells how it ended. It also writes
// the MCP file that such programs are given.
//
// What never enters: how a program is started.
package streamjson

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// Server is an MCP server on standard input and output. Command is its argv.
type Server struct {
	Command schema.Argv       `json:"command" desc:"the server's program and its arguments, or the program alone; a relative path starts at the folder of the pipeline file"`
	Env     map[string]string `json:"env,omitempty" desc:"added to the server's environment"`
}

// MCPFile is the JSON file that names servers.
func MCPFile(servers map[string]Server) (string, error) {
	type entry struct {
		Type    string            `json:"type"`
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env,omitempty"`
	}
	file := struct {
		Servers map[string]entry `json:"mcpServers"`
	}{map[string]entry{}}
	for name, s := range servers {
		file.Servers[name] = entry{"stdio", s.Command[0], append([]string{}, s.Command[1:]...), s.Env}
	}
	b, err := chat.Marshal(file)
	if err != nil {
		return "", fmt.Errorf("write MCP file: %w", err)
	}
	return string(b), nil
}

// CheckServers reports a server that can't be started as configured.
func CheckServers(servers map[string]Server) error {
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		if c := servers[name].Command; len(c) == 0 || c[0] == "" {
			return fmt.Errorf("mcp server %s has no command", name)
		}
		if strings.Contains(name, "__") || toolName(name) != name {
			return fmt.Errorf("mcp server %q: a name has letters, digits, - and single _ only, because tools are named after it", name)
		}
	}
	return nil
}

func toolName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, s)
}

// Expect is what the agent was asked to have.
type Expect struct {
	// Tools are the agent's own tools; nil means that they are not checked,
	// an empty list that there must be none.
	Tools []string
	// May are tools of the agent's own that it may have besides.
	May []string
	// Servers are the MCP servers, all of which must be connected.
	Servers []string
}

// Init is a system/init line.
type Init struct {
	Tools   []string      `json:"tools"`
	Servers []ServerState `json:"mcp_servers"`
}

// ServerState is one server of an init line.
type ServerState struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// Check says what of an init line is not as asked, "" if all is.
func (e Expect) Check(in *Init) string {
	var wrong []string
	seen := map[string]bool{}
	for _, s := range in.Servers {
		seen[s.Name] = true
		switch {
		case !slices.Contains(e.Servers, s.Name):
			wrong = append(wrong, fmt.Sprintf("MCP server %s was not asked for", s.Name))
		case s.Status != "connected":
			wrong = append(wrong, fmt.Sprintf("MCP server %s is %s, not connected", s.Name, s.Status))
		}
	}
	for _, name := range e.Servers {
		if !seen[name] {
			wrong = append(wrong, fmt.Sprintf("MCP server %s is missing", name))
		}
	}
	if extra, missing := e.tools(in.Tools); len(extra)+len(missing) > 0 {
		if len(extra) > 0 {
			wrong = append(wrong, "tools that were not asked for: "+strings.Join(extra, ", "))
		}
		if len(missing) > 0 {
			wrong = append(wrong, "tools that are missing: "+strings.Join(missing, ", "))
		}
	}
	if len(wrong) == 0 {
		return ""
	}
	return fmt.Sprintf("the agent does not have what it was asked to have: %s (it has the tools %s)",
		strings.Join(wrong, "; "), "["+strings.Join(in.Tools, ", ")+"]")
}

func (e Expect) tools(have []string) (extra, missing []string) {
	from := map[string]bool{}
	for _, name := range have {
		if rest, mcp := strings.CutPrefix(name, "mcp__"); mcp {
			server, _, _ := strings.Cut(rest, "__")
			from[server] = true
			if !slices.Contains(e.Servers, server) {
				extra = append(extra, name)
			}
		} else if e.Tools != nil && !slices.Contains(e.Tools, name) && !slices.Contains(e.May, name) {
			extra = append(extra, name)
		}
	}
	for _, name := range e.Tools {
		if !slices.Contains(have, name) {
			missing = append(missing, name)
		}
	}
	for _, server := range e.Servers {
		if !from[server] {
			missing = append(missing, "mcp__"+server+"__*")
		}
	}
	return extra, missing
}

// ready is the state after an init line that was as asked.
var ready = json.RawMessage(`{"ready":true}`)

// Line reads one line. The init line makes the session ready, or stops it
// when the agent does not have what it was asked to have: not a turn is used
// and nothing was answered, so that is an infra_error and never a reward of 0.
// Other lines, also those that are no JSON, are let pass: programs print
// warnings.
func Line(e Expect, r *invoker.LineRequest) (invoker.LineResult, error) {
	out := invoker.LineResult{State: r.State}
	if len(r.State) > 0 || lineType(r.Line) != "system" {
		return out, nil
	}
	var line struct {
		Subtype string `json:"subtype"`
		Init
	}
	if err := json.Unmarshal([]byte(r.Line), &line); err != nil {
		return out, fmt.Errorf("read a system line: %w", err)
	}
	if line.Subtype != "init" {
		return out, nil
	}
	if why := e.Check(&line.Init); why != "" {
		out.Stop = &invoker.Stop{ExitStatus: invoker.InfraError, Reason: why}
		return out, nil
	}
	return invoker.LineResult{State: ready, Ready: true}, nil
}

// lineType finds the type of a line, "" if it has none. Lines of tool results
// are long, so the usual case decodes nothing.
func lineType(line string) string {
	if rest, ok := strings.CutPrefix(line, `{"type":"`); ok {
		kind, _, _ := strings.Cut(rest, `"`)
		return kind
	}
	var head struct {
		Type string `json:"type"`
	}
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &head) != nil {
		return ""
	}
	return head.Type
}

// MaxTurns is the lower of the limits that the config and the session set; 0
// is no limit.
func MaxTurns(config, session int) int {
	if config == 0 || session > 0 && session < config {
		return session
	}
	return config
}
