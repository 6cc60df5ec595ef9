package trace

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A full disk is said without the noise of what SQLite did about it, and nothing
// but what was not written is lost.
func TestFullDisk(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "penstock.db"), StoreOptions{})
	require.NoError(t, err)
	defer s.Close()
	bound := func(pages string) {
		_, err := s.writer.tx.exec("PRAGMA max_page_count=" + pages)
		require.NoError(t, err)
	}
	require.NoError(t, s.writer.do(t.Context(), func(x *tx) error {
		_, err := x.exec("CREATE TABLE room (b BLOB)")
		return err
	}))
	bound("1")
	err = s.writer.do(t.Context(), func(x *tx) error {
		_, err := x.exec("INSERT INTO room VALUES (zeroblob(1000000))")
		return err
	})
	require.ErrorContains(t, err, "database or disk is full")
	assert.NotContains(t, err.Error(), "rollback")
	bound("1073741823")
	require.NoError(t, s.writer.do(t.Context(), func(x *tx) error {
		_, err := x.exec("INSERT INTO room VALUES (zeroblob(1000000))")
		return err
	}))
}
