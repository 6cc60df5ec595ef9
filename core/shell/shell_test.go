package shell

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAShellReadsWhatWasQuoted(t *testing.T) {
	for _, word := range []string{"", "a b", "it's", `"q"`, "$HOME", "`id`", "~", "~/x", "a;b", "a&b", "*", "[a]", "#x", "a\nb", `\`, "日本 é", "!x", "-x", "{a,b}", "\xff"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+Quote(word)).Output()
		require.NoError(t, err, word)
		if word == "-x" {
			assert.Equal(t, "-x", Quote(word))
			continue
		}
		assert.Equal(t, word, string(out), "%q", word)
	}
	for _, word := range []string{"runs/latest", "/a/b-c_d.yaml", "日本/é", "p-01ABC~0"[:7], "a=b,c:d@e%f+g"} {
		assert.Equal(t, word, Quote(word))
	}
}

// told is a command with a path in it that a message tells, as source.
var told = regexp.MustCompile(`(penstock (run|resume|convert|validate|gateway|park [a-z]+|plugin [a-z]+|trace [a-z]+|judge [a-z]+)|chmod \+x) (%s|" \+)`)

func TestPathsInToldCommandsAreQuoted(t *testing.T) {
	n := 0
	require.NoError(t, filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		for i, line := range strings.Split(string(data), "\n") {
			if told.MatchString(line) {
				n++
				assert.Contains(t, line, "shell.Quote(", "%s:%d", path, i+1)
			}
		}
		return err
	}))
	assert.Greater(t, n, 10)
}
