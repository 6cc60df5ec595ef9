package plugincmd

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/core/plugin/scaffold"
	"github.com/penstock-dev/penstock/core/shell"
	"github.com/penstock-dev/penstock/sdk/component"
)

func (o Options) newCommand() *cobra.Command {
	var f struct {
		language, dir string
		json          bool
	}
	c := &cobra.Command{
		Use:   "new KIND NAME",
		Short: "write the folder of a new plugin, ready to build, test and run",
		Long: "Write a folder that builds, tests and runs as it is, with the sdk of this penstock beside it.\n" +
			"Kinds: " + strings.Join(component.Kinds, ", ") + ".",
		Example: "  penstock plugin new judger my_judge\n  penstock plugin new hook no_rm --lang python",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			var p *scaffold.Plugin
			err := o.with(c.Context(), func(r *plugin.Registry) (err error) {
				p, err = scaffold.New(scaffold.Options{Kind: args[0], Name: args[1], Language: f.language, Dir: f.dir, Taken: r.Names(args[0])})
				return err
			})
			if err != nil {
				return err
			}
			if f.json {
				p.Next = append([]string{"cd " + shell.Quote(p.Dir)}, p.Next...)
				return printJSON(c.OutOrStdout(), p)
			}
			return printNew(c.OutOrStdout(), p)
		},
	}
	c.Flags().StringVar(&f.language, "lang", scaffold.Languages[0], "one of "+strings.Join(scaffold.Languages, ", "))
	c.Flags().StringVar(&f.dir, "dir", "", "where to write it; new or empty (default ./NAME)")
	c.Flags().BoolVar(&f.json, "json", false, "print what was written as JSON")
	return c
}

func printNew(w io.Writer, p *scaffold.Plugin) error {
	_, err := fmt.Fprintf(w, "wrote %s into %s; edit %s\n\nNext:\n\n    cd %s\n    %s\n",
		p.Key, p.Dir, filepath.Join(p.Dir, filepath.FromSlash(p.Edit)), shell.Quote(p.Dir), strings.Join(p.Next, "\n    "))
	return err
}
