package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// long is a file of n stages, each of which reads those before it.
func long(n int) string {
	var b strings.Builder
	b.WriteString("penstock: v1\ntasks: { file: tasks.jsonl }\nmodels:\n  policy: { upstream: { kind: script, file: model.yaml }, format: hermes }\nstages:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - id: solve%d\n    uses: invoker/agent\n    model: policy\n    with: { prompt: \"${{ task.prompt }} and ${{ task.answer > 3 ? 'a' : 'b' }}\", effort: \"${{ task.answer > 3 ? 'low' : 'high' }}\" }\n", i)
		fmt.Fprintf(&b, "  - id: judge%d\n    uses: judger/label\n    if: ${{ solve%d.exit_status == \"ok\" }}\n    with: { text: \"${{ solve%d.output.text | trim() }}\", count: \"${{ len(solve%d.output.text) }}\" }\n", i, i, i, i)
	}
	b.WriteString("reward: \"${{ judge0.output?.reward }}\"\n")
	return b.String()
}

// TestSixtyStagesLoadInASecond holds the promise of `validate` with room to
// spare for a slow machine.
func TestSixtyStagesLoadInASecond(t *testing.T) {
	path := write(t, "p.yaml", long(30), "tasks.jsonl", strings.Repeat(`{"prompt":"x","answer":4}`+"\n", 1000), "model.yaml", "")
	best := time.Hour
	for range 3 {
		start := time.Now()
		p, err := load(path, ParseOptions{})
		require.NoError(t, err)
		assert.Len(t, p.Stages, 60)
		best = min(best, time.Since(start))
	}
	assert.Less(t, best, time.Second)
}

func BenchmarkLoad60(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "p.yaml")
	require.NoError(b, os.WriteFile(path, []byte(long(30)), 0o644))
	require.NoError(b, os.WriteFile(filepath.Join(dir, "tasks.jsonl"), []byte(`{"prompt":"x","answer":4}`), 0o644))
	require.NoError(b, os.WriteFile(filepath.Join(dir, "model.yaml"), nil, 0o644))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := load(path, ParseOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTasks(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "p.yaml")
	require.NoError(b, os.WriteFile(path, []byte("penstock: v1\ntasks: { file: t.jsonl }"), 0o644))
	line := `{"prompt":"` + strings.Repeat("word ", 100) + `","answer":4,"meta":{"level":3,"tags":["a","b"]}}` + "\n"
	src := strings.Repeat(line, 10000)
	require.NoError(b, os.WriteFile(filepath.Join(dir, "t.jsonl"), []byte(src), 0o644))
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(path, ParseOptions{NoStages: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInput(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "p.yaml")
	require.NoError(b, os.WriteFile(path, []byte(long(1)), 0o644))
	require.NoError(b, os.WriteFile(filepath.Join(dir, "tasks.jsonl"), []byte(`{"prompt":"x","answer":4}`), 0o644))
	require.NoError(b, os.WriteFile(filepath.Join(dir, "model.yaml"), nil, 0o644))
	p, err := load(path, ParseOptions{})
	require.NoError(b, err)
	e := env(`{"id":"one","prompt":"x","answer":4}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Stages[0].Input.JSON(e); err != nil {
			b.Fatal(err)
		}
	}
}
