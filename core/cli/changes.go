package cli

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/penstock-dev/penstock/core/cli/shown"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/redact"
	"github.com/penstock-dev/penstock/core/run"
)

// maxDiff is how many lines of a difference are shown.
const maxDiff = 30

// changes finds what a run depends on that isn't as it was when the run began.
type changes struct {
	folder *run.Folder
	redact *redact.Redactor
}

// files says of each file that isn't as it was what differs, where the run
// kept what it was.
func (c changes) files(was, is map[string]string) ([]string, error) {
	var out []string
	for _, path := range differing(was, is) {
		line := difference("file", path, was, is)
		kept, ok, err := c.folder.Input(was[path])
		if err != nil {
			return nil, err
		}
		if now, text := run.ReadInput(path); ok && text {
			line += "\n" + c.diff(kept, now)
		}
		out = append(out, line)
	}
	return out, nil
}

// edited says that the pipeline file was edited, which a run that goes on
// doesn't read again. It is "" if it wasn't.
func (c changes) edited(p *pipeline.Pipeline) string {
	now, ok := run.ReadInput(p.Path)
	if !ok || bytes.Equal(now, p.Source) {
		return ""
	}
	return "it was edited, and this run goes on with what it began with; penstock run starts one with what is there now\n" + c.diff(p.Source, now)
}

// diff shows what differs in lines.
func (c changes) diff(was, now []byte) string {
	was, _ = c.redact.Bytes(was)
	now, _ = c.redact.Bytes(now)
	text := diff.Diff("what the run began with", was, "what is there now", now)
	if text == nil {
		return "    what differs is redacted"
	}
	_, text, _ = bytes.Cut(text, []byte("\n")) // which names both once more
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if more := len(lines) - maxDiff; more > 0 {
		lines = append(lines[:maxDiff], fmt.Sprintf("... and %d more lines", more))
	}
	for i, l := range lines {
		lines[i] = "    " + shown.Line(l)
	}
	return strings.Join(lines, "\n")
}

// differences says in a line each what isn't as it was.
func differences(what string, was, is map[string]string) []string {
	var out []string
	for _, name := range differing(was, is) {
		out = append(out, difference(what, name, was, is))
	}
	return out
}

// differing are the names with another hash, or with one on one side alone.
func differing(was, is map[string]string) []string {
	all := maps.Clone(is)
	maps.Copy(all, was)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return was[name] == is[name] })
}

func difference(what, name string, was, is map[string]string) string {
	switch old, now := was[name], is[name]; {
	case now == "":
		return fmt.Sprintf("%s %s is gone", what, name)
	case old == "":
		return fmt.Sprintf("%s %s is new", what, name)
	default:
		return fmt.Sprintf("%s %s was %.12s, is %.12s", what, name, old, now)
	}
}
