package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/agent/sandbox"
	"github.com/penstock-dev/penstock/core/cli/plugincmd"
	"github.com/penstock-dev/penstock/core/engine"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/core/plugin/lock"
	"github.com/penstock-dev/penstock/core/temp"
	"github.com/penstock-dev/penstock/sdk/component"
)

// features are the parts of the pipeline file's language that the engine can
// run.
var features = []string{
	"run", "loop", "output", "scope: group", "on_error: park", "aliases", "unknown_models", "csv", "format: auto", "budget.tokens", "budget.usd", "budget.wall",
	"stage hooks", "row hooks",
	"upstream vllm", "upstream sglang", "upstream lmdeploy", "upstream openai", "upstream anthropic", "upstream bedrock",
}

// maxRollouts bounds a run, so that a slip in samples is told at once.
const maxRollouts = 10_000_000

// registry makes a registry with the plugins of this binary.
func (a *App) registry() (*plugin.Registry, error) {
	if a.settings.SharedCache {
		if err := ownFolder(a.settings.Cache); err != nil {
			return nil, &exitError{exitInfra, fmt.Errorf("cache folder: %w; set PENSTOCK_CACHE to another, or HOME", err)}
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, &exitError{exitInfra, fmt.Errorf("find own binary: %w", err)}
	}
	temp.Sweep(context.Background(), a.log, slices.Compact([]string{os.TempDir(), "/tmp"})...)
	return plugin.New(plugin.Options{
		CacheDir: a.settings.Cache, Log: a.log, Builtin: component.Registered(), Shim: []string{self, "__shim"},
	}), nil
}

// ownFolder makes a folder, or finds that it is this user's alone: programs
// are started from it.
func ownFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(owner.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a folder of this user alone", dir)
	}
	return nil
}

// sources says where plugins come from beside the pipeline file, and how
// strictly they are held to the lock file.
type sources struct {
	dirs   []string
	locked bool
}

func (s *sources) flags(c *cobra.Command) {
	c.Flags().StringArrayVar(&s.dirs, "plugin-dir", nil, "a folder of plugins; those that the pipeline names itself come before them")
	c.Flags().BoolVar(&s.locked, "locked", false, "refuse plugins that penstock.lock has no entry for")
}

// check loads the plugins of a pipeline file and checks it. All errors of the
// file are bad configuration.
func (a *App) check(ctx context.Context, file *pipeline.File, plugins *plugin.Registry, from sources) (*pipeline.Pipeline, error) {
	held, err := lock.Hold(file.Path(), from.locked, from.dirs...)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	plugins.Hold(held.Allow)
	if err := plugincmd.Offer(plugins, append(a.settings.Plugins.Dirs, from.dirs...)); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	var refused []*lock.Refused
	for _, s := range file.PluginSources() {
		err := plugins.Add(ctx, source(s))
		var r *lock.Refused
		switch {
		case errors.As(err, &r):
			refused = append(refused, r)
		case err != nil && ctx.Err() != nil:
			return nil, &exitError{exitUsage, file.PluginError(s, err)}
		case err != nil:
			file.PluginFailed(s, err) // Check tells of it, and of all else
		}
	}
	if err := lock.Together(refused); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	p, err := file.Check(catalog{plugins, ctx})
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	if n := len(p.Tasks) * p.Samples; n > maxRollouts {
		return nil, &exitError{exitUsage, fmt.Errorf("%s: %d tasks x %d samples are %d rollouts; one run has at most %d", p.Path, len(p.Tasks), p.Samples, n, maxRollouts)}
	}
	if err := engine.CheckModels(ctx, p); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return p, nil
}

// sandboxes says why a sandbox can't be had on this machine. Each is tried once.
func (a *App) sandboxes(ctx context.Context) func(name, image string) error {
	type key struct{ name, image string }
	tried := map[key]error{}
	return func(name, image string) error {
		err, known := tried[key{name, image}]
		if known || name == sandbox.None || name == sandbox.Auto {
			return err
		}
		self, err := os.Executable()
		if err == nil {
			_, err = agent.NewRunner(agent.RunnerOptions{Shim: []string{self, "__shim"}}).Sandbox(ctx, name, image)
		}
		tried[key{name, image}] = err
		return err
	}
}

// catalog is the registry as a pipeline file is checked against it.
type catalog struct {
	*plugin.Registry
	ctx context.Context // of the check, which has none of its own
}

// CheckConfig implements pipeline.ConfigChecker.
func (c catalog) CheckConfig(kind, name string, config json.RawMessage) error {
	return c.Registry.CheckConfig(c.ctx, kind, name, config)
}

func source(s pipeline.PluginSource) plugin.Source {
	return plugin.Source{
		Key: s.Key, Process: s.Process, ProcessGo: s.ProcessGo, Wasm: s.Wasm, WasmGo: s.WasmGo, Exec: s.Exec,
		Env: s.Env, Grant: s.Grant, MaxInFlight: s.MaxInFlight, Files: s.Files, Override: s.Override, Name: s.Name,
		Limits: plugin.Limits{Memory: s.Limits.Memory, Timeout: s.Limits.Timeout, In: s.Limits.In, Out: s.Limits.Out},
	}
}

// warn prints warnings of a pipeline to stderr.
func (a *App) warn(d pipeline.Diagnostics) {
	if len(d) > 0 {
		fmt.Fprintln(a.Stderr, d.Error())
	}
}
