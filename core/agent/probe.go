package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-dev/penstock/core/agent/enter"
	"github.com/penstock-dev/penstock/core/agent/sandbox"
	"github.com/penstock-dev/penstock/core/agent/shim"
	"github.com/penstock-dev/penstock/core/temp"
)

// ShimMain is what main runs, first of all, for a binary whose first argument
// is shim.Arg; it ends with what it returns. Most of the time package shim has
// come before it.
func ShimMain(args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case shim.ArgEscape:
			return escape(args[1:])
		case shim.ArgEnter:
			return enter.Main(args[1:])
		}
	}
	return shim.Main(args)
}

// Sandbox returns the sandbox of a name after it has held against a program
// that tries to get out. For sandbox.Auto it is the strongest that does; any
// other that this machine lacks, or that lets something through, is an error.
// The image is that of docker and podman; auto tries them where there is one.
func (r *Runner) Sandbox(ctx context.Context, name, image string) (sandbox.Sandbox, error) {
	if name != sandbox.Auto {
		return r.tried(ctx, name, image)
	}
	strongest := []string{sandbox.Podman, sandbox.Docker, sandbox.Bwrap, sandbox.Landlock}
	if image == "" {
		strongest = strongest[2:]
	}
	for _, name := range strongest {
		s, err := r.tried(ctx, name, image)
		if err == nil {
			return s, nil
		}
		r.log.Debug("sandbox not used", "sandbox", name, "reason", err)
	}
	return sandbox.New(ctx, sandbox.None, "")
}

func (r *Runner) tried(ctx context.Context, name, image string) (sandbox.Sandbox, error) {
	s, err := sandbox.New(ctx, name, image)
	if err != nil || s.Name() == sandbox.None {
		return s, err
	}
	found, err := r.probeSandbox(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("try sandbox %s: %w", name, err)
	}
	if len(found.Broken) > 0 {
		return nil, fmt.Errorf("sandbox %s does not work here: %s", name, strings.Join(found.Broken, "; "))
	}
	if open := found.unexpected(s.Limits()); len(open) > 0 {
		return nil, fmt.Errorf("sandbox %s does not hold here: a program could %s", name, strings.Join(open, ", "))
	}
	return s, nil
}

// escapes is what a program found out about its sandbox: what it should be
// able to do and is not, and what it could do and should not.
type escapes struct {
	Broken  []string `json:"broken"`
	Files   []string `json:"files"`
	TCP     bool     `json:"tcp"`
	UDP     bool     `json:"udp"` // the host saw it arrive
	Signals bool     `json:"signals"`
}

// unexpected lists what got through though the sandbox says that it doesn't.
func (e *escapes) unexpected(limits string) []string {
	open := e.Files
	if e.TCP && strings.Contains(limits, "TCP") {
		open = append(open, "connect to another port")
	}
	if e.UDP && strings.Contains(limits, "UDP") {
		open = append(open, "send to a port by UDP")
	}
	if e.Signals && strings.Contains(limits, "signals") {
		open = append(open, "signal the host")
	}
	return open
}

