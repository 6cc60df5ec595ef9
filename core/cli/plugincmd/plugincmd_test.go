package plugincmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/plugin"
)

// run runs one command in a folder of its own cache.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cache := filepath.Join(os.TempDir(), "cache")
	c := Command(Options{Registry: func() (*plugin.Registry, error) { return plugin.New(plugin.Options{CacheDir: cache}), nil }})
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// folder moves the test into an empty folder.
func folder(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	t.Chdir(dir)
	return dir
}

func TestAPythonPluginFromNothingToLocked(t *testing.T) {
	folder(t)
	out, err := run(t, "new", "judger", "my_judge", "--lang", "python")
	require.NoError(t, err)
	assert.Contains(t, out, "edit my_judge/my_judge.py\n\nNext:\n\n    cd my_judge\n    python3 -m unittest\n    penstock plugin test .\n    penstock run pipeline.yaml\n")

	out, err = run(t, "test", "my_judge")
	require.NoError(t, err, out)
	assert.Contains(t, out, "0 failed\n")

	out, err = run(t, "ls", "--plugin-dir", ".")
	require.NoError(t, err)
	assert.Regexp(t, `^judger/my_judge +exec +- +Says what a rollout is worth`, out)

	out, err = run(t, "inspect", "judger/my_judge", "--plugin-dir", ".", "--json")
	require.NoError(t, err)
	var in []plugin.Inspection
	require.NoError(t, json.Unmarshal([]byte(out), &in))
	require.Len(t, in, 1)
	assert.Equal(t, plugin.Exec, in[0].Transport)
	assert.Equal(t, []string{"judge"}, in[0].Components[0].Methods)

	pipeline := filepath.Join("my_judge", "pipeline.yaml")
	out, err = run(t, "lock", pipeline)
	require.NoError(t, err)
	assert.Contains(t, out, "judger/my_judge  "+in[0].Digest)
	out, err = run(t, "lock", pipeline)
	require.NoError(t, err)
	assert.Contains(t, out, "nothing changed")
	require.NoError(t, appendTo("my_judge/my_judge.py", "# changed\n"))
	out, err = run(t, "lock", pipeline)
	require.NoError(t, err)
	assert.Contains(t, out, "was "+in[0].Digest)
	for _, text := range []string{"", "garbage\n"} {
		require.NoError(t, os.WriteFile(filepath.Join("my_judge", "penstock.lock"), []byte(text), 0o600))
		out, err = run(t, "lock", pipeline)
		require.NoError(t, err)
		assert.Contains(t, out, "was no lock file (")
		assert.Contains(t, out, "wrote my_judge/penstock.lock\n")
	}
}

func TestTheCommandsOfANewPluginArePastedIntoAShell(t *testing.T) {
	folder(t)
	out, err := run(t, "new", "judger", "my_judge", "--dir", "it's a b/日本")
	require.NoError(t, err)
	assert.Contains(t, out, "\n    cd 'it'\\''s a b/日本'\n")
	out, err = run(t, "new", "judger", "my_judge", "--dir", "c d", "--json")
	require.NoError(t, err)
	assert.Contains(t, out, `"cd 'c d'",`)
}

func appendTo(path, text string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, text...), 0o755)
}

func TestAPluginThatIsWrongFailsItsTest(t *testing.T) {
	folder(t)
	_, err := run(t, "new", "judger", "bad", "--lang", "python")
	require.NoError(t, err)
	source, err := os.ReadFile("bad/bad.py")
	require.NoError(t, err)
	text := strings.Replace(string(source), "return r.final_text.strip()", "import os; os._exit(3) if not r.messages else 0\n    return r.final_text.strip() !=", 1)
	text = strings.Replace(text, "!= ==", "!=", 1)
	require.NoError(t, os.WriteFile("bad/bad.py", []byte(text), 0o755))
	out, err := run(t, "test", "bad")
	require.ErrorAs(t, err, &failed{})
	assert.Contains(t, out, "FAIL judger/bad  case: right")
	assert.Contains(t, out, "the plugin process died during the call (exit status 3)")
}

