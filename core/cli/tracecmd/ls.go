package tracecmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/cli/shown"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

func lsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls DIR [ROLLOUT|SESSION]",
		Short: "List the rollouts of a run, or the sessions and calls of one",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return open(cmd, args[0], Options{}, func(ctx context.Context, v *view) error {
				if len(args) == 1 {
					return v.lsRollouts(ctx, asJSON)
				}
				return v.lsCalls(ctx, args[1], asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object a line")
	return cmd
}

func (v *view) lsRollouts(ctx context.Context, asJSON bool) error {
	rollouts, err := v.Rollouts(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(v.out, 0, 8, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(w, "ROLLOUT\tSTATUS\tEXIT\tREWARD\tSESSIONS\tCALLS\tTOKENS IN\tOUT\tERROR")
	}
	for _, r := range rollouts {
		if asJSON {
			if err := v.line(r); err != nil {
				return err
			}
			continue
		}
		sessions, err := v.Sessions(ctx, r.ID)
		if err != nil {
			return err
		}
		reward := "-"
		if r.Reward != nil {
			reward = strconv.FormatFloat(*r.Reward, 'g', 6, 64)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", shown.Line(r.ID), r.Status, dash(r.ExitStatus), reward,
			len(sessions), r.Calls, r.Usage.Input, r.Usage.Output, one(r.Error, 60))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return v.lsOutside(ctx, asJSON)
}

// lsOutside lists the sessions that belong to no rollout: those of agents that
// others started.
func (v *view) lsOutside(ctx context.Context, asJSON bool) error {
	sessions, err := v.Sessions(ctx, "")
	if err != nil {
		return err
	}
	for _, s := range sessions {
		if s.Rollout != "" {
			continue
		}
		if asJSON {
			if err := v.line(s); err != nil {
				return err
			}
			continue
		}
		calls, err := v.Calls(ctx, s.ID)
		if err != nil {
			return err
		}
		fmt.Fprintf(v.out, "%s  no rollout, model %s, %d calls\n", s.ID, s.ModelEntry, len(calls))
	}
	return nil
}

// callLine is a call in a list.
type callLine struct {
	ID      string     `json:"id"`
	Lineage string     `json:"lineage"`
	Status  string     `json:"status"`
	Parent  string     `json:"parent,omitempty"`
	Extends bool       `json:"extends"`
	Fork    string     `json:"fork,omitempty"`
	Finish  string     `json:"finish"`
	Usage   chat.Usage `json:"usage"`
	Raw     string     `json:"raw"`
}

func (v *view) lsCalls(ctx context.Context, id string, asJSON bool) error {
	sessions, err := v.sessionsOf(ctx, id)
	if errors.Is(err, trace.ErrNotFound) {
		return fmt.Errorf("no rollout or session %q; penstock trace ls DIR lists them", id)
	}
	if err != nil {
		return err
	}
	for _, s := range sessions {
		calls, err := v.Calls(ctx, s.ID)
		if err != nil {
			return err
		}
		if !asJSON {
			of := "no rollout"
			if s.Stage != "" {
				of = fmt.Sprintf("stage %s, round %d, try %d", s.Stage, s.Round, s.Try)
			}
			fmt.Fprintf(v.out, "%s  %s, model %s, %d calls\n", s.ID, of, s.ModelEntry, len(calls))
			if s.Incomplete != "" {
				fmt.Fprintf(v.out, "  incomplete, %d calls were refused: %s\n", s.Unrecorded, s.Incomplete)
			}
		}
		w := tabwriter.NewWriter(v.out, 0, 8, 2, ' ', 0)
		for _, c := range calls {
			if asJSON {
				if err := v.line(callLine{c.ID, short(c.Lineage), c.Status, c.Parent, c.Extends, c.Fork, c.Finish, c.Usage, c.Raw}); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(w, "  .%d\t%s\t%s\t%s\t%d+%d\t%s\t%s\n", c.Seq, dash(short(c.Lineage)), c.Status, link(c),
				c.Usage.Input, c.Usage.Output, dash(c.Finish), one(said(c), 60))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// sessionsOf returns the sessions of a rollout, or the one session of that id;
// trace.ErrNotFound for neither.
func (v *view) sessionsOf(ctx context.Context, id string) ([]*trace.Session, error) {
	if _, err := v.Rollout(ctx, id); err == nil {
		return v.Sessions(ctx, id)
	} else if !errors.Is(err, trace.ErrNotFound) {
		return nil, err
	}
	all, err := v.Sessions(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.ID == id {
			return []*trace.Session{s}, nil
		}
	}
	return nil, trace.ErrNotFound
}

// link says how a call goes on from another.
func link(c *trace.Call) string {
	parent := ""
	if c.Parent != "" {
		parent = " " + c.Parent[len(c.Session):]
	}
	switch {
	case c.Replays != "":
		return "replays " + c.Replays[len(c.Session):]
	case c.Extends:
		return "extends" + parent
	case c.Fork != "":
		return "forks" + parent + ": " + c.Fork
	case c.Parent != "":
		return "follows" + parent
	}
	return "-"
}

// said is what a call came to, in a line.
func said(c *trace.Call) string {
	if c.Error != nil {
		return c.Error.Message
	}
	if c.Raw == "" && c.Parsed != nil { // an upstream that parses gives no text of its own
		said := chat.PlainText(c.Parsed.Parts)
		for _, call := range chat.Calls(c.Parsed.Parts) {
			said += " " + call.Name + string(call.Arguments)
		}
		return said
	}
	return c.Raw
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
