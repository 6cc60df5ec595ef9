package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Programs are started from the cache, so that one in a folder that all can
// write must be this user's alone.
func TestOwnFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	require.NoError(t, ownFolder(dir))
	require.NoError(t, ownFolder(dir), "the second time it is there")
	require.NoError(t, os.Chmod(dir, 0o777))
	assert.ErrorContains(t, ownFolder(dir), "this user alone")
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	assert.ErrorContains(t, ownFolder(link), "this user alone")
}
