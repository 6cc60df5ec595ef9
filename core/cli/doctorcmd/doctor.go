// Package doctorcmd is `penstock doctor`: it says what this machine can do for
// agents, which agent programs are installed, and, when asked, has each of
// them solve a task through the gateway. What never enters: repairs.
package doctorcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/sdk/component"
)

// Options is what the command needs of the program that it is part of.
type Options struct {
	// Invokers are the invokers of this binary.
	Invokers []component.Descriptor
	// Self is the path of this binary.
	Self func() (string, error)
}

type flags struct {
	agents   bool
	rough    bool
	only     []string
	json     bool
	markdown bool
	out      string
	image    string
}

// Command makes the command.
func Command(o Options) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "say what this machine can do, and which agent programs work",
		Long: "Say how agents are kept apart here, which sandboxes hold, and which agent programs are installed.\n" +
			"With --agents each installed program solves a small task through the gateway, in every protocol that it speaks;\n" +
			"the model is scripted, so nothing is downloaded and nothing is paid for.",
		Example: "  penstock doctor\n  penstock doctor --agents\n  penstock doctor --agents --only codex,gemini",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d := &doctor{Options: o, flags: f, stdout: c.OutOrStdout(), stderr: c.ErrOrStderr()}
			return d.run(c.Context())
		},
	}
	c.Flags().BoolVar(&f.agents, "agents", false, "run every installed agent program")
	c.Flags().BoolVar(&f.rough, "rough", false, "with --agents: also break a stream, and interrupt and resume a run, with each")
	c.Flags().StringSliceVar(&f.only, "only", nil, "of the programs, only these; NAME, or NAME/PROTOCOL")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.Flags().BoolVar(&f.markdown, "markdown", false, "print the programs as a Markdown table")
	c.Flags().StringVar(&f.out, "out", "", "keep the runs of --agents in this folder")
	c.Flags().StringVar(&f.image, "image", "", "an image to try the sandboxes docker and podman with")
	c.MarkFlagsMutuallyExclusive("json", "markdown")
	return c
}

type doctor struct {
	Options
	flags
	stdout, stderr io.Writer
	self           string
	runner         *agent.Runner
}

// report is all that the doctor found.
type report struct {
	Machine  *machine   `json:"machine"`
	Programs []*program `json:"programs"`
}

// Failed is the error when a program that is installed does not work.
type Failed struct{ Names []string }

func (e *Failed) Error() string { return "these do not work: " + strings.Join(e.Names, ", ") }

// ExitCode is the exit code of the command.
func (e *Failed) ExitCode() int { return 1 }

func (d *doctor) run(ctx context.Context) (err error) {
	if d.self, err = d.Self(); err != nil {
		return err
	}
	d.runner = agent.NewRunner(agent.RunnerOptions{Shim: []string{d.self, "__shim"}})
	var r report
	if r.Programs, err = d.programs(); err != nil {
		return err
	}
	if !d.markdown {
		r.Machine = d.machine(ctx)
	}
	var before *program
	for _, p := range r.Programs {
		d.look(ctx, p, before)
		before = p
	}
	if !d.json && !d.markdown {
		r.Machine.print(d.stdout)
	}
	if d.agents {
		if err := d.matrix(ctx, r.Programs); err != nil {
			return err
		}
	}
	switch {
	case d.json:
		e := json.NewEncoder(d.stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	case d.markdown:
		err = d.table(r.Programs)
	default:
		err = d.list(r.Programs)
	}
	if bad := failed(r.Programs); err == nil && len(bad) > 0 {
		return &Failed{bad}
	}
	return err
}

// failed names the programs that were run and do not work.
func failed(all []*program) []string {
	var out []string
	for _, p := range all {
		if p.Outcome == fails {
			out = append(out, p.ID())
		}
	}
	return out
}

// programs are those that invokers know, as far as they are asked for.
func (d *doctor) programs() ([]*program, error) {
	var out []*program
	var names []string
	for _, i := range d.Invokers {
		for _, p := range i.Programs {
			x := &program{Program: p, Uses: i.ID()}
			names = append(names, x.ID())
			if len(d.only) == 0 || slices.Contains(d.only, x.Name) || slices.Contains(d.only, x.ID()) {
				out = append(out, x)
			}
		}
	}
	for _, name := range d.only {
		if !slices.ContainsFunc(names, func(id string) bool { return id == name || strings.HasPrefix(id, name+"/") }) {
			return nil, fmt.Errorf("--only: there is no program %s; there are %s", name, strings.Join(names, ", "))
		}
	}
	return out, nil
}

// temp makes a folder that the doctor removes again.
func temp() (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", "penstock-doctor-"); err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}
