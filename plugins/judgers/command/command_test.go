package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

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
		{"go: skipped is no pass", Config{}, nil, `{"Action":"skip","Package":"m","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"m"}`, "0", 0, "no_tests", "no test passed"},
		{"go: no module any more", Config{}, nil, "go: cannot find main module", "1", 0, "failed", "the report can't be read"},
		{"go: no report", Config{}, nil, "ok", "0", 0, "failed", "no event of go test -json"},
		{"go: no build, told twice", Config{}, nil, `{"ImportPath":"m [m.test]","Action":"build-fail"}` + "\n" + `{"Action":"fail","Package":"m","FailedBuild":"m [m.test]"}`, "1", 0, "failed", "failed: m does not build; sh"},
		{"go: cut in an event", Config{}, nil, strings.Join(strings.SplitAfter(goEvents, "\n")[:3], "") + `{"Action":"fail","Pack`, "0", 0, "failed", `an event of it is broken: {"Action":"fail","Pack`},
		{"go: cut between events", Config{}, nil, strings.Join(strings.SplitAfter(goEvents, "\n")[:3], ""), "0", 0, "failed", "failed: package m has not ended"},
		{"go: cut in what a test wrote", Config{}, nil, goEvents + `{"Action":"pass","Package":"m","Test":"TestB"}` + "\n" + `{"Action":"output","Package":"m","Outp` + "\n" + `{"Action":"pass","Package":"m"}`, "0", 1, "passed", ""},
		{"go: runs again and doesn't end", Config{}, nil, `{"Action":"pass","Package":"m","Test":"TestA"}` + "\n" + `{"Action":"run","Package":"m","Test":"TestA"}`, "0", 0, "failed", "failed: m.TestA"},
		{"go: in UTF-16", Config{}, nil, utf16le(goEvents + `{"Action":"pass","Package":"m","Test":"TestB"}` + "\n" + `{"Action":"pass","Package":"m"}`), "0", 1, "passed", ""},
		{"tap: a number twice", Config{Result: "tap"}, nil, "1..2\nok 1\nok 1\n", "0", 0, "failed", "failed: test 1 is there twice, 1 tests of a plan of 2"},
		{"tap: a number outside of the plan", Config{Result: "tap"}, nil, "1..2\nok 1\nok 7\n", "0", 0, "failed", "of a plan of 2"},
		{"tap: in any order", Config{Result: "tap"}, nil, "1..3\nok 3\nok 1\nok 2\n", "0", 1, "passed", ""},
		{"tap: numbered and not", Config{Result: "tap"}, nil, "1..3\nok\nok 2\nok\n", "0", 1, "passed", ""},
		{"tap: without a name", Config{Result: "tap"}, nil, "1..2\nok 1\nnot ok 2\n", "0", 0, "failed", "failed: test 2"},
		{"tap: two plans", Config{Result: "tap"}, nil, "1..1\nok 1\n1..2\nok 2\n", "0", 0, "failed", "there is a second plan: 1..2"},
		{"junit: more tests than are shown", Config{Result: "junit"}, nil, `<testsuite tests="5"><testcase name="a"/></testsuite>`, "0", 0, "failed", "suite counts 5 tests and shows 1"},
		{"junit: a fifth of the tests", Config{Result: "junit", Partial: true}, nil, `<testsuites tests="5"><testsuite tests="5" failures="2"><testcase name="a"/></testsuite></testsuites>`, "0", 0.2, "failed", "counts 2 failures and shows 0, suite counts 5 tests and shows 1"},
		{"junit: skipped ones left out", Config{Result: "junit"}, nil, `<testsuites tests="3" skipped="2"><testsuite tests="3" skipped="2"><testcase name="a"/></testsuite></testsuites>`, "0", 1, "passed", ""},
		{"junit: without a name", Config{Result: "junit"}, nil, `<testsuite><testcase><failure/></testcase></testsuite>`, "0", 0, "failed", "failed: a test without a name"},
		{"junit: ISO-8859-1", Config{Result: "junit"}, []string{"é"}, "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><testsuite><testcase name=\"\xe9\"/></testsuite>", "0", 1, "passed", ""},
		{"junit: windows-1252", Config{Result: "junit"}, []string{"€"}, "<?xml version=\"1.0\" encoding=\"Windows-1252\"?><testsuite><testcase name=\"\x80\"/></testsuite>", "0", 1, "passed", ""},
		{"junit: US-ASCII", Config{Result: "junit"}, nil, `<?xml version="1.0" encoding="US-ASCII"?><testsuite><testcase name="a"/></testsuite>`, "0", 1, "passed", ""},
		{"junit: UTF-16", Config{Result: "junit"}, []string{"é"}, utf16le(`<?xml version="1.0" encoding="UTF-16"?><testsuite><testcase name="é"/></testsuite>`), "0", 1, "passed", ""},
		{"junit: UTF-16 without a mark", Config{Result: "junit"}, nil, utf16le(`<testsuite><testcase name="a"/></testsuite>`)[2:], "0", 1, "passed", ""},
		{"junit: a mark of UTF-8", Config{Result: "junit"}, nil, "\ufeff" + `<testsuite><testcase name="a"/></testsuite>`, "0", 1, "passed", ""},
		{"junit: not in what it says", Config{Result: "junit"}, nil, `<?xml version="1.0" encoding="UTF-16"?><testsuite><testcase name="a"/></testsuite>`, "0", 0, "failed", "it is not in UTF-16, as it says"},
		{"junit: an encoding that isn't known", Config{Result: "junit"}, nil, `<?xml version="1.0" encoding="KOI-7"?><testsuite/>`, "1", 0, "failed", "in the encoding KOI-7"},
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