func TestWhatIsNoPluginIsTold(t *testing.T) {
	dir := folder(t)
	for want, args := range map[string][]string{
		"there is no plugin judger/none":               {"inspect", "judger/none"},
		"it is no plugin: want a plugin.yaml":          {"test", dir},
		"there is no kind \"judge\"":                   {"ls", "--kind", "judge"},
		"holds no plugin.yaml":                         {"ls", "--plugin-dir", dir},
		"no template for the kind converter in python": {"new", "converter", "x", "--lang", "python"},
		"no such file":                                 {"lock", "none.yaml"},
	} {
		_, err := run(t, args...)
		require.ErrorContains(t, err, want)
	}
}

// picky is a judger that can't be opened without a setting.
const picky = `import penstock


@penstock.judger("picky", config={"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"], "additionalProperties": False})
def picky(r):
    return max(0, 1 - r.config["price"])


penstock.main()
`

func TestAPluginOfWhichNothingWasTriedFailsItsTest(t *testing.T) {
	dir := folder(t)
	_, err := run(t, "new", "judger", "picky_one", "--lang", "python", "--dir", dir)
	require.NoError(t, err)
	require.NoError(t, os.Remove("cases.jsonl"))
	require.NoError(t, os.WriteFile("picky.py", []byte(picky), 0o600))

	out, err := run(t, "test", "picky.py")
	require.ErrorAs(t, err, &failed{})
	assert.Contains(t, out, "a wrong field is refused at /no_such_field\n")
	assert.Contains(t, out, "no sample was tried, as it can't be opened without settings: open judger/picky: missing price; give them with --with NAME=VALUE")
	assert.NotContains(t, out, "ok   judger/picky  sample")

	out, err = run(t, "test", "picky.py", "--with", "price=0.25")
	require.NoError(t, err, out)
	assert.Contains(t, out, `{"reward":0.75,"status":"scored"}`)

	for with, want := range map[string]string{
		"prise=1":   `/prise: unknown field, did you mean "price"?`,
		"price=lot": "/price: is string, want number",
	} {
		out, err = run(t, "test", "picky.py", "--with", with)
		require.ErrorAs(t, err, &failed{})
		assert.Contains(t, out, "no sample was tried")
		assert.Contains(t, out, want)
	}
	_, err = run(t, "test", "picky.py", "--with", "price")
	require.ErrorContains(t, err, "want NAME=VALUE")
}

func TestAPluginThatRefusesEverySampleFailsItsTest(t *testing.T) {
	dir := folder(t)
	_, err := run(t, "new", "judger", "fussy", "--lang", "python", "--dir", dir)
	require.NoError(t, err)
	require.NoError(t, os.Remove("cases.jsonl"))
	source := strings.Replace(picky, `return max(0, 1 - r.config["price"])`, `return r.task["no_such_key"]`, 1)
	require.NoError(t, os.WriteFile("picky.py", []byte(source), 0o600))
	out, err := run(t, "test", "picky.py", "--with", "price=1")
	require.ErrorAs(t, err, &failed{})
	assert.Contains(t, out, "nothing was tried, as it refused every sample, the first with: plugin judger/picky: judge: KeyError: 'no_such_key'")
	assert.Contains(t, out, "cases.jsonl")
}

// TestTheExamplesPluginsPassTheirTests has a judger of groups among them, which
// is tried with groups.
func TestTheExamplesPluginsPassTheirTests(t *testing.T) {
	root, err := filepath.Abs("../../../examples")
	require.NoError(t, err)
	t.Setenv("TMPDIR", t.TempDir())
	for _, path := range []string{"judger-process/economy", "judger-group/thrift", "judger-python/digits.py", "judger-wasm/close", "hook-wasm/no_rm"} {
		out, err := run(t, "test", filepath.Join(root, path))
		require.NoError(t, err, out)
		assert.Contains(t, out, "8 callers, one reply", path)
	}
}
