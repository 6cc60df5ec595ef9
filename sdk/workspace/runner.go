package workspace

import (
	"context"
	"errors"
	"fmt"
)

// Runner runs the commands of a judger's workspace. A command mostly runs what
// an agent wrote, as its tests do, so that penstock runs it with all that
// keeps the agent itself from the rest of the machine.
type Runner interface {
	// Run runs a command in dir, with the limits that it has, and waits until
	// nothing of it is left. A command that fails is a Result.
	Run(ctx context.Context, dir string, c Command) (*Result, error)
}

type runnerKey struct{}

// WithRunner has the workspaces of a call run their commands with r. Penstock
// does it for judgers that run inside of it. Those in a process of their own
// have none, and start commands themselves.
func WithRunner(ctx context.Context, r Runner) context.Context {
	return context.WithValue(ctx, runnerKey{}, r)
}

// Run runs a command in the workspace and waits for its end. A command that
// fails is a Result; an error says that it could not be started. At the end of
// the command, of its time or of ctx, what it started is killed: all of it
// where penstock runs it, else what it left in its process group.
func (w *Workspace) Run(ctx context.Context, c Command) (*Result, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("run in the workspace: the command line is empty")
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Output <= 0 {
		c.Output = DefaultOutput
	}
	run := w.run
	if r, ok := ctx.Value(runnerKey{}).(Runner); ok {
		run = func(ctx context.Context, c Command) (*Result, error) { return r.Run(ctx, w.dir, c) }
	}
	var res *Result
	err := ctx.Err()
	if err == nil {
		res, err = run(ctx, c)
	}
	if ended := ctx.Err(); ended != nil {
		err = ended
	}
	if err != nil {
		return nil, fmt.Errorf("run %s in the workspace: %w", c.Argv[0], err)
	}
	return res, nil
}
