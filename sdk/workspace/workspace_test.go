//go:build linux

package workspace

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/rollout"
)

// given is a workspace in a folder beside which a secret lies.
func given(t *testing.T) *Workspace {
	t.Helper()
	outer := t.TempDir()
	dir := filepath.Join(outer, "workspace")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(outer, "secret"), []byte("s3cret"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "answer.txt"), []byte("42\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub", "b"), []byte("b"), 0o600))
	for name, to := range map[string]string{
		"out": "../secret", "absolute": filepath.Join(outer, "secret"), "up": "..", "in": "sub/b", "loop": "loop",
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	w, err := Open(of(dir))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

func of(dir string) rollout.Rollout {
	return rollout.Rollout{Object: doc.At(doc.Bytes(fmt.Sprintf(`{"rollout":{"workspace":%q}}`, dir)), "/rollout")}
}

func TestFilesOfTheWorkspace(t *testing.T) {
	w := given(t)
	for _, c := range []struct{ name, want, err string }{
		{"answer.txt", "42\n", ""},
		{"./sub/../answer.txt", "42\n", ""},
		{"sub/b", "b", ""},
		{"in", "b", ""},
		{"none", "", "no such file"},
		{"../secret", "", "escapes"},
		{"sub/../../secret", "", "escapes"},
		{filepath.Join(w.Dir(), "answer.txt"), "", "escapes"},
		{"out", "", "escapes"},
		{"absolute", "", "escapes"},
		{"up/secret", "", "escapes"},
		{"loop", "", "loop"},
		{"sub", "", "it is no regular file"},
		{"pipe", "", "it is no regular file"},
		{"", "", "read  of the workspace"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := w.ReadFile(c.name)
			assert.Equal(t, c.err == "", err == nil)
			if c.err != "" {
				require.ErrorContains(t, err, "of the workspace: ")
				assert.Contains(t, strings.ToLower(err.Error()), c.err)
				return
			}
			assert.Equal(t, c.want, string(got))
		})
	}
	_, err := w.ReadFile("none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	all, err := w.Files()
	require.NoError(t, err)
	assert.Equal(t, []string{"answer.txt", "sub/b"}, all)
	assert.True(t, w.Exists("sub"))
	assert.False(t, w.Exists("out"))

	require.NoError(t, os.Truncate(filepath.Join(w.Dir(), "answer.txt"), MaxFile+1))
	_, err = w.ReadFile("answer.txt")
	assert.ErrorContains(t, err, "it is over 16777216 bytes")
}

func TestWithoutAWorkspace(t *testing.T) {
	_, err := Open(of(""))
	require.ErrorIs(t, err, ErrNone)
	_, err = Open(of(filepath.Join(t.TempDir(), "none")))
	require.ErrorContains(t, err, "open the workspace: ")
}

func TestCommands(t *testing.T) {
	t.Setenv("SECRET_KEY", "s3cret")
	w := given(t)
	sh := func(text string) Command { return Command{Argv: []string{"sh", "-c", text}} }
	limited := func(c Command, n int) Command { c.Output = n; return c }
	for _, c := range []struct {
		name    string
		command Command
		want    Result
		ok      bool
	}{
		{"output", sh("cat answer.txt; echo no >&2"), Result{Stdout: "42\n", Stderr: "no\n"}, true},
		{"exit code", sh("exit 7"), Result{Code: 7}, false},
		{"signal", sh("kill -9 $$"), Result{Code: -1, Signal: "killed"}, false},
		{"input", Command{Argv: []string{"cat"}, Stdin: []byte("in")}, Result{Stdout: "in"}, true},
		{"no input", Command{Argv: []string{"cat"}}, Result{}, true},
		{"environment", Command{Argv: []string{"sh", "-c", `echo "$SECRET_KEY$GIVEN $(ls -A "$HOME" | wc -l)"; touch "$HOME/mine"; test "$HOME" != "$(pwd)"`}, Env: []string{"GIVEN=here"}}, Result{Stdout: "here 0\n"}, true},
		{"much output", limited(sh("seq 1 100000"), 12), Result{Stdout: "99999\n100000\n"[1:], Cut: true}, true},
		{"output to the byte", limited(sh("printf 1234"), 4), Result{Stdout: "1234"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := w.Run(t.Context(), c.command)
			require.NoError(t, err)
			assert.Equal(t, c.want, *got)
			assert.Equal(t, c.ok, got.OK())
		})
	}
	_, err := w.Run(t.Context(), Command{Argv: []string{"no-such-program-here"}})
	require.ErrorContains(t, err, "run no-such-program-here in the workspace: ")
	_, err = w.Run(t.Context(), Command{})
	require.ErrorContains(t, err, "the command line is empty")
}

// TestAllOfTheOutputCanBeHad, though only its end is kept.
func TestAllOfTheOutputCanBeHad(t *testing.T) {
	w := given(t)
	var all strings.Builder
	got, err := w.Run(t.Context(), Command{Argv: []string{"seq", "1", "100000"}, Output: 7, Stdout: &all})
	require.NoError(t, err)
	assert.Equal(t, "100000\n", got.Stdout)
	assert.True(t, got.Cut)
	assert.True(t, strings.HasPrefix(all.String(), "1\n2\n"))
	assert.Len(t, all.String(), 588895)
	f, err := w.Open("answer.txt")
	require.NoError(t, err)
	defer f.Close()
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.Equal(t, "42\n", string(text))
	_, err = w.Open("out")
	assert.Error(t, err, "a link that leads out")
}

type runnerFunc func(ctx context.Context, dir string, c Command) (*Result, error)

func (f runnerFunc) Run(ctx context.Context, dir string, c Command) (*Result, error) {
	return f(ctx, dir, c)
}

// TestTheHostRunsCommands where it gave a way to: with the limits that hold.
func TestTheHostRunsCommands(t *testing.T) {
	w := given(t)
	ctx := WithRunner(t.Context(), runnerFunc(func(_ context.Context, dir string, c Command) (*Result, error) {
		assert.Equal(t, w.Dir(), dir)
		assert.Equal(t, Command{Argv: []string{"x"}, Timeout: DefaultTimeout, Output: DefaultOutput}, c)
		return &Result{Code: 7}, nil
	}))
	got, err := w.Run(ctx, Command{Argv: []string{"x"}})
	require.NoError(t, err)
	assert.Equal(t, 7, got.Code)
}

// TestACommandLeavesNothingBehind: neither at its end, nor at the end of its
// time or of the call.
func TestACommandLeavesNothingBehind(t *testing.T) {
	w := given(t)
	const text = "sleep 300 & echo $!"
	for name, wait := range map[string]string{"end": "", "time": "; sleep 300", "call": "; sleep 300"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := Command{Argv: []string{"sh", "-c", text + " > child" + wait}, Timeout: time.Minute}
			switch name {
			case "time":
				c.Timeout = 500 * time.Millisecond
			case "call":
				c.Timeout = time.Hour
				time.AfterFunc(500*time.Millisecond, cancel)
			}
			got, err := w.Run(ctx, c)
			if name == "call" {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.NoError(t, err)
				assert.Equal(t, name == "time", got.TimedOut)
				assert.Equal(t, name == "end", got.OK())
			}
			child, err := w.ReadFile("child")
			require.NoError(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(child)))
			require.NoError(t, err)
			require.Eventually(t, func() bool { return !alive(pid) }, 10*time.Second, 10*time.Millisecond)
		})
	}
}

