package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	connectLimit = 30 * time.Second
	closeLimit   = 2 * time.Second // between the end of a server's input and its kill
	bashLimit    = 2 * time.Minute
	maxOutput    = 30_000 // bytes of a shell command's output
)

// serverConfig is one entry of an MCP file's mcpServers.
type serverConfig struct {
	Type    string            `json:"type"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
}

// readServers reads an MCP file in the form of Claude Code.
func readServers(path string) (map[string]serverConfig, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read MCP servers: %w", err)
	}
	var f struct {
		Servers map[string]serverConfig `json:"mcpServers"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("read MCP servers: %s: %w", path, err)
	}
	for name, s := range f.Servers {
		if s.Type != "" && s.Type != "stdio" || s.Command == "" {
			return nil, fmt.Errorf("read MCP servers: %s: server %s wants type stdio and a command", path, name)
		}
	}
	return f.Servers, nil
}

// serverState is what system/init says of a server.
type serverState struct {
	Name   string `json:"name"`
	Status string `json:"status"` // connected or failed
}

// toolbox holds the tools of a run and the servers behind them.
type toolbox struct {
	tools    []tool
	call     map[string]func(context.Context, json.RawMessage) result
	servers  []serverState
	sessions []*mcp.ClientSession
	failures []error
}

// result is what a tool gave.
type result struct {
	content []json.RawMessage
	isError bool
}

func textResult(text string, isError bool) result {
	b, _ := marshal(struct { // strings always have a JSON form
		Type string `json:"type"`
		Text string `json:"text"`
	}{"text", text})
	return result{[]json.RawMessage{b}, isError}
}

// openTools starts the servers. One that can't be started is a failure of the
// toolbox, not an error, because system/init has to tell of it.
func openTools(ctx context.Context, servers map[string]serverConfig, bash bool) *toolbox {
	b := &toolbox{call: map[string]func(context.Context, json.RawMessage) result{}}
	if bash {
		b.tools = append(b.tools, tool{"bash", "Runs a command with bash and returns what it prints.", json.RawMessage(
			`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"],"additionalProperties":false}`)})
		b.call["bash"] = runBash
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		state := serverState{name, "connected"}
		if err := b.connect(ctx, name, servers[name]); err != nil {
			state.Status = "failed"
			b.failures = append(b.failures, fmt.Errorf("MCP server %s: %w", name, err))
		}
		b.servers = append(b.servers, state)
	}
	return b
}

func (b *toolbox) connect(ctx context.Context, name string, c serverConfig) error {
	cmd := exec.Command(c.Command, c.Args...)
	cmd.Env = os.Environ()
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stderr = os.Stderr
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "penstock-dev-agent", Version: "1.0.0"}, nil).
		Connect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: closeLimit}, nil)
	if err != nil {
		return err
	}
	b.sessions = append(b.sessions, session)
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return fmt.Errorf("list its tools: %w", err)
		}
		schema, err := marshal(t.InputSchema)
		if err != nil {
			return fmt.Errorf("schema of tool %s: %w", t.Name, err)
		}
		full := "mcp__" + toolName(name) + "__" + toolName(t.Name)
		b.tools = append(b.tools, tool{full, t.Description, schema})
		b.call[full] = func(ctx context.Context, in json.RawMessage) result { return callServer(ctx, session, t.Name, in) }
	}
	return nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]`)

func toolName(s string) string { return notInNames.ReplaceAllString(s, "_") }

// names lists the tools in the order in which they are offered.
func (b *toolbox) names() []string {
	names := []string{}
	for _, t := range b.tools {
		names = append(names, t.Name)
	}
	return names
}

// run answers one tool call. What goes wrong is told to the model.
func (b *toolbox) run(ctx context.Context, call *block) result {
	f, ok := b.call[call.Name]
	switch {
	case !ok:
		return textResult("there is no tool "+call.Name, true)
	case call.broken != "":
		return textResult("the arguments are not a JSON object: "+call.broken, true)
	}
	return f(ctx, call.Input)
}

func (b *toolbox) close() {
	for _, s := range b.sessions {
		_ = s.Close() // what a server says at its end is of no use to anyone
	}
}

func callServer(ctx context.Context, s *mcp.ClientSession, name string, in json.RawMessage) result {
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: in})
	if err != nil {
		return textResult(err.Error(), true)
	}
	out := result{content: []json.RawMessage{}, isError: r.IsError}
	for _, c := range r.Content {
		out.content = append(out.content, contentBlock(c))
	}
	if len(out.content) == 0 && r.StructuredContent != nil {
		text, _ := marshal(r.StructuredContent)
		out.content = textResult(string(text), false).content
	}
	return out
}

func contentBlock(c mcp.Content) json.RawMessage {
	switch c := c.(type) {
	case *mcp.TextContent:
		return textResult(c.Text, false).content[0]
	case *mcp.ImageContent:
		type source struct {
			Type      string `json:"type"`
			MediaType string `json:"media_type"`
			Data      []byte `json:"data"` // as base64
		}
		b, _ := marshal(struct {
			Type   string `json:"type"`
			Source source `json:"source"`
		}{"image", source{"base64", c.MIMEType, c.Data}})
		return b
	default:
		text, _ := marshal(c)
		return textResult(string(text), false).content[0]
	}
}

// runBash runs a command in a process group of its own, which ends with it.
func runBash(ctx context.Context, in json.RawMessage) result {
	var args struct{ Command string }
	if err := json.Unmarshal(in, &args); err != nil || args.Command == "" {
		return textResult("command is missing", true)
	}
	ctx, cancel := context.WithTimeout(ctx, bashLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", args.Command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = closeLimit
	out, err := cmd.CombinedOutput()
	text := strings.ToValidUTF8(string(out), "\uFFFD")
	if len(text) > maxOutput {
		text = strings.ToValidUTF8(text[:maxOutput], "") + "\n… (output shortened)"
	}
	if err == nil {
		return textResult(text, false)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("stopped after %s", bashLimit)
	}
	return textResult(strings.TrimPrefix(text+"\n"+err.Error(), "\n"), true)
}
