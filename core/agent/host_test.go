package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-dev/penstock/core/agent/sandbox"
	"github.com/stretchr/testify/require"
)

// host is another process that runs a Spec: this binary, copied to where an
// ordinary user may run it.
type host struct {
	self    string
	dir     string // writable for the user
	cred    *syscall.Credential
	sandbox string
}

const nobody = 65534

// newHost makes a host that runs as an ordinary user, or as who we are.
func newHost(t *testing.T, ordinary bool) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent-test-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	h := &host{self: filepath.Join(dir, "agent.test"), dir: filepath.Join(dir, "user")}
	require.NoError(t, copyFile(h.self, os.Args[0]))
	require.NoError(t, os.Mkdir(h.dir, 0o700))
	if ordinary && os.Geteuid() == 0 {
		h.cred = &syscall.Credential{Uid: nobody, Gid: nobody}
		require.NoError(t, os.Chown(h.dir, nobody, nobody))
	}
	return h
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}

func (h *host) command(t *testing.T, isolation string, s Spec) *exec.Cmd {
	t.Helper()
	if !below(h.dir, s.Dir) {
		s.Dir = h.dir
	}
	if s.Argv[0] == os.Args[0] {
		s.Argv[0] = h.self
	}
	data, err := json.Marshal(map[string]any{"Isolation": isolation, "Sandbox": h.sandbox, "Spec": specJSON(s)})
	require.NoError(t, err)
	path := filepath.Join(filepath.Dir(h.dir), "job.json")
	require.NoError(t, os.WriteFile(path, data, 0o644))
	cmd := exec.Command(h.self, "__host", path)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "UPSTREAM_KEY=upstream-key", "TMPDIR=" + h.dir, "GORACE=" + os.Getenv("GORACE")}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: h.cred}
	cmd.Stderr = os.Stderr
	return cmd
}

// specJSON leaves out the functions, which no JSON holds.
func specJSON(s Spec) map[string]any {
	return map[string]any{
		"Argv": s.Argv, "Env": s.Env, "Dir": s.Dir, "Stdin": s.Stdin, "Timeout": s.Timeout, "Grace": s.Grace,
		"Hide": s.Hide, "Keep": s.Keep, "View": s.View, "Policy": s.Policy,
	}
}

// eachHost runs a test as root where we are, as an ordinary user, and under
// both isolations.
func eachHost(t *testing.T, f func(t *testing.T, h *host, isolation string)) {
	t.Helper()
	eachHostIn(t, []string{IsolationPIDNS, IsolationWalk}, f)
}

func eachHostIn(t *testing.T, isolations []string, f func(t *testing.T, h *host, isolation string)) {
	t.Helper()
	users := map[string]bool{"ordinary user": true}
	if os.Geteuid() == 0 {
		users["root"] = false
	}
	for name, ordinary := range users {
		for _, isolation := range isolations {
			t.Run(name+"/"+isolation, func(t *testing.T) {
				h := newHost(t, ordinary)
				if isolation == IsolationPIDNS && h.run(t, isolation, job(t, "true")).Isolation != isolation {
					t.Skip("this machine allows no namespaces")
				}
				f(t, h, isolation)
			})
		}
	}
}

func (h *host) run(t *testing.T, isolation string, s Spec) *Exit {
	t.Helper()
	out, err := h.command(t, isolation, s).Output()
	require.NoError(t, err)
	var e Exit
	require.NoError(t, json.Unmarshal(out, &e), "%s", out)
	require.False(t, e.Lost)
	require.Equal(t, isolation, e.Isolation)
	return &e
}

// has tells whether the host's sandbox is there for its user.
func (h *host) has(t *testing.T, isolation string) bool {
	t.Helper()
	_, err := h.command(t, isolation, job(t, "true")).Output()
	var exit *exec.ExitError
	return !errors.As(err, &exit) || exit.ExitCode() != 3
}

// promised is a time that is promised where nothing else runs, as the long
// form of the tests does; beside them all it may take fifteen times as long.
func promised(d time.Duration) time.Duration {
	if os.Getenv("PENSTOCK_SOAK") != "" {
		return d
	}
	return 15 * d
}

