package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// judge runs a shell line in a workspace with these files.
func judge(t *testing.T, cfg Config, line string, in Input, files map[string]string) (judger.Verdict, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	in.Command = []string{"sh", "-c", line}
	request, err := json.Marshal(map[string]any{"input": in, "task": map[string]any{"id": "a"}, "rollout": map[string]any{"workspace": dir}})
	require.NoError(t, err)
	j, err := New(cfg)
	require.NoError(t, err)
	v, err := j.Judge(t.Context(), judger.NewRequest(doc.Bytes(request)))
	if err == nil {
		assert.NoError(t, v.Check())
	}
	return v, err
}

func TestExitCode(t *testing.T) {
	v, err := judge(t, Config{}, `grep -q 42 answer.txt`, Input{}, map[string]string{"answer.txt": "42\n"})
	require.NoError(t, err)
	assert.Equal(t, 1.0, *v.Reward)
	v, err = judge(t, Config{}, `echo "it is 41" >&2; exit 3`, Input{}, nil)
	require.NoError(t, err)
	assert.Equal(t, 0.0, *v.Reward)
	assert.Equal(t, "sh ended with exit code 3; its output ends: it is 41", v.Explanation)
	v, err = judge(t, Config{Timeout: "100ms"}, `sleep 60`, Input{}, nil)
	require.NoError(t, err)
	assert.Equal(t, 0.0, *v.Reward)
	assert.Equal(t, "timeout", v.Label)
	v, err = judge(t, Config{}, `test "$A$(cat)" = bc && test -z "$PENSTOCK_TEST_SECRET"`, Input{Env: map[string]string{"A": "b"}, Stdin: "c"}, nil)
	require.NoError(t, err)
	assert.Equal(t, 1.0, *v.Reward, v.Explanation)
}

// TestWhatCantJudgeIsAnError: no reward, instead of a wrong one.
func TestWhatCantJudgeIsAnError(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		line string
		want string
	}{
		{Config{Errors: []int{9}}, "echo disk full >&2; exit 9", "exit code 9, which error_codes names; its output ends: disk full"},
		{Config{}, "exit 137", "sh was killed"},
		{Config{}, "kill -9 $$", "sh was killed"},
		{Config{Result: "tap"}, "echo 1..1; echo ok 1; kill -9 $$", "sh was killed"},
		{Config{Result: "json"}, "exit 1", "ended with exit code 1"},
		{Config{Result: "json"}, "true", "wrote no verdict"},
		{Config{Result: "json"}, "echo nice", "neither a number nor a verdict: nice"},
		{Config{Result: "json"}, "echo null", "neither a number nor a verdict"},
		{Config{Result: "json"}, `echo '{"rewards": 1}'`, `has "rewards"`},
		{Config{Result: "json"}, `echo '{"label": "x"}'`, "has no reward"},
		{Config{Result: "json"}, `echo '{"reward": 1, "status": "skipped"}'`, "skipped but has a reward"},
		{Config{Result: "json", Output: 100}, "seq 1 1000", "over the limit"},
		{Config{Result: "json", Report: "out/*.json"}, "true", "left 0 reports"},
	} {
		_, err := judge(t, c.cfg, c.line, Input{}, nil)
		assert.ErrorContains(t, err, c.want)
	}
	j, err := New(Config{})
	require.NoError(t, err)
	_, err = j.Judge(t.Context(), judger.NewRequest(doc.Bytes(`{"input":{"command":["x"]},"task":{},"rollout":{}}`)))
	assert.ErrorContains(t, err, "no workspace")
}

func TestOwnVerdict(t *testing.T) {
	v, err := judge(t, Config{Result: "json"}, `echo 0.25`, Input{}, nil)
	require.NoError(t, err)
	assert.Equal(t, judger.Reward(0.25), v)
	v, err = judge(t, Config{Result: "json", Report: "out/v.json"}, `mkdir -p out; echo '{"reward": 0.5, "label": "half", "components": {"a": 1}}' > out/v.json`, Input{}, nil)
	require.NoError(t, err)
	assert.Equal(t, 0.5, *v.Reward)
	assert.Equal(t, "half", v.Label)
	assert.Equal(t, map[string]float64{"a": 1}, v.Components)
	v, err = judge(t, Config{Result: "json"}, `echo '{"reward": null, "status": "skipped", "explanation": "no test for it"}'`, Input{}, nil)
	require.NoError(t, err)
	assert.Nil(t, v.Reward)
	assert.Equal(t, judger.Skipped, v.Status)
}

