package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/engine"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/shell"
	"github.com/penstock-dev/penstock/core/trace"
)

func (a *App) resumeCommand() *cobra.Command {
	var f struct {
		json, plain, accept bool
	}
	c := &cobra.Command{
		Use:   "resume DIR",
		Short: "go on with an interrupted run",
		Long: "Go on with an interrupted run: only rollouts that are not ended run, from the stage that they were in.\n" +
			"The pipeline and the tasks are those that the run began with; secrets are read anew.",
		Example: "  penstock resume runs/latest",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.resume(c.Context(), args[0], resumption{command: "penstock resume " + shell.Quote(args[0]), accept: f.accept, json: f.json, plain: f.plain})
		},
	}
	c.Flags().BoolVar(&f.accept, "accept-changes", false, "go on although plugins or files are not those that the run began with")
	c.Flags().BoolVar(&f.json, "json", false, "print events as JSON, one a line")
	c.Flags().BoolVar(&f.plain, "plain", false, "print plain lines, also on a terminal")
	c.MarkFlagsMutuallyExclusive("json", "plain")
	return c
}

// resumption says how a run is gone on with.
type resumption struct {
	command             string // what was typed, to be typed again with more
	accept, json, plain bool
	// before, if not nil, acts on the store before anything runs; with later
	// nothing does.
	before func(context.Context, *trace.Store, *pipeline.Pipeline) error
	later  bool
}

func (a *App) resume(ctx context.Context, dir string, o resumption) (err error) {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	folder, err := run.Open(dir)
	if err != nil {
		code := exitUsage
		if errors.Is(err, run.ErrInUse) {
			code = exitInfra
		}
		return &exitError{code, err}
	}
	defer closeAll(&err, folder.Close)
	file, err := folder.ReadFile()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if _, err := os.Stat(folder.Database()); err != nil {
		return &exitError{exitUsage, fmt.Errorf("the run's database is gone, and with it all that was recorded: %w; start anew with penstock run", err)}
	}
	store, err := trace.Open(folder.Database(), trace.StoreOptions{Durability: a.settings.Trace.Durability})
	if err != nil {
		return &exitError{exitInfra, err}
	}
	defer closeAll(&err, store.Close)
	stored, err := store.Tasks(ctx)
	if err != nil {
		return &exitError{exitInfra, err}
	}
	if len(stored) == 0 {
		return &exitError{exitUsage, fmt.Errorf("%s holds no tasks: the run ended before it began; start it anew with penstock run", dir)}
	}
	given := make([]pipeline.Task, len(stored))
	for i, t := range stored {
		given[i] = pipeline.Task{ID: t.ID, Data: t.Data}
	}
	plugins, err := a.registry()
	if err != nil {
		return err
	}
	defer closeAll(&err, func() error { return plugins.Close(context.WithoutCancel(ctx)) })
	parsed, err := pipeline.Restore(file.Resolved, pipeline.ParseOptions{Env: os.LookupEnv, Program: agent.CheckProgram, Sandbox: a.sandboxes(ctx), GivenTasks: given, Enable: features})
	if parsed == nil {
		return &exitError{exitUsage, err}
	}
	p, err := a.check(ctx, parsed, plugins, sources{dirs: file.PluginDirs, locked: file.Locked})
	if err != nil {
		return err
	}
	files := modelFiles(p)
	if err := a.unchanged(p, folder, file, files, plugins.Digests(), o); err != nil {
		return err
	}
	if o.before != nil {
		err := o.before(ctx, store, p)
		switch {
		case errors.Is(err, engine.ErrAnswer):
			return &exitError{exitUsage, err}
		case err != nil:
			return &exitError{exitInfra, err}
		case o.later:
			fmt.Fprintf(a.Stdout, "taken; go on with: penstock resume %s\n", shell.Quote(dir))
			return nil
		}
	}
	file.Files, file.Plugins = files, plugins.Digests()
	file.Resumed++
	file.Status = trace.Running
	return a.execute(ctx, execution{pipeline: p, folder: folder, file: file, store: store, plugins: plugins, json: o.json, plain: o.plain})
}

// unchanged refuses to go on with a run on other files or plugins than those
// that it was run with, unless they are accepted.
func (a *App) unchanged(p *pipeline.Pipeline, folder *run.Folder, file *run.File, files, plugins map[string]string, o resumption) error {
	c := changes{folder: folder, redact: a.redactor(p)}
	if edited := c.edited(p); edited != "" {
		fmt.Fprintf(a.Stderr, "%s: warning: %s\n", a.relative(p.Path), edited)
	}
	changed, err := c.files(file.Files, files)
	if err != nil {
		return &exitError{exitInfra, err}
	}
	changed = append(changed, differences("plugin", file.Plugins, plugins)...)
	if len(changed) == 0 || o.accept {
		return nil
	}
	return &exitError{exitUsage, fmt.Errorf("not resumed: what the run began with has changed:\n  %s\nundo the changes, or accept them: %s --accept-changes",
		strings.Join(changed, "\n  "), o.command)}
}
