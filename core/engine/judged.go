package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/sdk/workspace"
)

// judged runs the commands of a judge in its copy of the workspace. They are
// mostly what the agent wrote, such as tests of its code, so that they get no
// more than the agent got: nothing of the run folder, no process of the host,
// and the sandbox of the stage.
type judged struct {
	*rollout
	stage *pipeline.Stage
	dir   string // what is in it goes with the judge's call
}

// Run implements workspace.Runner. Each command has a home of its own: what one
// leaves there, such as a build cache, another would have to trust.
func (j *judged) Run(ctx context.Context, dir string, c workspace.Command) (*workspace.Result, error) {
	home, err := os.MkdirTemp(j.dir, "home.*")
	if err != nil {
		return nil, fmt.Errorf("make home: %w", err)
	}
	extra := map[string]string{}
	for _, kv := range c.Env {
		name, value, _ := strings.Cut(kv, "=")
		extra[name] = value
	}
	spec := agent.Spec{
		Argv: c.Argv, Dir: dir, Stdin: c.Stdin, Timeout: c.Timeout, Grace: -1, StdoutMax: c.Output, Tee: c.Stdout,
		Env: agent.BaseEnv(agent.EnvOptions{BinDir: j.binDir, Home: home, Extra: extra}),
	}
	if err := j.confine(&spec, j.stage, home); err != nil {
		return nil, err
	}
	exit, err := j.runner.Run(ctx, spec)
	switch {
	case err != nil:
		return nil, err
	case exit.Lost:
		return nil, errors.New("the program's supervisor died")
	case exit.Cancelled:
		return nil, context.Canceled
	}
	return &workspace.Result{
		Code: exit.Code, Signal: signalName(exit.Signal), TimedOut: exit.TimedOut, Cut: exit.Cut,
		Stdout: strings.ToValidUTF8(exit.Stdout, ""), Stderr: strings.ToValidUTF8(exit.Stderr, ""),
	}, nil
}

// signalName is what a signal is called where a judge has no host that runs its
// programs: "killed" for SIGKILL.
func signalName(name string) string {
	if s := unix.SignalNum(name); s != 0 {
		return s.String()
	}
	return name
}
