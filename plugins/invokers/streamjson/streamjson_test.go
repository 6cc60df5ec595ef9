package streamjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

func line(t *testing.T, e Expect, text string) invoker.LineResult {
	t.Helper()
	r, err := Line(e, &invoker.LineRequest{Line: text})
	require.NoError(t, err)
	return r
}

func TestInit(t *testing.T) {
	calculator := []string{"calculator"}
	for name, c := range map[string]struct {
		expect Expect
		init   string
		stop   []string // what the reason says; none: ready
	}{
		"as asked": {
			Expect{Tools: []string{}, Servers: calculator},
			`{"tools":["mcp__calculator__calculator"],"mcp_servers":[{"name":"calculator","status":"connected"}]}`, nil,
		},
		"tools of its own, as asked": {
			Expect{Tools: []string{"Read", "Bash"}},
			`{"tools":["Bash","Read"],"mcp_servers":[]}`, nil,
		},
		"tools not asked about": {Expect{}, `{"tools":["Bash","Read"],"mcp_servers":[]}`, nil},
		"no tools asked, but there": {
			Expect{Tools: []string{}}, `{"tools":["Bash","Read"],"mcp_servers":[]}`,
			[]string{"not asked for: Bash, Read", "has the tools [Bash, Read]"},
		},
		"a tool is missing": {
			Expect{Tools: []string{"Read", "Bash"}}, `{"tools":["Read"],"mcp_servers":[]}`, []string{"missing: Bash"},
		},
		"a server failed": {
			Expect{Tools: []string{}, Servers: calculator}, `{"tools":[],"mcp_servers":[{"name":"calculator","status":"failed"}]}`,
			[]string{"MCP server calculator is failed, not connected", "missing: mcp__calculator__*"},
		},
		"a server is missing": {
			Expect{Servers: calculator}, `{"tools":["Bash"],"mcp_servers":[]}`, []string{"MCP server calculator is missing"},
		},
		"a strange server": {
			Expect{Servers: calculator},
			`{"tools":["mcp__calculator__calculator","mcp__mail__send"],"mcp_servers":[{"name":"calculator","status":"connected"},{"name":"mail","status":"connected"}]}`,
			[]string{"MCP server mail was not asked for", "not asked for: mcp__mail__send"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := line(t, c.expect, `{"type":"system","subtype":"init",`+c.init[1:])
			if c.stop == nil {
				assert.True(t, r.Ready)
				assert.Nil(t, r.Stop)
				return
			}
			assert.False(t, r.Ready)
			require.NotNil(t, r.Stop)
			assert.Equal(t, invoker.InfraError, r.Stop.ExitStatus)
			for _, part := range c.stop {
				assert.Contains(t, r.Stop.Reason, part)
			}
		})
	}
}

func TestOtherLines(t *testing.T) {
	for _, text := range []string{"", "npm warn", "{", `{"subtype":"init"}`, `{"type":"system","subtype":"status","tools":["Bash"]}`, `{"type":"assistant"}`, `{"type":"user","message":{}}`} {
		r := line(t, Expect{Tools: []string{}}, text)
		assert.Equal(t, invoker.LineResult{}, r, text)
	}
	// Keys may come in any order, and a second init changes nothing.
	r := line(t, Expect{Tools: []string{}}, `{"subtype":"init", "tools":[], "type":"system"}`)
	require.True(t, r.Ready)
	again, err := Line(Expect{Tools: []string{}}, &invoker.LineRequest{State: r.State, Line: `{"type":"system","subtype":"init","tools":["Bash"]}`})
	require.NoError(t, err)
	assert.Equal(t, invoker.LineResult{State: r.State}, again)
}

func ptr[T any](v T) *T { return &v }

