package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// nonblock keeps a file that turned into a named pipe from holding us up.
const nonblock = syscall.O_NONBLOCK

// Run runs a command in the workspace and waits for its end. A command that
// fails is a Result; an error says that it could not be started. At the end of
// the command, of its time or of ctx, all that it started and left in its
// process group is killed.
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
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("run %s in the workspace: %w", c.Argv[0], err)
	}
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	stdout, stderr := &tail{limit: c.Output}, &tail{limit: c.Output}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env = w.dir, w.environ(c.Env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(string(c.Stdin)), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // a process outside of the group may hold the pipes
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run in the workspace: %w", err)
	}
	err := end(limited, cmd)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, fmt.Errorf("run %s in the workspace: %w", c.Argv[0], err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("run %s in the workspace: %w", c.Argv[0], err)
	}
	r := &Result{Code: cmd.ProcessState.ExitCode(), TimedOut: limited.Err() != nil, Stdout: stdout.text(), Stderr: stderr.text()}
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		r.Signal = s.Signal().String()
	}
	r.Cut = stdout.cut || stderr.cut
	return r, nil
}

// end waits for the command or for the end of its time, and kills what is left
// of its group while the command itself is not reaped yet, so that its number
// is no other's.
func end(ctx context.Context, cmd *exec.Cmd) error {
	pid := cmd.Process.Pid
	over := make(chan struct{})
	go func() { awaitExit(pid); close(over) }()
	select {
	case <-over:
	case <-ctx.Done():
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	<-over
	return cmd.Wait()
}

// environ is the environment of a command.
func (w *Workspace) environ(extra []string) []string {
	env := []string{"HOME=" + w.dir}
	for _, name := range []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return slices.Concat(env, extra)
}
