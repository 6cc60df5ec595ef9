package claudecode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/plugins/invokers/streamjson"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// These tests drive the real program against a small stand-in for the API.
// PENSTOCK_CLAUDE is the path of the program.

const serverVariable = "PENSTOCK_TEST_MCP_SERVER"

// TestMain lets the test binary be the MCP server as well.
func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) == "" {
		os.Exit(m.Run())
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "calculator", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "calculator", InputSchema: json.RawMessage(`{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "42"}}}, nil
		})
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

// api answers the first request with a tool call and the next one with the
// tool's result.
type api struct {
	status int // of every reply, if not 0
	mu     sync.Mutex
	bodies []map[string]any
	key    string
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/v1/messages") {
		w.WriteHeader(http.StatusOK)
		return
	}
	var body map[string]any
	data, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(data, &body)
	a.mu.Lock()
	a.bodies = append(a.bodies, body)
	a.key = r.Header.Get("X-Api-Key")
	a.mu.Unlock()
	if a.status != 0 {
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"permission_error","message":"not allowed"}}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(event, data string) { _, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data) }
	send("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"policy","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}}`)
	stop := "tool_use"
	if bytes.Contains(data, []byte(`"tool_result"`)) {
		stop = "end_turn"
		send("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
		send("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"42"}}`)
	} else {
		send("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"mcp__calculator__calculator","input":{}}}`)
		send("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"expression\":\"23 + 19\"}"}}`)
	}
	send("content_block_stop", `{"type":"content_block_stop","index":0}`)
	send("message_delta", `{"type":"message_delta","delta":{"stop_reason":"`+stop+`","stop_sequence":null},"usage":{"output_tokens":9}}`)
	send("message_stop", `{"type":"message_stop"}`)
}

// ran is what a run of the program came to.
type ran struct {
	result *invoker.Result
	stop   *invoker.Stop
	ready  bool
	lines  []string
}

// drive does what the host does: it starts the plan and reads the lines.
func drive(t *testing.T, a *api, c Config, prompt string) ran {
	t.Helper()
	program := os.Getenv("PENSTOCK_CLAUDE")
	if program == "" {
		t.Skip("PENSTOCK_CLAUDE does not name the Claude Code program")
	}
	c.Command = schema.Argv{program}
	i, err := New(c)
	require.NoError(t, err)
	server := httptest.NewServer(a)
	defer server.Close()
	home, work := t.TempDir(), t.TempDir()
	in, err := json.Marshal(map[string]string{"prompt": prompt})
	require.NoError(t, err)
	p, err := i.Plan(t.Context(), &invoker.PlanRequest{Input: in, Session: invoker.Session{
		BaseURL: server.URL + "/s/tok", Token: "tok", Model: "policy", Workspace: work, Home: home,
	}})
	require.NoError(t, err)
	for _, f := range p.Files {
		require.NoError(t, os.WriteFile(filepath.Join(home, strings.TrimPrefix(f.Path, "~/")), []byte(f.Data), 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Argv[0], p.Argv[1:]...)
	cmd.Dir = work
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir()}
	for k, v := range p.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stdin = strings.NewReader(p.Stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var out ran
	var state json.RawMessage
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		out.lines = append(out.lines, lines.Text())
		r, err := i.(invoker.Liner).Line(t.Context(), &invoker.LineRequest{State: state, Line: lines.Text()})
		require.NoError(t, err)
		state = r.State
		out.ready = out.ready || r.Ready
		if r.Stop != nil {
			out.stop = r.Stop
			cancel()
		}
	}
	_ = cmd.Wait()
	out.result, err = i.Result(t.Context(), &invoker.ResultRequest{
		Exit: cmd.ProcessState.ExitCode(), State: state, Stdout: strings.Join(out.lines, "\n"), Stderr: stderr.String(),
	})
	require.NoError(t, err)
	t.Logf("stderr: %s", stderr.String())
	return out
}

func calculator(t *testing.T) map[string]streamjson.Server {
	self, err := os.Executable()
	require.NoError(t, err)
	return map[string]streamjson.Server{"calculator": {Command: []string{self}, Env: map[string]string{serverVariable: "1"}}}
}

func TestRealCalculator(t *testing.T) {
	var a api
	out := drive(t, &a, Config{Tools: &[]string{}, MCP: calculator(t), System: "Use the calculator.", MaxTurns: 5}, "What is 23 + 19?")
	require.Nil(t, out.stop)
	assert.True(t, out.ready)
	assert.Equal(t, "42", out.result.Text)
	assert.Equal(t, invoker.OK, out.result.ExitStatus, out.result.Error)
	require.NotNil(t, out.result.Usage)
	assert.Equal(t, 20, out.result.Usage.Input)
	assert.Equal(t, "tok", a.key)
	require.Len(t, a.bodies, 2, "two calls, no side calls")
	tools, _ := json.Marshal(a.bodies[0]["tools"])
	assert.Contains(t, string(tools), `"mcp__calculator__calculator"`)
	assert.Len(t, a.bodies[0]["tools"], 1)
	system, _ := json.Marshal(a.bodies[0]["system"])
	assert.Contains(t, string(system), "Use the calculator.")
	assert.NotContains(t, string(system), "billing-header")
}

func TestRealMaxTurns(t *testing.T) {
	var a api
	out := drive(t, &a, Config{Tools: &[]string{}, MCP: calculator(t), MaxTurns: 1}, "What is 23 + 19?")
	assert.Equal(t, invoker.MaxTurns, out.result.ExitStatus)
	assert.Len(t, a.bodies, 1)
}

func TestRealRefusal(t *testing.T) {
	a := api{status: http.StatusForbidden}
	out := drive(t, &a, Config{Tools: &[]string{}}, "What is 23 + 19?")
	assert.Equal(t, invoker.AgentError, out.result.ExitStatus)
	assert.Contains(t, out.result.Error, "not allowed")
	assert.Len(t, a.bodies, 1, "a 403 is not repeated")
}

func TestRealWrongTools(t *testing.T) {
	var a api
	out := drive(t, &a, Config{Tools: &[]string{"Read"}, MCP: map[string]streamjson.Server{"broken": {Command: []string{"/nonexistent"}}}}, "What is 23 + 19?")
	require.NotNil(t, out.stop)
	assert.Contains(t, out.stop.Reason, "broken")
	assert.False(t, out.ready)
}

// The program's own set of tools, and a prompt that no command line holds.
func TestRealBigPrompt(t *testing.T) {
	var a api
	prompt := strings.Repeat("All work and no play. ", 1<<20/22)
	out := drive(t, &a, Config{Tools: &[]string{"Read", "Bash"}, MCP: calculator(t)}, prompt)
	require.Nil(t, out.stop)
	assert.Equal(t, invoker.OK, out.result.ExitStatus, out.result.Error)
	first, _ := json.Marshal(a.bodies[0]["messages"])
	assert.Greater(t, len(first), 1<<20-100)
}

// With its memory and reminders the program still has only the tools asked
// for and makes no call beside the conversation.
func TestRealNotBare(t *testing.T) {
	var a api
	bare := false
	out := drive(t, &a, Config{Tools: &[]string{}, Bare: &bare, MCP: calculator(t)}, "What is 23 + 19?")
	require.Nil(t, out.stop)
	assert.Equal(t, "42", out.result.Text)
	assert.Len(t, a.bodies, 2)
}
