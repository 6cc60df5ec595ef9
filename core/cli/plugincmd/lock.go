package plugincmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/core/plugin/lock"
)

func (o Options) lockCommand() *cobra.Command {
	var f struct{ json bool }
	c := &cobra.Command{
		Use:   "lock PIPELINE",
		Short: "write penstock.lock: from then on only these plugins run",
		Long: "Write penstock.lock beside the pipeline, with the sha256 of each of its plugins. A plugin that differs\n" +
			"from its entry is refused from then on; this command accepts what is there. run --locked wants an entry for all.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.with(c.Context(), func(r *plugin.Registry) error {
				return o.lock(c.Context(), r, c.OutOrStdout(), args[0], f.json)
			})
		},
	}
	c.Flags().BoolVar(&f.json, "json", false, "print what changed as JSON")
	return c
}

func (o Options) lock(ctx context.Context, r *plugin.Registry, w io.Writer, path string, asJSON bool) error {
	sources, err := o.load(ctx, r, path)
	if err != nil {
		return err
	}
	var plugins []lock.Plugin
	digests := r.Digests()
	for _, s := range sources {
		plugins = append(plugins, lock.Plugin{Key: s.Key, SHA256: digests[s.Key], Wasm: s.Wasm != "" || s.WasmGo != ""})
	}
	changes, err := lock.Write(path, plugins)
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
