package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/agent/sandbox"
	"github.com/penstock-dev/penstock/core/agent/shim"
)

// engine is one that tests run containers with.
type engine struct {
	name, image string
	self        string // the binary of the host and of the program inside
	left        func() int
}

func (e *engine) runner() *Runner {
	return NewRunner(RunnerOptions{Shim: []string{e.self, shim.Arg}})
}

// tool is a spec for one of the tools of toolMain.
func (e *engine) tool(t *testing.T, args ...string) Spec {
	s := tool(t, args...)
	s.Argv[0] = e.self
	return s
}

// open is the engine's sandbox, after it has passed its probe.
func (e *engine) open(t *testing.T) sandbox.Sandbox {
	t.Helper()
	s, err := e.runner().Sandbox(t.Context(), e.name, e.image)
	require.NoError(t, err)
	return s
}

// TestContainers tries the stand-ins for docker and podman, and the machine's
// own podman where that can run containers.
func TestContainers(t *testing.T) {
	all := func(t *testing.T, e *engine) {
		for name, f := range map[string]func(*testing.T, *engine){
			"run programs": runPrograms, "nothing outlives its run": nothingOutlivesARun, "a killed host leaves nothing": aKilledHostLeavesNothing,
			"only the gateway is reached": onlyTheGatewayIsReached, "nobody breaks out": nobodyBreaksOut,
		} {
			t.Run(name, func(t *testing.T) { f(t, e) })
		}
	}
	t.Run("machine's podman", func(t *testing.T) {
		if e := ownPodman(t); e != nil {
			all(t, e)
		}
	})
	for _, name := range []string{sandbox.Docker, sandbox.Podman} {
		t.Run(name, func(t *testing.T) {
			d := standIns(t)
			all(t, &engine{name: name, image: standInImage, self: os.Args[0], left: d.left})
		})
	}
}

// ownPodman is the machine's podman with an image in which there is nothing at
// all, and a storage of its own; nil where there is none or it can't run
// anything.
func ownPodman(t *testing.T) *engine {
	t.Helper()
	if _, err := exec.LookPath("podman"); err != nil {
		t.Log("not here: ", err)
		return nil
	}
	dir, err := os.MkdirTemp("", "podman")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		// One in a container itself may not raise its limits, nor use crun.
		"containers.conf": "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1000:1000\"]\n[engine]\nruntime = \"runc\"\n",
		"storage.conf":    fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", at("graph"), at("run")),
	} {
		require.NoError(t, os.WriteFile(at(name), []byte(text), 0o600))
	}
	t.Setenv("CONTAINERS_CONF", at("containers.conf"))
	t.Setenv("CONTAINERS_STORAGE_CONF", at("storage.conf"))
	self := at("agent.test")
	build := exec.Command("go", "test", "-c", "-o", self, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Mkdir(at("image"), 0o755))
	require.NoError(t, os.Mkdir(at("image/tmp"), 0o777))
	const image = "penstock-test:1"
	for _, args := range [][]string{
		{"tar", "-C", at("image"), "-cf", at("image.tar"), "."},
		{"podman", "import", "--change", "ENV=OF_THE_IMAGE=yes", at("image.tar"), image},
		{"podman", "run", "--rm", "--pull=never", "--network=none", "--mount=type=bind,source=" + self + ",target=" + self, "--entrypoint=" + self, image, "__tool", "env"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Logf("this machine's podman can't run containers: %v: %s", err, out)
			return nil
		}
	}
	left := func() int {
		out, err := exec.Command("podman", "ps", "--all", "--quiet").Output()
		if err != nil {
			return -1
		}
		return len(strings.Fields(string(out)))
	}
	t.Cleanup(func() { _ = exec.Command("podman", "rmi", "--force", image).Run() })
	return &engine{name: sandbox.Podman, image: image, self: self, left: left}
}

