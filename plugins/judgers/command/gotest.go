package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// goEvent is an event of go test -json, as far as it is read.
type goEvent struct{ Action, Package, ImportPath, FailedBuild, Test string }

// goReader is what is known of a report so far.
type goReader struct {
	out    *report
	at     map[string]int    // index of each test
	open   map[string]bool   // packages that began and have not ended
	broken map[string]string // packages that failed, and how to say it
	any    bool
	bad    error // the first event that can't be read
}

// readGoTest reads the events of go test -json. Other lines are what the go
// command says of a build. A package without an end was cut short, and with it
// may have been what failed.
func readGoTest(r io.Reader, out *report) error {
	g := &goReader{out: out, at: map[string]int{}, open: map[string]bool{}, broken: map[string]string{}}
	text, _ := decoded(r)
	var err error
	for l := range lines(text, &err) {
		if err = g.line(l); err != nil {
			break
		}
	}
	g.end()
	if err == nil && !g.any {
		err = errors.New("it holds no event of go test -json")
	}
	return errors.Join(g.bad, err)
}

func (g *goReader) line(l line) error {
	var e goEvent
	if !strings.HasPrefix(l.text, "{") {
		return nil
	}
	if err := json.Unmarshal([]byte(l.text), &e); err != nil {
		if !l.long && g.bad == nil && isResult(l.text) {
			g.bad = fmt.Errorf("an event of it is broken: %s", short(l.text))
		}
		return nil
	}
	if e.Action == "" {
		return nil
	}
	g.any = true
	if e.Test == "" {
		g.whole(e)
		return nil
	}
	g.open[e.Package] = true
	key := e.Package + "\x00" + e.Test
	i, known := g.at[key]
	if !known {
		i = len(g.out.tests)
		if err := g.out.add(test{suite: e.Package, name: e.Test, outcome: begun}); err != nil {
			return err
		}
		g.at[key] = i
	}
	switch e.Action {
	case "run":
		g.out.tests[i].outcome = begun
	case "pass":
		g.out.tests[i].outcome = passed
	case "skip":
		g.out.tests[i].outcome = skipped
	case "fail":
		g.out.tests[i].outcome = failed
	}
	return nil
}

// isResult says whether a line that is no JSON began as an event does, one that
// may say how a test ended.
func isResult(text string) bool {
	if strings.Contains(text, `"Action":"output"`) && !strings.Contains(text, `"fail"`) {
		return false
	}
	return slices.ContainsFunc([]string{`{"Time":`, `{"Action":`, `{"ImportPath":`, `{"Package":`}, func(begin string) bool {
		return strings.HasPrefix(text, begin) || strings.HasPrefix(begin, text)
	})
}

// whole takes an event of a package or of a build.
func (g *goReader) whole(e goEvent) {
	build, _, _ := strings.Cut(e.ImportPath, " ") // of tests: m [m.test]
	switch e.Action {
	case "build-fail":
		g.broken[build] = build + " does not build"
	case "fail":
		delete(g.open, e.Package)
		if e.FailedBuild != "" {
			g.broken[e.Package] = e.Package + " does not build"
		} else if g.broken[e.Package] == "" {
			g.broken[e.Package] = e.Package
		}
	case "pass", "skip":
		delete(g.open, e.Package)
	default:
		if e.ImportPath == "" {
			g.open[e.Package] = true
		}
	}
}

// end says which packages failed. One fails with its tests; that is no failure
// of its own.
func (g *goReader) end() {
	of := map[string]bool{}
	late := map[string]bool{}
	for _, t := range g.out.tests {
		of[t.suite] = of[t.suite] || t.outcome == failed
		late[t.suite] = late[t.suite] || t.outcome == begun
	}
	for _, pkg := range slices.Sorted(maps.Keys(g.broken)) {
		if !of[pkg] && !late[pkg] {
			g.out.broken = append(g.out.broken, g.broken[pkg])
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(g.open)) {
		if !of[pkg] && !late[pkg] {
			g.out.late = append(g.out.late, strings.TrimSpace("package "+pkg)+" has not ended")
		}
	}
}
