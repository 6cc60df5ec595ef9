package llm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/invoker"
)

func plan(t *testing.T, cfg Config, input string, s invoker.Session) map[string]any {
	t.Helper()
	l, err := New(cfg)
	require.NoError(t, err)
	p, err := l.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(input), Session: s})
	require.NoError(t, err)
	assert.Empty(t, p.Argv)
	assert.Equal(t, "/v1/chat/completions", p.Call.Path)
	var body map[string]any
	require.NoError(t, json.Unmarshal(p.Call.Body, &body))
	return body
}

func TestPlanIsOneCallWithoutTools(t *testing.T) {
	warm := 0.5
	body := plan(t, Config{MaxTokens: 9, Temperature: &warm}, `{"prompt":"hello","system":"Be brief."}`, invoker.Session{Model: "policy"})
	assert.Equal(t, map[string]any{
		"model": "policy", "max_tokens": 9.0, "temperature": 0.5,
		"messages": []any{
			map[string]any{"role": "system", "content": "Be brief."},
			map[string]any{"role": "user", "content": "hello"},
		},
	}, body)
	body = plan(t, Config{}, `{"prompt":"hello"}`, invoker.Session{Model: "policy"})
	assert.NotContains(t, body, "max_tokens", "what the entry says holds")
	assert.NotContains(t, body, "temperature")
}

// TestTheSchemaIsTold: the model is told what its answer has to be, once.
func TestTheSchemaIsTold(t *testing.T) {
	s := invoker.Session{Model: "policy", OutputSchema: json.RawMessage(`{"type":"object"}`)}
	prompt := func(body map[string]any) any { return body["messages"].([]any)[0].(map[string]any)["content"] }

	body := plan(t, Config{}, `{"prompt":"hello"}`, s)
	assert.Equal(t, "hello\n\nAnswer with one JSON object that fits this JSON Schema, and nothing else:\n{\"type\":\"object\"}", prompt(body))
	body = plan(t, Config{}, `{"prompt":"hello {\"type\":\"object\"}"}`, s)
	assert.Equal(t, `hello {"type":"object"}`, prompt(body))
	body = plan(t, Config{Schema: "response_format"}, `{"prompt":"hello"}`, s)
	assert.Equal(t, "hello", prompt(body))
	assert.Equal(t, map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "output", "schema": map[string]any{"type": "object"}}}, body["response_format"])
}

func TestPlanRefusesAnEmptyPrompt(t *testing.T) {
	l, err := New(Config{})
	require.NoError(t, err)
	_, err = l.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":" \n"}`)})
	assert.ErrorContains(t, err, "the prompt is empty")
}

// TestR1_OneSignatureInEveryMode: a prompt in, a text out, however the model is
// reached.
func TestR1_OneSignatureInEveryMode(t *testing.T) {
	const reply = `{"choices":[{"message":{"content":"42"},"finish_reason":"stop"}]}`
	const lines = `{"type":"system","subtype":"init","tools":[],"mcp_servers":[]}` + "\n" + `{"type":"result","is_error":false,"result":"42"}`
	for mode, stdout := range map[string]string{"": reply, API: reply, Bedrock: reply, Subscription: lines} {
		cfg := Config{Mode: mode}
		if mode == Subscription {
			cfg = subscribed()
		}
		l, err := New(cfg)
		require.NoError(t, err, mode)
		p, err := l.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":"6*7?"}`), Session: invoker.Session{Model: "policy"}})
		require.NoError(t, err, mode)
		assert.Equal(t, mode == Subscription, p.Call == nil, mode)
		first, _, _ := strings.Cut(stdout, "\n")
		line, err := l.(invoker.Liner).Line(t.Context(), &invoker.LineRequest{Line: first})
		require.NoError(t, err, mode)
		r, err := l.Result(t.Context(), &invoker.ResultRequest{State: line.State, Stdout: stdout})
		require.NoError(t, err, mode)
		assert.Equal(t, "42", r.Text, mode)
		assert.Equal(t, invoker.OK, r.ExitStatus, mode)
	}
}

const token = "sk-ant-oat01-0123456789"

func subscribed() Config { return Config{Mode: Subscription, Token: token, Model: "sonnet"} }