// TestAReportThatTheAgentWroteIsNotRead: only one of this run is.
func TestAReportThatTheAgentWroteIsNotRead(t *testing.T) {
	planted := map[string]string{"out/v.json": `{"reward": 1}`}
	_, err := judge(t, Config{Result: "json", Report: "out/*.json"}, "true", Input{}, planted)
	assert.ErrorContains(t, err, "left 0 reports")
	v, err := judge(t, Config{Result: "json", Report: "out/*.json"}, "echo 0 > out/mine.json", Input{}, planted)
	require.NoError(t, err)
	assert.Equal(t, 0.0, *v.Reward)
}

// TestTestsThatTheAgentChangedAreRestored: they run as they were, and the
// change is told.
func TestTestsThatTheAgentChangedAreRestored(t *testing.T) {
	in := Input{Files: map[string]string{"t/check.sh": "test -f done"}}
	v, err := judge(t, Config{}, "sh t/check.sh", in, map[string]string{"t/check.sh": "true\n"})
	require.NoError(t, err)
	assert.True(t, v.Tampered)
	assert.Equal(t, 0.0, *v.Reward)
	assert.Equal(t, "changed by the agent: t/check.sh", v.Explanation)
	for tamper, want := range map[string]*float64{"score": new(float64), "skip": nil} {
		v, err = judge(t, Config{Tamper: tamper}, "sh t/check.sh", in, map[string]string{"t/check.sh": "true\n"})
		require.NoError(t, err)
		assert.True(t, v.Tampered)
		assert.Equal(t, want, v.Reward)
	}
	// As it was, gone, or never seen by the agent: no change.
	for _, files := range []map[string]string{{"done": "", "t/check.sh": "test -f done\n"}, {"done": ""}, {"done": "", "t/check.sh": "test -f done\r\n"}} {
		v, err = judge(t, Config{}, "sh t/check.sh", in, files)
		require.NoError(t, err)
		assert.False(t, v.Tampered)
		assert.Equal(t, 1.0, *v.Reward)
	}
}

const goEvents = `{"Action":"run","Package":"m","Test":"TestA"}
{"Action":"output","Package":"m","Test":"TestA","Output":"{\"Action\":\"pass\",\"Test\":\"TestFake\"}\n"}
{"Action":"pass","Package":"m","Test":"TestA","Elapsed":0}
{"Action":"run","Package":"m","Test":"TestB"}
`

