package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/plugins/invokers/streamjson"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

var session = invoker.Session{BaseURL: "http://127.0.0.1:1/s/tok", Token: "tok", Model: "policy", Workspace: "/w", Home: "/h", MaxTurns: 9}

func TestPlan(t *testing.T) {
	a, err := New(Config{
		MaxTurns: 5, System: "Be brief.", Tools: []string{"bash"}, Args: []string{"--retries", "1"},
		MCP: map[string]streamjson.Server{"calculator": {Command: []string{"penstock", "dev", "calculator"}}},
	})
	require.NoError(t, err)
	prompt := strings.Repeat("x", 1<<20)
	p, err := a.Plan(t.Context(), &invoker.PlanRequest{Input: []byte(`{"prompt":"` + prompt + `"}`), Session: session})
	require.NoError(t, err)
	assert.Equal(t, []string{
		"penstock", "dev", "agent", "--output-format", "stream-json", "--model", "policy", "--max-turns", "5",
		"--system", "Be brief.", "--bash", "--mcp-config", "/h/mcp.json", "--retries", "1",
	}, p.Argv)
	assert.Equal(t, map[string]string{"ANTHROPIC_BASE_URL": "http://127.0.0.1:1/s/tok", "ANTHROPIC_API_KEY": "tok", "ANTHROPIC_MODEL": "policy"}, p.Env)
	assert.Equal(t, prompt, p.Stdin)
	assert.Equal(t, invoker.JSONL, p.Output)
	assert.True(t, p.HoldFirstCall)
	require.Len(t, p.Files, 1)
	assert.Equal(t, "~/mcp.json", p.Files[0].Path)
}

func TestPlanRefuses(t *testing.T) {
	a, err := New(Config{})
	require.NoError(t, err)
	_, err = a.Plan(t.Context(), &invoker.PlanRequest{Input: []byte(`{"prompt":"x"}`)})
	assert.ErrorContains(t, err, "names no model")
	_, err = a.Plan(t.Context(), &invoker.PlanRequest{Input: []byte(`{"promt":"x"}`), Session: session})
	assert.ErrorContains(t, err, "/promt: unknown field")
}

func TestConfig(t *testing.T) {
	for want, c := range map[string]Config{
		"max_turns is negative":          {MaxTurns: -1},
		`no tool "Read" of its own`:      {Tools: []string{"Read"}},
		"mcp server calc has no command": {MCP: map[string]streamjson.Server{"calc": {}}},
	} {
		_, err := New(c)
		assert.ErrorContains(t, err, want)
	}
}

// The agent has no tools of its own unless asked for, and that is held.
func TestInitIsChecked(t *testing.T) {
	a, err := New(Config{})
	require.NoError(t, err)
	r, err := a.(invoker.Liner).Line(t.Context(), &invoker.LineRequest{Line: `{"type":"system","subtype":"init","tools":["bash"],"mcp_servers":[]}`})
	require.NoError(t, err)
	require.NotNil(t, r.Stop)
	assert.Contains(t, r.Stop.Reason, "bash")
}