// TestR8_SingleShotDefaults is the whole command line and environment of a
// completion, and of one whose output has a schema.
func TestR8_SingleShotDefaults(t *testing.T) {
	l, err := New(subscribed())
	require.NoError(t, err)
	p, err := l.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":"hello","system":"Be brief."}`)})
	require.NoError(t, err)
	assert.Equal(t, []string{
		"claude", "-p", "--output-format", "stream-json", "--verbose", "--model", "sonnet",
		"--safe-mode", "--setting-sources", "", "--strict-mcp-config", "--mcp-config", `{"mcpServers":{}}`,
		"--no-session-persistence", "--disable-slash-commands", "--tools", "", "--system-prompt=Be brief.", "--max-turns", "1",
	}, p.Argv)
	assert.Equal(t, "hello", p.Stdin, "of any length, and seen by no other process")
	assert.Equal(t, "~/empty", p.Dir, "the workspace is not looked at")
	assert.Equal(t, token, p.Env["CLAUDE_CODE_OAUTH_TOKEN"])
	for name := range p.Env {
		assert.NotContains(t, name, "ANTHROPIC", "it goes to the provider")
		assert.NotContains(t, name, "AWS")
	}
	assert.Empty(t, p.Files)

	p, err = l.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":"hello"}`), Session: invoker.Session{OutputSchema: json.RawMessage(`{"type":"object"}`)}})
	require.NoError(t, err)
	assert.Equal(t, []string{"--system-prompt=", "--json-schema", `{"type":"object"}`, "--max-turns", "2"}, p.Argv[len(p.Argv)-5:])
	assert.Equal(t, "hello", p.Stdin, "the program tells the schema")
}

// TestR9_DefaultsAreOverridable: what is set reaches the command line, and what
// can't work together is refused.
func TestR9_DefaultsAreOverridable(t *testing.T) {
	cfg := subscribed()
	cfg.Tools, cfg.MaxTurns, cfg.MaxUSD, cfg.BaseURL, cfg.Command = []string{"Read", "Grep"}, 5, 0.25, "http://127.0.0.1:1", []string{"node", "cli.js"}
	l, err := New(cfg)
	require.NoError(t, err)
	p, err := l.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":"hello"}`)})
	require.NoError(t, err)
	assert.Equal(t, []string{"node", "cli.js", "-p"}, p.Argv[:3])
	assert.Equal(t, []string{"--tools", "Read,Grep", "--system-prompt=", "--max-turns", "5", "--max-budget-usd", "0.25"}, p.Argv[len(p.Argv)-7:])
	p, err = l.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":"6*7?"}`), Session: invoker.Session{SpentUSD: 0.125}})
	require.NoError(t, err)
	assert.Equal(t, "0.125", p.Argv[len(p.Argv)-1], "all tries share max_usd")
	_, err = l.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":"6*7?"}`), Session: invoker.Session{SpentUSD: 0.25}})
	assert.ErrorContains(t, err, "earlier tries used up max_usd: 0.25 of 0.25 USD")
	assert.Equal(t, "http://127.0.0.1:1", p.Env["ANTHROPIC_BASE_URL"])

	cfg = subscribed()
	cfg.MaxTurns = 1
	l, err = New(cfg)
	require.NoError(t, err)
	_, err = l.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":"hello"}`), Session: invoker.Session{OutputSchema: json.RawMessage(`{}`)}})
	assert.ErrorContains(t, err, "max_turns is 1, but output that fits a schema takes 2")
}

// TestR11_OtherToolsAreRefused: what the program says it has is checked before
// a turn is used.
func TestR11_OtherToolsAreRefused(t *testing.T) {
	l, err := New(subscribed())
	require.NoError(t, err)
	for text, why := range map[string]string{
		`{"type":"system","subtype":"init","tools":[],"mcp_servers":[]}`:                                     "",
		`{"type":"system","subtype":"init","tools":["StructuredOutput"],"mcp_servers":[]}`:                   "",
		`{"type":"system","subtype":"init","tools":["Bash"],"mcp_servers":[]}`:                               "not asked for: Bash",
		`{"type":"system","subtype":"init","tools":[],"mcp_servers":[{"name":"mail","status":"connected"}]}`: "MCP server mail was not asked for",
		`{"type":"system","subtype":"init","tools":["mcp__mail__send"],"mcp_servers":[]}`:                    "mcp__mail__send",
	} {
		r, err := l.(invoker.Liner).Line(t.Context(), &invoker.LineRequest{Line: text})
		require.NoError(t, err)
		if why == "" {
			assert.True(t, r.Ready, text)
			continue
		}
		require.NotNil(t, r.Stop, text)
		assert.Equal(t, invoker.InfraError, r.Stop.ExitStatus)
		assert.Contains(t, r.Stop.Reason, why)
	}
}

