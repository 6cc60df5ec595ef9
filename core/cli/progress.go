package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/penstock-dev/penstock/core/cli/shown"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/shell"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream/cost"
)

// progress shows a run as it goes: events as JSON, plain lines, or on a
// terminal one line that is written over.
type progress struct {
	out     io.Writer
	json    bool
	live    bool
	x       execution
	app     *App
	total   int
	ended   int
	running map[string]string // rollout -> stage
	rows    []run.Event
	parked  []run.Event
	started time.Time

	mu sync.Mutex // guards all of it against tick
}

func (a *App) progress(x execution) *progress {
	return &progress{
		out: a.Stdout, json: x.json, live: !x.json && !x.plain && isTerminal(a.Stdout), x: x, app: a,
		running: map[string]string{}, started: time.Now(),
	}
}

// tick keeps the live line's clock going until stop is called.
func (p *progress) tick() (stop func()) {
	if !p.live {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				p.mu.Lock()
				p.status()
				p.mu.Unlock()
			}
		}
	}()
	return func() { close(quit); <-done }
}

// event is called for each event.
func (p *progress) event(e run.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.json {
		line, err := json.Marshal(e)
		if err == nil {
			fmt.Fprintf(p.out, "%s\n", line)
		}
		return
	}
	switch e.Type {
	case run.RunStarted:
		p.total = e.Count
		p.line(fmt.Sprintf("run %s: %s, folder %s", e.Run, count(e.Count, "rollout", "rollouts"), p.app.relative(e.Path)))
	case run.StageStarted:
		p.running[e.Rollout] = e.Stage
	case run.StageRetried:
		p.line(fmt.Sprintf("%s %s: %s", shown.Line(e.Rollout), e.Stage, e.Message))
	case run.Warned:
		p.line(fmt.Sprintf("%s %s: warning: %s", shown.Line(e.Rollout), e.Stage, e.Message))
	case run.RolloutEnded:
		delete(p.running, e.Rollout)
		p.ended++
		p.line(p.rollout(e))
	case run.RolloutParked:
		p.parked = append(p.parked, e)
	case run.RowsWritten:
		p.rows = append(p.rows, e)
	}
	p.status()
}

// rollout is the line of an ended rollout.
func (p *progress) rollout(e run.Event) string {
	text := fmt.Sprintf("%-24s %-9s", shown.Line(e.Rollout), e.Status)
	if e.ExitStatus != "" && e.ExitStatus != "ok" {
		text += " " + e.ExitStatus
	}
	if e.Reward != nil {
		text += fmt.Sprintf(" reward %g", *e.Reward)
	}
	if e.Usage != nil {
		text += fmt.Sprintf("  %d + %d tokens", e.Usage.Input, e.Usage.Output)
	}
	text += fmt.Sprintf("  %.1f s", e.Seconds)
	if why := cmp.Or(e.Error, e.Message); why != "" {
		text += "\n    " + firstLine(why)
	}
	return text
}

// firstLine leaves out the stack of a plugin and the like; rollouts.jsonl has
// all of it.
func firstLine(text string) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if rest != "" {
		first += " ..."
	}
	return first
}

// line prints a line above the live one.
func (p *progress) line(text string) {
	if p.live {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintln(p.out, strings.TrimRight(shown.Lines(text), " "))
}

func (p *progress) status() {
	if !p.live {
		return
	}
	at := map[string]int{}
	for _, stage := range p.running {
		at[stage]++
	}
	var parts []string
	for stage, n := range at {
		parts = append(parts, fmt.Sprintf("%s %d", stage, n))
	}
	sort.Strings(parts)
	fmt.Fprintf(p.out, "\r\x1b[K%d/%d done  %s  %s", p.ended, p.total, time.Since(p.started).Round(time.Second), strings.Join(parts, ", "))
}

// summary shows what came of the run, where everything lies, and what to do
// next.
func (p *progress) summary(t *run.Totals) {
	if p.json {
		return
	}
	if p.live {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	dir := p.app.relative(p.x.folder.Dir)
	fmt.Fprintln(p.out)
	w := tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "rollouts\t%s\n", statuses(t))
	if t.RewardMean != nil {
		fmt.Fprintf(w, "reward\tmean %.4g over %s\n", *t.RewardMean, count(t.Rewarded, "rollout", "rollouts"))
	} else {
		fmt.Fprintf(w, "reward\tnone\n")
	}
	fmt.Fprintf(w, "tokens\t%d in, %d out, in %s\n", t.Usage.Input, t.Usage.Output, count(t.Calls, "call", "calls"))
	if t.Cost != nil {
		fmt.Fprintf(w, "cost\t%s USD, %s\n", cost.Text(*t.Cost), t.CostBasis)
	} else if p.priced() && t.CostBasis == "" {
		fmt.Fprintf(w, "cost\tnothing: no call was answered\n")
	} else if p.priced() {
		fmt.Fprintf(w, "cost\tnot known: not all calls have prices and counts\n")
	}
	fmt.Fprintf(w, "time\t%.1f s\n", t.Seconds)
	for _, e := range p.rows {
		path := p.app.relative(e.Path)
		if strings.Contains(filepath.Base(path), ".refused.") {
			fmt.Fprintf(w, "\t%d refused, see %s\n", e.Refused, path)
			continue
		}
		fmt.Fprintf(w, "%s\t%s in %s\n", e.Stage, count(e.Count, "row", "rows"), path)
		if e.Message != "" {
			fmt.Fprintf(w, "\t%s\n", e.Message)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Dropped)) {
		fmt.Fprintf(w, "missed\t%s was too slow for %d events that it watches\n", name, t.Dropped[name])
	}
	fmt.Fprintf(w, "results\t%s\n", filepath.Join(dir, "rollouts.jsonl"))
	fmt.Fprintf(w, "outputs\t%s\n", filepath.Join(dir, "artifacts"))
	fmt.Fprintf(w, "model calls\t%s\n", filepath.Join(dir, "trace", "penstock.db"))
	w.Flush()
	for _, e := range p.parked {
		fmt.Fprintf(p.out, "\n%s waits in stage %s (%s): %s\n  penstock park show %s %s\n", shown.Line(e.Rollout), e.Stage, e.Reason, shown.Lines(e.Message), shell.Quote(dir), e.Park)
	}
	if n := t.Status[trace.Parked] - len(p.parked); n > 0 {
		fmt.Fprintf(p.out, "\n%s for an answer: penstock park ls %s\n", count(n, "rollout waits", "rollouts wait"), shell.Quote(dir))
	}
	if n := t.Status[trace.Cancelled] + t.Status[trace.Queued] + t.Status[trace.Running]; n > 0 {
		fmt.Fprintf(p.out, "\n%s not done; go on with: penstock resume %s\n", count(n, "rollout is", "rollouts are"), shell.Quote(dir))
	}
}

// priced says that somebody wants to know what the run costs.
func (p *progress) priced() bool {
	for _, m := range p.x.pipeline.Models {
		if m.Prices != nil {
			return true
		}
	}
	return false
}

// count is a number with what it counts.
func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func statuses(t *run.Totals) string {
	parts := []string{fmt.Sprintf("%d of %d completed", t.Status[trace.Completed], t.Rollouts)}
	for _, s := range []string{trace.Failed, trace.Parked, run.Abandoned, trace.Cancelled, trace.Queued, trace.Running} {
		if t.Status[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", t.Status[s], s))
		}
	}
	return strings.Join(parts, ", ")
}

// relative shortens a path to one below the current folder.
func (a *App) relative(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	rel, err := filepath.Rel(here, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return path
	}
	return rel
}
