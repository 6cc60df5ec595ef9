package units

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{"500ms": 500 * time.Millisecond, "1h30m": 90 * time.Minute} {
		got, err := Duration(s)
		assert.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := Duration("30")
	assert.ErrorIs(t, err, ErrNoUnit)
	for _, s := range []string{"", "0s", "-3s", "10 minutes", "1:30", "NaN"} {
		_, err := Duration(s)
		assert.Error(t, err, s)
	}
}

func TestSize(t *testing.T) {
	for s, want := range map[string]int64{"64MiB": 64 << 20, "1.5KB": 1500, "7B": 7, "2 GiB": 2 << 30} {
		got, err := Size(s)
		assert.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := Size("64")
	assert.ErrorIs(t, err, ErrNoUnit)
	for _, s := range []string{"", "MiB", "0B", "-1KB", "64Mib", "NaNB", "1e99GB"} {
		_, err := Size(s)
		assert.Error(t, err, s)
	}
}
