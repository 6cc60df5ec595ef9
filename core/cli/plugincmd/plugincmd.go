// Package plugincmd is the command `penstock plugin`: what plugins there are,
// what one of them holds, how a new one begins, whether it works, and which
// ones a pipeline may run. What never enters: loading plugins, which is
// core/plugin's work.
package plugincmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/plugin"
)

// Options are what the commands need of the program.
type Options struct {
	// Registry makes a registry with the built-in plugins; the command closes it.
	Registry func() (*plugin.Registry, error)
	// Enable are the features of pipeline files, as in pipeline.ParseOptions.
	Enable []string
}

// Command is `penstock plugin`.
func Command(o Options) *cobra.Command {
	c := &cobra.Command{Use: "plugin", Short: "write, test, list and lock plugins"}
	c.AddCommand(o.newCommand(), o.testCommand(), o.lsCommand(), o.inspectCommand(), o.lockCommand())
	return c
}

// failed is an exit code 1 whose reason was printed.
type failed struct{}

func (failed) Error() string { return "" }

// ExitCode is that of a test that failed.
func (failed) ExitCode() int { return 1 }

// with runs f with a registry.
func (o Options) with(ctx context.Context, f func(*plugin.Registry) error) error {
	r, err := o.Registry()
	if err != nil {
		return err
	}
	return errors.Join(f(r), r.Close(context.WithoutCancel(ctx)))
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Source is an entry of `plugins:` as the registry takes it.
func Source(s pipeline.PluginSource) plugin.Source {
	return plugin.Source{
		Key: s.Key, Process: s.Process, ProcessGo: s.ProcessGo, Wasm: s.Wasm, WasmGo: s.WasmGo, Exec: s.Exec,
		Env: s.Env, Grant: s.Grant, MaxInFlight: s.MaxInFlight, Files: s.Files, Override: s.Override, Name: s.Name,
		Limits: plugin.Limits{Memory: s.Limits.Memory, Timeout: s.Limits.Timeout, In: s.Limits.In, Out: s.Limits.Out},
	}
}

// load parses a pipeline file and adds its plugins, of which it has some.
func (o Options) load(ctx context.Context, r *plugin.Registry, path string) ([]string, error) {
	_, all, err := o.add(ctx, r, path)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s names no plugins", path)
	}
	return all, err
}

// add parses a pipeline file and adds its plugins, whose keys it returns.
func (o Options) add(ctx context.Context, r *plugin.Registry, path string) (*pipeline.File, []string, error) {
	f, err := pipeline.Parse(path, pipeline.ParseOptions{NoEnv: true, NoStages: true, Enable: o.Enable})
	if f == nil {
		return nil, nil, err
	}
	var all []string
	for _, s := range f.PluginSources() {
		if err := r.Add(ctx, Source(s)); err != nil {
			return nil, nil, f.PluginError(s, err)
		}
		all = append(all, s.Key)
	}
	if err != nil && len(all) == 0 {
		return nil, nil, err
	}
	return f, all, nil
}
