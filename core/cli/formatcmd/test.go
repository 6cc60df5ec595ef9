package formatcmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	coreformat "github.com/penstock-dev/penstock/core/format"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

// testOptions are the flags of `format test`.
type testOptions struct {
	splits  int
	only    string
	verbose bool
	plugin  string
}

func testCommand(resolve Resolve, plugin FromPlugin, list func() []component.Descriptor) *cobra.Command {
	var o testOptions
	cmd := &cobra.Command{
		Use:   "test FILE",
		Short: "Run parser cases, whole and split",
		Long: "Run the cases of a JSONL file, each whole, byte by byte, rune by rune and under random splits.\n" +
			"A case's format is a name, or a YAML file seen from the folder of FILE.\n" +
			"Cases of formats that there aren't are skipped and counted. The last line is `N passed, N failed`.\n" +
			"Exit code 1 says that a case failed, or that none was run.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var names []string
			for _, d := range list() {
				names = append(names, d.Name)
			}
			if o.plugin == "" {
				return runCases(cmd, args[0], resolve, names, o)
			}
			far, end := plugin(o.plugin)
			return errors.Join(runCases(cmd, args[0], far, names, o), end())
		},
	}
	cmd.Flags().IntVar(&o.splits, "splits", 100, "random splits of each case")
	cmd.Flags().StringVarP(&o.only, "format", "f", "", "run every case with this format: a name, or a YAML file")
	cmd.Flags().StringVar(&o.plugin, "plugin", "", "take the formats of a plugin, a program or a .wasm module such as 'make plugins' builds")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "print a line for each case")
	return cmd
}

func runCases(cmd *cobra.Command, file string, resolve Resolve, names []string, o testOptions) error {
	in, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read cases: %w", err)
	}
	defer in.Close()
	all, err := cases.Read(file, in)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	opened := map[string]format.Format{}
	skipped := map[string]int{}
	var passed, failed int
	for _, c := range all {
		name := c.Format
		if o.only != "" {
			name = o.only
		} else if o.plugin == "" && coreformat.IsFile(name) {
			if !filepath.IsAbs(name) { // the two files go together
				name = filepath.Dir(file) + "/" + filepath.Clean(name)
			}
		} else if !slices.Contains(names, name) {
			skipped[name]++
			continue
		}
		f := opened[name]
		if f == nil {
			if f, err = resolve(cmd.Context(), name); err != nil {
				return err
			}
			opened[name] = f
		}
		err := cases.Run(cmd.Context(), f, c, o.splits)
		if cmd.Context() != nil && cmd.Context().Err() != nil {
			return errors.Join(cmd.Context().Err())
		}
		if err != nil {
			failed++
			fmt.Fprintf(out, "FAIL %s (%s): %s\n  text %q\n  %s\n", c.ID, name, c.Note, c.Text, strings.ReplaceAll(err.Error(), "\n", "\n  "))
			continue
		}
		passed++
		if o.verbose {
			fmt.Fprintf(out, "ok   %s (%s)\n", c.ID, name)
		}
	}
	return summarize(cmd, file, passed, failed, skipped)
}

// summarize prints what was skipped, by format, and the counts.
func summarize(cmd *cobra.Command, file string, passed, failed int, skipped map[string]int) error {
	out := cmd.OutOrStdout()
	total := 0
	var unknown []string
	for name, n := range skipped {
		total += n
		unknown = append(unknown, fmt.Sprintf("%s (%d)", name, n))
	}
	slices.Sort(unknown)
	if total > 0 {
		fmt.Fprintf(out, "%d skipped, as there is no such format: %s\n", total, strings.Join(unknown, ", "))
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", passed, failed)
	if failed == 0 && passed > 0 {
		return nil
	}
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	switch {
	case failed > 0:
		return ErrFailed
	case total == 0:
		return fmt.Errorf("%w: %s holds none; a case is a line {id, format, tools, text, want}", ErrNothing, file)
	}
	return fmt.Errorf("%w: %s has cases of other formats alone; run them with one that there is: -f FORMAT, a name of `penstock format ls` or a YAML file", ErrNothing, file)
}
