package plugincmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/core/plugin/checkup"
	"github.com/penstock-dev/penstock/sdk/trial"
)

func (o Options) testCommand() *cobra.Command {
	var f struct {
		cases string
		json  bool
	}
	c := &cobra.Command{
		Use:   "test DIR|FILE",
		Short: "try a plugin as a pipeline would load it",
		Long: "Try a plugin as a pipeline would load it: what it says of itself, its schemas, the cases of its cases.jsonl,\n" +
			"sample requests, calls at once, a caller who gives up, and its own death. Exit code 1 if a check fails.",
		Example: "  penstock plugin test ./my_judge",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.with(c.Context(), func(r *plugin.Registry) error {
				return o.test(c.Context(), r, c.OutOrStdout(), args[0], f.cases, f.json)
			})
		},
	}
	c.Flags().StringVar(&f.cases, "cases", "", "a file of cases (default DIR/cases.jsonl, if it is there)")
	c.Flags().BoolVar(&f.json, "json", false, "print one finding a line as JSON")
	return c
}

func (o Options) test(ctx context.Context, r *plugin.Registry, w io.Writer, path, casesFile string, asJSON bool) error {
	sources, err := o.keyed(ctx, r, path)
	if err != nil {
		return err
	}
	cases, err := readCases(path, casesFile)
	if err != nil {
		return err
	}
	var passed, bad int
	report := func(f checkup.Finding) {
		if f.OK {
			passed++
		} else {
			bad++
		}
		if err == nil {
			err = printFinding(w, f, asJSON)
		}
	}
	for _, s := range sources {
		s.Override = true // it is tried alone, whatever is built in
		checkup.Run(ctx, r, checkup.Subject{Source: s, Cases: cases}, report)
	}
	if err != nil {
		return err
	}
	if !asJSON {
		fmt.Fprintf(w, "%d passed, %d failed\n", passed, bad)
	}
	if bad > 0 {
		return failed{}
	}
	return nil
}

// keyed finds the sources of a path; one without a key has that of each
// component that it describes.
func (o Options) keyed(ctx context.Context, r *plugin.Registry, path string) ([]plugin.Source, error) {
	sources, err := at(path)
	if err != nil {
		return nil, err
	}
	var all []plugin.Source
	for _, s := range sources {
		s.Origin = ""
		if s.Key != "" {
			all = append(all, s)
			continue
		}
		in, err := r.Inspect(ctx, s, nameOf(path))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, d := range in.Components {
			s.Key = d.ID()
			all = append(all, s)
		}
	}
	return all, nil
}

func printFinding(w io.Writer, f checkup.Finding, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(f)
	}
	mark := "ok  "
	if !f.OK {
		mark = "FAIL"
	}
	_, err := fmt.Fprintf(w, "%s %s  %-28s %8.1f ms  %s\n", mark, f.Plugin, f.Check, f.Millis, f.Detail)
	return err
}

// readCases reads the file of cases that is named, or lies in the folder.
func readCases(path, file string) ([]trial.Case, error) {
	if file == "" {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			path = filepath.Dir(path)
		}
		file = filepath.Join(path, "cases.jsonl")
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cases, err := trial.Read(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return cases, nil
}