// alive says whether a process runs; one that is only left to be reaped
// doesn't.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}

// TestWritingStaysInTheWorkspace: what stands in the place of a file goes, and
// no link leads out.
func TestWritingStaysInTheWorkspace(t *testing.T) {
	w := given(t)
	for _, name := range []string{"new/deep/c", "answer.txt", "sub", "out", "in", "loop", "pipe", "absolute/c", "answer.txt/below", "pipe/c", "up/secret"} {
		require.NoError(t, w.WriteFile(name, []byte("mine")), name)
		got, err := w.ReadFile(name)
		require.NoError(t, err)
		assert.Equal(t, "mine", string(got))
	}
	secret, err := os.ReadFile(filepath.Join(w.Dir(), "..", "secret"))
	require.NoError(t, err)
	assert.Equal(t, "s3cret", string(secret))
	assert.Error(t, w.WriteFile("../secret", []byte("mine")))
	require.NoError(t, os.Symlink("..", filepath.Join(w.Dir(), "above")))
	assert.Error(t, w.Remove("above/secret"))
	require.NoError(t, w.Remove("new"))
	assert.False(t, w.Exists("new"))
	assert.NoError(t, w.Remove("new"), "what isn't there is no error")
}

// TestClearing takes away what an agent put where a report will be.
func TestClearing(t *testing.T) {
	w := given(t)
	require.NoError(t, os.MkdirAll(filepath.Join(w.Dir(), "out1", "r.xml", "deep"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir(), "out1", "kept.txt"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir(), "out2"), nil, 0o600))
	require.NoError(t, w.Clear("out*/*.xml"))
	assert.False(t, w.Exists("out1/r.xml"))
	for _, dir := range []string{"out", "out2"} { // a link and a file
		info, err := os.Lstat(filepath.Join(w.Dir(), dir))
		require.NoError(t, err)
		assert.True(t, info.IsDir(), dir)
	}
	all, err := w.Files()
	require.NoError(t, err)
	assert.Equal(t, []string{"answer.txt", "out1/kept.txt", "sub/b"}, all)
	require.NoError(t, w.Clear("none/here"))
	assert.Error(t, w.Clear("../secret"))
}
