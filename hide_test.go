package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
)

const nobody = 65534

// TestRunFolderIsHidden runs an agent that looks around in the run folder, as
// who we are and as an ordinary user. It finds its workspace, its home and the
// program penstock there; not the operator's token, the answers of the tasks,
// or the other rollouts.
func TestRunFolderIsHidden(t *testing.T) {
	users := map[string]*syscall.Credential{"same user": nil}
	if os.Geteuid() == 0 {
		users["ordinary user"] = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	for name, user := range users {
		t.Run(name, func(t *testing.T) {
			dir := hidePlace(t, user)
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "penstock"), "run", filepath.Join(dir, "hide", "pipeline.yaml"), "--out", filepath.Join(dir, "out"))
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "PENSTOCK_CACHE=" + filepath.Join(dir, "cache")}
			cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: user}
			shown, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", shown)
			checkHidden(t, filepath.Join(dir, "out"))
		})
	}
}

// hidePlace is a folder of the user's own with the binary and the pipeline.
func hidePlace(t *testing.T, user *syscall.Credential) string {
	dir, err := os.MkdirTemp("", "penstock-hide-*")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.CopyFS(filepath.Join(dir, "hide"), os.DirFS(filepath.Join("testdata", "hide"))))
	program, err := os.ReadFile(built)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "penstock"), program, 0o755))
	if user != nil {
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			require.NoError(t, err)
			return os.Lchown(path, int(user.Uid), int(user.Gid))
		}))
	}
	return dir
}

func checkHidden(t *testing.T, out string) {
	var file struct {
		Isolation string
		Hidden    bool
	}
	text, err := os.ReadFile(filepath.Join(out, "run.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &file))
	if file.Isolation != "pidns" {
		require.False(t, file.Hidden)
		t.Skip("this machine allows no namespaces")
	}
	require.True(t, file.Hidden)

	s, err := trace.Open(filepath.Join(out, "trace", "penstock.db"), trace.StoreOptions{ReadOnly: true})
	require.NoError(t, err)
	defer s.Close()
	sessions, err := s.Sessions(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, sessions, 2)
	for _, session := range sessions {
		calls, err := s.Calls(t.Context(), session.ID)
		require.NoError(t, err)
		require.Len(t, calls, 2)
		require.NotEmpty(t, calls[1].Messages)
		seen := string(calls[1].Messages[len(calls[1].Messages)-1]) // the result of the tool
		for _, want := range []string{"looked around", "in the home", "workspace is mine", "penstock is here"} {
			assert.Contains(t, seen, want)
		}
		for _, never := range []string{"operator_token", "the-secret-answer", "SQLite", "run.started", "penstock.db", "artifacts", "is_error"} {
			assert.NotContains(t, seen, never)
		}
	}
	for _, rollout := range []string{"one~0", "two~0"} {
		other := strings.NewReplacer("one", "two", "two", "one").Replace(rollout)
		stdout, err := os.ReadFile(filepath.Join(out, "artifacts", rollout, "program", "1.1", "stdout"))
		require.NoError(t, err)
		assert.Equal(t, ".bin\n"+rollout+"\nhomes\nwork\n", string(stdout))
		assert.NotContains(t, string(stdout), other)
		diff, err := os.ReadFile(filepath.Join(out, "artifacts", rollout, "solve", "1.1", "workspace.diff"))
		require.NoError(t, err)
		assert.Contains(t, string(diff), "+workspace is mine", "what the agent writes is on the disk")
	}
}
