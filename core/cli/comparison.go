package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/penstock-dev/penstock/core/cli/shown"
	"github.com/penstock-dev/penstock/core/engine"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/shell"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// comparison shows what judging a run again came to, beside what it was.
type comparison struct {
	app      *App
	id, dir  string
	json     bool
	changed  []string          // plugins that are not the run's
	stages   map[string]*tally // by id, "" is the reward
	order    []string
	looped   map[string]bool // stages in loops
	lines    [][4]string     // rollout, stage, was, now
	unjudged []string
	blind    int // rollouts whose workspace is gone
}

// tally counts a stage's verdicts.
type tally struct {
	Stage   string   `json:"stage"` // "" is the reward
	Judged  int      `json:"judged"`
	Changed int      `json:"changed"`
	Errors  int      `json:"errors"` // of judging now
	Was     *float64 `json:"mean_was"`
	Now     *float64 `json:"mean_now"`

	was, now []float64
}

func (c *comparison) begin(p *pipeline.Pipeline) {
	p.Each(func(s *pipeline.Stage) {
		if s.Kind == "judger" {
			c.order = append(c.order, s.ID)
		}
	})
	c.order = append(c.order, "")
	c.looped = map[string]bool{}
	p.Each(func(s *pipeline.Stage) { c.looped[s.ID] = true })
	for _, s := range p.Stages {
		delete(c.looped, s.ID)
	}
	for _, text := range c.changed {
		if strings.HasPrefix(text, "plugin judger/") {
			fmt.Fprintf(c.app.Stderr, "since the run: %s\n", text)
		}
	}
}

// tell takes what a rollout came to.
func (c *comparison) tell(j *engine.Judgement) error {
	if j.NoWorkspace {
		c.blind++
	}
	if len(j.Replays) == 0 {
		c.unjudged = append(c.unjudged, fmt.Sprintf("%s: %s", shown.Line(j.Rollout), cmp.Or(j.Why, "no stage of it was chosen")))
		if c.json {
			return c.app.printJSON(map[string]string{"type": "unjudged", "rollout": j.Rollout, "why": j.Why})
		}
		return nil
	}
	for _, r := range j.Replays {
		c.count(r)
		if c.json {
			typ := "verdict"
			if r.Stage == "" {
				typ = "reward"
			}
			line := struct {
				Type string `json:"type"`
				*trace.Replay
			}{typ, r}
			if err := c.app.printJSON(line); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *comparison) count(r *trace.Replay) {
	t := c.stages[r.Stage]
	if t == nil {
		t = &tally{Stage: r.Stage}
		c.stages[r.Stage] = t
	}
	t.Judged++
	if r.Error != "" && r.Stage != "" {
		t.Errors++
	}
	if !r.Same {
		t.Changed++
	}
	if !r.Same || r.Error != "" && r.Stage != "" {
		stage := stageName(r.Stage)
		if c.looped[r.Stage] {
			stage = fmt.Sprintf("%s, round %d", stage, r.Round)
		}
		c.lines = append(c.lines, [4]string{r.Rollout, stage, verdictText(r.Was, r.WasError), verdictText(r.Now, r.Error)})
	}
	t.was, t.now = with(t.was, r.Was), with(t.now, r.Now)
}

// with adds a verdict's reward, if it has one.
func with(all []float64, verdict json.RawMessage) []float64 {
	var v judger.Verdict
	if json.Unmarshal(verdict, &v) != nil || v.Reward == nil {
		return all
	}
	return append(all, *v.Reward)
}

// verdictText is a verdict in a few words.
func verdictText(verdict json.RawMessage, why string) string {
	var v judger.Verdict
	switch {
	case verdict == nil && why != "":
		return shown.Line(cut(why))
	case verdict == nil || json.Unmarshal(verdict, &v) != nil:
		return "-"
	case v.Reward == nil:
		return strings.TrimSpace(strings.Join([]string{"null", v.Label, cut(v.Explanation)}, " "))
	}
	return shown.Line(strings.TrimSpace(fmt.Sprintf("%g %s", *v.Reward, v.Label)))
}

func cut(text string) string {
	text = firstLine(text)
	if r := []rune(text); len(r) > 200 {
		return string(r[:197]) + "..."
	}
	return text
}

func mean(all []float64) *float64 {
	if len(all) == 0 {
		return nil
	}
	m := 0.0
	for i, v := range all {
		m += (v - m) / float64(i+1)
	}
	return &m
}

// end shows the whole, and is an error where the exit code is not 0.
func (c *comparison) end(strict bool) error {
	changed, errs := 0, 0
	var all []*tally
	for _, id := range c.order {
		t := c.stages[id]
		if t == nil {
			continue
		}
		t.Was, t.Now = mean(t.was), mean(t.now)
		changed, errs = changed+t.Changed, errs+t.Errors
		all = append(all, t)
	}
	if c.json {
		summary := map[string]any{"type": "summary", "replay": c.id, "stages": all, "unjudged": len(c.unjudged), "without_workspace": c.blind}
		if err := c.app.printJSON(summary); err != nil {
			return err
		}
	} else {
		c.print(all)
	}
	if errs > 0 || strict && changed > 0 {
		return &exitError{exitFailed, nil}
	}
	return nil
}

func (c *comparison) print(all []*tally) {
	out := c.app.Stdout
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	if len(c.lines) > 0 {
		fmt.Fprintln(w, "ROLLOUT\tSTAGE\tWAS\tNOW")
		for _, l := range c.lines {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", shown.Line(l[0]), l[1], l[2], l[3])
		}
		fmt.Fprintln(w)
	}
	if len(all) > 0 {
		fmt.Fprintln(w, "STAGE\tJUDGED\tCHANGED\tERRORS\tMEAN WAS\tMEAN NOW")
	}
	for _, t := range all {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\n", stageName(t.Stage), t.Judged, t.Changed, t.Errors, number(t.Was), number(t.Now))
	}
	w.Flush()
	for _, why := range c.unjudged {
		fmt.Fprintf(out, "not judged: %s\n", why)
	}
	if c.blind > 0 {
		fmt.Fprintf(out, "%s no workspace any more that a judge could look into; `workspace: { keep: always }` keeps it\n", count(c.blind, "rollout has", "rollouts have"))
	}
	if len(all) > 0 {
		fmt.Fprintf(out, "kept beside the run's own verdicts as %s; one rollout: penstock trace show %s ROLLOUT\n", c.id, shell.Quote(c.app.relative(c.dir)))
	}
}

func stageName(id string) string { return cmp.Or(id, "(reward)") }

func number(n *float64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *n)
}
