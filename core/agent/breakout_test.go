package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// breakout tries what a container has to keep from a program, and prints a
// list of what it got. The arguments are a file outside, a port of the host
// that is not for it, a process of the host, and an abstract socket of it.
func breakout(args []string) int {
	secret, port, socket := args[0], args[1], args[3]
	pid, _ := strconv.Atoi(args[2])
	got := []string{}
	try := func(what string, err error) {
		if err == nil {
			got = append(got, what)
		}
	}
	read := func(path string) error { _, err := os.ReadFile(path); return err }
	dial := func(network, at string) error {
		c, err := net.DialTimeout(network, at, 10*time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	open := func(family, kind int) error {
		fd, err := unix.Socket(family, kind, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
	try("read a file outside", read(secret))
	try("list a folder outside", func() error { _, err := os.ReadDir(filepath.Dir(secret)); return err }())
	made := filepath.Join(filepath.Dir(secret), "made")
	try("write outside", notExist(os.WriteFile(made, nil, 0o600), made))
	roots, _ := filepath.Glob("/proc/[0-9]*/root" + secret)
	for _, path := range roots {
		try("read a file outside through a process", read(path))
	}
	try("signal the host", unix.Kill(pid, 0))
	try("trace the host", unix.PtraceAttach(pid))
	try("trace process 1", unix.PtraceAttach(1))
	try("read the environment of process 1", read("/proc/1/environ"))
	try("read the memory of process 1", func() error { f, err := os.Open("/proc/1/mem"); _ = f.Close(); return err }())
	for _, s := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP} {
		_ = unix.Kill(1, s) // without effect, or this prints nothing
	}
	try("reach a port", dial("tcp4", "127.0.0.1:"+port))
	try("reach a port by IPv6", dial("tcp6", "[::1]:"+port))
	try("reach a socket without a file", dial("unix", "@"+socket))
	try("reach the cloud's metadata", dial("tcp4", "169.254.169.254:80"))
	try("reach a name server by TCP", dial("tcp4", "192.0.2.53:53"))
	try("ask a name server", dial("udp4", "192.0.2.53:53")) // fails where there is no route
	try("open a raw socket", open(unix.AF_INET, unix.SOCK_RAW))
	try("open a packet socket", open(unix.AF_PACKET, unix.SOCK_RAW))
	try("mount", unix.Mount("tmpfs", "/proc", "tmpfs", 0, ""))
	try("make a device", unix.Mknod("disk", unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0))))
	try("name the machine", unix.Sethostname([]byte("mine")))
	try("read the kernel's memory", read("/dev/mem"))
	ways, _ := filepath.Glob(filepath.Join(os.TempDir(), "..", "penstock-a*", "out"))
	for _, way := range ways {
		for _, what := range []string{port, "hold", "127.0.0.1:" + port, "22"} {
			try("get "+what+" of the way out", answer(way, what))
		}
	}
	if json.NewEncoder(os.Stdout).Encode(map[string]any{"got": got, "ways": len(ways)}) != nil {
		return 1
	}
	return 0
}

// answer asks at the way out, and is nil when something comes back.
func answer(way, what string) error {
	c, err := net.Dial("unix", way)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = fmt.Fprintln(c, what)
	_, err = c.Read(make([]byte, 1))
	return err
}
