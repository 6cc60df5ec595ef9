package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tried is what the doctor says of a program.
type tried struct {
	Name     string         `json:"name"`
	Dialect  string         `json:"dialect"`
	Outcome  string         `json:"outcome"`
	Error    string         `json:"error"`
	Calls    int            `json:"calls"`
	Lineages map[string]int `json:"lineages"`
	Streamed bool           `json:"streamed"`
	Run      string         `json:"run"`

	Broken      string `json:"broken"`
	Interrupted string `json:"interrupted"`
}

// npmPath is the PATH in which the programs of .ci/npm come first, and the
// Node that they want.
func npmPath(t *testing.T) string {
	t.Helper()
	npm := os.Getenv("PENSTOCK_NPM")
	if npm == "" {
		t.Skip("PENSTOCK_NPM is not set: make deps installs the agent programs, which needs npm")
	}
	return filepath.Join(npm, ".bin") + string(os.PathListSeparator) + os.Getenv("PATH")
}

// TestAgentPrograms has each real program solve the doctor's task to the end:
// it streams, asks for the tool once, answers with what the tool said, and
// every token that the engine sampled is in exactly one row, with its logprob.
// One of them is also put through a broken stream and an interrupted run.
func TestAgentPrograms(t *testing.T) {
	path := npmPath(t)
	for name, lineages := range map[string]map[string]int{
		"claude-code/anthropic": {"main": 1},
		"codex/responses":       {"main": 1},
		"gemini/gemini":         {"main": 1},
		"qwen/openaichat":       {"main": 1},
		"opencode/openaichat":   {"main": 1, "side": 1}, // it asks for a title
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			rough := name == "codex/responses" // the quickest
			cmd := exec.CommandContext(t.Context(), built, "doctor", "--agents", "--json", "--only", name, "--out", dir, fmt.Sprintf("--rough=%t", rough))
			cmd.Env = append(os.Environ(), "PATH="+path)
			out, err := cmd.Output()
			var report struct{ Programs []tried }
			require.NoError(t, json.Unmarshal(out, &report), "%v: %s", err, out)
			require.Len(t, report.Programs, 1)
			p := report.Programs[0]
			if p.Outcome == "absent" {
				t.Skipf("%s is not installed: make deps does it", p.Name)
			}
			require.Equal(t, "works", p.Outcome, p.Error)
			assert.Equal(t, lineages, p.Lineages)
			assert.True(t, p.Streamed)
			if rough {
				assert.Equal(t, "asks again", p.Broken)
				assert.Equal(t, "resumed", p.Interrupted)
			}
			eachTokenOnce(t, readLines[row](t, filepath.Join(p.Run, "rows.jsonl")), readLines[engineCall](t, filepath.Join(filepath.Dir(p.Run), "engine.jsonl")))
		})
	}
}

// TestClaudeCodeLongHaul follows Claude Code through what splits a session: it
// hands its task to a sub-agent, gets a reply that breaks off and asks again,
// and fills its context until it goes on from a summary. Each conversation is
// named for what it is, and each sampled token that arrived is in one row.
func TestClaudeCodeLongHaul(t *testing.T) {
	path := npmPath(t)
	if _, err := os.Stat(filepath.Join(os.Getenv("PENSTOCK_NPM"), ".bin", "claude")); err != nil {
		t.Skip("Claude Code is not installed: make deps does it")
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "longhaul"))))
	cmd := exec.CommandContext(t.Context(), built, "run", "pipeline.yaml", "--out", "out", "--plain")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+path)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, []string{"1"}, column(t, filepath.Join(dir, "out", "rollouts.jsonl"), "reward"), "%s", out)

	var whole []engineCall
	cut := 0
	for _, c := range readLines[engineCall](t, filepath.Join(dir, "engine.jsonl")) {
		if c.Finish == "failed" {
			cut++
		} else {
			whole = append(whole, c)
		}
	}
	assert.Equal(t, 1, cut)
	rows := readLines[row](t, filepath.Join(dir, "out", "rows.jsonl"))
	eachTokenOnce(t, rows, whole)
	var kinds []string
	calls := 0
	for _, r := range rows {
		kinds = append(kinds, r.Kind)
		calls += len(r.Calls)
	}
	// The conversation up to its summary, the sub-agent's, the summary's call,
	// and the conversation from the summary on.
	assert.Equal(t, []string{"main", "sub_agent", "continuation", "main"}, kinds)
	assert.Len(t, whole, calls)
}

// eachTokenOnce holds rows against the engine's log: each row is the prompt and
// the reply of a call, and each reply that was sampled is trained in exactly
// one row, at the place where its prompt ended, with the engine's logprobs.
func eachTokenOnce(t *testing.T, rows []row, calls []engineCall) {
	t.Helper()
	for _, r := range rows {
		require.Len(t, r.LossMask, len(r.InputIDs), r.Row)
		require.Len(t, r.Logprobs, len(r.InputIDs), r.Row)
		assert.True(t, slices.ContainsFunc(calls, func(c engineCall) bool {
			return slices.Equal(r.InputIDs, slices.Concat(c.PromptIDs, c.SampledIDs))
		}), "%s ends with a call of the engine's", r.Row)
	}
	trained, sampled := 0, 0
	for _, r := range rows {
		for _, m := range r.LossMask {
			trained += int(m)
		}
	}
	for i, c := range calls {
		sampled += len(c.SampledIDs)
		at := len(c.PromptIDs)
		in := 0
		for _, r := range rows {
			end := at + len(c.SampledIDs)
			if len(r.InputIDs) < end || !slices.Equal(r.InputIDs[:at], c.PromptIDs) || !slices.Equal(r.InputIDs[at:end], c.SampledIDs) ||
				slices.Contains(r.LossMask[at:end], 0) {
				continue
			}
			in++
			assert.Equal(t, c.Logprobs, r.Logprobs[at:end], "logprobs of call %d in %s", i, r.Row)
		}
		assert.Equal(t, 1, in, "call %d of the engine is trained in one row", i)
	}
	assert.Equal(t, sampled, trained, "nothing but sampled tokens is trained")
}
