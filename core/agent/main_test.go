package agent

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
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
	if name := filepath.Base(os.Args[0]); name == "docker" || name == "podman" {
		syscall.Exit(clientMain(name, os.Args[1:]))
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "__shim":
			syscall.Exit(ShimMain(os.Args[2:]))
		case "__host":
			os.Exit(hostMain(os.Args[2]))
		case "__tool":
			syscall.Exit(toolMain(os.Args[2:])) // os.Exit sleeps for a second under the race detector
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
	if err := Conceal(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r := NewRunner(RunnerOptions{Shim: []string{os.Args[0], "__shim"}, Isolation: job.Isolation})
	if job.Sandbox != "" {
		if job.Spec.Sandbox, err = r.Sandbox(context.Background(), job.Sandbox, job.Image); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
	}
	exit, err := r.Run(context.Background(), job.Spec)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(exit)
	return 0
}

type hostJob struct {
	Isolation, Sandbox, Image string
	Spec                      Spec
}

// toolMain is what a badly behaved tool does.
func toolMain(args []string) int {
	switch args[0] {
	case "stubborn": // READYFILE LATEFILE: ignores TERM, writes a file after 3 s
		signal.Ignore(unix.SIGTERM, unix.SIGHUP, unix.SIGINT)
		write(args[1], "ready")
		time.Sleep(3 * time.Second)
		write(args[2], "late")
		time.Sleep(time.Minute)
	case "daemon": // READYFILE LATEFILE: double fork, each in its own session
		spawn("daemon2", args[1:]...)
	case "daemon2":
		spawn("stubborn", args[1:]...)
	case "agent": // READYFILE LATEFILE: starts a daemon and is as stubborn
		spawn("daemon", args[1:]...)
		signal.Ignore(unix.SIGTERM)
		time.Sleep(time.Minute)
	case "leave": // READYFILE LATEFILE: starts a daemon and ends
		spawn("daemon", args[1:]...)
		for i := 0; i < 200 && !exists(args[1]); i++ {
			time.Sleep(10 * time.Millisecond)
		}
	case "env":
		for _, kv := range os.Environ() {
			fmt.Println(kv)
		}
	case "nonblocking": // names those of the standard three that are
		for fd := range 3 {
			if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); flags&unix.O_NONBLOCK != 0 {
				fmt.Println(fd)
			}
		}
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
	case "handle": // TYPE HEX: prints the file that has this number on the disk of /
		kind, _ := strconv.Atoi(args[1])
		raw, _ := hex.DecodeString(args[2])
		disk, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err == nil {
			disk, err = unix.OpenByHandleAt(disk, unix.NewFileHandle(int32(kind), raw), unix.O_RDONLY)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		_, _ = io.Copy(os.Stdout, os.NewFile(uintptr(disk), ""))
	case "breakout": // SECRET PORT PID SOCKET: prints what it got
		return breakout(args[1:])
	case "chores": // prints its input, a variable, and who it is, writes two files, and ends with 9
		in, _ := io.ReadAll(os.Stdin)
		fmt.Printf("%s %s %s %d\n", in, os.Getenv("TOKEN"), os.Getenv("OF_THE_IMAGE"), os.Getuid())
		fmt.Fprintln(os.Stderr, "told")
		for _, path := range []string{"here", filepath.Join(os.Getenv("TMPDIR"), "there")} {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				fmt.Println(err)
			}
		}
		return 9
	case "polite": // says that it was asked to end
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, unix.SIGTERM)
		fmt.Println("up")
		<-asked
		fmt.Println("saved")
	case "dial": // PORT...: prints what each says, or why it says nothing
		for _, port := range args[1:] {
			c, err := net.Dial("tcp4", "127.0.0.1:"+port)
			if err != nil {
				fmt.Println(err)
				continue
			}
			_, _ = io.WriteString(c, "ping")
			_ = c.(*net.TCPConn).CloseWrite()
			said, _ := io.ReadAll(c)
			fmt.Println(string(said))
			_ = c.Close()
		}
	case "count": // reads stdin to its end
		n, _ := io.Copy(io.Discard, os.Stdin)
		fmt.Println(n)
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

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func write(path, text string) {
	t := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	_ = os.WriteFile(t, []byte(text), 0o600)
	_ = os.Rename(t, path)
}
