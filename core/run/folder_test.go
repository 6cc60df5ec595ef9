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
	assert.ErrorContains(t, err, "holds a run already")
	assert.ErrorContains(t, err, "penstock resume "+dir)

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
		require.NoError(t, f.WriteFile(&File{Version: FileVersion, Run: f.ID}))
		got, err := filepath.EvalSymlinks("runs/latest")
		require.NoError(t, err)
		assert.Equal(t, f.ID, filepath.Base(got))
		require.NoError(t, f.Close())
	}
}

func TestCreateRefusesWhatIsNoRunFolder(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("x"), 0o600))
	for _, path := range []string{dir, filepath.Join(dir, "thesis.txt")} {
		_, err := Create(path, "runs")
		require.Error(t, err)
		assert.Contains(t, err.Error(), "--out")
		assert.NotContains(t, err.Error(), "resume", "there is no run to go on with")
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

// A run that ends before it began is no run: its folder can be used again, and
// latest stays what it was.
func TestARunThatNeverBeganLeavesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	first, err := Create("", "runs")
	require.NoError(t, err)
	require.NoError(t, first.WriteFile(&File{Version: FileVersion, Run: first.ID}))
	require.NoError(t, first.Close())

	failed, err := Create("", "runs")
	require.NoError(t, err)
	events, err := failed.Events(nil)
	require.NoError(t, err)
	require.NoError(t, events.Close())
	require.NoError(t, failed.Close())
	assert.NoDirExists(t, failed.Dir)
	latest, err := filepath.EvalSymlinks("runs/latest")
	require.NoError(t, err)
	assert.Equal(t, first.ID, filepath.Base(latest))

	// A folder that was there stays, with what others put into it meanwhile.
	require.NoError(t, os.Mkdir("mine", 0o700))
	again, err := Create("mine", "runs")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("mine/note", []byte("x"), 0o600))
	require.NoError(t, again.Close())
	entries, err := os.ReadDir("mine")
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.Equal(t, "note", entries[0].Name())
}

// TestWhatARunLeftThatNeverBeganIsTakenOver: it was killed before its run.json
// was written. What ran, what is another's, and what is held is left alone.
func TestWhatARunLeftThatNeverBeganIsTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		put  string
		held bool
		err  string
	}{
		"nothing ran":         {put: "trace/penstock.db"},
		"something ran":       {put: "artifacts/a~0", err: "is not empty"},
		"something of others": {put: "note", err: "is not empty"},
		"it still begins":     {put: "events.jsonl", held: true, err: "run folder is in use"},
		"it has begun":        {put: "run.json", err: "holds a run already"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			first, err := Create(dir, "")
			require.NoError(t, err)
			if !c.held {
				require.NoError(t, first.lock.Close()) // as a kill does
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, c.put), []byte("{}"), 0o600))
			second, err := Create(dir, "")
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				assert.FileExists(t, filepath.Join(dir, c.put))
				return
			}
			require.NoError(t, err)
			assert.NoFileExists(t, filepath.Join(dir, c.put))
			assert.DirExists(t, filepath.Join(dir, "trace"))
			require.NoError(t, second.WriteFile(&File{Version: FileVersion, Run: second.ID}))
			require.NoError(t, second.Close())
		})
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
	require.NoError(t, f.WriteFile(&File{Version: FileVersion, Run: f.ID}))
	require.NoError(t, f.Close())
	assert.Equal(t, "a ***", seen[0].Message)
	text, err := os.ReadFile(f.Path("events.jsonl"))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"error":"***","message":"a ***"`)
}
