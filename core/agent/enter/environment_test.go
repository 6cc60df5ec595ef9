package enter

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The job's variables stand over the image's, and its folders of programs come
// before the image's own.
func TestEnvironmentOfAProgram(t *testing.T) {
	ours, theirs := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(ours, "both"), filepath.Join(theirs, "both"), filepath.Join(theirs, "image")} {
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(ours, "image"), nil, 0o600)) // can't be run

	env := environment([]string{"PATH=" + theirs, "LANG=C", "HOME=/"}, []string{"HOME=/mine", "PATH=" + ours, "KEY=a=b"})
	assert.Equal(t, []string{"HOME=/mine", "KEY=a=b", "LANG=C", "PATH=" + ours + ":" + theirs}, env)
	path, err := find("both", env)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(ours, "both"), path)
	path, err = find("image", env)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(theirs, "image"), path)
	_, err = find("neither", env)
	require.ErrorIs(t, err, exec.ErrNotFound)
	path, err = find(filepath.Join(theirs, "both"), nil)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(theirs, "both"), path)
}