// TestConfig is R2, R6 and R7 too: a mode that isn't known, a token that is
// missing or blank, and a model that would be ambient, are refused by name.
func TestConfig(t *testing.T) {
	cold := -1.0
	for want, c := range map[string]Config{
		`mode is "apii", want api, bedrock or subscription`: {Mode: "apii"},
		"token: ${env:CLAUDE_CODE_OAUTH_TOKEN}":             {Mode: Subscription, Model: "sonnet"},
		"token (CLAUDE_CODE_OAUTH_TOKEN) is empty":          {Mode: Subscription, Model: "sonnet", Token: " \n"},
		"/model: mode subscription needs the model":         {Mode: Subscription, Token: token},
		"/base_url: this is no http or https URL":           {Mode: Subscription, Token: token, Model: "sonnet", BaseURL: "not a url"},
		"this is no http or https URL, such":                {Mode: Subscription, Token: token, Model: "sonnet", BaseURL: "file:///etc"},
		"with tools at least 2 turns":                       {Mode: Subscription, Token: token, Model: "sonnet", Tools: []string{"Read"}},
		"mode subscription has no max_tokens":               {Mode: Subscription, Token: token, Model: "sonnet", MaxTokens: 5},
		"are of mode subscription only":                     {Token: token},
		"max_usd are of mode subscription only; add mode":   {Mode: Bedrock, MaxTurns: 3},
		"max_tokens is negative":                            {MaxTokens: -1},
		"max_turns is negative":                             {MaxTurns: -1},
		"temperature is negative":                           {Temperature: &cold},
		`schema is "x"`:                                     {Schema: "x"},
	} {
		_, err := New(c)
		assert.ErrorContains(t, err, want)
	}
}

// TestR17_ResultIsTheReplyOrSaysWhyThereIsNone: no error, refusal or cut reply
// passes for an answer.
func TestR17_ResultIsTheReplyOrSaysWhyThereIsNone(t *testing.T) {
	for _, c := range []struct {
		exit                int
		answer              string
		text, status, wrong string
	}{
		{0, `{"choices":[{"message":{"content":"42"},"finish_reason":"stop"}]}`, "42", "ok", ""},
		{0, `{"choices":[{"message":{"content":"4"},"finish_reason":"length"}]}`, "4", "agent_error", "the reply was cut"},
		{0, `{"choices":[{"message":{"content":null,"refusal":"I won't."},"finish_reason":"stop"}]}`, "", "agent_error", "the model refused: I won't."},
		{0, `{"choices":[{"message":{"content":"part"},"finish_reason":"content_filter"}]}`, "", "agent_error", "withheld"},
		{0, `{"choices":[{"message":{"content":" "},"finish_reason":"stop"}]}`, "", "agent_error", "no text"},
		{0, `{"choices":[]}`, "", "agent_error", "holds no reply"},
		{0, `<html>`, "", "agent_error", "is no JSON"},
		{403, `{"error":{"message":"over budget"}}`, "", "agent_error", "HTTP status 403: over budget"},
		{502, `bad gateway`, "", "agent_error", "HTTP status 502"},
		{-1, ``, "", "", ""},
	} {
		l, err := New(Config{})
		require.NoError(t, err)
		r, err := l.Result(t.Context(), &invoker.ResultRequest{Exit: c.exit, Stdout: c.answer})
		require.NoError(t, err)
		assert.Equal(t, c.text, r.Text, c.answer)
		assert.Equal(t, c.status, r.ExitStatus, c.answer)
		if c.wrong == "" {
			assert.Empty(t, r.Error, c.answer)
		} else {
			assert.Contains(t, r.Error, c.wrong)
		}
	}
}
