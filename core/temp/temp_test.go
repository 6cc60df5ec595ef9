package temp

import (
	"bufio"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ownerVar makes the test program one that holds a folder until it is killed.
const ownerVar = "PENSTOCK_TEST_TEMP_OWNER"

func TestMain(m *testing.M) {
	base := os.Getenv(ownerVar)
	if base == "" {
		os.Exit(m.Run())
	}
	f, err := Make(base, Plugin)
	if err != nil {
		os.Exit(1)
	}
	os.Stdout.WriteString(f.Path + "\n")
	select {}
}

// age makes a folder look as if it were made long ago.
func age(t *testing.T, path string) {
	t.Helper()
	then := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, then, then))
}

func sweep(t *testing.T, base string) { Sweep(t.Context(), slog.New(slog.DiscardHandler), base) }

// A folder goes when its owner was killed, and not before.
func TestFoldersOfTheDeadAreSwept(t *testing.T) {
	base := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	owner := exec.Command(self)
	owner.Env = append(os.Environ(), ownerVar+"="+base)
	out, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	t.Cleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	path := line[:len(line)-1]
	require.NoError(t, os.WriteFile(filepath.Join(path, "document"), []byte("x"), 0o600))
	age(t, path)
	sweep(t, base)
	assert.DirExists(t, path, "its owner lives")
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()
	sweep(t, base)
	assert.NoDirExists(t, path)
}

func TestSweepLeavesAloneWhatItMust(t *testing.T) {
	base := t.TempDir()
	mine, err := Make(base, Agent)
	require.NoError(t, err)
	age(t, mine.Path)
	young := filepath.Join(base, "penstock-p1")
	require.NoError(t, os.Mkdir(young, 0o700))
	file, other := filepath.Join(base, "penstock-p2"), filepath.Join(base, "penstock-cache-0")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Mkdir(other, 0o700))
	elsewhere := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "kept"), nil, 0o600))
	link := filepath.Join(base, "penstock-p3")
	require.NoError(t, os.Symlink(elsewhere, link))
	for _, path := range []string{file, other, elsewhere} {
		age(t, path)
	}
	sweep(t, base)
	assert.DirExists(t, mine.Path, "it is held")
	assert.DirExists(t, young, "its owner may be about to hold it")
	assert.FileExists(t, file, "it is no folder")
	assert.DirExists(t, other, "it is none of these")
	assert.FileExists(t, filepath.Join(elsewhere, "kept"), "links are not followed")
	require.NoError(t, mine.Remove())
	assert.NoDirExists(t, mine.Path)
	age(t, young)
	sweep(t, base)
	assert.NoDirExists(t, young)
}
