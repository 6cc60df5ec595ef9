package tracecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/cli/shown"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

func showCommand(o Options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show DIR ID",
		Short: "Show a rollout, a session or a call: what the model saw, sampled, and what was served",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return open(cmd, args[0], o, func(ctx context.Context, v *view) error {
				r, err := v.Rollout(ctx, args[1])
				if err == nil {
					return v.showRollout(ctx, r, asJSON)
				}
				if !errors.Is(err, trace.ErrNotFound) {
					return err
				}
				sessions, err := v.sessionsOf(ctx, args[1])
				if err == nil {
					return v.showSession(ctx, sessions[0], asJSON)
				}
				if !errors.Is(err, trace.ErrNotFound) {
					return err
				}
				c, err := v.call(ctx, args[1])
				if err != nil {
					return err
				}
				return v.showCall(ctx, c, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the whole record as JSON")
	return cmd
}

// rolloutRecord is a rollout with its stages.
type rolloutRecord struct {
	*trace.Rollout
	Stages []*trace.StageResult `json:"stages"`
	Rows   []*trace.RowEdit     `json:"row_edits,omitempty"`
	// Replays are what judging it again came to.
	Replays []*trace.Replay `json:"replays,omitempty"`
}

func (v *view) showRollout(ctx context.Context, r *trace.Rollout, asJSON bool) error {
	stages, err := v.Stages(ctx, r.ID)
	if err != nil {
		return err
	}
	rows, err := v.RowEdits(ctx, r.ID)
	if err != nil {
		return err
	}
	replays, err := v.Replays(ctx, r.ID)
	if err != nil {
		return err
	}
	if asJSON {
		return v.line(rolloutRecord{r, stages, rows, replays})
	}
	fmt.Fprintf(v.out, "rollout %s: %s, exit %s, %d calls, %d + %d tokens, cost %s\n",
		shown.Line(r.ID), r.Status, dash(r.ExitStatus), r.Calls, r.Usage.Input, r.Usage.Output, money(r.Cost, r.CostBasis))
	for _, s := range stages {
		fmt.Fprintf(v.out, "stage %s, round %d, try %d: %s %s %s\n", s.Stage, s.Round, s.Try, s.Status, s.ExitStatus, s.Error)
		if s.Output != nil {
			fmt.Fprintf(v.out, "  %s\n", s.Output)
		}
		v.edits(s.Edits)
	}
	for _, row := range rows {
		fmt.Fprintf(v.out, "row %s, stage %s\n", row.Row, row.Stage)
		v.edits(row.Edits)
	}
	for _, again := range replays {
		round := ""
		if again.Round > 0 {
			round = fmt.Sprintf(", round %d", again.Round)
		}
		fmt.Fprintf(v.out, "judged again as %s, %s%s: %s %s\n", again.ID, cmp.Or(again.Stage, "reward"), round, again.Now, again.Error)
	}
	return v.lsCalls(ctx, r.ID, false)
}

// sessionRecord is a session with the ids of its calls.
type sessionRecord struct {
	*trace.Session
	Calls []string `json:"calls"`
}

// showSession shows what a session holds: those of agents that others started
// have no rollout to be shown with.
func (v *view) showSession(ctx context.Context, s *trace.Session, asJSON bool) error {
	if !asJSON {
		if err := v.lsCalls(ctx, s.ID, false); err != nil {
			return err
		}
		_, err := fmt.Fprintf(v.out, "penstock trace show DIR %s.N shows call N\n", s.ID)
		return err
	}
	calls, err := v.Calls(ctx, s.ID)
	if err != nil {
		return err
	}
	record := sessionRecord{Session: s, Calls: []string{}}
	for _, c := range calls {
		record.Calls = append(record.Calls, c.ID)
	}
	return v.line(record)
}

func (v *view) edits(list []trace.Edit) {
	var b strings.Builder
	edits(&b, list)
	fmt.Fprint(v.out, b.String())
}

// callRecord is a call with what its own JSON leaves out. A logprob that the
// engine didn't give is null.
type callRecord struct {
	*trace.Call
	PromptText string     `json:"prompt_text,omitempty"`
	Logprobs   []*float64 `json:"logprobs"`
}

func (v *view) showCall(ctx context.Context, c *trace.Call, asJSON bool) error {
	prompt, decoded := v.texts.prompt(ctx, c)
	if asJSON {
		out := callRecord{Call: c, PromptText: prompt}
		for i := range c.Logprobs {
			p := &c.Logprobs[i]
			if math.IsNaN(*p) || math.IsInf(*p, 0) {
				p = nil
			}
			out.Logprobs = append(out.Logprobs, p)
		}
		return v.line(out)
	}
	var b strings.Builder
	head(&b, c)
	switch {
	case decoded:
		fmt.Fprintf(&b, "\n--- prompt, %d ids ---\n%s\n", len(c.PromptIDs), prompt)
	case len(c.PromptIDs) > 0:
		fmt.Fprintf(&b, "\n--- prompt, %d ids of tokenizer %s ---\n%v\n", len(c.PromptIDs), c.Tokenizer, c.PromptIDs)
	case len(c.Body) > 0:
		fmt.Fprintf(&b, "\n--- body as received ---\n%s\n", c.Body)
	}
	if c.Raw != "" || len(c.SampledIDs) > 0 {
		fmt.Fprintf(&b, "\n--- sampled, %d ids%s, finish %s ---\n%s\n", len(c.SampledIDs), mean(c.Logprobs), dash(c.Finish), c.Raw)
	}
	replies(&b, c)
	edits(&b, c.Edits)
	_, err := fmt.Fprint(v.out, b.String())
	return err
}

// money is a cost with its basis.
func money(usd *float64, basis string) string {
	if usd == nil {
		return dash(basis)
	}
	return fmt.Sprintf("%.6f USD, %s", *usd, basis)
}

func head(b *strings.Builder, c *trace.Call) {
	fmt.Fprintf(b, "call %s: %s, lineage %s, %s\n", c.ID, c.Status, dash(short(c.Lineage)), link(c))
	if c.Error != nil {
		fmt.Fprintf(b, "error %s: %s\n", c.Error.Kind, shown.Line(c.Error.Message))
	}
	fmt.Fprintf(b, "%s %s, dialect %s, stream %v, HTTP %d, delivered %v, client gone %v\n",
		c.Method, shown.Line(c.Path), c.Dialect, c.Stream, c.HTTPStatus, c.Delivered, c.ClientGone)
	fmt.Fprintf(b, "%s: first byte after %s, done after %s\n", c.Received.Format(time.RFC3339Nano), since(c.Received, c.FirstByte), since(c.Received, c.Done))
	names := make([]string, 0, len(c.Headers))
	for name := range c.Headers {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(b, "  %s: %s\n", name, shown.Line(c.Headers[name]))
	}
	fmt.Fprintf(b, "model %s: asked for %q, served %q, engine %s, format %s, capture %s, weights %s\n",
		c.ModelEntry, c.ModelAsked, c.ModelServed, c.Engine, c.Format, c.Capture, dash(c.Weights))
	fmt.Fprintf(b, "sampling: asked for %s, applied %s\n", compact(c.Requested), compact(c.Effective))
	fmt.Fprintf(b, "tokens: %d in, %d cached, %d out\n", c.Usage.Input, c.Usage.Cached, c.Usage.Output)
	if c.CostBasis != "" {
		fmt.Fprintf(b, "cost: %s\n", money(c.Cost, c.CostBasis))
	}
	if len(c.Unknown) > 0 {
		fmt.Fprintf(b, "unknown fields: %s\n", shown.Line(strings.Join(c.Unknown, ", ")))
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(b, "parser: %s at %d-%d\n", w.Kind, w.Span.Start, w.Span.End)
	}
}

func since(from, to time.Time) string {
	if to.IsZero() {
		return "-"
	}
	return to.Sub(from).Round(time.Microsecond).String()
}

func compact(v any) string {
	b, err := chat.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// mean is the mean of the logprobs that are there.
func mean(logprobs []float64) string {
	sum, n := 0.0, 0
	for _, p := range logprobs {
		if !math.IsNaN(p) && !math.IsInf(p, 0) {
			sum += p
			n++
		}
	}
	if n == 0 {
		return ", no logprobs"
	}
	return fmt.Sprintf(", mean logprob %.4g over %d", sum/float64(n), n)
}

func replies(b *strings.Builder, c *trace.Call) {
	if c.Parsed != nil {
		fmt.Fprintf(b, "\n--- parsed, %s ---\n", c.Parsed.Finish)
		parts(b, c.Parsed.Parts, c)
	}
	switch {
	case c.Served == nil:
	case c.Parsed != nil && reflect.DeepEqual(c.Parsed, c.Served):
		fmt.Fprintf(b, "\n--- served as parsed ---\n")
	default:
		fmt.Fprintf(b, "\n--- served, %s ---\n", c.Served.Finish)
		parts(b, c.Served.Parts, nil)
	}
}

// parts lists parts; the spans of the calls among them are those of c.
func parts(b *strings.Builder, list []chat.Part, c *trace.Call) {
	calls := 0
	for _, p := range list {
		switch p.Type {
		case chat.ToolCall:
			fmt.Fprintf(b, "tool_call %s %s %s", shown.Line(p.ID), shown.Line(p.Name), shown.Line(string(p.Arguments)))
			if c != nil && calls < len(c.Spans) {
				fmt.Fprintf(b, "  (bytes %d-%d of what was sampled)", c.Spans[calls].Start, c.Spans[calls].End)
			}
			b.WriteByte('\n')
			calls++
		default:
			fmt.Fprintf(b, "%s %q\n", p.Type, p.Text)
		}
	}
}

func edits(b *strings.Builder, list []trace.Edit) {
	for _, e := range list {
		fmt.Fprintf(b, "\n--- %s at %s: %s ---\n", e.Hook, e.Point, e.Action)
		for _, f := range []struct{ name, value string }{
			{"reason", e.Reason}, {"error", e.Error}, {"report", string(e.Report)},
		} {
			if f.value != "" {
				fmt.Fprintf(b, "%s: %s\n", f.name, f.value)
			}
		}
		if d := differ(string(e.Before), string(e.After)); d != nil {
			d.print(b, "", "before", "after")
		}
	}
}
