package plugincmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/core/plugin/lock"
	"github.com/penstock-dev/penstock/sdk/component"
)

func (o Options) lockCommand() *cobra.Command {
	var f struct {
		dirs []string
		json bool
	}
	c := &cobra.Command{
		Use:   "lock PIPELINE",
		Short: "write penstock.lock: from then on only these plugins run",
		Long: "Write penstock.lock beside the pipeline, with the sha256 of each of its plugins. A plugin that differs\n" +
			"from its entry is refused from then on; this command accepts what is there. run --locked wants an entry for all.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.with(c.Context(), func(r *plugin.Registry) error {
				return o.lock(c.Context(), r, c.OutOrStdout(), c.ErrOrStderr(), args[0], f.dirs, f.json)
			})
		},
	}
	c.Flags().StringArrayVar(&f.dirs, "plugin-dir", nil, "a folder of plugins, as in penstock run; those that the pipeline uses are locked as well")
	c.Flags().BoolVar(&f.json, "json", false, "print what changed as JSON")
	return c
}

func (o Options) lock(ctx context.Context, r *plugin.Registry, w, notes io.Writer, path string, dirs []string, asJSON bool) error {
	plugins, err := o.lockable(ctx, r, path, dirs)
	if err != nil {
		return err
	}
	changes, err := lock.Write(path, plugins)
	var bad *lock.Unreadable
	if errors.As(err, &bad) {
		fmt.Fprintf(notes, "%s was no lock file (%s) and is written anew; lock the other pipelines beside it again\n", bad.Path(), bad.Why())
		changes, err = lock.WriteAnew(path, plugins)
	}
	if err != nil {
		return err
	}
	if asJSON {
		if changes == nil {
			changes = []lock.Change{}
		}
		return printJSON(w, changes)
	}
	if len(changes) == 0 {
		fmt.Fprintf(w, "%s: nothing changed, %d plugins\n", lock.Path(path), len(plugins))
		return nil
	}
	for _, c := range changes {
		if c.Before == "" {
			fmt.Fprintf(w, "%s  %s\n", c.Key, c.SHA256)
			continue
		}
		fmt.Fprintf(w, "%s  %s, was %s\n", c.Key, c.SHA256, c.Before)
	}
	fmt.Fprintf(w, "wrote %s\n", lock.Path(path))
	return nil
}

// lockable loads the plugins of a pipeline: its own, and those of plugin
// folders that it mentions.
func (o Options) lockable(ctx context.Context, r *plugin.Registry, path string, dirs []string) ([]lock.Plugin, error) {
	if err := Offer(r, dirs); err != nil {
		return nil, err
	}
	f, all, err := o.add(ctx, r, path)
	if err != nil {
		return nil, err
	}
	for _, key := range r.Offered() {
		kind, name, _ := strings.Cut(key, "/")
		if !f.Mentions(key) && !(kind == component.Format && f.Mentions(name)) {
			continue
		}
		if _, err := r.Describe(kind, name); err != nil {
			return nil, err
		}
		all = append(all, key)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s names no plugins", path)
	}
	var plugins []lock.Plugin
	for _, key := range all {
		kind, name, _ := strings.Cut(key, "/")
		plugins = append(plugins, lock.Plugin{Key: key, SHA256: r.Digest(kind, name), Wasm: r.Transport(kind, name) == plugin.Wasm})
	}
	return plugins, nil
}
