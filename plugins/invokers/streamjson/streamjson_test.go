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

// TestR14_UsageInEveryShape: what a program used is read from each form that
// programs write it in, and what isn't known is not nothing.
func TestR14_UsageInEveryShape(t *testing.T) {
	for name, c := range map[string]struct {
		fields string
		usage  *chat.Usage
		cost   *float64
	}{
		"numbers":         {`"usage":{"input_tokens":10,"output_tokens":7},"total_cost_usd":0.25`, &chat.Usage{Input: 10, Output: 7}, ptr(0.25)},
		"caches":          {`"usage":{"input_tokens":10,"cache_read_input_tokens":100,"cache_creation_input_tokens":5,"output_tokens":7}`, &chat.Usage{Input: 115, Output: 7, Cached: 100, CacheWrite: 5}, nil},
		"texts":           {`"usage":{"input_tokens":"10","output_tokens":"7.0"},"total_cost_usd":"0.25"`, &chat.Usage{Input: 10, Output: 7}, ptr(0.25)},
		"partial":         {`"usage":{"output_tokens":7,"input_tokens":null,"service_tier":"x"}`, &chat.Usage{Output: 7}, nil},
		"null":            {`"usage":null,"total_cost_usd":null`, nil, nil},
		"missing":         {`"num_turns":1`, nil, nil},
		"nothing spent":   {`"usage":{"input_tokens":0,"output_tokens":0},"total_cost_usd":0`, &chat.Usage{}, ptr(0.0)},
		"by model":        {`"modelUsage":{"a":{"inputTokens":1,"outputTokens":2,"cacheReadInputTokens":3,"costUSD":0.25},"b":{"inputTokens":10,"outputTokens":20,"costUSD":0.5}}`, &chat.Usage{Input: 14, Output: 22, Cached: 3}, ptr(0.75)},
		"by model, part":  {`"modelUsage":{"a":{"inputTokens":1,"outputTokens":2,"costUSD":0.25},"b":{"inputTokens":10,"outputTokens":20}}`, &chat.Usage{Input: 11, Output: 22}, nil},
		"the sum wins":    {`"usage":{"input_tokens":5,"output_tokens":6},"modelUsage":{"a":{"inputTokens":1,"outputTokens":2}}`, &chat.Usage{Input: 5, Output: 6}, nil},
		"no numbers":      {`"usage":{"input_tokens":"many","output_tokens":{}},"total_cost_usd":[1]`, nil, nil},
		"no such amounts": {`"usage":{"input_tokens":-4,"output_tokens":1e300},"total_cost_usd":-1`, &chat.Usage{}, nil},
	} {
		r := Result(&invoker.ResultRequest{Stdout: `{"type":"result","subtype":"success","is_error":false,"result":"x",` + c.fields + `}`})
		assert.Equal(t, c.usage, r.Usage, name)
		assert.Equal(t, c.cost, r.Cost, name)
	}
}

// TestR12_TextIsTheMainAgents: the result where there is one, else what the main
// agent said last, without its thinking, its tools and its sub-agents.
func TestR12_TextIsTheMainAgents(t *testing.T) {
	const (
		thinks = `{"type":"assistant","message":{"id":"1","content":[{"type":"thinking","thinking":"hm","text":"hm"}]},"parent_tool_use_id":null}` + "\n"
		first  = `{"type":"assistant","message":{"id":"1","content":[{"type":"text","text":"one"}]},"parent_tool_use_id":null}` + "\n"
		second = `{"type":"assistant","message":{"id":"1","content":[{"type":"text","text":"two"}]},"parent_tool_use_id":null}` + "\n"
		older  = `{"type":"assistant","message":{"id":"0","content":[{"type":"text","text":"older"}]},"parent_tool_use_id":null}` + "\n"
		sub    = `{"type":"assistant","message":{"id":"9","content":[{"type":"text","text":"of a sub-agent"}]},"parent_tool_use_id":"toolu_1"}` + "\n"
		tool   = `{"type":"assistant","message":{"id":"1","content":[{"type":"tool_use","id":"t","name":"x","input":{}}]},"parent_tool_use_id":null}` + "\n"
		empty  = `{"type":"result","subtype":"success","is_error":false}` + "\n"
	)
	for stdout, want := range map[string]string{
		older + thinks + first + second + tool + sub + empty: "one\ntwo",
		first + second + sub: "one\ntwo",
		first + `{"type":"result","is_error":false,"result":"whole"}`: "whole",
		sub + empty: "",
		first + `{"type":"result","is_error":false,"result":"a"}` + "\n" + `{"type":"result","is_error":false,"result":"b"}`: "b",
		first + "no json\n" + `{"type":"result","is_error":false,"result":"after noise"}`:                                    "after noise",
	} {
		assert.Equal(t, want, Result(&invoker.ResultRequest{Stdout: stdout}).Text, stdout)
	}
}

