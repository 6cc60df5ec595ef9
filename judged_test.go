package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestJudgedProgramsAreKeptApart has a judge run what an agent may have written.
// It finds the workspace, a home of its own and nothing of the run, sees no
// process but its own, and leaves none behind. What a `run:` stage made is
// judged, too.
func TestJudgedProgramsAreKeptApart(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "left")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pipeline.yaml"), []byte(`penstock: v1
tasks: { inline: [{ id: a, answer: s3cret-answer }] }
stages:
  - { id: make, run: [sh, -c, "mkdir .config; echo made > made"] }
  - id: check
    uses: judger/command
    timeout: 1m
    with:
      command: [sh, "`+filepath.Join(dir, "check.sh")+`"]
      env: { GIVEN: here }
`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "check.sh"), []byte(`
out=`+filepath.Join(dir, "out")+`
echo "made: $(cat made)"
echo "home: $(ls -A "$HOME" | wc -l) $(test "$HOME" = "$PWD" && echo shared)"
echo "run: $(cat "$out/run.json" "$out/events.jsonl" "$out/gateway.json" 2>/dev/null | wc -c)"
{ echo mine >> "$out/events.jsonl" && echo written; } 2>/dev/null
echo "answers: $(cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' ' ' | grep -c 'pipeline[.]yaml')"
echo "penstock: $(kill -9 "$(grep -l 'pipeline[.]yaml' /proc/[0-9]*/cmdline 2>/dev/null | head -1 | cut -d/ -f3)" 2>/dev/null && echo killed)"
echo "given: $GIVEN"
setsid -f sh -c 'sleep 2; echo alive > "`+left+`"' >/dev/null 2>&1
exit 3
`), 0o600))
	out, code := penstock(t, dir, "run", "pipeline.yaml", "--out", "out")
	require.Equal(t, 0, code, out)
	if text, err := os.ReadFile(filepath.Join(dir, "out", "run.json")); err != nil || !strings.Contains(string(text), `"hidden": true`) && !strings.Contains(string(text), `"hidden":true`) {
		t.Skip("this machine allows no namespaces")
	}
	text, err := os.ReadFile(filepath.Join(dir, "out", "artifacts", "a~0", "check", "1.1", "verdict.json"))
	require.NoError(t, err)
	assert.Contains(t, string(text), `its output ends: made: made\nhome: 0 \nrun: 0\nanswers: 0\npenstock: \ngiven: here"`)
	events, err := os.ReadFile(filepath.Join(dir, "out", "events.jsonl"))
	require.NoError(t, err)
	assert.NotContains(t, string(events), "mine\n")
	assert.Never(t, func() bool { _, err := os.Stat(left); return err == nil }, 3e9, 1e8)
}

// TestAJudgeReadsALongReportWhole, of which the run keeps the end alone: a test
// that failed first is not lost.
func TestAJudgeReadsALongReportWhole(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pipeline.yaml"), []byte(`penstock: v1
tasks: { inline: [{ id: a }] }
stages:
  - { id: make, run: ["true"] }
  - { id: check, uses: judger/command, with: { command: [sh, `+filepath.Join(dir, "check.sh")+`], result: go_test, partial: true } }
`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "check.sh"), []byte(`
echo '{"Action":"fail","Package":"m","Test":"TestA"}'
yes '{"Action":"output","Package":"m","Test":"TestB","Output":"what a chatty test writes"}' | head -c 3000000
echo
echo '{"Action":"pass","Package":"m","Test":"TestB"}'
exit 1
`), 0o600))
	out, code := penstock(t, dir, "run", "pipeline.yaml", "--out", "out")
	require.Equal(t, 0, code, out)
	text, err := os.ReadFile(filepath.Join(dir, "out", "artifacts", "a~0", "check", "1.1", "verdict.json"))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"reward":0.5,`)
}

// TestAJudgesSandbox bounds the program of a judge whose stage has one, and that
// of the file, which is for agents, does not.
func TestAJudgesSandbox(t *testing.T) {
	for _, name := range []string{"landlock", "bwrap"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			secret := filepath.Join(dir, "secret")
			require.NoError(t, os.WriteFile(secret, []byte("of the user"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "pipeline.yaml"), []byte(`penstock: v1
sandbox: `+name+`
tasks: { inline: [{ id: a }] }
stages:
  - { id: make, run: [sh, -c, "echo made > made"] }
  - { id: inside, uses: judger/command, sandbox: `+name+`, with: { command: [sh, -c, "cat made && ! cat `+secret+`"] } }
  - { id: outside, uses: judger/command, with: { command: [sh, -c, "cat made && cat `+secret+`"] } }
reward: "${{ (inside.output.reward ?? 0) * (outside.output.reward ?? 0) }}"
`), 0o600))
			out, code := penstock(t, dir, "run", "pipeline.yaml", "--out", "out")
			if code == 2 && strings.Contains(out, "[sandbox]") {
				t.Skip(out)
			}
			require.Equal(t, 0, code, out)
			assert.Equal(t, []string{"1"}, column(t, filepath.Join(dir, "out", "rollouts.jsonl"), "reward"), out)
		})
	}
}
