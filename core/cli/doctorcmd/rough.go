package doctorcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/core/trace"
)

// trouble is a line more in a rule of the task's model.
type trouble string

const (
	// breaks ends the stream of the first call in its middle, once.
	breaks trouble = "    fail: { after: 2, times: 1 } # ask"
	// stalls leaves time to interrupt the second call, however slow the machine.
	stalls trouble = "    think_time: 5m # answer"
)

// add puts the line under the rule that its comment names.
func (t trouble) add(text string) string {
	line, rule, _ := strings.Cut(string(t), " # ")
	head := "  - name: " + rule + "\n"
	return strings.Replace(text, head, head+line+"\n", 1)
}

// What became of a rough run.
const (
	again   = "asks again"
	ends    = "ends"
	resumed = "resumed"
)

// roughly has a program solve the task twice more: with a stream that breaks,
// which it may take as its end or ask for again, and in a run that is
// interrupted and resumed, which has to come to the same as one that was not.
// In neither case may a row hold what did not arrive.
func (d *doctor) roughly(ctx context.Context, p *program, dir string) error {
	run, err := d.breakStream(ctx, p, filepath.Join(dir, "broken"))
	if err == nil && run.solved() {
		p.Broken = again
	} else if err == nil && run.ExitStatus != "ok" {
		p.Broken = ends + ": " + run.ExitStatus
	} else if err == nil {
		err = errors.New("it took a part of a reply for the whole")
	}
	if err != nil {
		return fmt.Errorf("with a broken stream: %w", err)
	}
	if err := d.interrupt(ctx, p, filepath.Join(dir, "interrupted")); err != nil {
		return fmt.Errorf("interrupted and resumed: %w", err)
	}
	p.Interrupted = resumed
	return nil
}

func (d *doctor) breakStream(ctx context.Context, p *program, dir string) (*rollout, error) {
	if err := write(p, dir, breaks); err != nil {
		return nil, err
	}
	out := filepath.Join(dir, "run")
	if err := d.penstock(ctx, "run", filepath.Join(dir, "pipeline.yaml"), "--out", out, "--plain"); err != nil {
		return nil, err
	}
	run, err := rolloutOf(out)
	if err == nil && run.solved() {
		err = held(ctx, out)
	}
	return run, err
}

func (d *doctor) interrupt(ctx context.Context, p *program, dir string) error {
	if err := write(p, dir, stalls); err != nil {
		return err
	}
	out := filepath.Join(dir, "run")
	if err := d.interrupted(ctx, dir, out); err != nil {
		return err
	}
	if err := write(p, dir, ""); err != nil { // without the stall
		return err
	}
	if err := d.penstock(ctx, "resume", out, "--accept-changes", "--plain"); err != nil {
		return err
	}
	run, err := rolloutOf(out)
	switch {
	case err != nil:
		return err
	case !run.solved():
		return fmt.Errorf("it ended with %s, and not with the tool's answer", run.ExitStatus)
	}
	return held(ctx, out)
}

// interrupted starts a run and interrupts it once the model has answered a call.
func (d *doctor) interrupted(ctx context.Context, dir, out string) error {
	var said strings.Builder
	cmd := exec.CommandContext(ctx, d.self, "run", filepath.Join(dir, "pipeline.yaml"), "--out", out, "--plain")
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its folder
		close(ended)
	}()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ended:
			return fmt.Errorf("it ended by itself: %s", strings.TrimSpace(said.String()))
		case <-look.C:
			if info, err := os.Stat(filepath.Join(dir, "engine.jsonl")); err != nil || info.Size() == 0 {
				continue
			}
			if err := cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			<-ended
			return nil
		}
	}
}

// held holds the rows of a run against its calls.
func held(ctx context.Context, run string) error {
	store, err := trace.Open(filepath.Join(run, "trace", "penstock.db"), trace.StoreOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = rowsHold(ctx, store, run)
	return err
}
