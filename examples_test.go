package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryExampleRuns runs each folder of examples as its README says, in a
// run folder of its own, and looks at the rewards that the README promises.
func TestEveryExampleRuns(t *testing.T) {
	rewards := map[string]map[string]float64{
		"calculator":     {"sum": 1, "crates": 1, "shares": 1, "decimals": 1},
		"judger-process": {"sum": 0.75, "crates": 0.75},
		"judger-wasm":    {"sum": 1, "crates": 1},
		"judger-python":  {"sum": 1, "crates": 0},
		"judger-group":   {"sum": 2.0 / 3, "crates": 2.0 / 3}, // of the last sample
		"hook-wasm":      {"list": 1, "clean": 1},
		"format-wasm":    {"add": 1, "many": 1},
		"swe":            {"repair": 1, "cheat": 0},
	}
	codes := map[string]int{"team": 3} // it waits for people
	folders, err := filepath.Glob("examples/*/pipeline.yaml")
	require.NoError(t, err)
	for _, file := range folders {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			readme, err := os.ReadFile(filepath.Join(filepath.Dir(file), "README.md"))
			require.NoError(t, err)
			require.Contains(t, string(readme), "penstock run "+file)
			out := filepath.Join(t.TempDir(), "run")
			text, code := penstock(t, ".", "run", file, "--plain", "--out", out)
			require.Equal(t, codes[name], code, text)
			want, known := rewards[name]
			if !known {
				return // it says nothing of rewards
			}
			assert.Equal(t, want, rewardsOf(t, out))
		})
	}
}

// rewardsOf reads the reward of each task from a run folder.
func rewardsOf(t *testing.T, dir string) map[string]float64 {
	data, err := os.ReadFile(filepath.Join(dir, "rollouts.jsonl"))
	require.NoError(t, err)
	got := map[string]float64{}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var r struct {
			Task   string   `json:"task"`
			Reward *float64 `json:"reward"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.NotNil(t, r.Reward, line)
		got[r.Task] = *r.Reward
	}
	return got
}

// TestANewPluginInFiveMinutes walks the path that `penstock plugin new` prints,
// for each language in an empty folder, and then uses the plugin in a pipeline
// of its own by one line.
func TestANewPluginInFiveMinutes(t *testing.T) {
	paths := []struct {
		kind, language string
		needs          []string
	}{
		{"judger", "go", nil}, {"judger", "go-wasm", nil}, {"judger", "python", []string{"python3"}},
		{"hook", "python", []string{"python3"}},
		{"judger", "assemblyscript", []string{"npm"}}, {"hook", "assemblyscript", []string{"npm"}},
		{"judger", "c", []string{"make", "clang", "wasm-ld"}}, {"hook", "c", []string{"make", "clang", "wasm-ld"}},
		{"hook", "go", nil}, {"invoker", "go", nil}, {"format", "go", nil}, {"converter", "go", nil},
	}
	for _, p := range paths {
		t.Run(p.language+" "+p.kind, func(t *testing.T) {
			for _, tool := range p.needs {
				if _, err := exec.LookPath(tool); err != nil && (tool != "wasm-ld" || !found("/usr/lib/llvm-*/bin/wasm-ld")) {
					t.Skip("there is no " + tool)
				}
			}
			dir := t.TempDir()
			text, code := penstock(t, dir, "plugin", "new", p.kind, "my_part", "--lang", p.language)
			require.Zero(t, code, text)
			short(t, dir, text, p.language)
			if p.language == "assemblyscript" {
				text = installed(t, dir, text)
			}
			_, next, ok := strings.Cut(text, "Next:\n\n")
			require.True(t, ok, text)
			script := "set -e\n" + next // as it is printed: cd, the language's tests, penstock's, a run
			cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(built)+string(os.PathListSeparator)+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "0 failed\n")
			assert.Contains(t, string(out), "completed")
		})
	}
}

// longest is how many lines the author's file has at most, by language.
var longest = map[string]int{"go": 25, "go-wasm": 25, "python": 15}

// short holds the file that the author edits to its number of lines.
func short(t *testing.T, dir, text, language string) {
	t.Helper()
	most := longest[language]
	if most == 0 {
		return
	}
	_, file, ok := strings.Cut(text, "edit ")
	require.True(t, ok, text)
	file, _, _ = strings.Cut(file, "\n")
	source, err := os.ReadFile(filepath.Join(dir, file))
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(string(source), "\n"), most, "%s:\n%s", file, source)
}

// installed puts what make deps fetched where npm install would put it from
// the network, and leaves that command out.
func installed(t *testing.T, dir, text string) string {
	t.Helper()
	modules := os.Getenv("PENSTOCK_NPM")
	if modules == "" {
		modules = filepath.Join(root, ".cache", "npm", "node_modules")
	}
	if _, err := os.Stat(filepath.Join(modules, "assemblyscript")); err != nil {
		t.Skip("make deps has not fetched assemblyscript")
	}
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "my_part", "node_modules")))
	require.Contains(t, text, "    npm install\n")
	return strings.Replace(text, "    npm install\n", "", 1)
}

func found(pattern string) bool {
	files, _ := filepath.Glob(pattern)
	return len(files) > 0
}
