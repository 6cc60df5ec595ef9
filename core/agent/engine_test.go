package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A stand-in for docker and podman. Under either name the test binary is the
// client. As with docker, a container belongs to another process, the test,
// so that a client that is killed leaves its container running. It knows the
// flags that penstock uses and refuses others. A container is a bubblewrap of
// its own with the system's folders for its image; its first process is number
// 1, and nobody else ends it.
const (
	standInImage = "agents:1"
	standInID    = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	standInVar   = "DOCKER_HOST" // one that clients are given
)

// clientMain is the client.
func clientMain(engine string, args []string) int {
	refuse := func(err any) int {
		fmt.Fprintln(os.Stderr, engine+":", err)
		return 125
	}
	switch {
	case slices.Equal(args, []string{"info", "--format", "{{json .SecurityOptions}}"}) && engine == "docker":
		fmt.Println(`["name=seccomp,profile=builtin","name=cgroupns"]`)
		return 0
	case len(args) == 5 && slices.Equal(args[:4], []string{"image", "inspect", "--format", "{{.Id}}"}):
		if args[4] != standInImage {
			fmt.Fprintln(os.Stderr, "Error: No such image: "+args[4])
			return 1
		}
		fmt.Println(standInID)
		return 0
	case args[0] != "run":
		return refuse("unknown command")
	}
	box, err := boxOf(args[1:])
	if err != nil {
		return refuse(err)
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: os.Getenv(standInVar), Net: "unix"})
	if err != nil {
		return refuse("Cannot connect to the daemon: " + err.Error())
	}
	text, _ := json.Marshal(box)
	if _, _, err := c.WriteMsgUnix(append(text, '\n'), syscall.UnixRights(0, 1, 2), nil); err != nil {
		return refuse(err)
	}
	var code int
	if _, err := fmt.Fscan(c, &code); err != nil {
		return refuse(err)
	}
	return code
}

// boxOf is the command line of the container that the arguments of `run` ask
// for.
func boxOf(args []string) ([]string, error) {
	box := []string{"bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--as-pid-1", "--cap-drop", "ALL", "--clearenv",
		"--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", "OF_THE_IMAGE", "yes", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"} {
		box = append(box, "--ro-bind-try", dir, dir)
	}
	entry := ""
	for ; len(args) > 0 && strings.HasPrefix(args[0], "-"); args = args[1:] {
		flag, value, _ := strings.Cut(args[0], "=")
		switch flag + "=" + value {
		case "--rm=", "--interactive=", "--init=false", "--pull=never", "--log-driver=none", "--hostname=penstock", "--workdir=/", "--cap-drop=ALL",
			"--security-opt=no-new-privileges", "--security-opt=label=disable", "--network=host", "--userns=keep-id":
			continue
		case "--network=none":
			box = append(box, "--unshare-net")
			continue
		}
		switch flag {
		case "--user":
			if value != fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()) {
				return nil, errors.New("the files of the workspace would not be this user's: " + value)
			}
		case "--entrypoint":
			entry = value
		case "--mount":
			var source, target, how string
			for i, field := range strings.Split(value, ",") {
				switch key, v, _ := strings.Cut(field, "="); {
				case i == 0 && field == "type=bind":
					how = "--bind"
				case key == "source":
					source = v
				case key == "target":
					target = v
				case field == "readonly":
					how = "--ro-bind"
				default:
					return nil, fmt.Errorf("invalid argument %q for --mount", value)
				}
			}
			box = append(box, how, source, target)
		default:
			return nil, errors.New("unknown flag: " + args[0])
		}
	}
	if len(args) == 0 || args[0] != standInID || entry == "" {
		return nil, fmt.Errorf("Unable to find image %q locally", args)
	}
	return append(append(box, "--", entry), args[1:]...), nil
}

// daemon runs the containers of stand-ins until the test ends.
type daemon struct {
	mu         sync.Mutex
	containers map[*exec.Cmd]bool
}

// left counts the containers that are there.
func (d *daemon) left() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.containers)
}

// standIns puts the stand-ins in the place of docker and podman.
func standIns(t *testing.T) *daemon {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "engine")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"docker", "podman"} {
		require.NoError(t, os.Symlink(os.Args[0], filepath.Join(dir, name)))
	}
	socket := filepath.Join(dir, "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	require.NoError(t, err)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(standInVar, socket)
	d := &daemon{containers: map[*exec.Cmd]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				code, err := d.contain(c)
				if err != nil {
					t.Log("daemon: ", err)
				}
				fmt.Fprintln(c, code)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		d.mu.Lock()
		for cmd := range d.containers {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		d.mu.Unlock()
		all.Wait()
	})
	return d
}

// contain runs one container to its end.
func (d *daemon) contain(c *net.UnixConn) (code int, err error) {
	text, rights := make([]byte, 1<<16), make([]byte, 128)
	n, got, _, _, err := c.ReadMsgUnix(text, rights)
	if err != nil {
		return 125, err
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:got])
	if err != nil || len(messages) != 1 {
		return 125, errors.Join(err, errors.New("no files came"))
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return 125, err
	}
	var files []*os.File
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
		files = append(files, os.NewFile(uintptr(fd), "client"))
	}
	defer closeAll(files)
	var box []string
	if err := json.Unmarshal(text[:n], &box); err != nil {
		return 125, err
	}
	cmd := exec.Command(box[0], box[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 125, err
	}
	d.mu.Lock()
	d.containers[cmd] = true
	d.mu.Unlock()
	defer func() { d.mu.Lock(); delete(d.containers, cmd); d.mu.Unlock() }()
	closeAll(files)
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}
