package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/tidwall/gjson"
)

// cmdJSONL checks a JSONL file:
//
//	jsonl FILE count N
//	jsonl FILE each PATH VALUE     every line has the value at the gjson path
//	jsonl FILE some PATH VALUE     one line has
func cmdJSONL(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: jsonl FILE count N | each PATH VALUE | some PATH VALUE")
	}
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile(args[0]), "\n"), "\n")
	if lines[0] == "" {
		lines = nil
	}
	ok := false
	switch args[1] {
	case "count":
		ok = strconv.Itoa(len(lines)) == args[2]
	case "each", "some":
		hits := 0
		for _, l := range lines {
			if gjson.Get(l, args[2]).String() == args[3] {
				hits++
			}
		}
		ok = hits == len(lines) && hits > 0 || args[1] == "some" && hits > 0
	default:
		ts.Fatalf("jsonl: no check %q", args[1])
	}
	if ok == neg {
		ts.Fatalf("jsonl %s: not so, in %d lines:\n%s", strings.Join(args, " "), len(lines), strings.Join(lines, "\n"))
	}
}

// cmdProcesses checks that no process has a word in its command line:
//
//	processes none WORD
func cmdProcesses(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 || args[0] != "none" {
		ts.Fatalf("usage: processes none WORD")
	}
	// A script whose name begins with this one's may run at the same time.
	whole := regexp.MustCompile(regexp.QuoteMeta(args[1]) + `([^A-Za-z0-9_-]|$)`)
	found := processesWith(args[1])
	if found = slices.DeleteFunc(found, func(line string) bool { return !whole.MatchString(line) }); len(found) > 0 {
		ts.Fatalf("processes are left: %s", strings.Join(found, "\n"))
	}
}

// processesWith returns the command lines that hold a word, this process's
// own left out.
func processesWith(word string) []string {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, p := range paths {
		if filepath.Base(filepath.Dir(p)) == strconv.Itoa(os.Getpid()) {
			continue
		}
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		if line := strings.ReplaceAll(string(b), "\x00", " "); strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return found
}
