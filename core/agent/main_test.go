package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also the shim, the host of a run, and the tools that an
// agent starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "__shim":
			os.Exit(ShimMain(os.Args[2:]))
		case "__host":
			os.Exit(hostMain(os.Args[2]))
		case "__tool":
			os.Exit(toolMain(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// hostMain runs the Spec in a file as another process would, and prints the
// Exit.
func hostMain(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var job hostJob
	if err := json.Unmarshal(data, &job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r := NewRunner(RunnerOptions{Shim: []string{os.Args[0], "__shim"}, Isolation: job.Isolation})
	exit, err := r.Run(context.Background(), job.Spec)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(exit)
	return 0
}

type hostJob struct {
	Isolation string
	Spec      Spec
}

// toolMain is what a badly behaved tool does.
func toolMain(args []string) int {
	switch args[0] {
	case "stubborn": // PIDFILE LATEFILE: ignores TERM, writes a file after 3 s
		signal.Ignore(unix.SIGTERM, unix.SIGHUP, unix.SIGINT)
		write(args[1], strconv.Itoa(hostPid()))
		time.Sleep(3 * time.Second)
		write(args[2], "late")
		time.Sleep(time.Minute)
	case "daemon": // PIDFILE LATEFILE: double fork, each in its own session
		spawn("daemon2", args[1:]...)
	case "daemon2":
		spawn("stubborn", args[1:]...)
	case "env":
		for _, kv := range os.Environ() {
			fmt.Println(kv)
		}
	case "fds":
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			fmt.Println(e.Name(), to)
		}
		for fd := range 3 {
			flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			fmt.Println("nonblock", fd, flags&unix.O_NONBLOCK != 0)
		}
	case "caps":
		data, _ := os.ReadFile("/proc/self/status")
		fmt.Print(string(data))
	case "long": // N: one line of N bytes
		n, _ := strconv.Atoi(args[1])
		block := make([]byte, 1<<16)
		for i := range block {
			block[i] = 'x'
		}
		for n > 0 {
			k, _ := os.Stdout.Write(block[:min(n, len(block))])
			n -= k
		}
		fmt.Println()
	case "count": // reads stdin to its end
		n, _ := io.Copy(io.Discard, os.Stdin)
		fmt.Println(n)
	case "raise": // SIGNAL
		n, _ := strconv.Atoi(args[1])
		signal.Reset()
		_ = unix.Kill(os.Getpid(), syscall.Signal(n))
		time.Sleep(time.Second)
	}
	return 0
}

// spawn starts a tool in a session of its own and does not wait for it.
func spawn(tool string, args ...string) {
	cmd := exec.Command("/proc/self/exe", append([]string{"__tool", tool}, args...)...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// hostPid is this process's number; in a namespace it is that of the
// namespace, which is no use to the test.
func hostPid() int { return os.Getpid() }

func write(path, text string) {
	t := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	_ = os.WriteFile(t, []byte(text), 0o600)
	_ = os.Rename(t, path)
}
