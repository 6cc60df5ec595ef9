package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// nonblock keeps a file that turned into a named pipe from holding us up.
const nonblock = syscall.O_NONBLOCK

// run runs a command as a child of this process.
func (w *Workspace) run(ctx context.Context, c Command) (*Result, error) {
	home, err := os.MkdirTemp("", "penstock-home-")
	if err != nil {
		return nil, err
	}
	defer removeAll(home)
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	stdout, stderr := &tail{limit: c.Output}, &tail{limit: c.Output}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env = w.dir, environ(home, c.Env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(string(c.Stdin)), stdout, stderr
	if c.Stdout != nil {
		cmd.Stdout = io.MultiWriter(stdout, c.Stdout)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // a process outside of the group may hold the pipes
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err = end(limited, cmd)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, err
	}
	r := &Result{Code: cmd.ProcessState.ExitCode(), TimedOut: limited.Err() != nil, Stdout: stdout.text(), Stderr: stderr.text()}
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		r.Signal = s.Signal().String()
	}
	r.Cut = stdout.cut
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

// environ is the environment of a command. Its home is not the workspace, in
// which an agent may have left settings that programs read from there.
func environ(home string, extra []string) []string {
	env := []string{"HOME=" + home}
	for _, name := range []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return slices.Concat(env, extra)
}

// removeAll also removes folders that nobody may write to, as module caches
// have them. What can't be removed is left: it is in the way of nothing.
func removeAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}
