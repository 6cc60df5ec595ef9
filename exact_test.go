package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// engineCall is a line of the scripted engine's own log.
type engineCall struct {
	Session    string     `json:"session"`
	PromptIDs  []int32    `json:"prompt_ids"`
	SampledIDs []int32    `json:"sampled_ids"`
	Logprobs   []*float64 `json:"logprobs"`
	Finish     string     `json:"finish"`
}

type row struct {
	Row       string     `json:"row"`
	Session   string     `json:"session"`
	Rollout   string     `json:"rollout"`
	Kind      string     `json:"lineage_kind"`
	Calls     []string   `json:"calls"`
	InputIDs  []int32    `json:"input_ids"`
	LossMask  []int8     `json:"loss_mask"`
	Logprobs  []*float64 `json:"logprobs"`
	PromptLen int        `json:"prompt_len"`
	Reward    *float64   `json:"reward"`
	Weights   []string   `json:"weight_versions"`
}

// TestRowsAgreeWithTheEngine compares every row with what the engine logged:
// ids, mask and logprobs, two calls in one row of the main lineage.
func TestRowsAgreeWithTheEngine(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "exact"))))
	text, code := penstock(t, dir, "run", "pipeline.yaml", "--out", "out")
	require.Equal(t, 0, code, text)
	rows := readLines[row](t, filepath.Join(dir, "out", "rows.jsonl"))
	checkRows(t, rows, readLines[engineCall](t, filepath.Join(dir, "engine.jsonl")))
	require.Len(t, rows, 4)
	for _, r := range rows {
		assert.Len(t, r.Calls, 2)
		assert.Equal(t, "main", r.Kind)
		require.NotNil(t, r.Reward)
		assert.Equal(t, 1.0, *r.Reward)
		assert.Equal(t, []string{"step-7", "step-7"}, r.Weights)
	}
}

// checkRows holds rows of whole sessions against the engine's log.
func checkRows(t *testing.T, rows []row, calls []engineCall) {
	t.Helper()
	bySession := map[string][]engineCall{}
	for _, c := range calls {
		bySession[c.Session] = append(bySession[c.Session], c)
	}
	for _, r := range rows {
		logged := bySession[r.Session]
		require.Len(t, logged, len(r.Calls), "calls of %s", r.Row)
		last := logged[len(logged)-1]
		assert.Equal(t, slices.Concat(last.PromptIDs, last.SampledIDs), r.InputIDs, r.Row)
		assert.Equal(t, len(logged[0].PromptIDs), r.PromptLen)
		require.Len(t, r.LossMask, len(r.InputIDs))
		require.Len(t, r.Logprobs, len(r.InputIDs))
		mask := make([]int8, len(r.InputIDs))
		logprobs := make([]*float64, len(r.InputIDs))
		before := []int32{}
		for _, c := range logged {
			require.True(t, len(c.PromptIDs) >= len(before) && slices.Equal(before, c.PromptIDs[:len(before)]), "each prompt extends the turn before")
			for i := range c.SampledIDs {
				mask[len(c.PromptIDs)+i] = 1
				logprobs[len(c.PromptIDs)+i] = c.Logprobs[i]
			}
			before = slices.Concat(c.PromptIDs, c.SampledIDs)
		}
		assert.Equal(t, mask, r.LossMask, r.Row)
		assert.Equal(t, logprobs, r.Logprobs, r.Row)
	}
}

func readLines[T any](t *testing.T, path string) []T {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []T
	for l := range strings.Lines(string(b)) {
		var v T
		require.NoError(t, json.Unmarshal([]byte(l), &v), l)
		out = append(out, v)
	}
	return out
}
