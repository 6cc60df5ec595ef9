package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClaudeCode drives the real program: the calculator pipeline with two
// --set, eight rewards of 1, two calls each in one row of the main lineage
// that agrees with what the engine logged.
func TestClaudeCode(t *testing.T) {
	claude := os.Getenv("PENSTOCK_CLAUDE")
	if claude == "" {
		t.Skip("PENSTOCK_CLAUDE is not set: make deps installs Claude Code, which needs npm")
	}
	dir := t.TempDir()
	script, err := os.ReadFile(filepath.Join("examples", "calculator", "model.yaml"))
	require.NoError(t, err)
	log := filepath.Join(dir, "engine.jsonl")
	model := filepath.Join(dir, "model.yaml")
	require.NoError(t, os.WriteFile(model, append(script, []byte("\nlog: "+log+"\n")...), 0o600))
	text, code := penstock(t, root, "run", "examples/calculator/pipeline.yaml", "--out", filepath.Join(dir, "out"),
		"--set", "stages.solve.uses=invoker/claude-code", "--set", "stages.solve.with.command="+claude,
		"--set", "models.policy.upstream.file="+model)
	require.Equal(t, 0, code, text)

	for _, reward := range column(t, filepath.Join(dir, "out", "rollouts.jsonl"), "reward") {
		assert.Equal(t, "1", reward)
	}
	rows := readLines[row](t, filepath.Join(dir, "out", "rows.jsonl"))
	require.Len(t, rows, 8)
	for _, r := range rows {
		assert.Equal(t, "main", r.Kind)
		assert.Len(t, r.Calls, 2, "calls of %s", r.Row)
	}
	checkRows(t, rows, readLines[engineCall](t, log))

	// The agent's own output shows the tool that it ran.
	stdout, err := os.ReadFile(filepath.Join(dir, "out", "artifacts", "sum~0", "solve", "1.1", "stdout"))
	if err == nil {
		assert.Contains(t, string(stdout), "mcp__calculator__calculator")
	}
}
