package doctorcmd

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
)

//go:embed pipeline.yaml model.yaml
var task embed.FS

// What became of a program.
const (
	absent = "absent"
	works  = "works"
	fails  = "fails"
)

// program is one agent program in one of its protocols.
type program struct {
	component.Program
	Uses      string `json:"uses"`
	Path      string `json:"path,omitempty"`
	Installed string `json:"installed,omitempty"` // what it calls its version
	Outcome   string `json:"outcome,omitempty"`
	Error     string `json:"error,omitempty"`
	// What the run showed.
	Calls    int            `json:"calls,omitempty"`
	Lineages map[string]int `json:"lineages,omitempty"`
	Streamed bool           `json:"streamed,omitempty"`
	Rows     int            `json:"rows,omitempty"`
	Seconds  float64        `json:"seconds,omitempty"`
	Run      string         `json:"run,omitempty"`
	// What the rough runs showed, where they were asked for.
	Broken      string `json:"broken,omitempty"`
	Interrupted string `json:"interrupted,omitempty"`
}

// ID is the program's name and protocol.
func (p *program) ID() string { return p.Name + "/" + p.Dialect }

// look finds the program and asks for its version, unless another protocol of
// it was before.
func (d *doctor) look(ctx context.Context, p, before *program) {
	path, err := exec.LookPath(p.Program.Program)
	if err != nil {
		p.Outcome = absent
		return
	}
	p.Path = path
	if before != nil && before.Path == path {
		p.Installed, p.Error = before.Installed, before.Error
		return
	}
	dir, remove, err := temp()
	if err != nil {
		p.Error = err.Error()
		return
	}
	defer remove()
	exit, err := d.runner.Run(ctx, agent.Spec{
		Argv: []string{path, "--version"}, Dir: dir, Timeout: time.Minute, Grace: time.Second,
		Env: agent.BaseEnv(agent.EnvOptions{Home: dir, Temp: dir}),
	})
	switch {
	case err != nil:
		p.Error = err.Error()
	case exit.Code != 0:
		p.Error = "--version failed: " + strings.TrimSpace(string(exit.Stderr))
	default:
		p.Installed, _, _ = strings.Cut(strings.TrimSpace(string(exit.Stdout)), "\n")
	}
}

// matrix runs every program that is there.
func (d *doctor) matrix(ctx context.Context, all []*program) error {
	root := d.out
	if root == "" {
		dir, remove, err := temp()
		if err != nil {
			return err
		}
		defer remove()
		root = dir
	}
	for _, p := range all {
		if p.Outcome == absent || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(d.stderr, "%s ...\n", p.ID())
		p.Outcome = works
		dir := filepath.Join(root, p.Name+"."+p.Dialect)
		err := d.solve(ctx, p, dir)
		if err == nil && d.rough {
			err = d.roughly(ctx, p, dir)
		}
		if err != nil {
			p.Outcome, p.Error = fails, err.Error()
		}
		if d.out == "" {
			p.Run = ""
		}
	}
	return ctx.Err()
}

// solve has the program solve the task, in a run of its own.
func (d *doctor) solve(ctx context.Context, p *program, dir string) error {
	if err := write(p, dir, ""); err != nil {
		return err
	}
	p.Run = filepath.Join(dir, "run")
	began := time.Now()
	err := d.penstock(ctx, "run", filepath.Join(dir, "pipeline.yaml"), "--out", p.Run, "--plain")
	p.Seconds = time.Since(began).Seconds()
	if err != nil {
		return err
	}
	return d.judge(ctx, p)
}

// penstock runs this binary. That rollouts failed is no error.
func (d *doctor) penstock(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, d.self, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// write writes the task's files for a program. The rule of the model that asks
// for the tool, or the one that answers, gets trouble where some is given.
func write(p *program, dir string, t trouble) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	with := map[string]any{}
	if len(p.With) > 0 {
		if err := json.Unmarshal(p.With, &with); err != nil {
			return fmt.Errorf("the config of %s: %w", p.ID(), err)
		}
	}
	with["prompt"] = "${{ task.prompt }}"
	with["mcp"] = map[string]any{"calculator": map[string]any{"command": []string{"penstock", "dev", "calculator", "--equation"}}}
	settings, err := chat.Marshal(with) // JSON is YAML
	if err != nil {
		return err
	}
	for _, name := range []string{"pipeline.yaml", "model.yaml"} {
		text, err := task.ReadFile(name)
		if err != nil {
			return err
		}
		filled := strings.NewReplacer("USES", p.Uses, "WITH", string(settings)).Replace(t.add(string(text)))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(filled), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// judge says what is wrong with a run: another answer than the tool's, another
// number of calls than the task takes, a call that was not understood.
func (d *doctor) judge(ctx context.Context, p *program) error {
	r, err := rolloutOf(p.Run)
	if err != nil {
		return err
	}
	store, err := trace.Open(filepath.Join(p.Run, "trace", "penstock.db"), trace.StoreOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer store.Close()
	said, err := d.calls(ctx, p, store)
	switch {
	case err != nil:
		return err
	case r.ExitStatus != "ok":
		return fmt.Errorf("it ended with %s%s", r.ExitStatus, said)
	case said != "":
		return errors.New(strings.TrimPrefix(said, "; "))
	case r.Reward == nil || *r.Reward != 1:
		return errors.New("its answer is not the tool's")
	case p.Lineages[string(trace.Main)] != 1:
		return fmt.Errorf("the conversation was not followed: lineages %v", p.Lineages)
	}
	p.Rows, err = rowsHold(ctx, store, p.Run)
	return err
}

// mainCalls is how many calls the task takes: one that asks for the tool, and
// one that answers.
const mainCalls = 2

// calls reads the calls of a run, and says what is odd about them.
func (d *doctor) calls(ctx context.Context, p *program, store *trace.Store) (odd string, err error) {
	sessions, err := store.Sessions(ctx, "")
	if err != nil {
		return "", err
	}
	p.Lineages, p.Streamed = map[string]int{}, true
	seen := map[string]bool{}
	main := 0
	for _, s := range sessions {
		calls, err := store.Calls(ctx, s.ID)
		if err != nil {
			return "", err
		}
		for _, c := range calls {
			p.Calls++
			if c.Status != trace.CallOK {
				text := c.Status
				if c.Error != nil {
					text += ": " + c.Error.Message
				}
				odd += fmt.Sprintf("; %s %s was answered %s", c.Method, c.Path, text)
				continue
			}
			if len(c.SampledIDs) == 0 {
				odd += "; a call was not captured"
			}
			if c.Kind == trace.Main {
				main++
				p.Streamed = p.Streamed && c.Stream
			}
			if !seen[c.Lineage] {
				seen[c.Lineage] = true
				p.Lineages[string(c.Kind)]++
			}
		}
	}
	if odd == "" && main != mainCalls {
		odd = fmt.Sprintf("; the conversation took %d calls, not %d", main, mainCalls)
	}
	return odd, nil
}
