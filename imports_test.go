package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/penstock-dev/penstock/"

// TestImportRules holds the layout: sdk imports nothing of ours, plugins and
// hooks import sdk only, core never imports plugins, and a dialect, a format
// and an upstream never know each other.
func TestImportRules(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	out, err := cmd.Output()
	require.NoError(t, err)
	seen := map[string]int{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		from := strings.TrimPrefix(p.ImportPath, module)
		seen[strings.SplitN(from, "/", 2)[0]]++
		for _, to := range p.Imports {
			if to, ours := strings.CutPrefix(to, module); ours {
				assert.Empty(t, forbidden(from, to), "%s imports %s", from, to)
			}
		}
		for _, to := range append(p.TestImports, p.XTestImports...) {
			if to, ours := strings.CutPrefix(to, module); ours && !strings.HasPrefix(from, "core/") {
				assert.Empty(t, forbidden(from, to), "a test of %s imports %s", from, to)
			}
		}
	}
	for _, room := range []string{"sdk", "core", "plugins", "hooks", "examples"} {
		assert.NotZero(t, seen[room], "no package in %s", room)
	}
}

// forbidden returns the rule that an import breaks, "" for none.
func forbidden(from, to string) string {
	room := func(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
	switch {
	case room(from, "sdk") && !room(to, "sdk"):
		return "sdk imports nothing of ours"
	case (room(from, "plugins") || room(from, "hooks") || room(from, "examples")) && !room(to, "sdk") && !room(to, strings.SplitN(from, "/", 2)[0]):
		return "plugins and hooks import sdk only"
	case room(from, "core") && !room(to, "core") && !room(to, "sdk"):
		return "core imports core and sdk only"
	case room(from, "core/wire") && !room(to, "core/wire") && !room(to, "sdk"):
		return "a dialect knows chat and its own side"
	case room(from, "core/upstream") && !room(to, "core/upstream") && to != "core/token" && !room(to, "sdk"):
		return "an upstream knows chat and its own side"
	case room(from, "core/upstream") && room(to, "sdk/format"):
		return "an upstream knows no format"
	case room(from, "core/wire") && room(to, "sdk/format"):
		return "a dialect knows no format"
	}
	return ""
}
