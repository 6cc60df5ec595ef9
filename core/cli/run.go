package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/engine"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/shell"
	"github.com/penstock-dev/penstock/core/trace"
)

type runFlags struct {
	tasks   string
	samples int
	set     []string
	out     string
	dryRun  bool
	json    bool
	plain   bool
	from    sources
}

func (a *App) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run PIPELINE",
		Short: "run a pipeline",
		Long: "Run a pipeline: every task, every sample. The run folder is ./runs/<run id> unless --out says otherwise.\n" +
			"Ctrl-C once ends the run cleanly and says how to go on with it; twice kills it.",
		Example: "  penstock run examples/calculator/pipeline.yaml\n" +
			"  penstock run pipeline.yaml --samples 8 --set models.policy.format=hermes",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("samples") && f.samples < 1 {
				return &exitError{exitUsage, fmt.Errorf("--samples: want at least 1, got %d", f.samples)}
			}
			return a.run(c.Context(), args[0], f)
		},
	}
	c.Flags().StringVar(&f.tasks, "tasks", "", "read tasks from this file instead of the pipeline's")
	c.Flags().IntVar(&f.samples, "samples", 0, "rollouts per task, instead of the pipeline's")
	c.Flags().StringArrayVar(&f.set, "set", nil, "set a value of the pipeline, such as models.policy.format=hermes; stages go by id")
	c.Flags().StringVar(&f.out, "out", "", "the run folder; it must be new or empty")
	c.Flags().String("gateway-addr", "", "where the gateway listens, on loopback (default 127.0.0.1:0, a port that the system picks)")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "check everything and say what would run, but start nothing")
	c.Flags().BoolVar(&f.json, "json", false, "print events as JSON, one a line")
	c.Flags().BoolVar(&f.plain, "plain", false, "print plain lines, also on a terminal")
	f.from.flags(c)
	c.MarkFlagsMutuallyExclusive("json", "plain", "dry-run")
	return c
}

func (a *App) run(ctx context.Context, path string, f runFlags) (err error) {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	plugins, err := a.registry()
	if err != nil {
		return err
	}
	defer closeAll(&err, func() error { return plugins.Close(context.WithoutCancel(ctx)) })
	parsed, err := pipeline.Parse(path, pipeline.ParseOptions{Set: f.set, Tasks: f.tasks, Samples: f.samples, Env: os.LookupEnv, Program: agent.CheckProgram, Sandbox: a.sandboxes(ctx), Enable: features})
	if parsed == nil {
		return &exitError{exitUsage, err}
	}
	p, err := a.check(ctx, parsed, plugins, f.from)
	if err != nil {
		return err
	}
	a.warn(p.Warnings)
	if f.dryRun {
		fmt.Fprintf(a.Stdout, "%s: %d tasks x %d samples = %d rollouts\n%s", p.Name, len(p.Tasks), p.Samples, len(p.Tasks)*p.Samples, pipeline.Graph(p))
		return nil
	}
	folder, err := run.Create(f.out, a.settings.Runs)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	defer closeAll(&err, folder.Close)
	file := a.describe(p, folder, plugins)
	file.Locked = f.from.locked
	for _, dir := range f.from.dirs {
		if dir, err = filepath.Abs(dir); err != nil {
			return &exitError{exitUsage, err}
		}
		file.PluginDirs = append(file.PluginDirs, dir)
	}
	store, err := trace.Open(folder.Database(), trace.StoreOptions{Durability: a.settings.Trace.Durability})
	if err != nil {
		return &exitError{exitInfra, err}
	}
	defer closeAll(&err, store.Close)
	if err := store.PutTasks(ctx, tasks(p)); err != nil {
		return &exitError{exitInfra, err}
	}
	return a.execute(ctx, execution{pipeline: p, folder: folder, file: file, store: store, plugins: plugins, json: f.json, plain: f.plain})
}

// describe makes the run's file.
func (a *App) describe(p *pipeline.Pipeline, folder *run.Folder, plugins *plugin.Registry) *run.File {
	return &run.File{
		Version: run.FileVersion, Run: folder.ID, Penstock: a.Version, Status: trace.Running, Started: time.Now().UTC(),
		Resolved: p.Resolved, Files: modelFiles(p), Plugins: plugins.Digests(),
	}
}

// modelFiles are the hashes of the files, beside the pipeline's own, that
// decide what a run does.
func modelFiles(p *pipeline.Pipeline) map[string]string {
	out := maps.Clone(p.Hashes)
	delete(out, p.Path)
	return out
}

func tasks(p *pipeline.Pipeline) []trace.Task {
	out := make([]trace.Task, len(p.Tasks))
	for i, t := range p.Tasks {
		out[i] = trace.Task{ID: t.ID, Seq: i, Data: t.Data}
	}
	return out
}

// execution is all that a run needs, opened by run or by resume.
type execution struct {
	pipeline *pipeline.Pipeline
	folder   *run.Folder
	file     *run.File
	store    *trace.Store
	plugins  *plugin.Registry
	json     bool
	plain    bool
}

// execute runs and shows a run, and turns its outcome into an exit code.
func (a *App) execute(ctx context.Context, x execution) (err error) {
	show := a.progress(x)
	seen, flush, err := a.telemetry(ctx, x.pipeline, x.folder)
	if err != nil {
		return err
	}
	defer closeAll(&err, flush)
	events, err := x.folder.Events(func(e run.Event) {
		show.event(e)
		seen.Event(e)
	})
	if err != nil {
		return &exitError{exitInfra, err}
	}
	defer closeAll(&err, events.Close)
	self, err := os.Executable()
	if err != nil {
		return &exitError{exitInfra, fmt.Errorf("find own binary: %w", err)}
	}
	secrets := a.redactor(x.pipeline)
	e, err := engine.New(ctx, engine.Options{
		Pipeline: x.pipeline, Folder: x.folder, File: x.file, Events: events, Store: x.store, Plugins: x.plugins, Log: a.log, Self: self,
		Redact: secrets, Telemetry: seen,
		Gateway: a.gatewayOptions(),
	})
	if err != nil {
		return &exitError{exitInfra, err}
	}
	defer closeAll(&err, e.Close)
	if err := x.folder.WriteFile(x.file); err != nil {
		return &exitError{exitInfra, err}
	}
	if err := x.folder.KeepInputs(x.file.Files, func(text []byte) []byte { out, _ := secrets.Bytes(text); return out }); err != nil {
		return &exitError{exitInfra, err}
	}
	stopClock := show.tick()
	totals, err := e.Run(ctx)
	stopClock()
	if err != nil {
		return &exitError{exitInfra, fmt.Errorf("%w\ngo on with: penstock resume %s", err, shell.Quote(a.relative(x.folder.Dir)))}
	}
	show.summary(totals)
	switch s := totals.Status; {
	case len(totals.Lost) > 0:
		return &exitError{exitInfra, fmt.Errorf("rows are left out, as a hook failed; once it works, have them written with: penstock resume %s", shell.Quote(a.relative(x.folder.Dir)))}
	case s[trace.Parked] > 0:
		return &exitError{exitParked, nil}
	case s[trace.Completed] != totals.Rollouts:
		return &exitError{exitFailed, nil}
	}
	return nil
}

// closeAll adds the error of a close to that of a command.
func closeAll(err *error, closer func() error) {
	if e := closer(); e != nil && *err == nil {
		*err = &exitError{exitInfra, e}
	}
}
