package pipeline

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const promptFile = `penstock: v1
tasks: { inline: [{ id: a, topic: rivers, words: 9 }] }
models:
  policy: { upstream: { kind: script, file: model.yaml }, format: hermes }
stages:
  - id: write
    uses: invoker/agent
    model: policy
    with: { prompt: { file: prompts/write.md } }
`

// TestATextMayBeAFile: its expressions are those of the pipeline file, and its
// hash is kept, as it decides what the pipeline means.
func TestATextMayBeAFile(t *testing.T) {
	path := write(t, "p.yaml", promptFile, "model.yaml", "rules: []",
		"prompts/write.md", "About ${{ task.topic }}:\r\n\r\n- ${{ task.words }} words\r\n- {{ braces }} and $1 stay\r\n")
	p, err := load(path, ParseOptions{})
	require.NoError(t, err)
	raw, err := p.Stages[0].Input.JSON(Env{Task: p.Tasks[0].Data})
	require.NoError(t, err)
	assert.JSONEq(t, `{"prompt":"About rivers:\n\n- 9 words\n- {{ braces }} and $1 stay"}`, string(raw))
	assert.Contains(t, p.Hashes, filepath.Join(filepath.Dir(path), "prompts", "write.md"))
	var reads []string
	for _, r := range p.Reads() {
		reads = append(reads, r.Where+" "+r.Value)
	}
	assert.Equal(t, []string{"with.prompt task.topic", "with.prompt task.words"}, reads)
}

// TestFindingsPointIntoTheTextFile: with its own lines and columns.
func TestFindingsPointIntoTheTextFile(t *testing.T) {
	path := write(t, "p.yaml", promptFile, "model.yaml", "rules: []", "prompts/write.md", "ä\n\n  über ${{ task.topik }} ${{ task.words")
	_, err := load(path, ParseOptions{})
	assert.ErrorContains(t, err, filepath.Join("prompts", "write.md")+":3:26: ")
	assert.ErrorContains(t, err, "this ${{ has no }}")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "prompts", "write.md"), []byte("ä\n\n  über ${{ task.topik }}"), 0o600))
	_, err = load(path, ParseOptions{})
	assert.ErrorContains(t, err, filepath.Join("prompts", "write.md")+":3:17: ")
	assert.ErrorContains(t, err, "did you mean 'topic'")
}

func TestATextFileThatCantBeUsed(t *testing.T) {
	for set, want := range map[string]string{
		"{file: none.md}":               "the file 'none.md' can't be read",
		"{file: [a]}":                   "'file' is the path of a text",
		"{file: '${{ task.topic }}'}":   "its path takes no ${{ }}",
		"{file: bad.md}":                "the file 'bad.md' is no UTF-8",
		"{file: prompts/w.md, also: 1}": "'prompt' of invoker/agent",
		"{fil: prompts/w.md}":           "'prompt' of invoker/agent",
	} {
		path := write(t, "p.yaml", promptFile, "model.yaml", "rules: []", "prompts/write.md", "x", "bad.md", "\xff\xfe\xff")
		_, err := load(path, ParseOptions{Set: []string{"stages.write.with.prompt=" + set}})
		assert.ErrorContains(t, err, want, set)
	}
}
