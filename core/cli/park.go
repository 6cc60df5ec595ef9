package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/cli/shown"
	"github.com/penstock-dev/penstock/core/engine"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/shell"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream/cost"
)

func (a *App) parkCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "park",
		Short: "show and answer rollouts that wait for a person",
		Long: "A rollout is parked when a stage with `on_error: park` failed, or a loop with `else: park` got no further.\n" +
			"It keeps all that it did, also over a reboot, and goes on once it is answered.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.parkList(), a.parkShow(), a.parkAnswer(), a.parkAbandon())
	return c
}

// withStore opens the store of a run folder that no run holds.
func (a *App) withStore(dir string, f func(*run.Folder, *trace.Store) error) (err error) {
	folder, err := run.Open(dir)
	if err != nil {
		if errors.Is(err, run.ErrInUse) {
			return &exitError{exitInfra, fmt.Errorf("%w: answer when it has ended", err)}
		}
		return &exitError{exitUsage, err}
	}
	defer closeAll(&err, folder.Close)
	if _, err := os.Stat(folder.Database()); err != nil {
		return &exitError{exitUsage, fmt.Errorf("%s holds no run: %w", dir, err)}
	}
	store, err := trace.Open(folder.Database(), trace.StoreOptions{Durability: a.settings.Trace.Durability})
	if err != nil {
		return &exitError{exitInfra, err}
	}
	defer closeAll(&err, store.Close)
	return f(folder, store)
}

