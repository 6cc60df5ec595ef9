package redact

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTreeRedactsFilesInPlace(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	write := func(path, text string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
	}
	write(outside, known, 0o600)
	write(filepath.Join(dir, "plain"), "nothing", 0o644)
	write(filepath.Join(dir, "a", "b", "hit"), strings.Repeat("x\n", 50_000)+known, 0o400)
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	require.NoError(t, os.Link(outside, filepath.Join(dir, "hard")))
	before, err := os.Stat(filepath.Join(dir, "a", "b", "hit"))
	require.NoError(t, err)

	n, err := New(Options{Values: []string{known}}).Tree(dir)
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	read := func(path string) string {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(b)
	}
	assert.True(t, strings.HasSuffix(read(filepath.Join(dir, "a", "b", "hit")), "x\n[redacted:value]"))
	assert.Equal(t, "[redacted:value]", read(filepath.Join(dir, "hard")))
	assert.Equal(t, known, read(outside), "what lies outside stays")
	after, err := os.Stat(filepath.Join(dir, "a", "b", "hit"))
	require.NoError(t, err)
	assert.Equal(t, before.Mode(), after.Mode())
	assert.Equal(t, before.ModTime(), after.ModTime())

	n, err = New(Options{}).Tree(filepath.Join(dir, "not there"))
	assert.NoError(t, err)
	assert.Zero(t, n)
}
