package agentcli

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/plugins/invokers/streamjson"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/schema"
)

var update = flag.Bool("update", false, "write the golden files anew")

var session = invoker.Session{
	ID: "s-1", BaseURL: "http://127.0.0.1:1", Token: "tok", Model: "policy", Workspace: "/w", Home: "/h", Context: 32768,
}

func plan(t *testing.T, c Config) *invoker.Plan {
	t.Helper()
	i, err := New(c)
	require.NoError(t, err)
	p, err := i.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":"--help \"me\"\nplease"}`), Session: session})
	require.NoError(t, err)
	return p
}

// TestPlans holds how each program is started, with all that its recipe can be
// told, in each of its protocols.
func TestPlans(t *testing.T) {
	for _, name := range Names() {
		r, err := find(name)
		require.NoError(t, err)
		assert.Equal(t, name, r.Name, "the file is named after the recipe")
		for _, api := range r.apiNames() {
			t.Run(name+"."+api, func(t *testing.T) {
				_, uses, err := r.compile(api)
				require.NoError(t, err)
				c := Config{Recipe: name, API: api}
				plain := plan(t, c)
				if uses["MCP"] {
					c.MCP = map[string]streamjson.Server{
						"calculator": {Command: []string{"penstock", "dev", "calculator"}},
						"odd":        {Command: []string{`a "b"`, "c\\d"}, Env: map[string]string{"A": "x\ny"}},
					}
				}
				if uses["System"] {
					c.System = "Say \"please\".\nAlways."
				}
				if uses["MaxTurns"] {
					c.MaxTurns = 7
				}
				if uses["Tools"] {
					c.Tools = &[]string{}
				}
				got, err := json.MarshalIndent(map[string]any{"plain": plain, "full": plan(t, c)}, "", "  ")
				require.NoError(t, err)
				path := filepath.Join("testdata", "plans", name+"."+api+".json")
				if *update {
					require.NoError(t, os.WriteFile(path, append(got, '\n'), 0o644))
				}
				want, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.Equal(t, string(want), string(got)+"\n")
			})
		}
	}
}

// Whatever a prompt is, no program takes it for a flag, and one of a megabyte
// has its place save where a recipe has no way but an argument.
func TestPromptsAreNoFlags(t *testing.T) {
	for _, name := range Names() {
		p := plan(t, Config{Recipe: name})
		if p.Stdin != "" {
			assert.Equal(t, "--help \"me\"\nplease", p.Stdin, name)
			assert.NotContains(t, strings.Join(p.Argv, " "), "please", name)
			continue
		}
		assert.Equal(t, []string{"--", "--help \"me\"\nplease"}, p.Argv[len(p.Argv)-2:], name)
	}
}

func TestBuiltinsSayWhereTheyComeFrom(t *testing.T) {
	for _, name := range Names() {
		r, err := find(name)
		require.NoError(t, err)
		assert.NotEmpty(t, r.Install.how(), name)
		assert.NotEmpty(t, r.Validated.Date, name)
		assert.NotEmpty(t, r.Idle.Limit, name)
		assert.NotEmpty(t, r.Summary, name)
		if r.Install.Version != "" {
			assert.Contains(t, r.Validated.Version, r.Install.Version, "%s: the pinned version is the one that was tried", name)
		}
	}
	assert.Len(t, programs(), 21)
}

func TestConfigErrors(t *testing.T) {
	bad := []string{"Read,Write"}
	for name, c := range map[string]struct {
		cfg     Config
		pointer string
		want    string
	}{
		"unknown recipe":    {Config{Recipe: "codx"}, "/recipe", `there is no recipe "codx" (did you mean "codex"?`},
		"no such recipe":    {Config{Recipe: "emacs"}, "/recipe", "there are claude-code, cline, codex,"},
		"missing file":      {Config{Recipe: "./none.yaml"}, "/recipe", "read recipe: open ./none.yaml"},
		"another api":       {Config{Recipe: "opencode", API: "gemini"}, "/api", `opencode speaks anthropic, chat, responses, not "gemini"`},
		"no system prompt":  {Config{Recipe: "copilot", System: "x"}, "/system", "copilot can't be told this"},
		"no turns":          {Config{Recipe: "codex", MaxTurns: 3}, "/max_turns", "`budget: {turns: N}` of the stage"},
		"no tools":          {Config{Recipe: "codex", Tools: &bad}, "/tools", "codex can't be told this"},
		"bad tools":         {Config{Recipe: "claude-code", Tools: &bad}, "/tools", `"Read,Write" is no name of a tool`},
		"negative":          {Config{Recipe: "gemini", MaxTurns: -1}, "/max_turns", "negative"},
		"server":            {Config{Recipe: "codex", MCP: map[string]streamjson.Server{"a": {}}}, "/mcp", "mcp server a has no command"},
		"unknown option":    {Config{Recipe: "copilot", Options: map[string]any{"cash": ""}}, "/options/cash", `copilot has no option "cash", it has [cache]`},
		"option of a kind":  {Config{Recipe: "claude-code", Options: map[string]any{"bare": "yes"}}, "/options/bare", "is text, want true or false"},
		"option of a set":   {Config{Recipe: "claude-code", Options: map[string]any{"permission_mode": "auto"}}, "/options/permission_mode", `is "auto", want one of bypass`},
		"the key":           {Config{Recipe: "codex", Env: map[string]string{"PENSTOCK_KEY": "x"}}, "/env/PENSTOCK_KEY", "set by the recipe"},
		"the address":       {Config{Recipe: "qwen", Env: map[string]string{"OPENAI_BASE_URL": "x"}}, "/env/OPENAI_BASE_URL", "set by the recipe"},
		"address of an api": {Config{Recipe: "claude-code", API: "vertex", Env: map[string]string{"ANTHROPIC_VERTEX_BASE_URL": "x"}}, "/env/ANTHROPIC_VERTEX_BASE_URL", "set by the recipe"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.cfg)
			var e *schema.Error
			require.True(t, errors.As(err, &e), "%v", err)
			assert.Equal(t, c.pointer, e.Pointer)
			assert.Contains(t, e.Message, c.want)
		})
	}
}

func TestPlanWithoutAModel(t *testing.T) {
	i, err := New(Config{Recipe: "codex"})
	require.NoError(t, err)
	_, err = i.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":"x"}`)})
	assert.ErrorContains(t, err, "the stage names no model, and codex behind the gateway needs one")
}

// What a stage adds wins over the recipe, and comes last.
func TestWhatAStageAdds(t *testing.T) {
	p := plan(t, Config{Recipe: "opencode", Command: schema.Argv{"/opt/oc"}, Args: []string{"--pure"}, Env: map[string]string{"OPENCODE_DISABLE_AUTOUPDATE": "0", "MINE": "1"}})
	assert.Equal(t, "/opt/oc", p.Argv[0])
	assert.Equal(t, "--pure", p.Argv[len(p.Argv)-1])
	assert.Equal(t, "0", p.Env["OPENCODE_DISABLE_AUTOUPDATE"])
	assert.Equal(t, "1", p.Env["MINE"])
	assert.Equal(t, "npm install -g opencode-ai@1.18.33", p.Install)
}
