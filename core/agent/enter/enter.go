// Package enter is what runs first inside of a container, and both ends of the
// way out of it: a socket in a folder that the container shows, on which the
// host lets nobody farther than to named ports of its loopback.
//
// Inside, Main is process 1. It holds a connection to the host, gets its Job
// over it, so that no variable of the program is to be seen in the argv or in
// the settings of the container, listens on the same ports of the container's
// loopback, and starts the program. When the host lets go of that connection,
// all is killed: nothing outlives the host, whoever else started the container.
// When the program ends, the others in the container are ended, too.
//
// What a container is made of never enters here.
package enter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-dev/penstock/core/agent/kernel"
)

// hold is what the connection asks for that lasts as long as the container.
// Any other asks for a port by its number.
const hold = "hold"

// Job is the program to start inside.
type Job struct {
	Argv []string
	// Env are variables that come over those of the image. The folders of its
	// PATH come before the image's.
	Env []string
	Dir string
	// Grace is the time that what the program leaves has to end after SIGTERM.
	Grace time.Duration
	// Ports of the host's loopback are there on the container's, too.
	Ports []int
}

// started is what Main answers to its Job. The error is empty when the program
// runs; missing says that there is no such program.
type started struct {
	Error   string
	Missing bool
}

var errMissing = errors.New("no such program in the container")

// The exit codes of Main when no program was started.
const (
	exitNotStarted = 125
	exitKilled     = 128 + int(syscall.SIGKILL)
)

// Main enters: args are the path of the socket. It returns the program's exit
// code, 128 and its number for a signal.
func Main(args []string) int {
	code, err := enter(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "enter the container:", err)
	}
	return code
}

func enter(args []string) (int, error) {
	if len(args) != 1 || os.Getpid() != 1 {
		return exitNotStarted, errors.New("this is not process 1 of a container")
	}
	// The program must not take the connection over through /proc or ptrace.
	if err := kernel.Prctl(kernel.SetDumpable, 0); err != nil {
		return exitNotStarted, err
	}
	requests := make(chan os.Signal, 1)
	signal.Notify(requests, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	c, err := ask(args[0], hold)
	if err != nil {
		return exitNotStarted, err
	}
	answers := json.NewDecoder(c)
	var job Job
	if err := answers.Decode(&job); err != nil {
		return exitNotStarted, fmt.Errorf("read the host's order: %w", err)
	}
	go obey(answers, job.Grace)
	pid, err := start(args[0], &job)
	answer := started{Missing: err == errMissing}
	if err != nil {
		answer.Error = err.Error()
	}
	if e := json.NewEncoder(c).Encode(answer); err != nil || e != nil {
		return exitNotStarted, errors.Join(err, e)
	}
	go func() {
		<-requests // once: a second one means haste to many programs
		askToEnd(job.Grace)
	}()
	return collect(pid, job.Grace), nil
}

// all signals every other process of the container.
func all(s syscall.Signal) { _ = syscall.Kill(-1, s) }

// askToEnd asks all to end, and kills them when they have not after grace.
func askToEnd(grace time.Duration) {
	all(syscall.SIGTERM)
	all(syscall.SIGCONT) // a stopped process would not hear it
	time.AfterFunc(grace, func() { all(syscall.SIGKILL) })
}

// obey hears what the host asks for: an end, or, by letting go, one at once.
func obey(host *json.Decoder, grace time.Duration) {
	var end bool
	for host.Decode(&end) == nil {
		askToEnd(grace)
	}
	for { // this process ends when no other is left
		all(syscall.SIGKILL)
		time.Sleep(10 * time.Millisecond)
	}
}

// start starts the program of a job.
func start(socket string, job *Job) (pid int, err error) {
	if err := carry(socket, job.Ports); err != nil {
		return 0, err
	}
	env := environment(os.Environ(), job.Env)
	if err := os.Chdir(job.Dir); err != nil {
		return 0, err
	}
	path, err := find(job.Argv[0], env)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return 0, errMissing
	}
	if err != nil {
		return 0, err
	}
	p, err := os.StartProcess(path, job.Argv, &os.ProcAttr{
		Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, err
	}
	return p.Pid, nil
}

// environment is the image's with the job's over it. Folders of PATH are the
// job's first, then the image's.
func environment(image, job []string) []string {
	all := map[string]string{}
	for _, kv := range image {
		name, value, _ := strings.Cut(kv, "=")
		all[name] = value
	}
	for _, kv := range job {
		name, value, _ := strings.Cut(kv, "=")
		if was := all[name]; name == "PATH" && was != "" {
			value += ":" + was
		}
		all[name] = value
	}
	out := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, name+"="+all[name])
	}
	return out
}

// find looks for a program in the PATH of an environment.
func find(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return exec.LookPath(name)
	}
	search := ""
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = value
		}
	}
	for _, dir := range filepath.SplitList(search) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); filepath.IsAbs(dir) && err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// collect waits for every child, which for process 1 are also those that lost
// their parents, until there is none. It returns the program's exit code.
func collect(pid int, grace time.Duration) int {
	code := exitKilled
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return code
		case got != pid:
		default:
			code = status.ExitStatus()
			if status.Signaled() {
				code = 128 + int(status.Signal())
			}
			askToEnd(grace)
		}
	}
}

// ask opens a connection to the host.
func ask(socket, what string) (*net.UnixConn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, what+"\n"); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// carry listens on the ports and hands what comes to the host.
func carry(socket string, ports []int) error {
	for _, port := range ports {
		l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			return err
		}
		go func() { // to the end of the container
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if out, err := ask(socket, strconv.Itoa(port)); err == nil {
						join(c.(*net.TCPConn), out, out)
					}
				}()
			}
		}()
	}
	return nil
}

// halves is a connection of which either way can be closed.
type halves interface {
	net.Conn
	CloseWrite() error
}

// join copies both ways, from b by way of fromB, and closes both connections
// when both ways have ended.
func join(a, b halves, fromB io.Reader) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(a, fromB)
		_ = a.CloseWrite()
	}()
	_, _ = io.Copy(b, a)
	_ = b.CloseWrite()
	<-done
	_ = a.Close()
	_ = b.Close()
}
