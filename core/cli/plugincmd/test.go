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
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/core/plugin/checkup"
	"github.com/penstock-dev/penstock/sdk/trial"
)

func (o Options) testCommand() *cobra.Command {
	var f struct {
		cases string
		with  []string
		json  bool
	}
	c := &cobra.Command{
		Use:   "test DIR|FILE",
		Short: "try a plugin as a pipeline would load it",
		Long: "Try a plugin as a pipeline would load it: what it says of itself, its schemas, the cases of its cases.jsonl,\n" +
			"sample requests, calls at once, a caller who gives up, and its own death. Exit code 1 if a check fails, or if\n" +
			"nothing could be tried. Settings that it needs are those of the first case, or --with.",
		Example: "  penstock plugin test ./my_judge\n  penstock plugin test ./my_judge --with price=0.25 --with 'words=[a, b]'",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			config, err := settings(f.with)
			if err != nil {
				return err
			}
			return o.with(c.Context(), func(r *plugin.Registry) error {
				return o.test(c.Context(), r, c.OutOrStdout(), args[0], trialOptions{f.cases, config, f.json})
			})
		},
	}
	c.Flags().StringVar(&f.cases, "cases", "", "a file of cases (default DIR/cases.jsonl, if it is there)")
	c.Flags().StringArrayVar(&f.with, "with", nil, "a setting, NAME=VALUE with the value in YAML, for the samples and for cases without a config")
	c.Flags().BoolVar(&f.json, "json", false, "print one finding a line as JSON")
	return c
}

// settings makes a config of NAME=VALUE; nil of none.
func settings(with []string) (json.RawMessage, error) {
	if len(with) == 0 {
		return nil, nil
	}
	fields := map[string]any{}
	for _, s := range with {
		name, text, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--with %s: want NAME=VALUE, such as --with price=0.25", s)
		}
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			return nil, fmt.Errorf("--with %s: the value is no YAML: %w", s, err)
		}
		fields[name] = value
	}
	config, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("--with: %w", err)
	}
	return config, nil
}

// trialOptions are what a test is told beside the plugin.
type trialOptions struct {
	cases  string // path of the file, "" for the folder's own
	config json.RawMessage
	json   bool
}

func (o Options) test(ctx context.Context, r *plugin.Registry, w io.Writer, path string, t trialOptions) error {
	sources, err := o.keyed(ctx, r, path)
	if err != nil {
		return err
	}
	cases, err := readCases(path, t.cases)
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
			err = printFinding(w, f, t.json)
		}
	}
	for _, s := range sources {
		s.Override = true // it is tried alone, whatever is built in
		checkup.Run(ctx, r, checkup.Subject{Source: s, Cases: cases, Config: t.config}, report)
	}
	if err != nil {
		return err
	}
	if !t.json {
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
