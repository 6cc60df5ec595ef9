package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// TestKillAndResume kills penstock with -9 in mid-run, also while agents hold
// a process that left its session and ignores TERM. Within a second nothing
// of the run is alive, and resume then ends every rollout once.
func TestKillAndResume(t *testing.T) {
	const marker = "31415926"
	out := filepath.Join(t.TempDir(), "out")
	cmd := exec.Command(built, "run", filepath.Join("testdata", "kill", "pipeline.yaml"), "--out", out, "--json")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if gjson.Get(lines.Text(), "type").String() == "rollout.ended" {
			break
		}
	}
	require.Eventually(t, func() bool { return len(processesWith(marker)) > 0 }, 10*time.Second, 10*time.Millisecond,
		"the agents started no process that outlives its session")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()

	assert.Eventually(t, func() bool { return len(processesWith(out)) == 0 && len(processesWith(marker)) == 0 }, promised(time.Second), 20*time.Millisecond)
	assert.Empty(t, processesWith(marker), "a tool's process is left")
	assert.Empty(t, processesWith(out), "a process of the run is left")

	text, code := penstock(t, root, "resume", out)
	require.Equal(t, 0, code, text)
	assert.Contains(t, text, "6 of 6 completed")
	assert.Empty(t, processesWith(marker))

	ids := column(t, filepath.Join(out, "rollouts.jsonl"), "id")
	assert.Equal(t, []string{"a~0", "a~1", "b~0", "b~1", "c~0", "c~1"}, ids)
	for _, status := range column(t, filepath.Join(out, "rollouts.jsonl"), "status") {
		assert.Equal(t, "completed", status)
	}
	rows := column(t, filepath.Join(out, "rows.jsonl"), "row")
	assert.Len(t, rows, 6, "one row a rollout, none twice: %s", rows)
	assert.Equal(t, []string{"a~0", "a~1", "b~0", "b~1", "c~0", "c~1"}, column(t, filepath.Join(out, "rows.jsonl"), "rollout"))

	again, code := penstock(t, root, "resume", out)
	require.Equal(t, 0, code, again)
	assert.Equal(t, rows, column(t, filepath.Join(out, "rows.jsonl"), "row"), "resuming a run that is done changes nothing")
}

// TestInterrupt sends one Ctrl-C: the run ends cleanly, says how to go on,
// and resume completes it. The pause between is no time of the rollouts.
func TestInterrupt(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	cmd := exec.Command(built, "run", filepath.Join("testdata", "kill", "pipeline.yaml"), "--out", out)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return len(processesWith("31415926")) > 0 }, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	err := cmd.Wait()
	exit, ok := err.(*exec.ExitError)
	require.True(t, ok, "an interrupted run exits with 1, not %v: %s", err, said.String())
	assert.Equal(t, 1, exit.ExitCode(), said.String())
	assert.Contains(t, said.String(), "penstock resume "+out)
	assert.Empty(t, processesWith("31415926"))

	first := times(t, out)
	const pause = 2 * time.Second
	time.Sleep(pause)
	text, code := penstock(t, root, "resume", out)
	require.Equal(t, 0, code, text)
	assert.Contains(t, text, "6 of 6 completed")
	resumed := 0
	for id, now := range times(t, out) {
		was, ran := first[id]
		if !ran || was.status == "completed" {
			continue
		}
		resumed++
		wall := now.ended.Sub(now.started).Seconds()
		assert.Equal(t, was.started, now.started, id)
		assert.Greater(t, now.seconds, was.seconds, "%s: both parts count", id)
		assert.LessOrEqual(t, now.seconds, wall-pause.Seconds()+0.01, "%s: the pause doesn't", id)
	}
	assert.NotZero(t, resumed, "no rollout was interrupted")
}

// timing is when a rollout ran, and for how long.
type timing struct {
	status         string
	started, ended time.Time
	seconds        float64
}

// times are the rollouts of a run that were started, by id.
func times(t *testing.T, out string) map[string]timing {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, "rollouts.jsonl"))
	require.NoError(t, err)
	all := map[string]timing{}
	for line := range strings.Lines(string(b)) {
		r := gjson.Parse(line)
		if r.Get("started").Exists() {
			all[r.Get("id").String()] = timing{r.Get("status").String(), r.Get("started").Time(), r.Get("ended").Time(), r.Get("seconds").Float()}
		}
	}
	return all
}

// column is the value at a gjson path of each line of a JSONL file.
func column(t *testing.T, path, field string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []string
	for l := range strings.Lines(string(b)) {
		out = append(out, gjson.Get(l, field).String())
	}
	return out
}

// TestInterruptWhileLoading sends TERM twice at once, as `timeout` does to a
// process and its group, while a plugin is being built: penstock ends with 1,
// and so does the build.
func TestInterruptWhileLoading(t *testing.T) {
	cache := t.TempDir()
	cmd := exec.Command(built, "run", filepath.Join("examples", "calculator", "pipeline.yaml"), "--out", filepath.Join(t.TempDir(), "out"))
	cmd.Env = append(os.Environ(), "PENSTOCK_CACHE="+cache)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return len(processesWith(cache)) > 0 }, 20*time.Second, time.Millisecond, "the build is on its way")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	err := cmd.Wait()
	exit, ok := err.(*exec.ExitError)
	require.True(t, ok, "%v: %s", err, said.String())
	assert.Equal(t, 1, exit.ExitCode(), said.String())
	assert.Contains(t, said.String(), "interrupted")
	assert.Eventually(t, func() bool { return len(processesWith(cache)) == 0 }, promised(time.Second), 10*time.Millisecond, "the build has ended")
}

// TestInterruptAtAnyMoment: whatever an agent, a server of its tools or a judge
// made of the Ctrl-C is no end of its rollout, and resume completes them all.
func TestInterruptAtAnyMoment(t *testing.T) {
	runs := 3
	if soak() {
		runs = 12
	}
	for n := range runs {
		out := filepath.Join(t.TempDir(), "out")
		cmd := exec.Command(built, "run", filepath.Join("examples", "calculator", "pipeline.yaml"), "--samples", "5", "--set", "stages.solve.retry.attempts=1", "--out", out)
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = &said, &said
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			events, _ := os.ReadFile(filepath.Join(out, "events.jsonl"))
			return strings.Count(string(events), `"stage.started"`) > n%12*3
		}, time.Minute, time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		_ = cmd.Wait()
		text, code := penstock(t, root, "resume", out)
		assert.Equal(t, 0, code, "%s\n%s", said.String(), text)
		assert.Contains(t, text, "20 of 20 completed")
		assert.Contains(t, text, "mean 1 over 20 rollouts")
	}
}
