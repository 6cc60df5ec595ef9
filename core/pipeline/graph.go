package pipeline

import (
	"fmt"
	"sort"
	"strings"

	"github.com/penstock-dev/penstock/sdk/component"
)

// The kinds of stage, as events and the graph name them.
const (
	StageSpawn    = "spawn"    // an invoker stage
	StageProxy    = "proxy"    // an entry of models, alive while an agent that names it runs
	StageSanitize = "sanitize" // hooks
	StageJudge    = "judge"    // a judger stage
	StageConvert  = "convert"  // a converter stage
)

// Graph shows as text what each rollout goes through, and every value that
// one stage reads with the stage that writes it.
func Graph(p *Pipeline) string {
	var b strings.Builder
	rows := [][]string{{"STAGE", "KIND", "USES", "NOTES"}}
	byModel := map[string]bool{}
	p.Each(func(s *Stage) {
		rows = append(rows, []string{s.ID, stageKind(s.Kind), s.Uses(), notes(s)})
		for _, h := range s.Hooks {
			rows = append(rows, []string{"  " + h.Name, StageSanitize, "hook/" + h.Name, hookNotes(h)})
		}
		m := p.Models[s.Model]
		if m == nil || byModel[m.Name] {
			return
		}
		byModel[m.Name] = true
		uses := "upstream " + m.Upstream.Kind + ", format " + formatName(p, m)
		rows = append(rows, []string{"  " + m.Name, StageProxy, uses, "capture " + m.Capture})
		for _, h := range m.Hooks {
			rows = append(rows, []string{"    " + h.Name, StageSanitize, "hook/" + h.Name, hookNotes(h)})
		}
	})
	table(&b, rows)
	rows = [][]string{{"READER", "AT", "READS", "WRITTEN BY"}}
	for _, r := range p.sortedReads() {
		reader := r.Stage
		if reader == "" {
			reader = "(pipeline)"
		}
		rows = append(rows, []string{reader, r.Where, r.Value, writer(p, r.From)})
	}
	if len(rows) > 1 {
		b.WriteString("\n")
		table(&b, rows)
	}
	return b.String()
}

func stageKind(kind string) string {
	switch kind {
	case component.Judger:
		return StageJudge
	case component.Converter:
		return StageConvert
	case KindLoop:
		return KindLoop
	}
	return StageSpawn
}

func formatName(p *Pipeline, m *Model) string {
	if m.FormatFile {
		return strings.TrimPrefix(m.Format, p.Dir+"/")
	}
	return m.Format
}

func notes(s *Stage) string {
	var n []string
	if s.Model != "" {
		n = append(n, "model "+s.Model)
	}
	if s.Group {
		n = append(n, "once for all samples of a task")
	}
	if s.If != nil {
		n = append(n, "if "+s.If.String())
	}
	if len(s.Needs) > 0 {
		n = append(n, "needs "+strings.Join(s.Needs, ", "))
	}
	if s.OnError != OnErrorFail {
		n = append(n, "on_error "+s.OnError)
	}
	if s.Loop != nil {
		var ids []string
		for _, b := range s.Loop.Stages {
			ids = append(ids, b.ID)
		}
		n = append(n, fmt.Sprintf("%s until %s, at most %s, else %s", strings.Join(ids, ", "), s.Loop.Until, passes(s.Loop.Max), s.Loop.Else))
	}
	if s.Retry.Attempts > 1 {
		n = append(n, fmt.Sprintf("%d attempts", s.Retry.Attempts))
	}
	return strings.Join(n, "; ")
}

func passes(n int) string {
	if n == 1 {
		return "1 pass"
	}
	return fmt.Sprintf("%d passes", n)
}

// hookNotes says what a hook does to what passes by, and to its streaming.
func hookNotes(h HookUse) string {
	var n []string
	if len(h.Changes) > 0 {
		n = append(n, "changes "+strings.Join(h.Changes, ", "))
	}
	if len(h.Observes) > 0 {
		n = append(n, "observes "+strings.Join(h.Observes, ", "))
	}
	switch {
	case contains(h.Changes, "reply"):
		n = append(n, "holds each reply until it is whole")
	case contains(h.Changes, "tool_call"):
		n = append(n, "holds each tool call until it is whole")
	}
	if h.FailOpen {
		n = append(n, "on_error open")
	}
	return strings.Join(n, "; ")
}

func (p *Pipeline) sortedReads() []Read {
	place := map[string]int{}
	p.Each(func(s *Stage) { place[s.ID] = len(place) })
	place[""] = len(place)
	out := append([]Read(nil), p.reads...)
	sort.SliceStable(out, func(i, j int) bool { return place[out[i].Stage] < place[out[j].Stage] })
	return out
}

func writer(p *Pipeline, from string) string {
	switch from {
	case "task":
		return "the tasks"
	case "rollout", "run":
		return "penstock"
	}
	name := from
	p.Each(func(s *Stage) {
		if s.ID == from {
			name = from + " (" + s.Uses() + ")"
		}
	})
	return name
}

// table writes rows in columns.
func table(b *strings.Builder, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	for _, r := range rows {
		line := ""
		for i, cell := range r {
			line += cell + strings.Repeat(" ", width[i]-len([]rune(cell))+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}
