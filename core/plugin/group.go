package plugin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
)

// group runs a program in a process group of its own and ends the group as a
// whole. It implements go-plugin's runner.Runner.
type group struct {
	argv, env []string
	input     bool     // whether stdin is a pipe; else it is empty
	shim      []string // argv that starts the shim, which then starts the program; empty for none
	folder    string   // of its socket, made by go-plugin
	lines     *lineLog // its standard error
	head      head     // the first bytes of its standard output

	cmd            *exec.Cmd
	held           *held    // by the shim, with one
	stdin          *os.File // to be written, with input
	stdout, stderr *os.File
	readers        sync.WaitGroup // until standard error was read to its end
	reaped         chan struct{}  // closed when the program is reaped
	drained        chan struct{}  // closed when its standard error was read too

	mu   sync.Mutex // of pid, so that no other process of that number is hit
	pid  int
	done bool
}

func newGroup(argv, env []string) *group {
	return &group{argv: argv, env: env, reaped: make(chan struct{}), drained: make(chan struct{})}
}

// prepare takes what is to be added to the environment.
func (g *group) prepare(handshake []string) error {
	argv := g.argv
	if len(g.shim) > 0 {
		argv = g.shim
	}
	g.cmd = exec.Command(argv[0], argv[1:]...)
	g.cmd.Env = append(slices.Clone(g.env), handshake...)
	for _, v := range handshake {
		if dir, ok := strings.CutPrefix(v, goplugin.EnvUnixSocketDir+"="); ok {
			g.folder = dir
		}
	}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return nil
}

// Start implements runner.Runner.
func (g *group) Start(context.Context) error {
	out, outw, err := os.Pipe()
	if err != nil {
		return err
	}
	errr, errw, err := os.Pipe()
	if err != nil {
		return errors.Join(err, out.Close(), outw.Close())
	}
	g.cmd.Stdout, g.cmd.Stderr = outw, errw
	theirs, ours := []*os.File{outw, errw}, []*os.File{out, errr}
	if g.input {
		inr, in, err := os.Pipe()
		if err != nil {
			closeAll(append(theirs, ours...))
			return err
		}
		g.cmd.Stdin, g.stdin = inr, in
		theirs, ours = append(theirs, inr), append(ours, in)
	}
	if len(g.shim) > 0 {
		var files []*os.File
		if g.held, files, err = hold(); err != nil {
			closeAll(append(theirs, ours...))
			return err
		}
		g.cmd.ExtraFiles, theirs = files, append(theirs, files...)
	}
	err = startRetry(g.cmd)
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		if g.held != nil {
			g.held.close()
		}
		return err
	}
	g.stdout, g.stderr = out, errr
	g.readers.Add(1)
	g.mu.Lock()
	g.pid = g.cmd.Process.Pid
	g.mu.Unlock()
	go g.reap()
	if g.held != nil {
		return g.held.order(g.argv, g.cmd.Env)
	}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// startRetry starts cmd. A program that was just written may be held open for
// an instant by a child that another goroutine is starting.
func startRetry(cmd *exec.Cmd) error {
	for try := 0; ; try++ {
		err := cmd.Start()
		if try == 20 || !errors.Is(err, syscall.ETXTBSY) {
			return err
		}
		fresh := exec.Command(cmd.Path, cmd.Args[1:]...)
		fresh.Env, fresh.SysProcAttr = cmd.Env, cmd.SysProcAttr
		fresh.Stdin, fresh.Stdout, fresh.Stderr = cmd.Stdin, cmd.Stdout, cmd.Stderr
		fresh.ExtraFiles = cmd.ExtraFiles
		*cmd = *fresh
		time.Sleep(10 * time.Millisecond)
	}
}

// reap waits for the program, kills what it left in its group, and ends the
// reading of its pipes, which a process outside of the group may hold open.
func (g *group) reap() {
	if !awaitExit(g.cmd.Process.Pid) {
		_ = g.cmd.Wait()
	}
	if g.held != nil {
		<-g.held.told // the pipes of the shim end with it
	}
	g.mu.Lock()
	_ = syscall.Kill(-g.pid, syscall.SIGKILL)
	_ = g.cmd.Wait()
	g.done = true
	g.mu.Unlock()
	close(g.reaped)
	read := make(chan struct{})
	go func() { g.readers.Wait(); close(read) }()
	select {
	case <-read:
	case <-time.After(50 * time.Millisecond):
	}
	closeAll([]*os.File{g.stdout, g.stderr})
	if g.stdin != nil {
		_ = g.stdin.Close()
	}
	<-read
	close(g.drained)
}

// kill ends the group at once.
func (g *group) kill() {
	if g.held != nil {
		g.held.close() // at the end of its pipe the shim kills all and ends
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pid != 0 && !g.done {
		_ = syscall.Kill(-g.pid, syscall.SIGKILL)
	}
}

// state says how the program ended.
func (g *group) state() string {
	select {
	case <-g.reaped:
		if g.held != nil {
			return g.held.state()
		}
		return g.cmd.ProcessState.String()
	default:
		return "still running"
	}
}

// Stdout implements runner.Runner.
func (g *group) Stdout() io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(g.stdout, &g.head), g.stdout}
}

// Stderr implements runner.Runner.
func (g *group) Stderr() io.ReadCloser { return &onceRead{file: g.stderr, end: g.readers.Done} }

// Wait implements runner.Runner.
func (g *group) Wait(context.Context) error { <-g.reaped; return nil }

// Kill implements runner.Runner.
func (g *group) Kill(context.Context) error { g.kill(); return nil }

// ID implements runner.Runner.
func (g *group) ID() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pid == 0 {
		return ""
	}
	return strconv.Itoa(g.pid)
}

// Name implements runner.Runner.
func (g *group) Name() string { return g.argv[0] }

// Diagnose implements runner.Runner; explain says it better.
func (g *group) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner: both see the same files.
func (g *group) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (g *group) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// onceRead tells when a file was read to its end.
type onceRead struct {
	file *os.File // not embedded: io.Copy would go around Read
	once sync.Once
	end  func()
}

func (r *onceRead) Close() error { return r.file.Close() }

func (r *onceRead) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	if err != nil {
		r.once.Do(r.end)
		if errors.Is(err, os.ErrClosed) {
			err = io.EOF
		}
	}
	return n, err
}

// head keeps the first bytes that are written to it.
type head struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if room := 1024 - h.b.Len(); room > 0 {
		h.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

// passed are the variables that every plugin gets from the host.
var passed = []string{"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ"}

// environ is the environment of a plugin: the names above and those that the
// source lists, and nothing else of the host's.
func environ(extra []string) []string {
	var env []string
	for _, name := range append(slices.Clone(passed), extra...) {
		if strings.Contains(name, "=") {
			env = append(env, name)
		} else if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}