// kill -9 of the host: within a second no process of the run is alive, also
// with a tool that called setsid and ignores TERM.
func TestNothingSurvivesTheHost(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host, isolation string) {
		ready, late := filepath.Join(h.dir, "ready"), filepath.Join(h.dir, "late")
		cmd := h.command(t, isolation, tool(t, "agent", ready, late))
		var out bytes.Buffer
		cmd.Stdout = &out
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		for end := time.Now().Add(10 * time.Second); !exists(ready); time.Sleep(10 * time.Millisecond) {
			require.True(t, time.Now().Before(end), "the tool is up")
		}
		require.Eventually(t, func() bool { return len(alive(ready)) == 2 }, 10*time.Second, 10*time.Millisecond,
			"the agent and its daemon, without what the daemon was started by")
		require.Len(t, h.tempFolders(t), 1)
		require.NoError(t, cmd.Process.Kill())
		killed := time.Now()
		_ = cmd.Wait()
		for len(alive(h.self)) > 0 {
			require.Less(t, time.Since(killed), promised(time.Second), "%v", alive(h.self))
			time.Sleep(5 * time.Millisecond)
		}
		t.Logf("all gone after %v", time.Since(killed))
		require.Eventually(t, func() bool { return len(h.tempFolders(t)) == 0 }, 15*time.Second, 10*time.Millisecond, "the shim removes the agent's TMPDIR")
		require.NoFileExists(t, late)
	})
}

func (h *host) tempFolders(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(h.dir, "penstock-*"))
	require.NoError(t, err)
	return list
}

func TestEndsAsOrdinaryUser(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host, isolation string) {
		require.Equal(t, 3, h.run(t, isolation, job(t, "exit 3")).Code)

		ready, late := filepath.Join(h.dir, "ready"), filepath.Join(h.dir, "late")
		s := tool(t, "agent", ready, late)
		s.Timeout, s.Grace = 700*time.Millisecond, 100*time.Millisecond
		e := h.run(t, isolation, s)
		for ; !exists(ready); s.Timeout *= 2 {
			require.Less(t, s.Timeout, time.Minute, "the program comes up")
			e = h.run(t, isolation, s)
		}
		require.True(t, e.TimedOut)
		require.Equal(t, "SIGKILL", e.Signal)
		require.Empty(t, alive(ready))
		require.NoFileExists(t, late)
	})
}

// No process that the agent can see has the operator's keys for it to read.
func TestKeysOfTheHostAreOutOfReach(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host, isolation string) {
		if os.Geteuid() == 0 && h.cred == nil && isolation == IsolationWalk {
			return // nothing is out of reach for root beside its host
		}
		e := h.run(t, isolation, job(t, "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; exit 0"))
		require.Contains(t, string(e.Stdout), "TMPDIR=")
		require.NotContains(t, string(e.Stdout), "upstream-key")
	})
}

// The capability that mounting needs is gone before the agent starts, and the
// user is who it was.
func TestNoCapabilityReachesTheAgent(t *testing.T) {
	h := newHost(t, true)
	for _, isolation := range []string{IsolationPIDNS, IsolationWalk} {
		t.Run(isolation, func(t *testing.T) {
			s := job(t, "id -u; id -g; cat /proc/self/status; touch mine; stat -c %u mine; cat /proc/1/environ; mount -t tmpfs x /mnt; exit 0")
			out, err := h.command(t, isolation, s).Output()
			require.NoError(t, err)
			var e Exit
			require.NoError(t, json.Unmarshal(out, &e))
			if e.Isolation != isolation {
				t.Skip("this machine allows no namespaces")
			}
			text := string(e.Stdout)
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
				require.Contains(t, text, set+":\t0000000000000000\n")
			}
			require.Contains(t, text, "NoNewPrivs:\t1\n")
			require.NotContains(t, text, "upstream-key")
			require.Regexp(t, "(?i)permission|permitted|superuser|root", string(e.Stderr), "mount is refused")
			if h.cred != nil {
				require.True(t, strings.HasPrefix(text, "65534\n65534\n"))
				require.True(t, strings.HasSuffix(text, "\n65534\n"))
			}
		})
	}
}

// An ordinary user's sandboxes hold, too, and the agent finds penstock in them.
func TestSandboxesOfAnOrdinaryUser(t *testing.T) {
	h := newHost(t, true)
	bin := filepath.Join(h.dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	require.NoError(t, os.Symlink(h.self, filepath.Join(bin, "penstock")))
	beside := filepath.Join(filepath.Dir(h.self), "answers")
	require.NoError(t, os.WriteFile(beside, []byte("the answers"), 0o644))
	for _, isolation := range []string{IsolationPIDNS, IsolationWalk} {
		for _, name := range []string{sandbox.Landlock, sandbox.Bwrap} {
			t.Run(isolation+"/"+name, func(t *testing.T) {
				h.sandbox = name
				s := job(t, "penstock __tool count; cat "+beside+"; exit 4")
				s.Env = []string{"PATH=" + bin + ":/usr/bin:/bin"}
				out, err := h.command(t, isolation, s).Output()
				var exit *exec.ExitError
				if errors.As(err, &exit) && exit.ExitCode() == 3 {
					t.Skip("this machine has no such sandbox")
				}
				require.NoError(t, err)
				var e Exit
				require.NoError(t, json.Unmarshal(out, &e))
				require.Equal(t, 4, e.Code, "%s", e.Stderr)
				require.Equal(t, "0\n", string(e.Stdout), "%s", e.Stderr)
			})
		}
	}
}
