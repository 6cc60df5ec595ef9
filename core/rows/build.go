package rows

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/converter"
)

// builder makes the rows of one session.
type builder struct {
	run     string
	rollout *trace.Rollout
	session *trace.Session
	calls   []*trace.Call

	rows   []*chained
	of     map[string]*chained    // the row that each call went into
	byID   map[string]*trace.Call // calls that may be in rows
	counts map[string]int         // rows of each lineage
	warn   []string               // of the session: said in each of its rows
}

// chained is a row and the calls that it is made of.
type chained struct {
	*converter.Row
	calls []*trace.Call
}

func (c *chained) last() *trace.Call { return c.calls[len(c.calls)-1] }

func newBuilder(run string, r *trace.Rollout, s *trace.Session, calls []*trace.Call) *builder {
	return &builder{run: run, rollout: r, session: s, calls: calls,
		of: map[string]*chained{}, byID: map[string]*trace.Call{}, counts: map[string]int{}}
}

func (b *builder) build() []*converter.Row {
	integrity := b.integrity()
	for _, c := range b.calls {
		if b.usable(c) {
			b.byID[c.ID] = c
			b.place(c)
		}
	}
	out := make([]*converter.Row, len(b.rows))
	for i, row := range b.rows {
		fatal, warn := row.Integrity.Fatal, row.Integrity.Warn
		row.Integrity = integrity
		row.Integrity.Fatal = fatal
		row.Integrity.Warn = append(warn, b.warn...)
		b.finish(row)
		out[i] = row.Row
	}
	return out
}

// integrity counts what the session's calls say of themselves. Every call has
// a number, so that one that was never stored leaves a gap.
func (b *builder) integrity() converter.Integrity {
	out := converter.Integrity{Calls: len(b.calls)}
	highest := 0
	for _, c := range b.calls {
		highest = max(highest, c.Seq)
		if c.Fork != "" {
			if out.Drift == nil {
				out.Drift = map[string]int{}
			}
			out.Drift[c.Fork]++
		}
	}
	if out.Missing = highest - len(b.calls); out.Missing > 0 {
		b.warn = append(b.warn, fmt.Sprintf("%d calls of the session are not in the store", out.Missing))
	}
	if s := b.session; s.Incomplete != "" {
		out.Missing = max(out.Missing, s.Unrecorded)
		b.warn = append(b.warn, fmt.Sprintf("the session is incomplete, %d calls were refused: %s", s.Unrecorded, s.Incomplete))
	}
	return out
}

// usable reports whether a call belongs into a row. What doesn't is said,
// save what makes no row by its nature.
func (b *builder) usable(c *trace.Call) bool {
	switch {
	case c.Kind == trace.Probe || c.Replays != "":
		return false
	case c.Kind == trace.Retry:
		b.leaveOut(c, "its reply was thrown away and asked for again")
		return false
	case c.Status != trace.CallOK:
		if len(c.SampledIDs) > 0 || c.Raw != "" {
			b.leaveOut(c, "its status is "+c.Status+" after something was sampled")
		}
		return false
	case text(c):
		if c.Chat == nil || c.Parsed == nil {
			b.leaveOut(c, "it has no reply")
			return false
		}
	case redacted(c): // it makes a row, which says so
	case len(c.PromptIDs) == 0:
		b.leaveOut(c, "it has no prompt ids")
		return false
	case len(c.SampledIDs) == 0:
		b.leaveOut(c, "it sampled nothing")
		return false
	}
	return true
}

func (b *builder) leaveOut(c *trace.Call, why string) {
	b.warn = append(b.warn, fmt.Sprintf("call %s is in no row: %s", c.ID, why))
}

func text(c *trace.Call) bool { return c.Capture == "text" }

// redacted says that a secret stood in the call's tokens, so that their ids
// are gone.
func redacted(c *trace.Call) bool {
	return slices.ContainsFunc(c.Warnings, func(w trace.Warning) bool { return w.Kind == trace.WarnRedacted })
}

// place appends a call to the row that ends with its parent, or begins one.
func (b *builder) place(c *trace.Call) {
	parent := b.byID[c.Parent]
	row := b.of[c.Parent]
	if parent != nil && row.last() == parent && parent.Lineage == c.Lineage && text(parent) == text(c) && follows(parent, c) {
		row.calls = append(row.calls, c)
		b.of[c.ID] = row
		return
	}
	row = b.begin(c)
	if parent != nil && c.Fork != "" && !follows(parent, c) && !text(c) && !redacted(c) && !redacted(parent) {
		row.warn("call %s begins with %d of the %d ids of call %s: %s", c.ID, shared(parent, c), len(parent.PromptIDs)+len(parent.SampledIDs), parent.ID, c.Fork)
	}
	if c.Extends && parent != nil && !follows(parent, c) && !redacted(c) {
		row.Integrity.Fatal = append(row.Integrity.Fatal, fmt.Sprintf(
			"call %s is said to extend call %s, but its prompt does not begin with the ids of that one", c.ID, parent.ID))
	}
}

