package claudecode

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/plugins/invokers/streamjson"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/schema"
)

var session = invoker.Session{BaseURL: "http://127.0.0.1:1/s/tok", Token: "tok", Model: "policy", Workspace: "/w", Home: "/h"}

func plan(t *testing.T, config string) *invoker.Plan {
	t.Helper()
	var c Config
	require.NoError(t, schema.Decode([]byte(config), &c))
	i, err := New(c)
	require.NoError(t, err)
	p, err := i.Plan(t.Context(), &invoker.PlanRequest{Input: []byte(`{"prompt":"hi"}`), Session: session})
	require.NoError(t, err)
	return p
}

func TestPlan(t *testing.T) {
	p := plan(t, `{"max_turns":5,"mcp":{"calculator":{"command":["penstock","dev","calculator"]}},"system":"S","append_system":"A","tools":["Read","Bash"],"args":["--x"]}`)
	assert.Equal(t, []string{
		"claude", "-p", "--output-format", "stream-json", "--verbose", "--model", "policy",
		"--permission-mode", "bypassPermissions", "--no-session-persistence",
		"--strict-mcp-config", "--mcp-config", "/h/mcp.json", "--bare",
		"--tools", "Read,Bash", "--max-turns", "5", "--system-prompt=S", "--append-system-prompt=A", "--x",
	}, p.Argv)
	assert.Equal(t, "hi", p.Stdin)
	assert.Equal(t, invoker.JSONL, p.Output)
	assert.True(t, p.HoldFirstCall)
	require.Len(t, p.Files, 1)
	assert.Equal(t, "~/mcp.json", p.Files[0].Path)
	assert.JSONEq(t, `{"mcpServers":{"calculator":{"type":"stdio","command":"penstock","args":["dev","calculator"]}}}`, p.Files[0].Data)
}

func TestEnv(t *testing.T) {
	p := plan(t, `{"env":{"ENABLE_TOOL_SEARCH":"true","MINE":"1"}}`)
	assert.Equal(t, "http://127.0.0.1:1/s/tok", p.Env["ANTHROPIC_BASE_URL"])
	assert.Equal(t, "tok", p.Env["ANTHROPIC_API_KEY"])
	assert.Equal(t, "true", p.Env["ENABLE_TOOL_SEARCH"])
	assert.Equal(t, "1", p.Env["MINE"])
	assert.Equal(t, "1", p.Env["IS_SANDBOX"])
	assert.Equal(t, "0", p.Env["CLAUDE_CODE_ATTRIBUTION_HEADER"])
	assert.NotContains(t, p.Env, "ANTHROPIC_AUTH_TOKEN")
	assert.NotContains(t, p.Env, "CLAUDE_CODE_OAUTH_TOKEN")
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"} {
		_, err := New(Config{Env: map[string]string{name: "elsewhere"}})
		assert.ErrorContains(t, err, "/env/"+name)
	}
}

// "No tools" must be said: without the flag the program offers all of its
// tools, and would run them.
func TestA1NoToolsIsAnExplicitEmptySet(t *testing.T) {
	argv := plan(t, `{"tools":[]}`).Argv
	i := strings.Index(strings.Join(argv, "\x00"), "--tools\x00")
	require.GreaterOrEqual(t, i, 0)
	for k, a := range argv {
		if a == "--tools" {
			assert.Equal(t, "", argv[k+1])
		}
	}
	assert.NotContains(t, plan(t, `{}`).Argv, "--tools")

	empty := []string{}
	c, err := New(Config{Tools: &empty})
	require.NoError(t, err)
	r, err := c.(invoker.Liner).Line(t.Context(), &invoker.LineRequest{Line: `{"type":"system","subtype":"init","tools":["Bash","Read"],"mcp_servers":[]}`})
	require.NoError(t, err)
	require.NotNil(t, r.Stop, "refused before a turn is used")
	assert.Contains(t, r.Stop.Reason, "Bash, Read")
	assert.False(t, r.Ready)
}

// The program is given as in other invokers: a list, or the program alone.
func TestCommand(t *testing.T) {
	for config, want := range map[string][]string{
		`{"command":"/opt/my claude"}`:           {"/opt/my claude", "-p"},
		`{"command":["/opt/claude"]}`:            {"/opt/claude", "-p"},
		`{"command":["node","/opt/cli.js","x"]}`: {"node", "/opt/cli.js", "x", "-p"},
	} {
		assert.Equal(t, want, plan(t, config).Argv[:len(want)], config)
	}
}

func TestNotBare(t *testing.T) {
	assert.NotContains(t, plan(t, `{"bare":false}`).Argv, "--bare")
}

func TestConfig(t *testing.T) {
	bad := []string{"Bash,Read"}
	for want, c := range map[string]Config{
		"/max_turns: is negative":                  {MaxTurns: -1},
		`/tools: "Bash,Read" is no name of a tool`: {Tools: &bad},
		`/permission_mode: is "auto"`:              {PermissionMode: "auto"},
		"mcp server calc has no command":           {MCP: map[string]streamjson.Server{"calc": {}}},
	} {
		_, err := New(c)
		assert.ErrorContains(t, err, want)
	}
	i, err := New(Config{})
	require.NoError(t, err)
	_, err = i.Plan(t.Context(), &invoker.PlanRequest{Input: []byte(`{"prompt":"x"}`)})
	assert.ErrorContains(t, err, "names no model")
}