func (r *Runner) probeSandbox(ctx context.Context, s sandbox.Sandbox) (*escapes, error) {
	dir, err := temp.Make(os.TempDir(), temp.Agent)
	if err != nil {
		return nil, err
	}
	defer dir.Remove()
	in, out := filepath.Join(dir.Path, "in"), filepath.Join(dir.Path, "out")
	err = errors.Join(os.Mkdir(in, 0o700), os.Mkdir(out, 0o700), os.WriteFile(filepath.Join(out, "secret"), []byte("secret"), 0o600))
	if err != nil {
		return nil, err
	}
	var ports []string
	for range 2 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	packets, err := net.ListenPacket("udp4", "127.0.0.1:"+ports[1])
	if err != nil {
		return nil, err
	}
	defer packets.Close()
	port, _ := strconv.Atoi(ports[0])
	argv := append(append([]string(nil), r.shim...), shim.ArgEscape, out, ports[0], ports[1], strconv.Itoa(os.Getpid()))
	e, err := r.Run(ctx, Spec{
		Argv: argv, Dir: in, Timeout: time.Minute, Grace: time.Second, Env: []string{"PATH=/usr/bin:/bin", "TMPDIR=" + in},
		Sandbox: s, Policy: sandbox.Policy{Ports: []int{port}},
	})
	if err != nil {
		return nil, err
	}
	var found escapes
	if e.Code != 0 || json.Unmarshal([]byte(e.Stdout), &found) != nil {
		return nil, fmt.Errorf("exit code %d %s: %s", e.Code, e.Signal, strings.TrimSpace(string(e.Stderr)))
	}
	// What a program says of itself is not all: the host looks, too.
	if got, err := os.ReadFile(filepath.Join(out, "secret")); err != nil || string(got) != "secret" {
		found.Files = append(found.Files, "change a file outside")
	}
	if list, _ := os.ReadDir(out); len(list) != 1 {
		found.Files = append(found.Files, "make a file outside")
	}
	// What the program sent comes before what the host itself sends now.
	if _, err := packets.WriteTo([]byte("h"), packets.LocalAddr()); err != nil {
		return nil, err
	}
	var first [1]byte
	_ = packets.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, _, err := packets.ReadFrom(first[:]); err != nil {
		return nil, err
	}
	found.UDP = first[0] != 'h'
	return &found, nil
}

// escape tries to get out, from the working folder, and prints what it found.
func escape(args []string) int {
	if len(args) == 1 {
		return 0 // as another program
	}
	if len(args) != 4 {
		return 2
	}
	out, allowed, other := args[0], args[1], args[2]
	pid, _ := strconv.Atoi(args[3])
	secret := filepath.Join(out, "secret")
	var e escapes
	works := func(what string, err error) {
		if err != nil {
			e.Broken = append(e.Broken, what+": "+err.Error())
		}
	}
	fails := func(what string, err error) {
		if err == nil {
			e.Files = append(e.Files, what)
		}
	}
	works("write a file", os.WriteFile("mine", []byte("x"), 0o600))
	works("rename a file", errors.Join(os.Mkdir("d", 0o700), os.Rename("mine", "d/mine")))
	works("run a program", another().Run())
	works("connect to the gateway", dial(allowed))

	read := func(path string) error { _, err := os.ReadFile(path); return err }
	fails("read a file outside", read(secret))
	_ = os.Symlink(secret, "link")
	fails("read a file outside through a link", read("link"))
	if os.Link(secret, "hard") == nil {
		fails("read a file outside through a hard link", read("hard"))
	}
	fails("read a file outside through another process", func() error {
		seen, _ := filepath.Glob("/proc/[0-9]*/root" + secret)
		for _, path := range seen {
			if read(path) == nil {
				return nil
			}
		}
		return fs.ErrNotExist
	}())
	fails("list a folder outside", func() error { _, err := os.ReadDir(out); return err }())
	fails("make a file outside", notExist(os.WriteFile(filepath.Join(out, "new"), []byte("x"), 0o600), filepath.Join(out, "new")))
	fails("truncate a file outside", os.Truncate(secret, 0))
	fails("remove a file outside", os.Remove(secret))
	fails("rename a file out of its folder", os.Rename("d/mine", filepath.Join(out, "moved")))
	e.TCP = dial(other) == nil
	if c, err := net.Dial("udp4", "127.0.0.1:"+other); err == nil {
		_, _ = c.Write([]byte("x"))
		_ = c.Close()
	}
	e.Signals = unix.Kill(pid, 0) == nil
	if json.NewEncoder(os.Stdout).Encode(e) != nil {
		return 1
	}
	return 0
}

// another is a program of the system; an image may have no shell.
func another() *exec.Cmd {
	if _, err := os.Stat("/bin/sh"); err != nil {
		return exec.Command("/proc/self/exe", os.Args[1], shim.ArgEscape, "again")
	}
	return exec.Command("/bin/sh", "-c", "cat d/mine >/dev/null")
}

// notExist is an error also when the file was made in a place of the
// program's own, which only looks as the one outside.
func notExist(err error, path string) error {
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fs.ErrNotExist
	}
	return nil
}

func dial(port string) error {
	c, err := net.DialTimeout("tcp4", "127.0.0.1:"+port, 5*time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}
