package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/workspace"
)

// outcome is how a test ended. A test that began and never ended is failed.
type outcome int

const (
	failed outcome = iota
	passed
	skipped
)

// test is one test of a report; suite is its package or class.
type test struct {
	suite, name string
	outcome     outcome
}

func (t test) full() string {
	if t.suite == "" {
		return t.name
	}
	return t.suite + "." + t.name
}

// report is what a program said of its tests. Broken are failures that are no
// test's, such as a package that does not build. Unseen are tests that failed
// without being told of one by one.
type report struct {
	tests  []test
	broken []string
	unseen []unseen
}

type unseen struct {
	count int
	why   string
}

// tests judges by a report. Unread says what of it could not be read. All that
// can be wrong with a report the agent's work can have caused, as by ending the
// program early, so that it is no error.
func (c *command) tests(in Input, res *workspace.Result, texts []string, unread error) judger.Verdict {
	var all report
	var lost string
	for _, text := range texts {
		if err := readers[c.cfg.Result](text, &all); err != nil {
			unread = errors.Join(unread, err)
		}
	}
	// Of a report whose beginning is missing the end is judged, and the exit
	// code, which knows of all tests; only how many there are nobody knows.
	if c.cut(res) && (unread != nil || c.cfg.Partial || !res.OK()) {
		unread = errors.Join(errCut, unread)
	}
	if unread != nil {
		lost = "the report can't be read: " + strings.ReplaceAll(unread.Error(), "\n", "; ")
		all.broken = append(all.broken, lost)
	}
	if len(in.Tests) > 0 {
		all = named(all, in.Tests)
	}
	var n [3]int
	var wrong []string
	for _, t := range all.tests {
		n[t.outcome]++
		if t.outcome == failed {
			wrong = append(wrong, t.full())
		}
	}
	wrong = append(wrong, all.broken...)
	for _, u := range all.unseen {
		n[failed] += u.count
		wrong = append(wrong, u.why)
	}
	ok := len(wrong) == 0 && n[passed] >= max(c.min, len(in.Tests))
	// Named tests may stand among others that fail, and so fail the program.
	ok = ok && (res.OK() || len(in.Tests) > 0 && !res.TimedOut)
	v := judger.Pass(ok)
	v.Label = label(res, ok)
	if c.cfg.Partial {
		part := 0.0
		total := n[passed] + n[failed] + len(all.broken)
		if n[passed] >= c.min && total > 0 && lost == "" {
			part = float64(n[passed]) / float64(total)
		}
		v = judger.Verdict{Reward: &part, Status: judger.Scored, Label: v.Label}
	}
	v.Components = map[string]float64{"passed": float64(n[passed]), "failed": float64(n[failed]), "skipped": float64(n[skipped])}
	switch {
	case len(wrong) > 0:
		v.Explanation = "failed: " + some(wrong)
	case n[passed] == 0 && !res.TimedOut:
		v.Label, v.Explanation = "no_tests", "no test passed"
	case n[passed] < c.min:
		v.Explanation = fmt.Sprintf("%d tests passed, want at least %d", n[passed], c.min)
	}
	if !ok && lost != "" && len(in.Tests) > 0 { // else it is among what is wrong
		v.Explanation += "; " + lost
	}
	if !ok && !res.OK() {
		v.Explanation = strings.TrimPrefix(v.Explanation+"; ", "; ") + in.Command[0] + " " + ended(res) + lastWords(res)
	}
	return v
}

// named keeps the tests that count; one that the report doesn't have failed.
func named(all report, names []string) report {
	var out report
	for _, name := range names {
		found := false
		for _, t := range all.tests {
			if t.name == name || t.full() == name {
				found = true
				out.tests = append(out.tests, t)
			}
		}
		if !found {
			out.tests = append(out.tests, test{name: name})
		}
	}
	for i, t := range out.tests {
		if t.outcome == skipped { // it has to pass
			out.tests[i].outcome = failed
		}
	}
	return out
}

// mostUnseen bounds what a report can say of tests that it doesn't show.
const mostUnseen = 1 << 20

func some(names []string) string {
	const most = 10
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d others", len(names)-most)
	}
	return strings.Join(names, ", ")
}

var readers = map[string]func(string, *report) error{goTest: readGoTest, junit: readJUnit, tap: readTAP}

// readGoTest reads the events of go test -json. Other lines are what the go
// command says of a build.
func readGoTest(text string, out *report) error {
	at := map[string]int{}
	events := false
	for line := range strings.Lines(text) {
		var e struct{ Action, Package, ImportPath, Test string }
		if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
			continue
		}
		events = true
		if e.Test == "" {
			if e.Action == "fail" || e.Action == "build-fail" {
				out.broken = append(out.broken, e.Package+e.ImportPath)
			}
			continue
		}
		key := e.Package + "\x00" + e.Test
		i, known := at[key]
		if !known {
			i = len(out.tests)
			at[key] = i
			out.tests = append(out.tests, test{suite: e.Package, name: e.Test})
		}
		switch e.Action {
		case "pass":
			out.tests[i].outcome = passed
		case "skip":
			out.tests[i].outcome = skipped
		case "fail":
			out.tests[i].outcome = failed
		}
	}
	if !events {
		return errors.New("it holds no event of go test -json")
	}
	// A package fails with its tests; that is no failure of its own.
	out.broken = slices.DeleteFunc(out.broken, func(pkg string) bool {
		return slices.ContainsFunc(out.tests, func(t test) bool { return t.suite == pkg && t.outcome == failed })
	})
	return nil
}

// readTAP reads the Test Anything Protocol, its subtests left to their parent.
// A plan has to be there, and to be kept: without one a program that ended
// early looks like one that passed.
func readTAP(text string, out *report) error {
	plan, before := -1, len(out.tests)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if n, ok := strings.CutPrefix(line, "1.."); ok {
			n, _, _ = strings.Cut(n, " ")
			if count, err := strconv.Atoi(n); err == nil {
				plan = count
			}
			continue
		}
		if why, ok := strings.CutPrefix(line, "Bail out!"); ok {
			out.broken = append(out.broken, "Bail out!"+why)
			continue
		}
		rest, bad := strings.CutPrefix(line, "not ok")
		if !bad {
			var ok bool
			if rest, ok = strings.CutPrefix(line, "ok"); !ok {
				continue
			}
		}
		if rest != "" && rest[0] != ' ' {
			continue // a word that begins so
		}
		text, directive, _ := strings.Cut(rest, " # ")
		found := test{name: description(text), outcome: passed}
		if bad {
			found.outcome = failed
		}
		if d := strings.ToUpper(directive); strings.HasPrefix(d, "SKIP") || bad && strings.HasPrefix(d, "TODO") {
			found.outcome = skipped
		}
		out.tests = append(out.tests, found)
	}
	if plan < 0 {
		return errors.New("it is no TAP: there is no plan, such as 1..3")
	}
	n := len(out.tests) - before
	if n == plan {
		return nil
	}
	why := fmt.Sprintf("%d tests of a plan of %d", n, plan)
	if n > plan {
		out.broken = append(out.broken, why)
	} else {
		out.unseen = append(out.unseen, unseen{min(plan-n, mostUnseen), why})
	}
	return nil
}

// description is what stands behind the number of a TAP test.
func description(text string) string {
	text = strings.TrimSpace(text)
	if first, rest, _ := strings.Cut(text, " "); first != "" && strings.Trim(first, "0123456789") == "" {
		text = strings.TrimSpace(rest)
	}
	return strings.TrimSpace(strings.TrimPrefix(text, "- "))
}
