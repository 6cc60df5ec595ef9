package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/workspace"
)

// outcome is how a test ended. A test that began and never ended is failed,
// once all of the report is known.
type outcome int

const (
	failed outcome = iota
	passed
	skipped
	begun
)

// test is one test of a report; suite is its package or class.
type test struct {
	suite, name string
	outcome     outcome
}

func (t test) full() string {
	switch {
	case t.name == "" && t.suite == "":
		return "a test without a name"
	case t.name == "":
		return "a test of " + t.suite + " without a name"
	case t.suite == "":
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
	late   []string // what is broken if nothing else comes, such as a package without an end
}

type unseen struct {
	count int
	why   string
}

// add takes a test, or says that there are more than the judge can hold.
func (r *report) add(t test) error {
	if len(r.tests) == mostTests {
		return &limit{fmt.Sprintf("it has more than %d tests", mostTests)}
	}
	r.tests = append(r.tests, t)
	return nil
}

// tests judges by a report. Unread says what of it could not be read. All that
// can be wrong with a report the agent's work can have caused, as by ending the
// program early, so that it is no pass. Only what the judge itself can't read
// is an error, and that only where what is known is not no pass already, so that
// nobody gets rid of a failure by writing much.
func (c *command) tests(in Input, res *workspace.Result, all report, unread error) (judger.Verdict, error) {
	var lost string
	if unread != nil {
		lost = "the report can't be read: " + strings.ReplaceAll(unread.Error(), "\n", "; ")
	}
	var own *limit
	cut := errors.As(unread, &own)
	if cut {
		all.tests = slices.DeleteFunc(all.tests, func(t test) bool { return t.outcome == begun })
		all.late = nil
		if !c.failsAnyhow(in, res, all) {
			return judger.Verdict{}, fmt.Errorf("%s%s", lost, lastWords(res))
		}
	}
	all.broken = append(all.broken, all.late...)
	if lost != "" {
		all.broken = append(all.broken, lost)
	}
	if len(in.Tests) > 0 {
		all = named(all, in.Tests)
	}
	var n [3]int
	var wrong []string
	for _, t := range all.tests {
		if t.outcome == begun {
			t.outcome = failed
		}
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
		v.Explanation = "failed: " + some(distinct(wrong))
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
	return v, nil
}

// failsAnyhow says whether the rest of a report could not make it pass. A part
// of all tests is never known of a part of the report.
func (c *command) failsAnyhow(in Input, res *workspace.Result, known report) bool {
	switch {
	case c.cfg.Partial:
		return false
	case res.TimedOut || !res.OK() && len(in.Tests) == 0:
		return true
	case len(in.Tests) == 0:
		return len(known.broken)+len(known.unseen) > 0 || slices.ContainsFunc(known.tests, func(t test) bool { return t.outcome == failed })
	}
	return slices.ContainsFunc(known.tests, func(t test) bool {
		return t.outcome == failed && (slices.Contains(in.Tests, t.name) || slices.Contains(in.Tests, t.full()))
	})
}

func distinct(names []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(names, func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
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

var readers = map[string]func(io.Reader, *report) error{goTest: readGoTest, junit: readJUnit, tap: readTAP}
