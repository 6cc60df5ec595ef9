package main

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// TestL9_TeamCrashMatrix kills penstock at each event of examples/team at which a
// checkpoint is near, and has the run gone on with: it ends in the same state,
// nothing is counted twice, nobody is told twice. Its short form takes some of
// the events, by chance.
func TestL9_TeamCrashMatrix(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	want := teamRun(t, whole, 0)
	require.Greater(t, len(want.boundaries), 12, "what the example goes through")
	kills := rand.Perm(len(want.boundaries))
	if !soak() {
		kills = kills[:2]
	}
	t.Logf("killed at: %v", kills)
	for _, k := range kills {
		dir := filepath.Join(t.TempDir(), "out")
		teamRun(t, dir, k+1)
		text, code := penstock(t, root, "resume", dir)
		require.Equal(t, 3, code, text)
		assert.Equal(t, want.state, teamState(t, dir), "killed at %s", want.boundaries[k])
		told, err := os.ReadFile(filepath.Join(dir, "..", "told.jsonl"))
		require.NoError(t, err)
		assert.Equal(t, 2, strings.Count(string(told), "\n"), "killed at %s: %s", want.boundaries[k], told)
	}
}

// TestGroupCrash kills penstock at events of a run whose samples are judged
// together, and has it gone on with: each sample has its verdict once, and a
// group that has its verdicts is not judged again.
func TestGroupCrash(t *testing.T) {
	const ended = 6 // solve and rank of three samples
	kills := []int{1 + rand.IntN(3), 4 + rand.IntN(3)}
	if soak() {
		kills = []int{1, 2, 3, 4, 5, 6}
	}
	for _, k := range kills {
		dir := filepath.Join(t.TempDir(), "out")
		cmd := exec.Command(built, "run", "testdata/group/pipeline.yaml", "--json", "--out", dir, "--set", "concurrency.rollouts=1")
		cmd.Dir = root
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		seen := 0
		for lines := bufio.NewScanner(out); seen < k && lines.Scan(); {
			if gjson.Get(lines.Text(), "type").String() == "stage.ended" {
				seen++
			}
		}
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		require.Equal(t, k, seen, "of %d", ended)
		text, code := penstock(t, root, "resume", dir)
		require.Equal(t, 0, code, text)
		assert.Equal(t, []string{"1", "2", "3"}, column(t, filepath.Join(dir, "rollouts.jsonl"), "reward"), "killed at %d", k)
		assert.Equal(t, []string{"completed", "completed", "completed"}, column(t, filepath.Join(dir, "rollouts.jsonl"), "status"), "killed at %d", k)
		verdicts, err := filepath.Glob(filepath.Join(dir, "artifacts", "*", "rank", "*", "verdict.json"))
		require.NoError(t, err)
		assert.Len(t, verdicts, 3)
		events, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
		require.NoError(t, err)
		judged := strings.Count(string(events), `"type":"stage.started","run":"`) - 3 // solve of three samples
		if k > 3 {
			assert.Equal(t, 3, judged, "killed at %d, after the group was judged: %s", k, events)
		}
	}
}

// TestL7_WebhookIsToldAgainUnderTheSameKey kills penstock when a webhook was
// told of a park and that isn't noted yet. It is told again, with the key by
// which it can leave the second out.
func TestL7_WebhookIsToldAgainUnderTheSameKey(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"pipeline.yaml": `penstock: v1
name: told
tasks: { inline: [{ id: a }] }
stages:
  - { id: check, run: [sh, -c, "exit 1"], on_error: park }
`})
	var first sync.Once
	running := make(chan *os.Process, 1)
	type told struct{ key, park string }
	heard := make(chan told, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		heard <- told{r.Header.Get("Idempotency-Key"), gjson.GetBytes(body, "park").String()}
		first.Do(func() {
			assert.NoError(t, (<-running).Kill())
			<-r.Context().Done() // it never hears that it was heard
		})
	}))
	defer hook.Close()
	cmd := exec.Command(built, "run", "pipeline.yaml", "--out", "out", "--set", "notify=[{webhook: "+hook.URL+"}]")
	cmd.Dir = dir
	require.NoError(t, cmd.Start())
	running <- cmd.Process
	_ = cmd.Wait()
	for range 2 { // to go on with it a second time tells nobody
		text, code := penstock(t, dir, "resume", "out")
		require.Equal(t, 3, code, text)
	}
	close(heard)
	var all []told
	for h := range heard {
		all = append(all, h)
	}
	require.Len(t, all, 2)
	assert.Equal(t, all[0], all[1])
	assert.Equal(t, all[0].key, all[0].park)
	assert.NotEmpty(t, all[0].key)
}

type teamOutcome struct {
	boundaries []string
	state      []string
}

// teamRun runs the example, one rollout at a time, and kills penstock at the
// n-th event that tells of a stage's end or of a park.
func teamRun(t *testing.T, dir string, n int) teamOutcome {
	t.Helper()
	cmd := exec.Command(built, "run", "examples/team/pipeline.yaml", "--json", "--out", dir,
		"--set", "concurrency.rollouts=1", "--set", "notify=[{file: "+filepath.Join(dir, "..", "told.jsonl")+"}]")
	cmd.Dir = root
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var got teamOutcome
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		e := gjson.Parse(lines.Text())
		if typ := e.Get("type").String(); typ == "stage.ended" || typ == "rollout.parked" {
			got.boundaries = append(got.boundaries, typ+" "+e.Get("rollout").String()+" "+e.Get("stage").String())
		}
		if n > 0 && len(got.boundaries) == n {
			require.NoError(t, cmd.Process.Kill())
			break
		}
	}
	err = cmd.Wait()
	if n == 0 {
		require.ErrorContains(t, err, "exit status 3")
		got.state = teamState(t, dir)
	}
	return got
}

// teamState is what a run came to, without times and ids.
func teamState(t *testing.T, dir string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "rollouts.jsonl"))
	require.NoError(t, err)
	var out []string
	for line := range strings.Lines(string(data)) {
		r := gjson.Parse(line)
		out = append(out, strings.Join([]string{
			r.Get("id").String(), r.Get("status").String(), r.Get("phase").String(), r.Get("error").String(),
			r.Get("usage").Raw, r.Get("calls").Raw,
		}, " | "))
	}
	sort.Strings(out)
	return out
}
