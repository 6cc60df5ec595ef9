package pipeline

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhoCantBeToldIsAnError before anything runs, where it stands in the file.
func TestWhoCantBeToldIsAnError(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tell.sh"), []byte("#!/bin/sh\n"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), []byte("x"), 0o600))
	path := filepath.Join(dir, "p.yaml")
	for entry, want := range map[string]string{
		"{ command: [tell] }":                  "",
		"{ command: [./tell.sh, x] }":          "",
		"{ command: [telll] }":                 "p.yaml:3:23: error: there is no program 'telll' in PATH",
		"{ command: [./tell, x] }":             "p.yaml:3:23: error: there is no program './tell'",
		"{ command: [./text] }":                "can't be started: it is not executable",
		"{ webhook: 'https://example.com/x' }": "",
		"{ webhook: 'ftp://example.com' }":     "p.yaml:3:22: error: the webhook is no http or https URL",
		"{ webhook: not a url }":               "no http or https URL",
		"{ webhook: 'https:///path' }":         "no http or https URL",
		"{ webhook: 'http://[::1' }":           "no http or https URL",
		"{ file: parks.jsonl }":                "",
		"{ file: sub/parks.jsonl }":            "",
		"{ file: none/parks.jsonl }":           "p.yaml:3:19: error: there is no folder " + filepath.Join(dir, "none") + " for the file 'none/parks.jsonl'",
		"{ file: text/parks.jsonl }":           "there is no folder " + filepath.Join(dir, "text"),
		"{ file: sub }":                        "p.yaml:3:19: error: 'sub' is a folder",
	} {
		require.NoError(t, os.WriteFile(path, []byte("penstock: v1\ntasks: { inline: [{ id: a }] }\nnotify: [ "+entry+" ]\nstages:\n  - { id: s, run: ['true'] }\n"), 0o600))
		_, err := load(path, ParseOptions{Enable: []string{"run"}, Program: installed([]string{"tell", "true"})})
		if want == "" {
			assert.NoError(t, err, entry)
			continue
		}
		assert.ErrorContains(t, err, want, entry)
		_, err = load(path, ParseOptions{Enable: []string{"run"}, NoEnv: true, Program: installed(nil)})
		assert.NoError(t, err, "without the environment the machine isn't looked at")
	}
}
