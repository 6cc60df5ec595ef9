package run

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCreateIsNewOrEmptyAndLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	f, err := Create(dir, "runs")
	require.NoError(t, err)
	require.NoError(t, f.WriteFile(&File{Version: FileVersion, Run: f.ID}))

	_, err = Create(dir, "runs")
	assert.ErrorContains(t, err, "is not empty")

	_, err = Open(dir)
	assert.True(t, errors.Is(err, ErrInUse), "%v", err)

	require.NoError(t, f.Close())
	g, err := Open(dir)
	require.NoError(t, err)
	assert.Equal(t, f.ID, g.ID)
	require.NoError(t, g.Close())

	info, err := os.Stat(f.Path("run.json"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestCreateLinksLatest(t *testing.T) {
	t.Chdir(t.TempDir())
	for range 2 {
		f, err := Create("", "runs")
		require.NoError(t, err)
		got, err := filepath.EvalSymlinks("runs/latest")
		require.NoError(t, err)
		assert.Equal(t, f.ID, filepath.Base(got))
		require.NoError(t, f.Close())
	}
}

func TestOpenSaysWhatIsNoRunFolder(t *testing.T) {
	_, err := Open(t.TempDir())
	assert.ErrorContains(t, err, "is no run folder")
}

func TestEscape(t *testing.T) {
	for id, want := range map[string]string{
		"add~0": "add~0", "a/b c": "a%2Fb%20c", "..": "%2E%2E", "é": "%C3%A9", "A.b-_": "A.b-_",
	} {
		assert.Equal(t, want, Escape(id))
	}
}

func TestEscapeShortensLongIDs(t *testing.T) {
	a, b := Escape(strings.Repeat("x", 300)+"a"), Escape(strings.Repeat("x", 300)+"b")
	assert.Len(t, a, maxName)
	assert.NotEqual(t, a, b)
}

func TestEventsAreRedacted(t *testing.T) {
	f, err := Create(filepath.Join(t.TempDir(), "out"), "runs")
	require.NoError(t, err)
	var seen []Event
	e, err := f.Events(func(ev Event) { seen = append(seen, ev) })
	require.NoError(t, err)
	e.Redact(func(text string) string { return strings.ReplaceAll(text, "s3cret", "***") })
	e.Emit(Event{Type: Warned, Message: "a s3cret", Error: "s3cret"})
	require.NoError(t, e.Close())
	require.NoError(t, f.Close())
	assert.Equal(t, "a ***", seen[0].Message)
	text, err := os.ReadFile(f.Path("events.jsonl"))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"error":"***","message":"a ***"`)
}
