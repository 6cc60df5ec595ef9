package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/agent/sandbox"
)

func TestSandboxesHold(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		for _, name := range []string{sandbox.Landlock, sandbox.Bwrap} {
			t.Run(name, func(t *testing.T) {
				s, err := r.Sandbox(t.Context(), name, "")
				if err != nil {
					t.Skip(err)
				}
				t.Log(s.Limits())
				ready, late := files(t)
				secret := filepath.Join(t.TempDir(), "secret")
				require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
				spec := job(t, fmt.Sprintf("cat %s; echo x > %s.2; echo y > here; echo z > $TMPDIR/t; cat here; exit 9", secret, secret))
				spec.Sandbox = s
				e := run1(t, r, spec)
				require.Equal(t, 9, e.Code, "%s", e.Stderr)
				require.Equal(t, "y\n", string(e.Stdout))
				require.NoFileExists(t, secret+".2")
				require.FileExists(t, filepath.Join(spec.Dir, "here"))

				// The shim's promise holds inside, too.
				spec = tool(t, "agent", ready, late)
				spec.Sandbox, spec.Policy.Write, spec.Grace = s, []string{filepath.Dir(ready)}, 100*time.Millisecond
				wall(t, r, spec, func(*Exit) bool { return exists(ready) })
				require.Empty(t, alive(ready))

				spec = job(t, "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done")
				spec.Sandbox, spec.Grace = s, time.Minute
				e = wall(t, r, spec, printed("up\n"))
				require.Equal(t, "up\nsaved\n", string(e.Stdout), "there is time to end")
			})
		}
	})
}

// A sandbox that lets something through is found out.
func TestProbeFindsEscapes(t *testing.T) {
	r := runner(IsolationWalk)
	found, err := r.probeSandbox(t.Context(), open{})
	require.NoError(t, err)
	require.Empty(t, found.Broken)
	require.GreaterOrEqual(t, len(found.Files), 7)
	require.True(t, found.TCP)
	require.True(t, found.UDP)
	require.True(t, found.Signals)
	require.Len(t, found.unexpected("files, TCP, UDP, signals"), len(found.Files)+3)
}

// open is a sandbox without a wall.
type open struct{}

func (open) Name() string   { return "open" }
func (open) Limits() string { return "" }
func (open) Command(_ sandbox.Policy, _, path string, argv []string) (sandbox.Command, error) {
	return sandbox.Command{Path: path, Argv: argv}, nil
}

func TestSandboxByName(t *testing.T) {
	r := runner("")
	s, err := r.Sandbox(t.Context(), sandbox.None, "")
	require.NoError(t, err)
	require.Equal(t, sandbox.None, s.Name())
	s, err = r.Sandbox(t.Context(), sandbox.Auto, "")
	require.NoError(t, err)
	require.Contains(t, sandbox.Names, s.Name())
	_, err = r.Sandbox(t.Context(), "jail", "")
	require.ErrorContains(t, err, `no sandbox "jail"; there are auto, none, landlock, bwrap, docker, podman`)
	t.Setenv("PATH", "/nowhere")
	_, err = r.Sandbox(t.Context(), sandbox.Bwrap, "")
	require.ErrorContains(t, err, "bubblewrap", "one that was asked for and is missing refuses")
}

func TestSandboxPolicyIsChecked(t *testing.T) {
	r := runner("")
	s, err := r.Sandbox(t.Context(), sandbox.Landlock, "")
	if err != nil {
		t.Skip(err)
	}
	spec := job(t, "true")
	spec.Sandbox = s
	spec.Policy = sandbox.Policy{Read: []string{"relative"}, Write: []string{"/no/such/folder"}, Ports: []int{0}}
	_, err = r.Run(t.Context(), spec)
	for _, text := range []string{"relative", "/no/such/folder", "0 is no port"} {
		require.ErrorContains(t, err, text)
	}
}