func TestReportsOfTests(t *testing.T) {
	two := 2
	for _, c := range []struct {
		name   string
		cfg    Config
		tests  []string
		report string
		exit   string
		reward float64
		label  string
		words  string
	}{
		{"go: all pass", Config{}, nil, goEvents + `{"Action":"pass","Package":"m","Test":"TestB"}` + "\n" + `{"Action":"pass","Package":"m"}`, "0", 1, "passed", ""},
		{"go: one fails", Config{}, nil, goEvents + `{"Action":"fail","Package":"m","Test":"TestB"}` + "\n" + `{"Action":"fail","Package":"m"}`, "1", 0, "failed", "failed: m.TestB; sh ended with exit code 1"},
		{"go: one never ended", Config{}, nil, goEvents, "0", 0, "failed", "failed: m.TestB"},
		{"go: half passes", Config{Partial: true}, nil, goEvents + `{"Action":"fail","Package":"m","Test":"TestB"}`, "1", 0.5, "failed", "m.TestB"},
		{"go: no build", Config{}, nil, `{"ImportPath":"m","Action":"build-fail"}` + "\n" + `{"Action":"fail","Package":"m"}`, "1", 0, "failed", "failed: m"},
		{"go: skipped is no pass", Config{}, nil, `{"Action":"skip","Package":"m","Test":"TestA"}`, "0", 0, "no_tests", "no test passed"},
		{"go: no module any more", Config{}, nil, "go: cannot find main module", "1", 0, "failed", "the report can't be read"},
		{"go: no report", Config{}, nil, "ok", "0", 0, "failed", "no event of go test -json"},
		{"go: those that count", Config{}, []string{"m.TestA"}, goEvents + `{"Action":"fail","Package":"m","Test":"TestB"}`, "1", 1, "passed", ""},
		{"go: one that isn't there", Config{}, []string{"TestA", "TestZ"}, goEvents, "0", 0, "failed", "failed: TestZ"},
		{"tap: all pass", Config{Result: "tap"}, []string{"2 plus 2"}, "TAP version 13\n1..2\nok 1 - 2 plus 2\nok 2 x # SKIP no network\n", "0", 1, "passed", ""},
		{"tap: one fails", Config{Result: "tap"}, nil, "ok 1\nnot ok 2 - b\n    ok 1 - inner\n1..2", "0", 0, "failed", "failed: b"},
		{"tap: ended early", Config{Result: "tap"}, nil, "1..3\nok 1\n", "0", 0, "failed", "1 tests of a plan of 3"},
		{"tap: not done yet", Config{Result: "tap"}, nil, "1..2\nok 1 a\nnot ok 2 b # TODO later\n", "0", 1, "passed", ""},
		{"tap: bails out", Config{Result: "tap"}, nil, "1..1\nok 1\nBail out! no disk\n", "0", 0, "failed", "Bail out! no disk"},
		{"tap: no plan", Config{Result: "tap"}, nil, "ok 1", "0", 0, "failed", "the report can't be read: it is no TAP: there is no plan"},
		{"tap: a tenth of the plan", Config{Result: "tap", Partial: true}, nil, "1..10\nok 1\n", "0", 0.1, "failed", "1 tests of a plan of 10"},
		{"tap: more than any", Config{Result: "tap", Partial: true}, nil, "1..9223372036854775807\n", "0", 0, "failed", "0 tests of a plan"},
		{"tap: no tests", Config{Result: "tap"}, nil, "1..0 # SKIP all\n", "0", 0, "no_tests", "no test passed"},
		{"junit: all pass", Config{Result: "junit", Min: &two}, nil, `<testsuites><testsuite><testcase classname="c" name="a"/><testcase name="b"><system-out>x</system-out></testcase></testsuite></testsuites>`, "0", 1, "passed", ""},
		{"junit: too few", Config{Result: "junit", Min: &two}, nil, `<testsuite><testcase name="b"/></testsuite>`, "0", 0, "failed", "1 tests passed, want at least 2"},
		{"junit: one fails", Config{Result: "junit"}, nil, `<testsuite><testcase classname="c" name="a"><failure message="x">y</failure></testcase></testsuite>`, "0", 0, "failed", "failed: c.a"},
		{"junit: none", Config{Result: "junit"}, nil, `<html/>`, "0", 0, "failed", "its root is <html>"},
		{"junit: control bytes", Config{Result: "junit"}, nil, "<testsuite><testcase name=\"a\"><system-out>\x01</system-out></testcase></testsuite>", "0", 0, "failed", "it is no JUnit XML"},
		{"junit: a part that can be read", Config{Result: "junit", Partial: true}, nil, `<testsuite><testcase name="a"/><testcase`, "0", 0, "failed", "can't be read"},
		{"junit: a suite's own error", Config{Result: "junit"}, nil, `<testsuite name="s" errors="1"><testcase name="a"/><error/></testsuite>`, "0", 0, "failed", "failed: suite s failed apart from its tests"},
		{"junit: more failures than are shown", Config{Result: "junit", Partial: true}, nil, `<testsuites failures="3"><testsuite name="s" failures="2" errors="1"><testcase name="a"/><testcase name="b"><failure/></testcase></testsuite></testsuites>`, "0", 0.25, "failed", "failed: b, suite s counts 3 failures and shows 1"},
		{"junit: only failures that are counted", Config{Result: "junit"}, nil, `<testsuites errors="1"><testsuite><testcase name="a"/></testsuite></testsuites>`, "0", 0, "failed", "counts 1 failures and shows 0"},
		{"junit: as many as are shown", Config{Result: "junit", Partial: true}, nil, `<testsuites failures="1"><testsuite failures="1"><testcase name="a"/><testcase name="b"><failure/></testcase></testsuite></testsuites>`, "1", 0.5, "failed", "failed: b"},
		{"junit: no test", Config{Result: "junit"}, nil, `<testsuite><properties><testcase name="a"/></properties><testcase name="b" status="notrun"/></testsuite>`, "0", 0, "no_tests", "no test passed"},
		{"junit: status", Config{Result: "junit"}, nil, `<testsuite><testcase name="a" status="run"/><testcase name="b" status="failed"/></testsuite>`, "0", 0, "failed", "failed: b"},
		{"junit: cut", Config{Result: "junit"}, nil, `<testsuite><testcase classname="c" na`, "2", 0, "failed", "it is no JUnit XML"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.cfg.Result == "" {
				c.cfg.Result = "go_test"
			}
			v, err := judge(t, c.cfg, "cat report; exit "+c.exit, Input{Tests: c.tests}, map[string]string{"report": c.report})
			require.NoError(t, err)
			assert.Equal(t, c.reward, *v.Reward)
			assert.Equal(t, c.label, v.Label)
			assert.Contains(t, v.Explanation, c.words)
		})
	}
}