func TestResult(t *testing.T) {
	const ok = `{"type":"result","subtype":"success","is_error":false,"result":"42","total_cost_usd":0.5,"usage":{"input_tokens":10,"cache_read_input_tokens":100,"cache_creation_input_tokens":5,"output_tokens":7}}`
	const said = `{"type":"assistant","message":{"content":[{"type":"text","text":"so far"}]}}` + "\n"
	for name, c := range map[string]struct {
		in   invoker.ResultRequest
		want invoker.Result
	}{
		"done": {
			invoker.ResultRequest{Stdout: said + ok + "\n"},
			invoker.Result{Text: "42", ExitStatus: "ok", Cost: ptr(0.5), Usage: &chat.Usage{Input: 115, Output: 7, Cached: 100, CacheWrite: 5}},
		},
		"a cost that is guessed": {
			invoker.ResultRequest{Stdout: `{"modelUsage":{"policy":{"costUSD":0.5,"costBasis":"unknown"}},"total_cost_usd":0.5,"is_error":false,"result":"42","type":"result"}`},
			invoker.Result{Text: "42", ExitStatus: "ok"},
		},
		"noise after it": {
			invoker.ResultRequest{Stdout: ok + "\nbye\n\n"},
			invoker.Result{Text: "42", ExitStatus: "ok", Cost: ptr(0.5), Usage: &chat.Usage{Input: 115, Output: 7, Cached: 100, CacheWrite: 5}},
		},
		"an empty answer": {
			invoker.ResultRequest{Stdout: said + `{"type":"result","subtype":"success","is_error":false,"result":""}`},
			invoker.Result{ExitStatus: "ok"},
		},
		"is_error wins over subtype and exit code": {
			invoker.ResultRequest{Stdout: `{"type":"result","subtype":"success","is_error":true,"result":"Not logged in","terminal_reason":""}`},
			invoker.Result{ExitStatus: "agent_error", Error: "Not logged in"},
		},
		"interrupted with exit code 0": {
			invoker.ResultRequest{Stdout: said + `{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","errors":["interrupted"]}`},
			invoker.Result{Text: "so far", ExitStatus: "agent_error", Error: "interrupted"},
		},
		"max turns": {
			invoker.ResultRequest{Exit: 1, Stdout: said + `{"type":"result","subtype":"error_max_turns","is_error":true,"terminal_reason":"max_turns","errors":["Reached maximum number of turns (2)"]}`},
			invoker.Result{Text: "so far", ExitStatus: "max_turns", Error: "Reached maximum number of turns (2)"},
		},
		"the provider is overloaded": {
			invoker.ResultRequest{Exit: 1, Stdout: `{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":529,"result":"API Error: 529"}`},
			invoker.Result{ExitStatus: "infra_error", Error: "API Error: 529"},
		},
		"no connection": {
			invoker.ResultRequest{Exit: 1, Stdout: `{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":null,"result":"Connection error"}`},
			invoker.Result{ExitStatus: "infra_error", Error: "Connection error"},
		},
		"the request was refused": {
			invoker.ResultRequest{Exit: 1, Stdout: `{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":400,"result":"prompt is too long"}`},
			invoker.Result{ExitStatus: "agent_error", Error: "prompt is too long"},
		},
		"an answer and then a failure": {
			invoker.ResultRequest{Exit: 3, Stdout: ok},
			invoker.Result{Text: "42", ExitStatus: "agent_error", Error: "the agent answered and then ended with exit code 3", Cost: ptr(0.5), Usage: &chat.Usage{Input: 115, Output: 7, Cached: 100, CacheWrite: 5}},
		},
		"no result": {
			invoker.ResultRequest{Exit: -1, Signal: "SIGTERM", Stdout: said, Stderr: "boom\n"},
			invoker.Result{Text: "so far", ExitStatus: "agent_error", Error: "the agent ended without a result line, with signal SIGTERM; its stderr ends: boom"},
		},
		"nothing at all": {
			invoker.ResultRequest{Exit: 127},
			invoker.Result{ExitStatus: "agent_error", Error: "the agent ended without a result line, with exit code 127"},
		},
		"a result that is cut": {
			invoker.ResultRequest{Exit: 1, Stdout: `{"type":"result","subty`},
			invoker.Result{ExitStatus: "agent_error", Error: "the agent ended without a result line, with exit code 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, &c.want, Result(&c.in))
		})
	}
}

func TestStderrIsCut(t *testing.T) {
	r := Result(&invoker.ResultRequest{Exit: 1, Stderr: strings.Repeat("é", 5000) + "the end"})
	assert.Less(t, len(r.Error), 2200)
	assert.True(t, strings.HasSuffix(r.Error, "the end"))
	assert.True(t, json.Valid([]byte(`"`+r.Error+`"`)))
}

func TestServers(t *testing.T) {
	file, err := MCPFile(map[string]Server{"calculator": {Command: []string{"penstock", "dev", "calculator"}, Env: map[string]string{"A": "<b>"}}, "x": {Command: []string{"x"}}})
	require.NoError(t, err)
	assert.Equal(t, `{"mcpServers":{"calculator":{"type":"stdio","command":"penstock","args":["dev","calculator"],"env":{"A":"<b>"}},"x":{"type":"stdio","command":"x","args":[]}}}`, file)

	assert.NoError(t, CheckServers(nil))
	assert.ErrorContains(t, CheckServers(map[string]Server{"a": {}}), "mcp server a has no command")
	assert.ErrorContains(t, CheckServers(map[string]Server{"a b": {Command: []string{"x"}}}), `mcp server "a b"`)
	assert.ErrorContains(t, CheckServers(map[string]Server{"a__b": {Command: []string{"x"}}}), `mcp server "a__b"`)
}

func TestMaxTurns(t *testing.T) {
	for in, want := range map[[2]int]int{{0, 0}: 0, {5, 0}: 5, {0, 3}: 3, {5, 3}: 3, {3, 5}: 3} {
		assert.Equal(t, want, MaxTurns(in[0], in[1]), in)
	}
}

func FuzzLines(f *testing.F) {
	f.Add(`{"type":"system","subtype":"init","tools":["a"],"mcp_servers":[]}`)
	f.Add("x\n" + `{"type":"result","is_error":true}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = Line(Expect{Tools: []string{}}, &invoker.LineRequest{Line: text})
		assert.NotEmpty(t, Result(&invoker.ResultRequest{Stdout: text}).ExitStatus)
	})
}