// TestR16_EachEndHasItsStatus: with a message, always.
func TestR16_EachEndHasItsStatus(t *testing.T) {
	for fields, want := range map[string]string{
		`"subtype":"error_max_turns","is_error":true`:                                              invoker.MaxTurns,
		`"subtype":"error_max_budget_usd","is_error":true`:                                         invoker.Budget,
		`"subtype":"error_during_execution","is_error":true`:                                       invoker.AgentError,
		`"subtype":"error_max_structured_output_retries","is_error":true`:                          invoker.AgentError,
		`"subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":429`: invoker.InfraError,
		`"subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":503`: invoker.InfraError,
		`"subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":404`: invoker.AgentError,
		`"is_error":true`: invoker.AgentError,
	} {
		r := Result(&invoker.ResultRequest{Exit: 1, Stdout: `{"type":"result",` + fields + `}`})
		assert.Equal(t, want, r.ExitStatus, fields)
		assert.NotEmpty(t, r.Error, fields)
	}
	// Without a result line it is no answer; a line that is none, or is long, is no
	// end.
	const ok = `{"type":"result","subtype":"success","is_error":false,"result":"42"}`
	long := `{"type":"user","message":"` + strings.Repeat("x", 2<<20) + `"}` + "\n"
	for stdout, want := range map[string]string{
		"":                              invoker.AgentError,
		`{"type":"assistant"}` + "\n":   invoker.AgentError,
		`{"type":"result","is_err`:      invoker.AgentError,
		"{not json\n":                   invoker.AgentError,
		"{not json\n" + ok + "\n" + "{": invoker.OK,
		long + ok:                       invoker.OK,
		ok + "\n" + long:                invoker.OK,
	} {
		for _, exit := range []int{0, 3} {
			r := Result(&invoker.ResultRequest{Exit: exit, Stdout: stdout})
			if exit != 0 {
				want = invoker.AgentError
				assert.Contains(t, r.Error, "exit code 3")
			}
			assert.Equal(t, want, r.ExitStatus, stdout[:min(40, len(stdout))])
			assert.Equal(t, want == invoker.OK, r.Error == "")
		}
	}
}

// TestR13_NothingUsableIsNoAnswer: where one answer was wanted, an error's
// words, a cut reply, a refusal and silence give no text, and are counted.
func TestR13_NothingUsableIsNoAnswer(t *testing.T) {
	const said = `{"type":"assistant","message":{"content":[{"type":"text","text":"so far"}]}}` + "\n"
	const spent = `,"usage":{"input_tokens":3,"output_tokens":4},"total_cost_usd":0.5}`
	for fields, want := range map[string]string{
		`"is_error":true,"subtype":"success","result":"API Error: 529"`:  "API Error: 529",
		`"is_error":false,"result":"part","stop_reason":"max_tokens"`:    "the reply was cut",
		`"is_error":false,"result":"I can't","stop_reason":"refusal"`:    "the model refused",
		`"is_error":false,"result":" "`:                                  "holds no text",
		`"is_error":true,"subtype":"error_max_turns","errors":["turns"]`: "turns",
	} {
		r := Answer(&invoker.ResultRequest{State: ready, Stdout: said + `{"type":"result",` + fields + spent})
		assert.Empty(t, r.Text, fields)
		assert.NotEqual(t, invoker.OK, r.ExitStatus, fields)
		assert.Contains(t, r.Error, want, fields)
		assert.Equal(t, &chat.Usage{Input: 3, Output: 4}, r.Usage, fields)
		assert.InDelta(t, 0.5, *r.Cost, 0)
	}
	assert.Empty(t, Answer(&invoker.ResultRequest{Exit: 1, Stdout: said}).Text)
	const answer = `{"type":"result","is_error":false,"result":"42","stop_reason":"end_turn"}`
	assert.Equal(t, "42", Answer(&invoker.ResultRequest{State: ready, Stdout: answer}).Text)
	unseen := Answer(&invoker.ResultRequest{Stdout: answer}) // its tools aren't known
	assert.Empty(t, unseen.Text)
	assert.Equal(t, invoker.InfraError, unseen.ExitStatus)
	assert.Contains(t, unseen.Error, "no system/init line")
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
