// Command testrun runs the project's tests as CI does: -race where it is
// worth its time, the rest without, then short fuzz runs. It prints failures
// whole and everything else as a line a package, and ends with a count. Under
// PENSTOCK_CI=1 a skipped test is a failure unless .ci/skips names it.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"
)

type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

type totals struct {
	passed, failed int
	skipped        []string
	broken         []string // packages that failed outside a test
}

func main() {
	claude := flag.String("claude", "", "path of the Claude Code program, for the tests that drive it")
	npm := flag.String("npm", "", "path of the node_modules that hold the official SDKs, for the tests that drive them")
	fuzztime := flag.String("fuzztime", "3s", "how long each fuzz target runs; 0 leaves them out")
	timeout := flag.String("timeout", "20m", "limit for one package's tests")
	alone := flag.Bool("alone", false, "one package at a time, for tests that hold times to what is promised")
	flag.Parse()
	if *claude != "" {
		os.Setenv("PENSTOCK_CLAUDE", *claude)
	}
	if *npm != "" {
		os.Setenv("PENSTOCK_NPM", *npm)
	}
	var t totals
	// Each process with the race detector in it sleeps for a second at its end,
	// and the tests start thousands.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	options := []string{"-timeout", *timeout}
	if *alone {
		options = append(options, "-p", "1")
	}
	race := packages("./core/...", "./sdk/...")
	t.run("race", slices.Concat([]string{"-race"}, options, race))
	t.run("plain", slices.Concat(options, others(race)))
	if *fuzztime != "0" {
		t.fuzz(*fuzztime)
	}
	t.finish()
}

func packages(patterns ...string) []string {
	out, err := exec.Command("go", append([]string{"list"}, patterns...)...).Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun: go list:", err)
		os.Exit(1)
	}
	return strings.Fields(string(out))
}

// others are the packages that the race run left out, and those of its own
// whose tests for WASM are built only without the race detector.
func others(race []string) []string {
	done := map[string]bool{}
	for _, p := range race {
		done[p] = !hasPlainTests(p)
	}
	var out []string
	for _, p := range packages("./...") {
		if !done[p] {
			out = append(out, p)
		}
	}
	return out
}

func hasPlainTests(pkg string) bool {
	dir := strings.TrimPrefix(pkg, "github.com/penstock-dev/penstock/")
	out, _ := exec.Command("grep", "-lE", "^//go:build .*!race", "-r", dir, "--include=*_test.go").Output()
	return len(out) > 0
}

func (t *totals) run(name string, args []string) {
	fmt.Printf("== go test (%s)\n", name)
	start := time.Now()
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
	text := map[string]*strings.Builder{}
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text())
			continue
		}
		t.take(e, text)
	}
	if err := cmd.Wait(); err != nil && t.failed == 0 && len(t.broken) == 0 {
		t.broken = append(t.broken, name)
	}
	fmt.Printf("== %s: %s\n", name, time.Since(start).Round(time.Second))
}

func (t *totals) take(e event, text map[string]*strings.Builder) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		if text[key] == nil {
			text[key] = &strings.Builder{}
		}
		text[key].WriteString(e.Output)
		if e.Action == "build-output" {
			fmt.Print(e.Output)
		}
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	out := ""
	if text[key] != nil {
		out = text[key].String()
		delete(text, key)
	}
	switch {
	case e.Test == "" && e.Action == "fail":
		fmt.Printf("FAIL %s\n%s", e.Package, out)
		for k, b := range text { // what a panic cut short
			if strings.HasPrefix(k, e.Package+" ") {
				fmt.Print(b.String())
			}
		}
		t.broken = append(t.broken, e.Package)
	case e.Test == "" && e.Action == "pass":
		fmt.Printf("ok   %s %.1fs\n", e.Package, e.Elapsed)
	case e.Action == "pass":
		t.passed++
	case e.Action == "fail":
		t.failed++
		fmt.Printf("FAIL %s\n%s", key, out)
	case e.Action == "skip" && e.Test != "":
		t.skipped = append(t.skipped, key+" "+strings.Join(strings.Fields(lastLine(out)), " "))
	}
}

func lastLine(s string) string {
	var last string
	for l := range strings.Lines(s) {
		if !strings.HasPrefix(strings.TrimSpace(l), "---") && !strings.HasPrefix(l, "===") {
			last = l
		}
	}
	return last
}

var target = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

func (t *totals) fuzz(d string) {
	for _, pkg := range packages("./...") {
		dir := "." + strings.TrimPrefix(pkg, "github.com/penstock-dev/penstock")
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, f := range entries {
			if !strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			src, _ := os.ReadFile(dir + "/" + f.Name())
			for _, m := range target.FindAllSubmatch(src, -1) {
				t.fuzzOne(pkg, string(m[1]), d)
			}
		}
	}
}

// fuzzOne runs one target. The go command at times calls the end of the time for
// fuzzing a failure, with no input that failed: then it runs again, once.
func (t *totals) fuzzOne(pkg, name, d string) {
	run := func() ([]byte, error) {
		return exec.Command("go", "test", "-run", "^$", "-fuzz", "^"+name+"$", "-fuzztime", d, pkg).CombinedOutput()
	}
	out, err := run()
	if err != nil && bytes.Contains(out, []byte("context deadline exceeded")) && !bytes.Contains(out, []byte("Failing input")) {
		out, err = run()
	}
	if err != nil {
		t.failed++
		fmt.Printf("FAIL %s %s\n%s", pkg, name, out)
		return
	}
	t.passed++
	fmt.Printf("ok   %s %s for %s\n", pkg, name, d)
}

func (t *totals) finish() {
	allowed := map[string]bool{}
	if b, err := os.ReadFile(".ci/skips"); err == nil {
		for l := range strings.Lines(string(b)) {
			if f := strings.Fields(l); len(f) > 2 && !strings.HasPrefix(l, "#") {
				allowed[f[0]+" "+f[1]] = true
			}
		}
	}
	sort.Strings(t.skipped)
	for _, s := range t.skipped {
		f := strings.Fields(s)
		if os.Getenv("PENSTOCK_CI") != "" && !allowed[f[0]+" "+f[1]] {
			fmt.Println("FAIL skipped in CI, and .ci/skips doesn't name it:", s)
			t.failed++
		} else {
			fmt.Println("skip", s)
		}
	}
	t.failed += len(t.broken)
	fmt.Printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, len(t.skipped))
	if t.failed > 0 {
		os.Exit(1)
	}
}
