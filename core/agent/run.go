package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-dev/penstock/core/agent/enter"
	"github.com/penstock-dev/penstock/core/agent/sandbox"
	"github.com/penstock-dev/penstock/core/agent/shim"
	"github.com/penstock-dev/penstock/core/temp"
)

// How long the host waits for a shim that should be done: first it closes its
// pipe, which means kill at once, then it kills the shim.
const (
	patience     = 15 * time.Second
	lastPatience = 5 * time.Second
	orderTimeout = 30 * time.Second
	// What a container engine may take on top, to make a container, which then
	// finds that nothing is to be started, and to remove one.
	enginePatience = time.Minute
)

// Run runs a program and returns when it and all that it started are gone. A
// context that ends is no error: it ends the program, and Exit.Cancelled is
// set. The error is a *StartError when the program could not be started.
func (r *Runner) Run(ctx context.Context, s Spec) (*Exit, error) {
	path, err := check(&s)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		now := time.Now()
		return &Exit{Code: -1, Cancelled: true, Started: now, Ended: now}, nil
	}
	p := &run{spec: &s, path: path, log: r.log, exit: &Exit{Code: -1, Started: time.Now()}}
	if err := p.start(r); err != nil {
		p.release()
		return nil, err
	}
	return p.wait(ctx, r)
}

// run is one program on its way.
type run struct {
	spec *Spec
	path string
	log  interface{ Debug(string, ...any) }
	exit *Exit

	cmd            *exec.Cmd
	stdin          *os.File // the host's end
	theirs         []*os.File
	orders         *os.File
	reportPipe     *os.File
	stdout, stderr *output
	temp           *temp.Folder // the program's TMPDIR, where it was given none
	way            *temp.Folder // of the socket of door
	door           *enter.Door  // the way out of a container
	reports        chan shim.Report
	input          chan struct{} // closed when the writer of stdin has ended

	ended  bool // the program itself
	asked  bool // to end
	gone   bool
	failed *shim.Report
	pid    int
}

func (p *run) start(r *Runner) (err error) {
	if len(r.shim) == 0 {
		return errors.New("start agent: the runner has no shim")
	}
	if err := p.makePipes(); err != nil {
		return err
	}
	env, err := p.env()
	if err != nil {
		return err
	}
	command, err := p.command(r, env)
	if err != nil {
		return err
	}
	seen, err := p.hidden(r)
	if err != nil {
		return err
	}
	args := slices.Clone(r.shim[1:])
	if r.walk {
		args = append(args, shim.ArgWalk)
	}
	for _, folder := range []*temp.Folder{p.temp, p.way} {
		if folder != nil {
			args = append(args, shim.ArgTemp+folder.Path)
		}
	}
	dir := p.spec.Dir
	if p.door != nil {
		args, env, dir = append(args, shim.ArgClient), sandbox.ClientEnv(os.Environ()), "/"
	}
	p.cmd = shimCommand(r.shim[0], args, p.theirs)
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start the shim: %w", err)
	}
	closeAll(p.theirs)
	p.theirs, p.stdout.theirs, p.stderr.theirs = nil, nil, nil
	o := &shim.Order{
		Path: command.Path, Argv: command.Argv, Rules: command.Rules, Dir: dir, Grace: p.grace(), Env: env,
		Hide: seen.hide, Keep: seen.keep, View: seen.view,
	}
	p.exit.Hidden = len(o.Hide) > 0
	p.reports, p.input = make(chan shim.Report, 8), make(chan struct{})
	go p.readReports()
	go p.stdout.read()
	go p.stderr.read()
	go p.writeStdin()
	// A shim that doesn't read its order says why, or ends, and wait sees it.
	_ = p.orders.SetWriteDeadline(time.Now().Add(orderTimeout))
	_, _ = p.orders.Write(o.Encode())
	return nil
}

// shimCommand gives the shim nothing of the host: no variable, no file but
// those named, no terminal.
func shimCommand(path string, args []string, files []*os.File) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = files[0], files[1], files[2], files[3:]
	return cmd
}

func (p *run) makePipes() (err error) {
	s := p.spec
	if s.StdoutMax <= 0 {
		s.StdoutMax = DefaultStdoutMax
	}
	if p.stdout, err = newOutput(s.Stdout, s.StdoutMax, s.Line, s); err != nil {
		return err
	}
	p.stdout.tee = s.Tee
	if p.stderr, err = newOutput(s.Stderr, stderrMax, nil, s); err != nil {
		return err
	}
	var stdin, orders, reports *os.File
	if len(s.Stdin) == 0 {
		stdin, err = os.Open(os.DevNull)
	} else {
		stdin, p.stdin, err = os.Pipe()
	}
	if err != nil {
		return fmt.Errorf("make stdin: %w", err)
	}
	p.theirs = append(p.theirs, stdin, p.stdout.theirs, p.stderr.theirs)
	if orders, p.orders, err = os.Pipe(); err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	p.theirs = append(p.theirs, orders)
	if p.reportPipe, reports, err = os.Pipe(); err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	p.theirs = append(p.theirs, reports)
	return nil
}

// env is the program's environment, with a TMPDIR where there is none.
func (p *run) env() (env []string, err error) {
	if lookup(p.spec.Env, "TMPDIR") != "" {
		return p.spec.Env, nil
	}
	if p.temp, err = temp.Make(os.TempDir(), temp.Agent); err != nil {
		return nil, fmt.Errorf("make the agent's TMPDIR: %w", err)
	}
	return append(slices.Clone(p.spec.Env), "TMPDIR="+p.temp.Path), nil
}

