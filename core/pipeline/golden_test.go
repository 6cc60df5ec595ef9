package pipeline

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// load reads a file as `validate` does: everything that is wrong is reported.
func load(path string, o ParseOptions) (*Pipeline, error) {
	f, err := Parse(path, o)
	if f == nil {
		return nil, err
	}
	return f.Check(newCatalog())
}

// options are the comment lines `#: --set a=b`, `#: --no-env` and so on.
func options(src string) ParseOptions {
	o := ParseOptions{Env: func(name string) (string, bool) { return "value of " + name, strings.HasPrefix(name, "HAVE_") }}
	for _, line := range strings.Split(src, "\n") {
		arg, ok := strings.CutPrefix(line, "#: ")
		if !ok {
			continue
		}
		if set, ok := strings.CutPrefix(arg, "--set "); ok {
			o.Set = append(o.Set, set)
		}
		if tasks, ok := strings.CutPrefix(arg, "--tasks "); ok {
			o.Tasks = tasks
		}
		if feature, ok := strings.CutPrefix(arg, "--enable "); ok {
			o.Enable = append(o.Enable, feature)
		}
		if names, ok := strings.CutPrefix(arg, "--programs "); ok {
			o.Program = installed(strings.Fields(names))
		}
		o.NoEnv = o.NoEnv || arg == "--no-env"
	}
	return o
}

// installed is a machine on which these names are in PATH; paths are looked
// up.
func installed(names []string) func(string) error {
	return func(name string) error {
		if strings.Contains(name, "/") {
			info, err := os.Stat(name)
			if err == nil && info.Mode()&0o111 == 0 {
				return errors.New("it is not executable")
			}
			return err
		}
		if slices.Contains(names, name) {
			return nil
		}
		return os.ErrNotExist
	}
}

// TestDiagnostics holds every message to its golden file, as printed.
func TestDiagnostics(t *testing.T) {
	files, err := filepath.Glob("testdata/diag/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			p, err := load(file, options(string(src)))
			var got string
			var ds Diagnostics
			switch {
			case errors.As(err, &ds):
				got = ds.Error() + "\n"
			case err != nil:
				t.Fatalf("the error is no Diagnostics: %v", err)
			case len(p.Warnings) > 0:
				got = p.Warnings.Error() + "\n"
			default:
				got = "ok\n"
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
}