func runPrograms(t *testing.T, e *engine) {
	r, box := e.runner(), e.open(t)
	require.Regexp(t, `^`+e.name+` `+e.image+` \([0-9a-f]{12}\): files, TCP, UDP, signals$`, box.Limits())

	spec := e.tool(t, "chores")
	spec.Sandbox, spec.Stdin, spec.Env = box, []byte("input"), append(spec.Env, "TOKEN=t0ken")
	exit := run1(t, r, spec)
	require.Equal(t, 9, exit.Code, "%s", exit.Stderr)
	require.Equal(t, fmt.Sprintf("input t0ken yes %d\n", os.Getuid()), exit.Stdout)
	require.Equal(t, "told\n", exit.Stderr)
	require.Equal(t, IsolationContainer, exit.Isolation)
	info, err := os.Stat(filepath.Join(spec.Dir, "here"))
	require.NoError(t, err)
	require.Equal(t, os.Getuid(), int(info.Sys().(*syscall.Stat_t).Uid), "the workspace's files are this user's")

	spec = e.tool(t, "chores")
	spec.Sandbox, spec.Argv = box, []string{"no-such-program"}
	_, err = r.Run(t.Context(), spec)
	require.EqualError(t, err, `no program "no-such-program" in the container of `+e.name+`: install it in the image, or show its folder with read:`)
	require.True(t, Permanent(err))

	spec.Argv, spec.Policy.Read = []string{filepath.Base(e.self), "__tool", "env"}, []string{filepath.Dir(e.self)}
	spec.Env = []string{"PATH=/nowhere:" + filepath.Dir(e.self)}
	exit = run1(t, r, spec)
	require.Zero(t, exit.Code, "%s", exit.Stderr)
	require.Contains(t, exit.Stdout, "PATH="+filepath.Dir(e.self)+":/usr/local", "a program of a folder that is shown")
	require.Eventually(t, func() bool { return e.left() == 0 }, time.Minute, 50*time.Millisecond, "no container is left")
}

func nothingOutlivesARun(t *testing.T, e *engine) {
	r, box := e.runner(), e.open(t)
	for _, kind := range []string{"agent", "leave"} {
		ready, late := files(t)
		spec := e.tool(t, kind, ready, late)
		spec.Sandbox, spec.Policy.Write, spec.Grace = box, []string{filepath.Dir(ready)}, 100*time.Millisecond
		if kind == "agent" {
			wall(t, r, spec, func(*Exit) bool { return exists(ready) })
		} else {
			require.Zero(t, run1(t, r, spec).Code)
			require.FileExists(t, ready)
		}
		require.Empty(t, alive(ready), "what %s started", kind)
	}
	spec := e.tool(t, "polite")
	spec.Sandbox, spec.Grace = box, time.Minute
	exit := wall(t, r, spec, printed("up\n"))
	require.Equal(t, "up\nsaved\n", exit.Stdout, "there is time to end")
	require.Eventually(t, func() bool { return e.left() == 0 }, time.Minute, 50*time.Millisecond, "no container is left")
}

func aKilledHostLeavesNothing(t *testing.T, e *engine) {
	ready, late := files(t)
	spec := e.tool(t, "agent", ready, late)
	spec.Policy.Write = []string{filepath.Dir(ready)}
	text, err := json.Marshal(map[string]any{"Sandbox": e.name, "Image": e.image, "Spec": specJSON(spec)})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "job")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	host := exec.Command(e.self, "__host", path)
	host.Stderr = os.Stderr
	require.NoError(t, host.Start())
	require.Eventually(t, func() bool { return exists(ready) }, time.Minute, 10*time.Millisecond)
	require.NotEmpty(t, alive(ready))
	require.NoError(t, host.Process.Kill())
	_ = host.Wait()
	require.Eventually(t, func() bool { return len(alive(ready)) == 0 }, time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool { return e.left() == 0 }, time.Minute, 50*time.Millisecond)
}

// echo is a server that says back what it hears.
func echo(t *testing.T) (port int) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// onlyTheGatewayIsReached: the named port answers inside at the same
// address, another does not, and with the host's network both do.
func onlyTheGatewayIsReached(t *testing.T, e *engine) {
	r, box := e.runner(), e.open(t)
	gateway, other := echo(t), echo(t)
	for _, network := range []bool{false, true} {
		spec := e.tool(t, "dial", fmt.Sprint(gateway), fmt.Sprint(gateway), fmt.Sprint(other))
		spec.Sandbox, spec.Policy = box, sandbox.Policy{Ports: []int{gateway}, Network: network}
		exit := run1(t, r, spec)
		said := strings.Split(exit.Stdout, "\n")
		require.Equal(t, []string{"ping", "ping"}, said[:2], "%s", exit.Stderr)
		if network {
			require.Equal(t, "ping", said[2])
		} else {
			require.Contains(t, said[2], "connection refused")
		}
	}
}