// utf16le is a text as some shells write it into a file.
func utf16le(text string) string {
	out := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(text)) {
		out = append(out, byte(u), byte(u>>8))
	}
	return string(out)
}

// TestNoResultIsLostInALongReport: what a test writes is more than is kept, and
// what failed before it still counts.
func TestNoResultIsLostInALongReport(t *testing.T) {
	const chatty = `i=0; while [ $i -lt 100 ]; do cat noise; i=$((i+1)); done; `
	noise := strings.Repeat(`{"Action":"output","Package":"m","Test":"TestA","Output":"some line that a chatty test writes\n"}`+"\n", 200)
	begin := `echo '{"Action":"run","Package":"m","Test":"TestB"}'; echo '{"Action":"fail","Package":"m","Test":"TestB"}'; `
	const end = `echo '{"Action":"pass","Package":"m","Test":"TestA"}'; `
	for _, c := range []struct {
		name   string
		cfg    Config
		tests  []string
		line   string
		reward float64
	}{
		{"an early failure, and the exit code lost in a pipe", Config{}, nil, begin + chatty + end, 0},
		{"an early failure", Config{}, nil, begin + chatty + end + "exit 1", 0},
		{"a part", Config{Partial: true}, nil, begin + chatty + end + "exit 1", 0.5},
		{"the test that counts passed", Config{}, []string{"TestA"}, begin + chatty + end + "exit 1", 1},
		{"the test that counts failed", Config{}, []string{"TestB"}, begin + chatty + end + "exit 1", 0},
		{"all pass", Config{}, nil, chatty + end + `echo '{"Action":"pass","Package":"m"}'`, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Result = "go_test"
			v, err := judge(t, c.cfg, c.line, Input{Tests: c.tests}, map[string]string{"noise": noise})
			require.NoError(t, err)
			assert.Equal(t, c.reward, *v.Reward, v.Explanation)
		})
	}
}

