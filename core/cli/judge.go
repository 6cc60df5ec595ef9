package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/engine"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
)

func (a *App) judgeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "judge",
		Short: "judge stored rollouts again, and try a pipeline's judgers by example",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.judgeReplay(), a.judgeTest())
	return c
}

// replayFlags are the flags of `judge replay`.
type replayFlags struct {
	with          string
	set           []string
	stages, tasks []string
	strict, json  bool
	from          sources
}

func (a *App) judgeReplay() *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use:   "replay DIR",
		Short: "judge the rollouts of a run again, without running agents",
		Long: "Judge the rollouts of a run again, with its own judgers as they are now, or with those of another pipeline, and\n" +
			"compare. No agent and no program runs again: judges see what the run stored, and the workspace where the run kept\n" +
			"it (`workspace: { keep: always }`). A judger with a `model` asks it again. The new verdicts are kept beside the old\n" +
			"ones in the run's database, under an id of their own; nothing of the run is changed. `penstock trace show` shows them.\n" +
			"In a loop each pass that the run took is judged, as its judge saw it: how many there are stays as it was, whatever\n" +
			"the verdicts are now. Of environment variables and secrets only those have to be there that the judges need.\n" +
			"With another pipeline, its stages that aren't judgers or converters must be stages of the run.\n\n" +
			"Exit code 1 says that a judge erred now, or with --strict that a verdict or a reward is not what it was.",
		Example: "  penstock judge replay runs/latest\n" +
			"  penstock judge replay runs/latest --with other.yaml --stage answer\n" +
			"  penstock judge replay runs/latest --set stages.answer.with.normalize=[trim]",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.replay(c.Context(), args[0], f) },
	}
	c.Flags().StringVar(&f.with, "with", "", "a pipeline whose judgers judge, instead of the run's own")
	c.Flags().StringArrayVar(&f.set, "set", nil, "set a value of the pipeline that judges, as in penstock run")
	c.Flags().StringSliceVar(&f.stages, "stage", nil, "judge in these stages only; others keep their verdicts")
	c.Flags().StringSliceVar(&f.tasks, "task", nil, "judge the rollouts of these tasks only")
	c.Flags().BoolVar(&f.strict, "strict", false, "exit with 1 also where a verdict or a reward differs")
	c.Flags().BoolVar(&f.json, "json", false, "print each verdict and each reward, old and new, as JSON, one a line")
	f.from.flags(c)
	return c
}

func (a *App) replay(ctx context.Context, dir string, f replayFlags) (err error) {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	return a.withStore(dir, func(folder *run.Folder, store *trace.Store) (err error) {
		file, err := folder.ReadFile()
		if err != nil {
			return &exitError{exitUsage, err}
		}
		plugins, err := a.registry()
		if err != nil {
			return err
		}
		defer closeAll(&err, func() error { return plugins.Close(context.WithoutCancel(ctx)) })
		p, err := a.judgers(ctx, file, store, plugins, f)
		if err != nil {
			return err
		}
		e, err := a.judgeEngine(ctx, p, folder, store, plugins, f.stages)
		if err != nil {
			return err
		}
		defer closeAll(&err, e.Close)
		show := &comparison{app: a, id: engine.NewReplayID(), dir: folder.Dir, json: f.json, stages: map[string]*tally{}}
		if f.with == "" {
			show.changed = differences("plugin", file.Plugins, plugins.Digests())
		}
		show.begin(p)
		if err := e.Replay(ctx, show.id, engine.ReplayOptions{Tasks: f.tasks, Tell: show.tell}); err != nil {
			return &exitError{exitInfra, fmt.Errorf("judge %s again: %w", dir, err)}
		}
		return show.end(f.strict)
	})
}

// resolved is what is read here of a run's pipeline.
type resolved struct {
	Samples  int `json:"samples"`
	Pipeline struct {
		Stages []resolvedStage `json:"stages"`
	} `json:"pipeline"`
}

type resolvedStage struct {
	ID   string          `json:"id"`
	Uses string          `json:"uses"`
	Run  json.RawMessage `json:"run"`
	Loop *struct {
		Stages []resolvedStage `json:"stages"`
	} `json:"loop"`
}

