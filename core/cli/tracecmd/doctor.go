package tracecmd

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/trace"
)

func doctorCommand(o Options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor DIR",
		Short: "Find what costs token exactness: each fork with its class and where it parts, rates by agent and model",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return open(cmd, args[0], o, func(ctx context.Context, v *view) error {
				d, err := v.examine(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return v.line(d)
				}
				return d.print(v)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the findings as JSON")
	return cmd
}

// diagnosis is what doctor finds.
type diagnosis struct {
	Groups []*group `json:"groups"`
	Forks  []fork   `json:"forks"`
}

// group counts the calls of one agent with one model.
type group struct {
	Agent       string         `json:"agent"`
	Model       string         `json:"model"`
	Calls       int            `json:"calls"`
	Continuing  int            `json:"continuing"` // have a turn before them
	Extending   int            `json:"extending"`  // extend its ids
	Forks       map[string]int `json:"forks,omitempty"`
	Failed      int            `json:"failed"`
	Sampled     int            `json:"sampled"`     // ids
	NoLogprob   int            `json:"no_logprob"`  // of them
	Warned      int            `json:"warned"`      // calls on which the parser was lenient
	Undelivered int            `json:"undelivered"` // replies whose end the client never got
}

// fork is a call that could not go on from the ids before it.
type fork struct {
	Call   string `json:"call"`
	Parent string `json:"parent,omitempty"`
	Class  string `json:"class"`
	Agent  string `json:"agent"`
	Model  string `json:"model"`
	// Against is the call whose ids, those of the prompt and of what was sampled,
	// this one should have begun with: its parent, or, where it does extend that
	// one, the call before it that did so, too. Position is how many of these IDs
	// it begins with, and Where the text around that place: of that call (A) and of
	// this one (B).
	Against  string      `json:"against,omitempty"`
	Position int         `json:"position"`
	IDs      int         `json:"ids"`
	Where    *difference `json:"where,omitempty"`
}

func (v *view) examine(ctx context.Context) (*diagnosis, error) {
	sessions, err := v.Sessions(ctx, "")
	if err != nil {
		return nil, err
	}
	d := &diagnosis{Groups: []*group{}, Forks: []fork{}}
	groups := map[[2]string]*group{}
	for _, s := range sessions {
		calls, err := v.Calls(ctx, s.ID)
		if err != nil {
			return nil, err
		}
		byID := map[string]*trace.Call{}
		for _, c := range calls {
			byID[c.ID] = c
			k := [2]string{agentOf(c), c.ModelServed}
			g := groups[k]
			if g == nil {
				g = &group{Agent: k[0], Model: k[1], Forks: map[string]int{}}
				groups[k] = g
				d.Groups = append(d.Groups, g)
			}
			g.count(c)
			if c.Fork != "" {
				d.Forks = append(d.Forks, v.fork(ctx, c, before(c, byID[c.Parent], calls)))
			}
		}
	}
	sort.SliceStable(d.Groups, func(i, j int) bool {
		return d.Groups[i].Agent+"\x00"+d.Groups[i].Model < d.Groups[j].Agent+"\x00"+d.Groups[j].Model
	})
	sort.SliceStable(d.Forks, func(i, j int) bool { return d.Forks[i].Class < d.Forks[j].Class })
	return d, nil
}

// agentOf is the program that made a call, as it names itself.
func agentOf(c *trace.Call) string {
	for name, value := range c.Headers {
		if strings.EqualFold(name, "User-Agent") && value != "" {
			product, _, _ := strings.Cut(value, " ")
			return product
		}
	}
	return dash(c.Dialect)
}

func (g *group) count(c *trace.Call) {
	g.Calls++
	if c.Status != trace.CallOK {
		g.Failed++
	}
	if c.Extends || c.Fork != "" {
		g.Continuing++
	}
	if c.Extends {
		g.Extending++
	}
	if c.Fork != "" {
		g.Forks[c.Fork]++
	}
	if len(c.Warnings) > 0 {
		g.Warned++
	}
	if c.Status == trace.CallOK && !c.Delivered {
		g.Undelivered++
	}
	g.Sampled += len(c.SampledIDs)
	if len(c.Logprobs) != len(c.SampledIDs) {
		g.NoLogprob += len(c.SampledIDs)
		return
	}
	for _, p := range c.Logprobs {
		if math.IsNaN(p) {
			g.NoLogprob++
		}
	}
}

// before is the call that c parts from.
func before(c, parent *trace.Call, calls []*trace.Call) *trace.Call {
	if !c.Extends {
		return parent
	}
	var out *trace.Call
	for _, other := range calls {
		if other.Seq < c.Seq && other.Parent == c.Parent && other.Status == trace.CallOK && other.Replays == "" {
			out = other
		}
	}
	return out
}

func (v *view) fork(ctx context.Context, c, from *trace.Call) fork {
	f := fork{Call: c.ID, Parent: c.Parent, Class: c.Fork, Agent: agentOf(c), Model: c.ModelServed}
	if from == nil {
		return f
	}
	f.Against = from.ID
	ids := slices.Concat(from.PromptIDs, from.SampledIDs)
	f.IDs = len(ids)
	for f.Position < min(len(ids), len(c.PromptIDs)) && ids[f.Position] == c.PromptIDs[f.Position] {
		f.Position++
	}
	said, ok := v.texts.prompt(ctx, from)
	now, too := v.texts.prompt(ctx, c)
	switch {
	case ok && too:
		said += from.Raw
		f.Where = differ(said, now[:min(len(now), len(said))])
	case len(from.PromptIDs) > 0 && len(c.PromptIDs) > 0:
		f.Where = differIDs(ids, c.PromptIDs[:min(len(c.PromptIDs), len(ids))])
	}
	return f
}

func (d *diagnosis) print(v *view) error {
	w := tabwriter.NewWriter(v.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "AGENT\tMODEL\tCALLS\tFAILED\tEXTENDING\tFORKS\tNO LOGPROB\tPARSER WARNED\tUNDELIVERED")
	for _, g := range d.Groups {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%d\n", g.Agent, dash(g.Model), g.Calls, g.Failed, rate(g.Extending, g.Continuing),
			classes(g.Forks), rate(g.NoLogprob, g.Sampled), rate(g.Warned, g.Calls), g.Undelivered)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	for _, f := range d.Forks {
		fmt.Fprintf(&b, "\n%s: call %s", f.Class, f.Call)
		if f.Parent != "" {
			fmt.Fprintf(&b, " after %s", f.Parent)
		}
		fmt.Fprintf(&b, " (%s, %s)\n", f.Agent, dash(f.Model))
		if f.IDs > 0 {
			fmt.Fprintf(&b, "  begins with %d of the %d ids of call %s\n", f.Position, f.IDs, f.Against)
		}
		if f.Where != nil {
			f.Where.print(&b, "  ", "call "+f.Against, "this one")
		}
	}
	if len(d.Forks) == 0 {
		b.WriteString("\nno forks: every turn extends the one before exactly\n")
	}
	_, err := fmt.Fprint(v.out, b.String())
	return err
}

func rate(n, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d (%.1f%%)", n, of, 100*float64(n)/float64(of))
}

func classes(forks map[string]int) string {
	if len(forks) == 0 {
		return "0"
	}
	names := make([]string, 0, len(forks))
	for class := range forks {
		names = append(names, class)
	}
	sort.Strings(names)
	for i, class := range names {
		names[i] = fmt.Sprintf("%s %d", class, forks[class])
	}
	return strings.Join(names, ", ")
}
