package run_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/run"
)

func TestInputsAreKeptAsTheyWere(t *testing.T) {
	dir := t.TempDir()
	f, err := run.Create(filepath.Join(dir, "out"), dir)
	require.NoError(t, err)
	defer f.Close()

	files := map[string]string{}
	put := func(name, text string) (sum string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		hash := sha256.Sum256([]byte(text))
		files[path] = hex.EncodeToString(hash[:])
		return files[path]
	}
	text := put("plan.md", "say hunter2\n")
	binary := put("tokenizer.bin", "a\x00b")
	big := put("tokenizer.json", strings.Repeat("x", 1<<20+1))
	changed := put("review.md", "as it was")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "review.md"), []byte("as it is"), 0o600))
	files[filepath.Join(dir, "gone.md")] = "00"

	secret := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("hunter2"), []byte("[redacted]")) }
	require.NoError(t, f.KeepInputs(files, secret))
	kept, ok, err := f.Input(text)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "say [redacted]\n", string(kept))
	for _, sum := range []string{binary, big, changed, "00"} {
		_, ok, err := f.Input(sum)
		require.NoError(t, err)
		assert.False(t, ok)
	}
	left, err := os.ReadDir(f.Path("inputs"))
	require.NoError(t, err)
	assert.Len(t, left, 1)
}
