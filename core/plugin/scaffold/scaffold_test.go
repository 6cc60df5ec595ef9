package scaffold

import (
	"bytes"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/trial"
)

// most lines of the author's file, by language.
var most = map[string]int{"go": 25, "go-wasm": 25, "python": 15, "c": 25, "assemblyscript": 25}

func TestEveryTemplateIsShortAndWhole(t *testing.T) {
	for language, kinds := range kindsOf {
		for _, kind := range kinds {
			t.Run(language+" "+kind, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "my-"+kind)
				p, err := New(Options{Kind: kind, Name: "my-" + kind, Language: language, Dir: dir})
				require.NoError(t, err)
				assert.Equal(t, kind+"/my-"+kind, p.Key)
				assert.Len(t, p.Next, 3)
				source, err := os.ReadFile(filepath.Join(dir, p.Edit))
				require.NoError(t, err)
				if kind != "format" {
					assert.LessOrEqual(t, bytes.Count(source, []byte("\n")), most[language])
				}
				readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
				require.NoError(t, err)
				for _, command := range p.Next {
					assert.Contains(t, string(readme), "    "+command+"\n")
				}
				checkFiles(t, dir, p.Files)
			})
		}
	}
}

func checkFiles(t *testing.T, dir string, files []string) {
	for _, name := range files {
		if strings.HasSuffix(name, "/") {
			assert.DirExists(t, filepath.Join(dir, name))
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.NotContains(t, string(data), "<<.", name)
		assert.NotContains(t, string(data), "<no value>", name)
		switch {
		case filepath.Ext(name) == ".go":
			pretty, err := format.Source(data)
			require.NoError(t, err, name)
			assert.Equal(t, string(pretty), string(data), name)
		case name == "cases.jsonl":
			cases, err := trial.Read(bytes.NewReader(data))
			require.NoError(t, err)
			assert.NotEmpty(t, cases)
		}
	}
}

func TestWhatCanNotBeWrittenIsToldAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	for want, o := range map[string]Options{
		`there is no kind "juger"; the kinds are invoker, judger`:              {Kind: "juger", Name: "a"},
		`there is no language "perl"; the languages are go,`:                   {Kind: "judger", Name: "a", Language: "perl"},
		"there is no template for the kind format in c; c has judger and hook": {Kind: "format", Name: "a", Language: "c"},
		"judger/answer is built in; choose another name, such as my_answer":    {Kind: "judger", Name: "answer", Taken: []string{"answer"}},
		`"../a" can't be a plugin's name`:                                      {Kind: "judger", Name: "../a"},
		`"A b" can't be a plugin's name`:                                       {Kind: "judger", Name: "A b"},
	} {
		o.Dir = filepath.Join(dir, "new")
		_, err := New(o)
		require.ErrorContains(t, err, want)
		assert.NoDirExists(t, o.Dir)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	_, err := New(Options{Kind: "judger", Name: "a", Dir: dir})
	require.ErrorContains(t, err, "is not empty; nothing was written")
}

// Names that mean something to Python are names of plugins like others: the
// tests that a plugin comes with run.
func TestAPythonPluginMayHaveANameOfPythons(t *testing.T) {
	for _, name := range []string{"json", "re", "types", "import", "unittest", "penstock", "none", "penstock-grpc", "test", "my_judge"} {
		dir := filepath.Join(t.TempDir(), name)
		p, err := New(Options{Kind: "judger", Name: name, Language: "python", Dir: dir})
		require.NoError(t, err)
		assert.Equal(t, "judger/"+name, p.Key)
		cmd := exec.CommandContext(t.Context(), "python3", "-m", "unittest")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		assert.Contains(t, string(out), "Ran 1 test", name)
	}
}

// A Go module of a name without a dot may be one of Go's own, as main is, which
// nothing can import.
func TestAGoPluginsModuleIsNoneOfGos(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "main")
	_, err := New(Options{Kind: "judger", Name: "main", Dir: dir})
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	module, _, _ := strings.Cut(strings.TrimPrefix(string(data), "module "), "\n")
	first, _, _ := strings.Cut(module, "/")
	assert.Contains(t, first, ".", module)
}
