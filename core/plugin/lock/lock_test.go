package lock

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// check holds plugins, the sha256 by key, against the lock file.
func check(pipeline string, digests map[string]string, locked bool) error {
	h, err := Hold(pipeline, locked)
	if err != nil {
		return err
	}
	var all []*Refused
	for _, key := range slices.Sorted(maps.Keys(digests)) {
		var r *Refused
		if errors.As(h.Allow(key, digests[key]), &r) {
			all = append(all, r)
		}
	}
	return Together(all)
}

func TestALockedPluginThatChangedIsRefused(t *testing.T) {
	pipeline := filepath.Join(t.TempDir(), "pipeline.yaml")
	require.NoError(t, check(pipeline, map[string]string{"judger/a": "1"}, false), "without an entry a plugin runs")
	changes, err := Write(pipeline, []Plugin{{"judger/a", "1", false}, {"hook/m", "2", true}})
	require.NoError(t, err)
	assert.Equal(t, []Change{{Plugin{"hook/m", "2", true}, ""}, {Plugin{"judger/a", "1", false}, ""}}, changes)
	data, err := os.ReadFile(Path(pipeline))
	require.NoError(t, err)
	assert.Equal(t, preamble+"penstock: lock/v1\nplugins:\n  hook/m:\n    wasm: \"2\"\n  judger/a:\n    "+runtime.GOOS+"/"+runtime.GOARCH+": \"1\"\n", string(data))

	require.NoError(t, check(pipeline, map[string]string{"judger/a": "1", "hook/m": "2"}, true))
	require.NoError(t, check(pipeline, map[string]string{"judger/new": "9"}, false))
	require.ErrorContains(t, check(pipeline, map[string]string{"judger/new": "9"}, true), "judger/new has no entry")
	err = check(pipeline, map[string]string{"judger/a": "3", "hook/m": "4"}, false)
	for _, want := range []string{"judger/a is not what", "locked 1", "here   3", "locked 2", "here   4", "penstock plugin lock " + pipeline} {
		require.ErrorContains(t, err, want)
	}

	assert.Equal(t, 1, strings.Count(err.Error(), "accept what is there with"))
	h, err := Hold(pipeline, false, "more", "plugins")
	require.NoError(t, err)
	require.ErrorContains(t, h.Allow("judger/a", "3"), "penstock plugin lock "+pipeline+" --plugin-dir more --plugin-dir plugins")

	changes, err = Write(pipeline, []Plugin{{"judger/a", "3", false}})
	require.NoError(t, err)
	assert.Equal(t, []Change{{Plugin{"judger/a", "3", false}, "1"}}, changes)
	require.NoError(t, check(pipeline, map[string]string{"judger/a": "3", "hook/m": "2"}, true))
	changes, err = Write(pipeline, []Plugin{{"judger/a", "3", false}})
	require.NoError(t, err)
	assert.Empty(t, changes)
}

func TestOtherSystemsStayUnlessThePluginChanged(t *testing.T) {
	pipeline := filepath.Join(t.TempDir(), "pipeline.yaml")
	f := File{Penstock: version, Plugins: map[string]map[string]string{"judger/a": {"plan9/mips": "7"}}}
	require.NoError(t, f.save(Path(pipeline)))
	for sum, keeps := range map[string]bool{"1": true} {
		_, err := Write(pipeline, []Plugin{{"judger/a", sum, false}})
		require.NoError(t, err)
		got, err := Read(pipeline)
		require.NoError(t, err)
		assert.Equal(t, keeps, got.Plugins["judger/a"]["plan9/mips"] == "7")
	}
	_, err := Write(pipeline, []Plugin{{"judger/a", "2", false}})
	require.NoError(t, err)
	got, err := Read(pipeline)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{system(false): "2"}, got.Plugins["judger/a"])
}

func TestABadLockIsRefused(t *testing.T) {
	pipeline := filepath.Join(t.TempDir(), "my pipeline.yaml")
	for text, want := range map[string]string{
		"penstock: lock/v9\n":               "it is of version",
		"penstock: lock/v1\nplugin: {}\n":   "is no lock file: line 2: field plugin not found\n",
		"\t":                                "penstock.lock is no lock file: ",
		"":                                  "penstock.lock is no lock file: it is empty\n",
		"# all of it was cut off\n":         "it is empty",
		"garbage":                           "is no lock file: line 1: want a mapping of names to sums, this is of kind str\n",
		"penstock: lock/v1\nplugins: [a]\n": "line 2: want a mapping of names to sums, this is of kind seq",
		"penstock: lock/v1\nplugins: {judger/a: 1}\n": "want a mapping of names to sums, this is of kind int",
		"<<<<<<< HEAD\npenstock: lock/v1\n":           "is no lock file: line ",
	} {
		require.NoError(t, os.WriteFile(Path(pipeline), []byte(text), 0o600))
		err := check(pipeline, nil, false)
		require.ErrorContains(t, err, want, text)
		assert.NotContains(t, err.Error(), "lock.File", text)
		_, refused := Write(pipeline, []Plugin{{"judger/a", "1", false}})
		require.Error(t, refused, text)
		var bad *Unreadable
		if text == "penstock: lock/v9\n" {
			require.NotErrorAs(t, refused, &bad, "a newer penstock's is not thrown away")
			continue
		}
		require.ErrorAs(t, refused, &bad)
		require.ErrorContains(t, err, "with: penstock plugin lock '"+pipeline+"'")
		_, err = WriteAnew(pipeline, []Plugin{{"judger/a", "1", false}})
		require.NoError(t, err)
		require.NoError(t, check(pipeline, map[string]string{"judger/a": "1"}, true))
	}
}
