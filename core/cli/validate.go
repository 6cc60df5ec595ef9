package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/sdk/format"
)

type validateFlags struct {
	set                        []string
	graph, strict, noEnv, json bool
	from                       sources
}

func (a *App) validateCommand() *cobra.Command {
	var f validateFlags
	c := &cobra.Command{
		Use:   "validate PIPELINE...",
		Short: "check pipeline files without running them",
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return a.validate(c.Context(), args, f) },
	}
	c.Flags().StringArrayVar(&f.set, "set", nil, "set a value, as in penstock run")
	c.Flags().BoolVar(&f.graph, "graph", false, "show the stages and which reads what of which")
	c.Flags().BoolVar(&f.strict, "strict", false, "take warnings for errors")
	c.Flags().BoolVar(&f.noEnv, "no-env", false, "leave out what depends on the machine: whether ${env:NAME} is set, and whether programs and sandboxes are there")
	c.Flags().BoolVar(&f.json, "json", false, "print findings as JSON")
	f.from.flags(c)
	c.MarkFlagsMutuallyExclusive("json", "graph")
	return c
}

func (a *App) validate(ctx context.Context, paths []string, f validateFlags) (err error) {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	var all pipeline.Diagnostics
	bad := false
	for _, path := range paths {
		p, found, err := a.validateOne(ctx, path, f)
		if err != nil {
			return err
		}
		all = append(all, found...)
		if p == nil || f.strict && len(found) > 0 {
			bad = true
		}
		if f.json {
			continue
		}
		if len(found) > 0 {
			fmt.Fprintln(a.Stderr, found.Error())
		}
		if p != nil {
			fmt.Fprintf(a.Stdout, "%s: ok, %d tasks x %d samples, %d stages\n", path, len(p.Tasks), p.Samples, len(p.Stages))
			if f.graph {
				fmt.Fprint(a.Stdout, pipeline.Graph(p))
			}
		}
	}
	if f.json {
		fmt.Fprintf(a.Stdout, "%s\n", all.JSON())
	}
	if bad {
		return &exitError{exitUsage, nil}
	}
	return nil
}

// validateOne returns no pipeline when the file has errors.
func (a *App) validateOne(ctx context.Context, path string, f validateFlags) (p *pipeline.Pipeline, found pipeline.Diagnostics, err error) {
	plugins, err := a.registry()
	if err != nil {
		return nil, nil, err
	}
	defer closeAll(&err, func() error { return plugins.Close(context.WithoutCancel(ctx)) })
	parsed, err := pipeline.Parse(path, pipeline.ParseOptions{Set: f.set, NoEnv: f.noEnv, Env: os.LookupEnv, Program: agent.CheckProgram, Sandbox: a.sandboxes(ctx), Enable: features})
	if parsed != nil {
		p, err = a.check(ctx, parsed, plugins, f.from) // finds what Parse found, too
	}
	if errors.As(err, &found) {
		return nil, found, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return p, p.Warnings, nil
}

func (a *App) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "schema [format]",
		Short:     "print the JSON Schema of pipeline files, or of format files, for editors",
		Example:   "  penstock schema > pipeline.schema.json",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"format"},
		RunE: func(c *cobra.Command, args []string) (err error) {
			if len(args) == 1 {
				b, err := format.SchemaJSON()
				if err == nil {
					_, err = fmt.Fprintf(a.Stdout, "%s\n", b)
				}
				return err
			}
			plugins, err := a.registry()
			if err != nil {
				return err
			}
			defer closeAll(&err, func() error { return plugins.Close(context.WithoutCancel(c.Context())) })
			b, err := pipeline.Schema(plugins, features...)
			if err != nil {
				return &exitError{exitInfra, err}
			}
			_, err = fmt.Fprintf(a.Stdout, "%s\n", b)
			return err
		},
	}
}