// writeStdin ends when all is written, when the program has closed its end,
// or when release closes this one.
func (p *run) writeStdin() {
	defer close(p.input)
	if p.stdin != nil {
		_, _ = p.stdin.Write(p.spec.Stdin)
		_ = p.stdin.Close()
	}
}

func (p *run) readReports() {
	defer close(p.reports)
	lines := bufio.NewScanner(p.reportPipe)
	for lines.Scan() {
		if got, err := shim.ParseReport(lines.Text()); err == nil {
			p.reports <- got
		}
	}
}

// wait follows the run to its end, which it brings about when the time is up
// or the context ends.
func (p *run) wait(ctx context.Context, r *Runner) (*Exit, error) {
	var timeout, hurry <-chan time.Time
	if p.spec.Timeout > 0 {
		t := time.NewTimer(p.spec.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	bound := time.NewTimer(time.Hour)
	bound.Stop()
	defer bound.Stop()
	hurry = bound.C
	grace := p.grace() + patience
	if p.door != nil {
		grace += enginePatience
	}
	cancelled := ctx.Done()
	step := 0
	for open := true; open; {
		var got shim.Report
		select {
		case got, open = <-p.reports:
			if p.take(got) {
				bound.Reset(grace)
			}
		case <-timeout:
			p.exit.TimedOut = p.askToEnd()
			bound.Reset(grace)
		case <-cancelled:
			cancelled = nil
			p.exit.Cancelled = p.askToEnd()
			bound.Reset(grace)
		case <-hurry:
			step++
			switch step {
			case 1:
				p.orders.Close()
			case 2:
				_ = p.cmd.Process.Kill()
			default:
				open = false
			}
			bound.Reset(lastPatience)
		}
	}
	return p.end(r)
}

// grace is the time between the request to end and the kill.
func (p *run) grace() time.Duration {
	if p.spec.Grace == 0 {
		return DefaultGrace
	}
	return max(p.spec.Grace, 0)
}

// take notes a report. It is true for the one that the program has ended.
func (p *run) take(got shim.Report) bool {
	switch got.Kind {
	case shim.Isolated:
		p.exit.Isolation, p.exit.Started = got.Text, time.Now()
	case shim.Noted:
		p.log.Debug("agent without namespaces", "reason", got.Text)
	case shim.Started:
		p.pid = got.Number
	case shim.Failed:
		p.failed = &got
	case shim.Ended:
		p.ended = true
		p.exit.Code, p.exit.Signal, p.exit.Ended = got.Number, got.Text, time.Now()
		return true
	case shim.Gone:
		p.gone = true
	}
	return false
}

// askToEnd asks the shim to end all. True: the program had not ended, and
// nothing else had ended it.
func (p *run) askToEnd() bool {
	if p.ended || p.asked {
		return false
	}
	p.asked = true
	if p.door != nil {
		p.door.End()
		return true
	}
	_ = p.orders.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = p.orders.Write([]byte{shim.RequestEnd})
	return true
}

// end collects what the run leaves.
func (p *run) end(r *Runner) (*Exit, error) {
	e := p.exit
	if !p.gone {
		_ = p.cmd.Process.Kill()
		p.killSession()
	}
	_ = p.cmd.Wait()
	p.orders.Close()
	notEnded := p.door.Close() // what is in a container may hold the pipes
	p.stdout.finish()
	p.stderr.finish()
	p.release()
	<-p.input
	e.Lost = notEnded != nil || !p.gone || (!p.ended && p.failed == nil)
	if err := p.notStarted(r); err != nil {
		return nil, err
	}
	if p.failed != nil {
		if p.failed.Number != 0 {
			return nil, explain(p.spec.Argv[0], p.path, syscall.Errno(p.failed.Number))
		}
		return nil, &StartError{Argv0: p.spec.Argv[0], Path: p.path, Reason: Failed, Err: errors.New(p.failed.Text)}
	}
	if e.Ended.IsZero() {
		e.Ended = time.Now()
	}
	e.Cut = p.stdout.tail.over()
	e.Stdout, e.Stderr = p.stdout.tail.take(), p.stderr.tail.take()
	e.LongLines = p.stdout.lines.long
	e.OutputErr = errors.Join(p.stdout.err, p.stderr.err)
	return e, nil
}

// killSession is what can be done when a shim without namespaces was killed:
// its program is dead with it, and what shares the program's session is
// killed here.
func (p *run) killSession() {
	if p.exit.Isolation != IsolationWalk || p.pid == 0 {
		return
	}
	for _, q := range shim.Processes() {
		if q.Session == p.pid {
			q.Signal(unix.SIGKILL)
		}
	}
}

// release closes what is still open and removes the temporary folders.
func (p *run) release() {
	_ = p.door.Close()
	closeAll(p.theirs)
	for _, f := range []*os.File{p.stdin, p.orders, p.reportPipe} {
		if f != nil {
			f.Close()
		}
	}
	for _, o := range []*output{p.stdout, p.stderr} {
		if o != nil {
			o.close()
		}
	}
	_ = p.way.Remove()
	_ = p.temp.Remove()
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
