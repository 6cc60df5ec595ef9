package plugin

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/sdktest"
)

// TestJudgersInOtherLanguages runs one judger in C, Rust and AssemblyScript,
// whose modules are committed beside their source; see the Makefile there.
func TestJudgersInOtherLanguages(t *testing.T) {
	modules, err := filepath.Glob("testdata/guests/exact.*.wasm")
	require.NoError(t, err)
	require.Len(t, modules, 3)
	for _, module := range modules {
		t.Run(filepath.Base(module), func(t *testing.T) {
			path, err := filepath.Abs(module)
			require.NoError(t, err)
			r, _ := load(t, Source{Key: "judger/exact", Wasm: path})
			j := open(t, r, "exact")
			for request, want := range map[string]float64{
				`{"task":{"answer":"a"},"rollout":{"final_text":"a"}}`:        1,
				`{"task":{"answer":"a"},"rollout":{"final_text":"b"}}`:        0,
				`{"task":{"answer":"日本"},"rollout":{"final_text":"\u65e5本"}}`: 1,
				`{"task":{"answer":""},"rollout":{"final_text":""}}`:          1,
				`{"task":{"answer":"a"},"rollout":{}}`:                        0,
			} {
				v, err := j.Judge(t.Context(), judgeRequest(request))
				require.NoError(t, err, request)
				assert.InDelta(t, want, *v.Reward, 0, request)
			}
			_, err = j.Judge(t.Context(), judgeRequest(`{"task":{}}`))
			assert.Contains(t, fails(t, err, Failed).Error(), "the task has no answer")
		})
	}
}

// TestHooksInOtherLanguages runs one hook in C, Rust and AssemblyScript. Those
// in Go are the zoo's and the examples'.
func TestHooksInOtherLanguages(t *testing.T) {
	modules, err := filepath.Glob("testdata/guests/guard.*.wasm")
	require.NoError(t, err)
	require.Len(t, modules, 3)
	call := func(name string) string {
		return `{"point":"tool_call","tool_call":{"id":"c1","name":"` + name + `","arguments":{}},"tools":[]}`
	}
	for _, module := range modules {
		t.Run(filepath.Base(module), func(t *testing.T) {
			path, err := filepath.Abs(module)
			require.NoError(t, err)
			r, _ := load(t, Source{Key: "hook/guard", Wasm: path})
			d, err := r.Describe("hook", "guard")
			require.NoError(t, err)
			assert.Equal(t, everyPoint(), d.Changes, "one that doesn't describe itself is asked at every point")
			sdktest.Hook(t, func(ctx context.Context, config json.RawMessage) (hook.Hook, error) {
				return r.Hook(ctx, "guard", config)
			}, []sdktest.Case{
				{Name: "continue", Request: call("ls"), Want: `{"action":"continue"}`},
				{Name: "deny", Request: call("danger"), Want: `{"action":"deny","reason":"danger is not a toy"}`},
				{Name: "replace", Request: call("old"), Want: `{"action":"replace","value":{"id":"c1","name":"new","arguments":{}}}`},
				{Name: "error", Request: `{"point":"tool_call","tool_call":{}}`, Error: "the event has no tool call"},
			})
		})
	}
}

// TestACachedModuleStartsFast bounds the time from a registry to the first
// verdict of a Go module whose code is on the disk.
func TestACachedModuleStartsFast(t *testing.T) {
	best := time.Hour
	for range 5 {
		begin := time.Now()
		r := New(Options{CacheDir: zooBuilt.cache})
		require.NoError(t, r.Add(t.Context(), Source{Key: "judger/tame", Wasm: zooBuilt.wasm}))
		_, err := open(t, r, "tame").Judge(t.Context(), judgeRequest(`{"rollout":{"final_text":"skip"}}`))
		require.NoError(t, err)
		best = min(best, time.Since(begin))
		require.NoError(t, r.Close(t.Context()))
	}
	t.Logf("cached start: %v", best)
	limit := 100 * time.Millisecond
	if underRace() {
		limit *= 40 // a module's code runs as fast, but all around it is slow
	}
	assert.Less(t, best, promised(limit))
}
