package pipeline

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Severity says what a finding means.
type Severity string

// The severities. An error keeps a pipeline from running.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Diagnostic is one finding. Line and Col count from 1, Col in characters;
// both are 0 where a finding has no place in a file. File is a path, or the
// --set argument that holds the value.
type Diagnostic struct {
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"`
	Col      int      `json:"col,omitempty"`
	Severity Severity `json:"severity"`
	Code     string   `json:"code"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`
	Excerpt  string   `json:"excerpt,omitempty"` // the source line
}

// String is the finding as a person reads it:
//
//	pipeline.yaml:12:5: error: unknown key 'modle' [unknown-key]
//	  12 |     modle: policy
//	     |     ^
//	  hint: did you mean 'model'?
func (d Diagnostic) String() string {
	var b strings.Builder
	b.WriteString(d.File)
	if d.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", d.Line, d.Col)
	}
	if d.File != "" {
		b.WriteString(": ")
	}
	fmt.Fprintf(&b, "%s: %s [%s]", d.Severity, d.Message, d.Code)
	if d.Excerpt != "" {
		writeExcerpt(&b, d)
	}
	if d.Hint != "" {
		b.WriteString("\n  hint: " + d.Hint)
	}
	return b.String()
}

// excerptWidth is how much of a long source line is shown around the caret.
const excerptWidth = 110

func writeExcerpt(b *strings.Builder, d Diagnostic) {
	line, col := cut(d.Excerpt, d.Col)
	number := ""
	if d.Line > 0 {
		number = fmt.Sprint(d.Line)
	}
	fmt.Fprintf(b, "\n  %s | %s", number, visible(line))
	if col > 0 {
		fmt.Fprintf(b, "\n  %s | %s^", strings.Repeat(" ", len(number)), strings.Repeat(" ", columns(line, col-1)))
	}
}

// visible has a mark for each character that a terminal would act on.
func visible(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return utf8.RuneError
		}
		return r
	}, line)
}

// columns is how wide the first n characters of a line are on a terminal.
func columns(line string, n int) int {
	wide := 0
	for _, r := range line {
		if n == 0 {
			break
		}
		n--
		wide++
		if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
			wide++
		}
	}
	return wide + n
}

// cut shortens a line so that column col, from 1, stays in sight.
func cut(line string, col int) (string, int) {
	if utf8.RuneCountInString(line) <= excerptWidth {
		return line, min(col, utf8.RuneCountInString(line)+1)
	}
	r := []rune(line)
	col = min(col, len(r)+1)
	from := max(0, min(col-excerptWidth/2, len(r)-excerptWidth))
	to := min(len(r), from+excerptWidth)
	out := string(r[from:to])
	if from > 0 {
		out, col = "..."+out, col-from+3
	}
	if to < len(r) {
		out += "..."
	}
	return out, col
}

// Diagnostics are findings, sorted by position. As an error it holds at least
// one of severity Error.
type Diagnostics []Diagnostic

// Error prints every finding.
func (ds Diagnostics) Error() string {
	parts := make([]string, len(ds))
	for i, d := range ds {
		parts[i] = d.String()
	}
	return strings.Join(parts, "\n")
}

// JSON is the findings as a JSON array, [] when there are none.
func (ds Diagnostics) JSON() []byte {
	if len(ds) == 0 {
		return []byte("[]")
	}
	b, _ := json.Marshal([]Diagnostic(ds)) // strings and numbers always have a JSON form
	return b
}

// Errors counts the findings that keep the pipeline from running.
func (ds Diagnostics) Errors() int {
	n := 0
	for _, d := range ds {
		if d.Severity == Error {
			n++
		}
	}
	return n
}

func (ds Diagnostics) split() (errs, warnings Diagnostics) {
	for _, d := range ds {
		if d.Severity == Error {
			errs = append(errs, d)
		} else {
			warnings = append(warnings, d)
		}
	}
	return errs, warnings
}

// tidy sorts findings by file, the main one first, and position, and drops
// repeats.
func (ds Diagnostics) tidy(main string) Diagnostics {
	sort.SliceStable(ds, func(i, j int) bool {
		a, b := ds[i], ds[j]
		if a.File != b.File {
			if (a.File == main) != (b.File == main) {
				return a.File == main
			}
			return a.File < b.File
		}
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		return a.Col < b.Col
	})
	var out Diagnostics
	for i, d := range ds {
		if i == 0 || d != ds[i-1] {
			out = append(out, d)
		}
	}
	return out
}
