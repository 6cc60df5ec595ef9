package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/cli/judgecases"
	"github.com/penstock-dev/penstock/core/cli/shown"
	"github.com/penstock-dev/penstock/core/engine"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/component"
	sdkrollout "github.com/penstock-dev/penstock/sdk/rollout"
)

// judgeTestFlags are the flags of `judge test`.
type judgeTestFlags struct {
	set           []string
	verbose, json bool
	from          sources
}

func (a *App) judgeTest() *cobra.Command {
	var f judgeTestFlags
	c := &cobra.Command{
		Use:   "test PIPELINE CASES",
		Short: "try a pipeline's judgers on rollouts of a file",
		Long: "Try the judgers of a pipeline, as its stages use them, on made-up rollouts. CASES is a YAML file with a list `cases`,\n" +
			"or JSONL with a case a line:\n\n" +
			"  cases:\n" +
			"    - name: right\n" +
			"      stage: answer            # may be left out where only one stage judges\n" +
			"      task: { id: sum, answer: \"42\" }\n" +
			"      rollout: { final_text: \"42\" }\n" +
			"      want: { reward: 1 }      # what the verdict must hold; or  error: part of the judge's error\n\n" +
			"A rollout has the fields that judgers see: final_text, exit_status, tool_calls, messages, usage, cost, stages, and\n" +
			"workspace, a folder seen from CASES. With `rollouts`, a list, a stage with scope: group is tried; want is then a list\n" +
			"too. Of an explanation, want names a part. The last line is `N passed, N failed`.\n" +
			"Exit code 1 says that a case failed, or that there was none.",
		Example: "  penstock judge test pipeline.yaml cases.yaml",
		Args:    cobra.ExactArgs(2),
		RunE:    func(c *cobra.Command, args []string) error { return a.tryCases(c.Context(), args[0], args[1], f) },
	}
	c.Flags().StringArrayVar(&f.set, "set", nil, "set a value of the pipeline, as in penstock run")
	c.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "print a line for each case")
	c.Flags().BoolVar(&f.json, "json", false, "print each case as JSON, one a line")
	f.from.flags(c)
	return c
}

func (a *App) tryCases(ctx context.Context, path, casesPath string, f judgeTestFlags) (err error) {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	cases, err := judgecases.Read(casesPath)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	plugins, err := a.registry()
	if err != nil {
		return err
	}
	defer closeAll(&err, func() error { return plugins.Close(context.WithoutCancel(ctx)) })
	parsed, err := pipeline.Parse(path, pipeline.ParseOptions{Set: f.set, Env: os.LookupEnv, Sandbox: a.sandboxes(ctx), Enable: features, JudgeOnly: true})
	if parsed == nil {
		return &exitError{exitUsage, err}
	}
	p, err := a.check(ctx, parsed, plugins, f.from)
	if err != nil {
		return err
	}
	stages, err := casesStages(p, cases)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	dir, err := os.MkdirTemp("", "penstock-judge-*")
	if err != nil {
		return &exitError{exitInfra, err}
	}
	defer closeAll(&err, func() error { return os.RemoveAll(dir) })
	folder, err := run.Create(filepath.Join(dir, "run"), "")
	if err != nil {
		return &exitError{exitInfra, err}
	}
	defer closeAll(&err, folder.Close)
	store, err := trace.Open(folder.Database(), trace.StoreOptions{})
	if err != nil {
		return &exitError{exitInfra, err}
	}
	defer closeAll(&err, store.Close)
	e, err := a.judgeEngine(ctx, p, folder, store, plugins, nil)
	if err != nil {
		return err
	}
	defer closeAll(&err, e.Close)
	return a.runCases(ctx, e, cases, stages, f)
}

// casesStages finds the stage of each case.
func casesStages(p *pipeline.Pipeline, cases []judgecases.Case) ([]*pipeline.Stage, error) {
	judges := map[string]*pipeline.Stage{}
	var ids []string
	p.Each(func(s *pipeline.Stage) {
		if s.Kind == component.Judger {
			judges[s.ID] = s
			ids = append(ids, s.ID)
		}
	})
	var out []*pipeline.Stage
	for _, c := range cases {
		id := c.Stage
		if id == "" && len(ids) == 1 {
			id = ids[0]
		}
		s := judges[id]
		switch {
		case len(ids) == 0:
			return nil, fmt.Errorf("%s: no stage of it judges", p.Path)
		case id == "":
			return nil, c.Errorf("stage", "several stages judge; the case must name one: %s", strings.Join(ids, ", "))
		case s == nil:
			return nil, c.Errorf("stage", "%s has no judger stage '%s'; it has: %s", filepath.Base(p.Path), id, strings.Join(ids, ", "))
		case s.Group && c.Rollouts == nil:
			return nil, c.Errorf("rollout", "stage '%s' has scope: group, so the case needs 'rollouts', a list", id)
		case !s.Group && c.Rollout == nil:
			return nil, c.Errorf("rollouts", "stage '%s' judges one rollout, so the case needs 'rollout'", id)
		}
		out = append(out, s)
	}
	return out, nil
}

func (a *App) runCases(ctx context.Context, e *engine.Engine, cases []judgecases.Case, stages []*pipeline.Stage, f judgeTestFlags) error {
	passed, failed := 0, 0
	for i, c := range cases {
		rollouts := c.Rollouts
		if c.Rollout != nil {
			rollouts = []*sdkrollout.Data{c.Rollout}
		}
		task := pipeline.Task{ID: fmt.Sprintf("case%d", i+1), Data: c.Task}
		results, err := e.JudgeMadeUp(ctx, stages[i], task, rollouts)
		if err != nil {
			return &exitError{exitInfra, err}
		}
		wrong := c.Compare(results)
		if wrong == "" {
			passed++
		} else {
			failed++
		}
		switch {
		case f.json:
			line := struct {
				Case   string            `json:"case"`
				Stage  string            `json:"stage"`
				OK     bool              `json:"ok"`
				Detail string            `json:"detail,omitempty"`
				Got    []json.RawMessage `json:"got"`
				Errors []string          `json:"errors,omitempty"`
			}{Case: c.Name, Stage: stages[i].ID, OK: wrong == "", Detail: wrong}
			for _, r := range results {
				line.Got = append(line.Got, r.Output)
				if r.Error != "" {
					line.Errors = append(line.Errors, r.Error)
				}
			}
			if err := a.printJSON(line); err != nil {
				return err
			}
		case wrong != "":
			fmt.Fprintf(a.Stdout, "FAIL %s (%s): %s\n  %s\n", shown.Line(c.Name), c.Place, stages[i].ID, shown.Lines(strings.ReplaceAll(wrong, "\n", "\n  ")))
		case f.verbose:
			fmt.Fprintf(a.Stdout, "ok   %s\n", shown.Line(c.Name))
		}
	}
	if f.json {
		if err := a.printJSON(map[string]int{"passed": passed, "failed": failed}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.Stdout, "%d passed, %d failed\n", passed, failed)
	}
	if failed > 0 || passed == 0 {
		return &exitError{exitFailed, nil}
	}
	return nil
}