// TestTheJudgesOwnLimits give no reward, but where what is known fails already:
// nobody gets rid of a failure by writing much.
func TestTheJudgesOwnLimits(t *testing.T) {
	const over = "it is over the limit of 1000 bytes"
	pass := goEvents + `{"Action":"pass","Package":"m","Test":"TestB"}` + "\n" + `{"Action":"pass","Package":"m"}` + "\n"
	fail := goEvents + `{"Action":"fail","Package":"m","Test":"TestB"}` + "\n" + `{"Action":"fail","Package":"m"}` + "\n"
	bounded := Config{Result: "go_test", Output: 1000}
	part := Config{Result: "go_test", Output: 1000, Partial: true}
	file := Config{Result: "go_test", Output: 1000, Report: "made"}
	for _, c := range []struct {
		name  string
		cfg   Config
		tests []string
		line  string
		err   string // else the reward is 0
	}{
		{"passes so far", bounded, nil, "cat pass; seq 1 1000", over},
		{"a report that comes too late", bounded, nil, "seq 1 1000; cat pass", over},
		{"in the middle of a test", bounded, nil, "head -4 pass; seq 1 1000; tail -2 pass", over},
		{"failed before", bounded, nil, "cat fail; seq 1 1000", ""},
		{"the exit code says it", bounded, nil, "seq 1 1000; exit 1", ""},
		{"the exit code says nothing of those that count", bounded, []string{"TestA"}, "cat pass; seq 1 1000; exit 1", over},
		{"one that counts failed", bounded, []string{"m.TestB"}, "cat fail; seq 1 1000", ""},
		{"how many passed isn't known", part, nil, "cat fail; seq 1 1000; exit 1", over},
		{"a file", file, nil, "(cat pass; seq 1 1000) > made", over},
		{"a file, failed before", file, nil, "(cat fail; seq 1 1000) > made", ""},
		{"a file that is all holes", Config{Result: "junit", Report: "made"}, nil, "truncate -s 1T made", ""},
		{"JUnit", Config{Result: "junit", Output: 1000}, nil, "echo '<testsuite><testcase name=\"a\"/><system-out>'; seq 1 1000; echo '</system-out></testsuite>'", over},
		{"JUnit, failed before", Config{Result: "junit", Output: 1000}, nil, "echo '<testsuite><testcase name=\"a\"><failure/></testcase><system-out>'; seq 1 1000", ""},
		{"TAP", Config{Result: "tap", Output: 1000}, nil, "echo 1..1; echo ok 1; seq 1 1000", over},
		{"an encoding that isn't known", Config{Result: "junit"}, nil, `echo '<?xml version="1.0" encoding="KOI-7"?><testsuite/>'`, "in the encoding KOI-7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := judge(t, c.cfg, c.line, Input{Tests: c.tests}, map[string]string{"pass": pass, "fail": fail})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, 0.0, *v.Reward)
		})
	}
	_, err := judge(t, bounded, "cat pass; seq 1 1000", Input{}, map[string]string{"pass": pass})
	assert.ErrorContains(t, err, "raise it with output")
}

// TestNoiseIsNoError: what the agent's work writes beside a report.
func TestNoiseIsNoError(t *testing.T) {
	pass := goEvents + `{"Action":"pass","Package":"m","Test":"TestB"}` + "\n" + `{"Action":"pass","Package":"m"}` + "\n"
	for _, c := range []struct {
		name   string
		cfg    Config
		line   string
		reward float64
	}{
		{"before it", Config{Result: "go_test"}, "head -c 3000000 /dev/zero; seq 1 1000; cat report", 1},
		{"behind it", Config{Result: "go_test"}, "cat report; head -c 3000000 /dev/zero", 1},
		{"on standard error", Config{Result: "go_test", Output: 1000}, "seq 1 1000 >&2; cat report", 1},
		{"a verdict beside standard error", Config{Result: "json", Output: 1000}, "seq 1 1000 >&2; echo 1", 1},
		{"no report at all", Config{Result: "junit"}, "head -c 3000000 /dev/zero", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := judge(t, c.cfg, c.line, Input{}, map[string]string{"report": pass})
			require.NoError(t, err)
			assert.Equal(t, c.reward, *v.Reward, v.Explanation)
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
