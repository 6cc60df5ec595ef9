package claude

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const rules = `penstock: script/v1
rules:
  - when: { last: 'JSON (\d+)' }
    reply: '{"n":$1}'
otherwise: { reply: "plain" }
`

func run(t *testing.T, prompt string, args ...string) []map[string]any {
	t.Helper()
	file := filepath.Join(t.TempDir(), "model.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
	o, rest, err := parse(append([]string{"--script", file}, args...))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, Run(t.Context(), o, rest, strings.NewReader(prompt), &out))
	var lines []map[string]any
	for l := range strings.Lines(out.String()) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(l), &m))
		lines = append(lines, m)
	}
	require.Len(t, lines, 3)
	return lines
}

func TestItAnswersAsTheProgramDoes(t *testing.T) {
	lines := run(t, "hello", "-p", "--tools", "", "--model", "sonnet")
	assert.Equal(t, []any{}, lines[0]["tools"])
	assert.Equal(t, "sonnet", lines[0]["model"])
	assert.Equal(t, "plain", lines[2]["result"])
	assert.NotContains(t, lines[2], "structured_output")

	lines = run(t, "JSON 42", "-p", "--tools=Read,Bash", "--json-schema", "{}")
	assert.Equal(t, []any{"Read", "Bash", "StructuredOutput"}, lines[0]["tools"])
	assert.Equal(t, map[string]any{"n": 42.0}, lines[2]["structured_output"])
	assert.Equal(t, map[string]any{"input_tokens": 7.0, "output_tokens": 8.0, "cache_read_input_tokens": 0.0, "cache_creation_input_tokens": 0.0}, lines[2]["usage"])
}

func TestLinesAndDump(t *testing.T) {
	dir := t.TempDir()
	lines := filepath.Join(dir, "lines")
	require.NoError(t, os.WriteFile(lines, []byte("as it is\n"), 0o600))
	var out bytes.Buffer
	require.NoError(t, Run(t.Context(), Options{Lines: lines, Dump: dir}, []string{"-p"}, strings.NewReader("hi"), &out))
	assert.Equal(t, "as it is\n", out.String())
	found, err := filepath.Glob(filepath.Join(dir, "start-*.json"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	b, err := os.ReadFile(found[0])
	require.NoError(t, err)
	var d Dump
	require.NoError(t, json.Unmarshal(b, &d))
	assert.Equal(t, []string{"-p"}, d.Args)
	assert.Equal(t, "hi", d.Prompt)
	assert.NotEmpty(t, d.Env)
}

func TestOptions(t *testing.T) {
	for want, args := range map[string][]string{
		"one of --script and --lines": {"-p"},
		"--script needs a value":      {"--script"},
	} {
		_, _, err := parse(args)
		assert.ErrorContains(t, err, want)
	}
}