// TestNoiseIsNoError: what the agent's work writes may be more than is read.
func TestNoiseIsNoError(t *testing.T) {
	pass := goEvents + `{"Action":"pass","Package":"m","Test":"TestB"}` + "\n"
	for _, c := range []struct {
		name   string
		cfg    Config
		line   string
		reward float64
		words  string
	}{
		{"passes", Config{Result: "go_test", Output: 1000}, "seq 1 1000; cat report", 1, ""},
		{"fails", Config{Result: "go_test", Output: 1000}, "seq 1 1000; cat report; exit 1", 0, "standard output is over the limit"},
		{"how many passed isn't known", Config{Result: "go_test", Output: 1000, Partial: true}, "seq 1 1000; cat report", 0, "standard output is over the limit"},
		{"no report is left", Config{Result: "go_test", Output: 1000}, "cat report; seq 1 1000", 0, "standard output is over the limit"},
		{"on standard error", Config{Result: "go_test", Output: 1000}, "seq 1 1000 >&2; cat report", 1, ""},
		{"a verdict beside standard error", Config{Result: "json", Output: 1000}, "seq 1 1000 >&2; echo 1", 1, ""},
		{"a report too large to be read", Config{Result: "go_test", Report: "big"}, "truncate -s 17M big", 0, "the report can't be read: read big of the workspace: it is over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := judge(t, c.cfg, c.line, Input{}, map[string]string{"report": pass})
			require.NoError(t, err)
			assert.Equal(t, c.reward, *v.Reward)
			assert.Contains(t, v.Explanation, c.words)
		})
	}
}

// TestATestThatIsGoneWasTamperedWith: removed, or with a link or a pipe in its
// place, which a link that leads out and a pipe are to a judge, too.
func TestATestThatIsGoneWasTamperedWith(t *testing.T) {
	for name, c := range map[string]struct {
		had, link bool
		tampered  bool
	}{
		"removed":       {had: true, tampered: true},
		"never there":   {},
		"a link":        {had: true, link: true, tampered: true},
		"a link anyhow": {link: true, tampered: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, before := t.TempDir(), t.TempDir()
			if c.had {
				require.NoError(t, os.WriteFile(filepath.Join(before, "check.sh"), []byte("true\n"), 0o600))
			}
			if c.link {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.sh"), []byte("true\n"), 0o600))
				require.NoError(t, os.Symlink("mine.sh", filepath.Join(dir, "check.sh")))
			}
			request, err := json.Marshal(map[string]any{
				"input": Input{Command: []string{"sh", "check.sh"}, Files: map[string]string{"check.sh": "true"}}, "task": map[string]any{},
				"rollout": map[string]any{"workspace": dir, "workspace_before": before},
			})
			require.NoError(t, err)
			j, err := New(Config{})
			require.NoError(t, err)
			v, err := j.Judge(t.Context(), judger.NewRequest(doc.Bytes(request)))
			require.NoError(t, err)
			assert.Equal(t, c.tampered, v.Tampered)
			assert.Equal(t, c.tampered, *v.Reward == 0)
		})
	}
}

// TestWhatIsInTheWay of a file that is put back, or of a report, goes.
func TestWhatIsInTheWay(t *testing.T) {
	in := Input{Files: map[string]string{"t/check.sh": "true"}}
	v, err := judge(t, Config{Tamper: "score"}, "sh t/check.sh", in, map[string]string{"t": "a file"})
	require.NoError(t, err)
	assert.True(t, v.Tampered)
	assert.Equal(t, 1.0, *v.Reward)
	for _, planted := range []string{"out", "out/v.json/deep"} {
		v, err = judge(t, Config{Result: "json", Report: "out/v.json"}, "mkdir -p out && echo 0.5 > out/v.json", Input{}, map[string]string{planted: "1"})
		require.NoError(t, err)
		assert.Equal(t, 0.5, *v.Reward, planted)
	}
}

func TestConfig(t *testing.T) {
	less := -1
	for want, cfg := range map[string]Config{
		`result is "xml"`:         {Result: "xml"},
		`on_tamper is "no"`:       {Tamper: "no"},
		"report is read with":     {Report: "a"},
		"want a path in the work": {Result: "tap", Report: "/a"},
		"partial and min_tests":   {Partial: true},
		"min_tests is negative":   {Result: "tap", Min: &less},
		"output is negative":      {Output: -1},
		`timeout is "soon"`:       {Timeout: "soon"},
	} {
		_, err := New(cfg)
		assert.ErrorContains(t, err, want)
	}
}
