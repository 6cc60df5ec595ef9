package sdk

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "make module/*.txt anew from the project's go.mod")

// TestTheModuleIsThatOfTheProject finds versions here that the project has
// left behind. After a change of go.mod: go test ./sdk -update.
func TestTheModuleIsThatOfTheProject(t *testing.T) {
	if *update {
		tidy(t)
	}
	for own, file := range map[string]string{"module/require.txt": "../go.mod", "module/sum.txt": "../go.sum"} {
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, line := range strings.Split(string(File(own)), "\n") {
			line = strings.TrimSpace(strings.TrimSuffix(line, " // indirect"))
			assert.Contains(t, string(want), line, "%s is not of the project any more; run go test ./sdk -update", own)
		}
	}
}

// tidy lets the go command say what the sdk alone needs.
func tidy(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Write(dir))
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "tidy")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	_, requires, ok := strings.Cut(string(mod), "\nrequire (")
	require.True(t, ok)
	require.NoError(t, os.WriteFile("module/require.txt", []byte("require ("+requires), 0o644))
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("module/sum.txt", sum, 0o644))
}

func TestWhatIsWrittenHasNoTests(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Write(dir))
	var size int64
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		require.NoError(t, err)
		assert.NotContains(t, path, "_test.go")
		assert.NotContains(t, path, "testdata")
		if info, err := d.Info(); err == nil && !d.IsDir() {
			size += info.Size()
		}
		return nil
	}))
	assert.FileExists(t, filepath.Join(dir, "sdk", "judger", "judger.go"))
	assert.Less(t, size, int64(2<<20))
}
