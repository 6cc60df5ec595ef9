package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/engine"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/shell"
	"github.com/penstock-dev/penstock/core/trace"
)

func (a *App) convertCommand() *cobra.Command {
	var f struct{ to, out, stage, with string }
	c := &cobra.Command{
		Use:   "convert DIR --to NAME",
		Short: "write the rows of a stored run for another trainer",
		Long: "Write the rows of a stored run with another converter. They are those that the run's own converter stage selected;\n" +
			"--stage says which one, where there are several. The run itself is only read.",
		Example: "  penstock convert runs/latest --to xtuner -o rows.xtuner",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.convert(c.Context(), args[0], f.to, f.out, f.stage, f.with)
		},
	}
	c.Flags().StringVar(&f.to, "to", "", "the converter's name")
	c.Flags().StringVarP(&f.out, "out", "o", "", "the files' path up to their ending (default: rows.NAME in the current folder)")
	c.Flags().StringVar(&f.stage, "stage", "", "the converter stage whose selection is written")
	c.Flags().StringVar(&f.with, "with", "{}", "the converter's config, as JSON")
	_ = c.MarkFlagRequired("to") // fails only for a flag that isn't there
	return c
}

func (a *App) convert(ctx context.Context, dir, to, out, stage, with string) (err error) {
	folder, err := run.View(dir)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	file, err := folder.ReadFile()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	stage, hooked, err := converterStage(file, stage)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	plugins, err := a.registry()
	if err != nil {
		return err
	}
	defer closeAll(&err, func() error { return plugins.Close(context.WithoutCancel(ctx)) })
	to = strings.TrimPrefix(to, "converter/")
	if names := plugins.Names("converter"); !slices.Contains(names, to) {
		return &exitError{exitUsage, fmt.Errorf("there is no converter %s; there are: %s", to, strings.Join(names, ", "))}
	}
	converter, err := plugins.Converter(ctx, to, json.RawMessage(with))
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("--with: %w", err)}
	}
	store, err := trace.Open(folder.Database(), trace.StoreOptions{ReadOnly: true})
	if err != nil {
		return &exitError{exitInfra, err}
	}
	defer closeAll(&err, store.Close)
	if seen, err := store.RowEditsEnded(ctx, stage); err != nil {
		return &exitError{exitInfra, err}
	} else if hooked && !seen {
		return &exitError{exitUsage, fmt.Errorf("convert %s: the hooks of stage %s have not seen its rows yet; go on with: penstock resume %s", dir, stage, shell.Quote(dir))}
	}
	if out == "" {
		out = "rows." + run.Escape(to)
	}
	if out, err = filepath.Abs(out); err != nil {
		return &exitError{exitUsage, err}
	}
	w, err := engine.Convert(ctx, engine.Conversion{Folder: folder, Store: store, Stage: stage, Name: to, Converter: converter, Prefix: out})
	if err != nil {
		return &exitError{exitInfra, fmt.Errorf("convert %s: %w", dir, err)}
	}
	fmt.Fprintf(a.Stdout, "%d rows, %d refused", w.Rows, w.Refused)
	if w.Denied > 0 {
		fmt.Fprintf(a.Stdout, ", %d denied by hooks", w.Denied)
	}
	fmt.Fprintln(a.Stdout)
	for _, path := range w.Files {
		fmt.Fprintln(a.Stdout, a.relative(path))
	}
	return nil
}

// converterStage finds the stage whose selection is converted, and says
// whether it has hooks.
func converterStage(file *run.File, want string) (id string, hooked bool, err error) {
	var p struct {
		Pipeline struct {
			Stages []struct {
				ID, Uses string
				Hooks    []json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(file.Resolved, &p); err != nil {
		return "", false, fmt.Errorf("read run file: %w", err)
	}
	var ids []string
	for _, s := range p.Pipeline.Stages {
		if strings.HasPrefix(s.Uses, "converter/") {
			ids = append(ids, s.ID)
			hooked = len(s.Hooks) > 0
			if s.ID == want {
				return want, len(s.Hooks) > 0, nil
			}
		}
	}
	switch {
	case len(ids) == 0:
		return "", false, errors.New("the run has no converter stage, so no rollout was selected")
	case want != "":
		return "", false, fmt.Errorf("--stage: the run has no converter stage %s; it has: %s", want, strings.Join(ids, ", "))
	case len(ids) > 1:
		return "", false, fmt.Errorf("the run has several converter stages; choose one with --stage: %s", strings.Join(ids, ", "))
	}
	return ids[0], hooked, nil
}