// kinds are those of the stages, by id.
func kinds(stages []resolvedStage, into map[string]string) map[string]string {
	for _, s := range stages {
		kind, _, _ := strings.Cut(s.Uses, "/")
		switch {
		case s.Loop != nil:
			kind = pipeline.KindLoop
			kinds(s.Loop.Stages, into)
		case s.Run != nil:
			kind = pipeline.KindRun
		}
		into[s.ID] = kind
	}
	return into
}

// judgers loads the pipeline that judges: the run's own, or another.
func (a *App) judgers(ctx context.Context, file *run.File, store *trace.Store, plugins *plugin.Registry, f replayFlags) (*pipeline.Pipeline, error) {
	var has resolved
	if err := json.Unmarshal(file.Resolved, &has); err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("read run.json: %w", err)}
	}
	stored, err := store.Tasks(ctx)
	if err != nil {
		return nil, &exitError{exitInfra, err}
	}
	given := make([]pipeline.Task, len(stored))
	var ids []string
	for i, t := range stored {
		given[i] = pipeline.Task{ID: t.ID, Data: t.Data}
		ids = append(ids, t.ID)
	}
	for _, id := range f.tasks {
		if !slices.Contains(ids, id) {
			return nil, &exitError{exitUsage, fmt.Errorf("--task: the run has no task %s", id)}
		}
	}
	o := pipeline.ParseOptions{Set: f.set, Samples: has.Samples, Env: os.LookupEnv, Sandbox: a.sandboxes(ctx), GivenTasks: given, Enable: features, JudgeOnly: true, Judges: f.stages}
	var parsed *pipeline.File
	if f.with != "" {
		parsed, err = pipeline.Parse(f.with, o)
	} else {
		text, e := withSet(file.Resolved, f.set)
		if e != nil {
			return nil, &exitError{exitUsage, fmt.Errorf("read run.json: %w", e)}
		}
		f.from.dirs, f.from.locked = append(f.from.dirs, file.PluginDirs...), f.from.locked || file.Locked
		parsed, err = pipeline.Restore(text, o)
	}
	if parsed == nil {
		return nil, &exitError{exitUsage, err}
	}
	p, err := a.check(ctx, parsed, plugins, f.from)
	if err != nil {
		return nil, err
	}
	if !f.json {
		a.warn(p.Warnings)
	}
	if err := engine.CheckReplay(p, kinds(has.Pipeline.Stages, map[string]string{}), f.stages); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return p, nil
}

// withSet adds --set values to those that a run began with.
func withSet(kept json.RawMessage, set []string) (json.RawMessage, error) {
	if len(set) == 0 {
		return kept, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(kept, &all); err != nil {
		return nil, err
	}
	var before []string
	if all["set"] != nil {
		if err := json.Unmarshal(all["set"], &before); err != nil {
			return nil, err
		}
	}
	var err error
	if all["set"], err = json.Marshal(append(before, set...)); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// judgeEngine opens the judgers of a pipeline, and nothing else of it.
func (a *App) judgeEngine(ctx context.Context, p *pipeline.Pipeline, folder *run.Folder, store *trace.Store, plugins *plugin.Registry, stages []string) (*engine.Engine, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, &exitError{exitInfra, fmt.Errorf("find own binary: %w", err)}
	}
	events := run.NoEvents(func(e run.Event) {
		if e.Type == run.Warned || e.Type == run.StageRetried {
			fmt.Fprintf(a.Stderr, "%s %s: %s\n", e.Rollout, e.Stage, e.Message)
		}
	})
	e, err := engine.New(ctx, engine.Options{
		Pipeline: p, Folder: folder, File: &run.File{}, Events: events, Store: store, Plugins: plugins, Log: a.log, Self: self,
		Redact: a.redactor(p), Gateway: a.gatewayOptions(), JudgeOnly: true, Judges: stages,
	})
	if err != nil {
		return nil, &exitError{exitInfra, err}
	}
	return e, nil
}
