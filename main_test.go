package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// built is the binary under test, root the project's folder.
var built, root string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Getenv("CANARY_AGENT_RUNS") != "" {
		return canaryAgent()
	}
	dir, err := os.MkdirTemp("", "penstock-test-*")
	if err == nil {
		defer os.RemoveAll(dir)
		built = filepath.Join(dir, "penstock")
		root, err = os.Getwd()
	}
	if err == nil {
		cmd := exec.Command("go", "build", "-trimpath", "-o", built, ".") // as make does, and as plugins are built
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		err = cmd.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build penstock:", err)
		return 1
	}
	// One cache for all tests, so that the example's plugins are built and
	// compiled once.
	if os.Getenv("PENSTOCK_CACHE") == "" {
		os.Setenv("PENSTOCK_CACHE", filepath.Join(dir, "cache"))
	}
	return m.Run()
}

// TestScript runs the scripts of testdata/script against the built binary.
func TestScript(t *testing.T) { scripts(t, "script") }

// TestRequirements runs those of testdata/requirements, each named for what it
// shows: R1 to R23 of invokers, L1 to L16 of loops, A1 to A15 of faults seen
// elsewhere. What no script can show is a test of that name, beside its code.
func TestRequirements(t *testing.T) { scripts(t, "requirements") }

func scripts(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", dir),
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(built)+string(os.PathListSeparator)+os.Getenv("PATH"))
			e.Setenv("ROOT", root)
			e.Setenv("PENSTOCK", built)
			for _, name := range []string{"PENSTOCK_CACHE", "GOMODCACHE", "GOCACHE", "GOPATH", "GOFLAGS", "GOPROXY", "PENSTOCK_CLAUDE"} {
				e.Setenv(name, goEnv(name))
			}
			if err := os.Symlink(filepath.Join(root, "testdata", "trap"), filepath.Join(e.WorkDir, "trap")); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(root, "examples"), filepath.Join(e.WorkDir, "examples"))
		},
		Condition: func(cond string) (bool, error) {
			if cond == "claude" {
				return os.Getenv("PENSTOCK_CLAUDE") != "", nil
			}
			return false, fmt.Errorf("unknown condition %s", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"jsonl":     cmdJSONL,
			"processes": cmdProcesses,
		},
	})
}

// goEnv is a variable of the environment, or what the go command makes of it.
func goEnv(name string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return ""
	}
	return string(out[:max(0, len(out)-1)])
}

// penstock runs the built binary and returns its combined output.
func penstock(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), built, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	code := 0
	if err != nil {
		exit, ok := err.(*exec.ExitError)
		require.True(t, ok, "%v", err)
		code = exit.ExitCode()
	}
	return string(out), code
}
