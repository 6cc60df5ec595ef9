package doctorcmd

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// list prints the programs for a terminal.
func (d *doctor) list(all []*program) error {
	t := tabwriter.NewWriter(d.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROGRAM\tPROTOCOL\tINSTALLED\tTRIED WITH\tRESULT")
	for _, p := range all {
		installed := p.Installed
		if p.Outcome == absent {
			installed = "no"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", p.Name, p.Dialect, installed, p.Version, p.result())
	}
	return t.Flush()
}

// result says in a line what became of a program.
func (p *program) result() string {
	switch {
	case p.Outcome == absent:
		return p.Install
	case p.Outcome == works:
		return fmt.Sprintf("works: %d calls, %s, %.1f s", p.Calls, p.kinds(), p.Seconds)
	case p.Error != "":
		return "fails: " + p.Error
	case p.Installed != "" && p.Version != "" && p.Installed != p.Version:
		return "another version than the one that was tried"
	}
	return ""
}

// kinds lists the lineages that were found, such as "1 main, 1 side".
func (p *program) kinds() string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(p.Lineages)) {
		out = append(out, fmt.Sprintf("%d %s", p.Lineages[kind], kind))
	}
	return strings.Join(out, ", ")
}

var version = regexp.MustCompile(`\d+(\.\d+)+`)

// table prints the programs that were run as Markdown.
func (d *doctor) table(all []*program) error {
	fmt.Fprintln(d.stdout, "| program | version | protocol | text, tool | streamed | calls | lineages | rows hold | broken stream | interrupted | to know |\n|---|---|---|---|---|---|---|---|---|---|---|")
	for i, p := range all {
		streamed, rows := "", ""
		if p.Outcome == works {
			streamed, rows = "no", fmt.Sprintf("yes, %d", p.Rows)
			if p.Streamed {
				streamed = "yes"
			}
		}
		if number := version.FindString(p.Installed); number != "" {
			p.Installed = number
		}
		quirks := strings.ReplaceAll(strings.Join(p.Quirks, "; "), "|", `\|`)
		if i > 0 && all[i-1].Name == p.Name {
			quirks = "" // said above
		}
		_, err := fmt.Fprintf(d.stdout, "| `%s` | %s | %s | %s | %s | %d | %s | %s | %s | %s | %s |\n", p.Name, p.Installed, p.Dialect,
			p.Outcome, streamed, p.Calls, p.kinds(), rows, p.Broken, p.Interrupted, quirks)
		if err != nil {
			return err
		}
	}
	return nil
}