// shared is how many ids of p, sampled ones included, the prompt of c begins with.
func shared(p, c *trace.Call) int {
	n := 0
	for _, ids := range [][]int32{p.PromptIDs, p.SampledIDs} {
		for _, id := range ids {
			if n == len(c.PromptIDs) || c.PromptIDs[n] != id {
				return n
			}
			n++
		}
	}
	return n
}

// follows reports whether c goes on exactly where p ended.
func follows(p, c *trace.Call) bool {
	if text(c) {
		return c.Fork == ""
	}
	if redacted(p) || redacted(c) {
		return c.Extends && redacted(p) && redacted(c)
	}
	n, m := len(p.PromptIDs), len(p.SampledIDs)
	return len(c.PromptIDs) >= n+m && slices.Equal(c.PromptIDs[:n], p.PromptIDs) &&
		slices.Equal(c.PromptIDs[n:n+m], p.SampledIDs)
}

// begin starts a row with c.
func (b *builder) begin(c *trace.Call) *chained {
	_, lineage, _ := strings.Cut(c.Lineage, "/")
	n := b.counts[lineage]
	b.counts[lineage]++
	r, s := b.rollout, b.session
	row := &chained{calls: []*trace.Call{c}, Row: &converter.Row{
		Schema: converter.Schema, Row: fmt.Sprintf("%s/%s/%d", s.Attempt, lineage, n),
		Run: b.run, Rollout: r.ID, Task: r.Task, Group: r.Task, Sample: r.Sample,
		Attempt: s.Attempt, Session: s.ID, Stage: s.Stage, ModelEntry: c.ModelEntry,
		Lineage: c.Lineage, LineageKind: string(c.Kind),
		Reward: r.Reward, Components: r.Components, Status: r.Status, ExitStatus: r.ExitStatus,
		Model: c.ModelServed, Engine: c.Engine, Format: c.Format, TokenizerHash: c.Tokenizer, TemplateHash: c.Template,
		Requested: c.Requested, Effective: c.Effective,
	}}
	if p := b.of[c.Parent]; p != nil {
		row.ParentRow = p.Row.Row
	}
	b.rows = append(b.rows, row)
	b.of[c.ID] = row
	return row
}

// finish fills in what all calls of a row make up together.
func (b *builder) finish(row *chained) {
	versions := false
	for _, c := range row.calls {
		row.Calls = append(row.Calls, c.ID)
		row.WeightVersions = append(row.WeightVersions, c.Weights)
		versions = versions || c.Weights != ""
		if !reflect.DeepEqual(c.Effective, row.Effective) {
			row.warn("call %s was sampled with other settings than the first of the row", c.ID)
		}
	}
	if !versions {
		row.WeightVersions = nil
	}
	last := row.last()
	row.FinishReason = last.Finish
	for _, c := range row.calls {
		switch {
		case !redacted(c):
		case text(c):
			row.warn("%s: call %s had a secret in its text, which a mark stands for", trace.WarnRedacted, c.ID)
		default:
			row.Integrity.Fatal = append(row.Integrity.Fatal, fmt.Sprintf(
				"%s: call %s had a secret in its tokens, whose ids are not kept", trace.WarnRedacted, c.ID))
		}
	}
	if text(last) {
		row.Messages = append(slices.Clone(last.Chat.Messages), chat.Message{Role: chat.Assistant, Parts: last.Parsed.Parts})
		row.Tools = last.Chat.Tools
		return
	}
	if redacted(last) { // and so is every other call of the row
		return
	}
	row.ids()
}

func (c *chained) warn(text string, args ...any) {
	c.Integrity.Warn = append(c.Integrity.Warn, fmt.Sprintf(text, args...))
}

// ids fills in the ids and what goes with each of them. Each call's prompt
// begins with all ids of the call before, so the last one holds them all.
func (c *chained) ids() {
	last := c.last()
	n := len(last.PromptIDs) + len(last.SampledIDs)
	c.InputIDs = slices.Concat(last.PromptIDs, last.SampledIDs)
	c.LossMask = make([]int8, n)
	c.Logprobs = make([]*float64, n)
	first := len(c.calls[0].PromptIDs)
	c.PromptLen = &first
	for _, call := range c.calls {
		c.mask(call)
	}
}

// mask marks the sampled ids of a call that have a logprob.
func (c *chained) mask(call *trace.Call) {
	start := len(call.PromptIDs)
	if call.Logprobs == nil {
		c.warn("call %s has no logprobs: its %d sampled tokens are masked", call.ID, len(call.SampledIDs))
		return
	}
	if len(call.Logprobs) != len(call.SampledIDs) {
		c.Integrity.Fatal = append(c.Integrity.Fatal, fmt.Sprintf("call %s has %d logprobs for %d sampled tokens",
			call.ID, len(call.Logprobs), len(call.SampledIDs)))
		return
	}
	missing := 0
	for i := range call.Logprobs {
		if p := &call.Logprobs[i]; math.IsNaN(*p) || math.IsInf(*p, 0) {
			missing++
		} else {
			c.LossMask[start+i], c.Logprobs[start+i] = 1, p
		}
	}
	if missing > 0 {
		c.warn("%d sampled tokens of call %s have no logprob and are masked", missing, call.ID)
	}
}