func (a *App) parkList() *cobra.Command {
	var all, asJSON bool
	c := &cobra.Command{
		Use: "ls DIR", Short: "list what waits for a person", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(args[0], func(_ *run.Folder, store *trace.Store) error {
				parks, err := store.Parks(c.Context())
				if err != nil {
					return &exitError{exitInfra, err}
				}
				return a.listParks(parks, all, asJSON)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also those that were answered or abandoned")
	c.Flags().BoolVar(&asJSON, "json", false, "print one park a line as JSON")
	return c
}

func (a *App) listParks(parks []*trace.Park, all, asJSON bool) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 8, 2, ' ', 0)
	n := 0
	for _, p := range parks {
		if !all && p.Status != trace.ParkWaiting {
			continue
		}
		if n++; asJSON {
			if err := a.printJSON(p); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", p.ID, p.Status, shown.Line(p.Rollout), phase(p), p.Reason, shown.Line(p.Message))
	}
	if n == 0 && !asJSON {
		fmt.Fprintln(w, "nothing waits")
	}
	return w.Flush()
}

// phase is the stage that a rollout was in, with its pass.
func phase(p *trace.Park) string {
	if p.Max == 0 {
		return p.Stage
	}
	return fmt.Sprintf("%s (pass %d of %d)", p.Stage, p.Pass, p.Max)
}

func (a *App) printJSON(v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(a.Stdout, "%s\n", line)
	}
	return err
}

func (a *App) parkShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "show DIR ID", Short: "show what a parked rollout is asked, and how to answer", Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(args[0], func(f *run.Folder, store *trace.Store) error {
				p, err := store.Park(c.Context(), args[1])
				switch {
				case errors.Is(err, trace.ErrNotFound):
					return &exitError{exitUsage, fmt.Errorf("there is no park %s; see penstock park ls %s", args[1], shell.Quote(args[0]))}
				case err != nil:
					return &exitError{exitInfra, err}
				case asJSON:
					return a.printJSON(p)
				}
				a.showPark(a.relative(f.Dir), p)
				return nil
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the park as JSON")
	return c
}

func (a *App) showPark(dir string, p *trace.Park) {
	w := tabwriter.NewWriter(a.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "park\t%s, %s\n", p.ID, p.Status)
	fmt.Fprintf(w, "rollout\t%s\n", shown.Line(p.Rollout))
	fmt.Fprintf(w, "phase\t%s\n", phase(p))
	fmt.Fprintf(w, "why\t%s: %s\n", p.Reason, shown.Lines(p.Message))
	fmt.Fprintf(w, "since\t%s\n", p.Parked.Local().Format(time.DateTime))
	if p.Cost != nil {
		fmt.Fprintf(w, "cost\t%s USD (%s)\n", cost.Text(*p.Cost), p.CostBasis)
	}
	if p.Output != nil {
		fmt.Fprintf(w, "output\t%s\n", shown.Lines(string(p.Output)))
	}
	if p.Raw != "" && p.Output == nil {
		fmt.Fprintf(w, "it wrote\t%s\n", shown.Lines(p.Raw))
	}
	if p.Schema != nil {
		fmt.Fprintf(w, "schema\t%s\n", p.Schema)
	}
	if p.Status != trace.ParkWaiting {
		fmt.Fprintf(w, "%s\t%s\n", p.Status, p.Ended.Local().Format(time.DateTime))
	}
	switch {
	case p.Answer != nil:
		fmt.Fprintf(w, "answer\t%s\n", shown.Lines(string(p.Answer)))
	case p.Status == trace.ParkAnswered:
		fmt.Fprintf(w, "answer\tto go on without one\n")
	}
	w.Flush()
	if p.Status != trace.ParkWaiting {
		return
	}
	fmt.Fprintf(a.Stdout, "\nanswer in place of %s:  penstock park answer %s %s '{...}'\n", p.Stage, shell.Quote(dir), p.ID)
	if p.Loop != "" {
		fmt.Fprintf(a.Stdout, "let the loop go on:    penstock park answer %s %s --reset-round\n", shell.Quote(dir), p.ID)
	} else {
		fmt.Fprintf(a.Stdout, "try the stage again:   penstock park answer %s %s\n", shell.Quote(dir), p.ID)
	}
	fmt.Fprintf(a.Stdout, "give it up:            penstock park abandon %s %s\n", shell.Quote(dir), p.ID)
}

func (a *App) parkAnswer() *cobra.Command {
	var f struct {
		reset, later, accept, json, plain bool
	}
	c := &cobra.Command{
		Use:   "answer DIR ID [JSON]",
		Short: "answer a parked rollout, and go on with its run",
		Long: "Answer a parked rollout, and go on with its run. JSON is what the stage should have written, checked against its\n" +
			"schema; '-' reads it from standard input. Without JSON the stage is tried again.",
		Example: "  penstock park answer runs/latest p-01J... '{\"verdict\": \"approve\", \"findings\": []}'",
		Args:    cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) error {
			answer := engine.Answer{Park: args[1], ResetRound: f.reset}
			if len(args) == 3 {
				answer.Output = json.RawMessage(args[2])
				if args[2] == "-" {
					in, err := io.ReadAll(c.InOrStdin())
					if err != nil {
						return &exitError{exitUsage, fmt.Errorf("read the answer: %w", err)}
					}
					answer.Output = in
				}
			}
			command := "penstock park answer " + shell.Quote(args[0]) + " " + args[1]
			if len(args) == 3 {
				command += " '{...}'"
			}
			return a.resume(c.Context(), args[0], resumption{
				command: command,
				accept:  f.accept, json: f.json, plain: f.plain, later: f.later,
				before: func(ctx context.Context, store *trace.Store, p *pipeline.Pipeline) error {
					return a.reply(ctx, store, p, answer, f.json)
				},
			})
		},
	}
	c.Flags().BoolVar(&f.reset, "reset-round", false, "have the loop count its passes anew")
	c.Flags().BoolVar(&f.later, "no-resume", false, "only take the answer; penstock resume goes on")
	c.Flags().BoolVar(&f.accept, "accept-changes", false, "go on although plugins or files are not those that the run began with")
	c.Flags().BoolVar(&f.json, "json", false, "print events as JSON, one a line")
	c.Flags().BoolVar(&f.plain, "plain", false, "print plain lines, also on a terminal")
	c.MarkFlagsMutuallyExclusive("json", "plain")
	return c
}

// reply takes an answer, and says so where it was taken before.
func (a *App) reply(ctx context.Context, store *trace.Store, p *pipeline.Pipeline, answer engine.Answer, quiet bool) error {
	before, err := store.Park(ctx, answer.Park)
	if err := engine.Reply(ctx, store, p, answer); err != nil {
		return err
	}
	if err == nil && before.Status == trace.ParkAnswered && !quiet {
		fmt.Fprintf(a.Stdout, "%s was given this answer at %s already\n", before.ID, before.Ended.Local().Format(time.DateTime))
	}
	return nil
}

func (a *App) parkAbandon() *cobra.Command {
	return &cobra.Command{
		Use: "abandon DIR ID", Short: "give a parked rollout up", Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(args[0], func(folder *run.Folder, store *trace.Store) error {
				err := engine.Abandon(c.Context(), folder, store, args[1])
				switch {
				case errors.Is(err, engine.ErrAnswer):
					return &exitError{exitUsage, err}
				case err != nil:
					return &exitError{exitInfra, err}
				}
				fmt.Fprintf(a.Stdout, "%s is abandoned\n", args[1])
				return nil
			})
		},
	}
}