// nobodyBreaksOut, or finds there what is the host's.
func nobodyBreaksOut(t *testing.T, e *engine) {
	t.Setenv("UPSTREAM_KEY", "upstream-key")
	r, box := e.runner(), e.open(t)
	home := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(home, ".ssh"), 0o700))
	key := filepath.Join(home, ".ssh", "id_ed25519")
	require.NoError(t, os.WriteFile(key, []byte("key"), 0o600))
	socket := "penstock-test-" + strconv.Itoa(os.Getpid())
	l, err := net.Listen("unix", "@"+socket)
	require.NoError(t, err)
	defer l.Close()
	spec := e.tool(t, "breakout", key, fmt.Sprint(echo(t)), fmt.Sprint(os.Getpid()), socket)
	spec.Sandbox, spec.Policy.Ports = box, []int{echo(t)}
	exit := run1(t, r, spec)
	require.JSONEq(t, `{"got": [], "ways": 1}`, exit.Stdout, "%s", exit.Stderr)
	require.NoFileExists(t, filepath.Join(home, ".ssh", "made"))

	// Its variables are its own, and no other process of the machine has
	// them in an argv or an environment.
	ready, late := files(t)
	spec = e.tool(t, "agent", ready, late)
	spec.Env = append(spec.Env, "TOKEN=session-"+socket)
	spec.Sandbox, spec.Policy.Write, spec.Grace = box, []string{filepath.Dir(ready)}, -1
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.Run(ctx, spec)
	}()
	defer func() { cancel(); <-done }()
	require.Eventually(t, func() bool { return exists(ready) }, time.Minute, 10*time.Millisecond)
	var inside, outside int
	for _, p := range shim.Processes() {
		at := "/proc/" + strconv.Itoa(p.PID)
		argv, _ := os.ReadFile(at + "/cmdline")
		env, _ := os.ReadFile(at + "/environ")
		switch has := bytes.Contains(env, []byte("session-"+socket)); {
		case bytes.Contains(argv, []byte("session-"+socket)):
			outside++
		case has && bytes.Contains(argv, []byte(ready)):
			inside++
			require.NotContains(t, string(env), "upstream-key")
		case has:
			outside++
		}
	}
	require.Positive(t, inside)
	require.Zero(t, outside)
}

func TestContainersThatCanNotBeHadRefuse(t *testing.T) {
	r := runner("")
	standIns(t)
	for _, name := range []string{sandbox.Docker, sandbox.Podman} {
		_, err := r.Sandbox(t.Context(), name, "")
		require.EqualError(t, err, "sandbox "+name+": no image is named; give it one: { use: "+name+", image: NAME }")
		_, err = r.Sandbox(t.Context(), name, "--privileged")
		require.ErrorContains(t, err, `"--privileged" is no name of an image`)
		_, err = r.Sandbox(t.Context(), name, "gone:1")
		require.EqualError(t, err, "sandbox "+name+": look for the image gone:1: exit status 1: Error: No such image: gone:1; start the engine if it does not run, and get the image with: "+name+" pull gone:1")
	}
	s, err := r.Sandbox(t.Context(), sandbox.Auto, standInImage)
	require.NoError(t, err)
	require.Equal(t, sandbox.Podman, s.Name(), "auto takes a container where there is an image")
	s, err = r.Sandbox(t.Context(), sandbox.Auto, "gone:1")
	require.NoError(t, err)
	require.NotContains(t, []string{sandbox.Podman, sandbox.Docker}, s.Name())

	// What the engine itself refuses is no end of an agent.
	s, err = r.Sandbox(t.Context(), sandbox.Docker, standInImage)
	require.NoError(t, err)
	t.Setenv(standInVar, "/nowhere")
	spec := job(t, "true")
	spec.Sandbox = s
	_, err = r.Run(t.Context(), spec)
	var start *StartError
	require.ErrorAs(t, err, &start)
	require.ErrorContains(t, err, "docker: Cannot connect to the daemon")
	require.False(t, Permanent(err))

	// Nor is a folder shown that holds what is to be hidden.
	spec.Hide, spec.Policy.Read = []string{t.TempDir()}, []string{os.TempDir()}
	_, err = r.Run(t.Context(), spec)
	require.ErrorContains(t, err, "can't be hidden in it: name narrower folders")

	t.Setenv("PATH", "/nowhere")
	_, err = r.Sandbox(t.Context(), sandbox.Docker, standInImage)
	require.ErrorContains(t, err, "sandbox docker: no program docker in PATH; install Docker Engine")
	_, err = r.Sandbox(t.Context(), sandbox.Podman, standInImage)
	require.ErrorContains(t, err, "sandbox podman: no program podman in PATH; install it (Debian: apt install podman)")
}
