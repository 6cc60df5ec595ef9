package plugin

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/judger"
)

// judgeMany judges 100 rollouts at once, several times each, and returns the
// gaps of a ticker of 1 ms meanwhile, sorted.
func judgeMany(t *testing.T, j judger.Judger) []time.Duration {
	stop := make(chan struct{})
	var gaps []time.Duration
	var watch, work sync.WaitGroup
	watch.Go(func() {
		for last := time.Now(); ; {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				gaps = append(gaps, time.Since(last))
				last = time.Now()
			}
		}
	})
	for i := range 100 {
		work.Go(func() {
			for k := range 30 {
				text := fmt.Sprint(i, k)
				v, err := j.Judge(context.Background(), judgeRequest(`{"task":{"answer":"`+text+`"},"rollout":{"final_text":"`+text+`"}}`))
				if assert.NoError(t, err) {
					assert.InDelta(t, 1, *v.Reward, 0)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	work.Wait()
	close(stop)
	watch.Wait()
	slices.Sort(gaps)
	return gaps
}

func TestHostileModulesHoldUpNobodyElse(t *testing.T) {
	tame, _ := load(t, Source{Key: "judger/tame", Wasm: zooBuilt.wasm})
	j := open(t, tame, "tame")
	alone := judgeMany(t, j)

	_, wild := wildModule(t, Limits{Out: 1 << 20, Memory: 32 << 20})
	wild.(remoteJudger).instance.(*pool).wasm.limits.Timeout = 200 * time.Millisecond // once it is open
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, act := range []string{"loop", "hog", "flood", "panic"} {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := ask(wild, act)
				assert.Error(t, err, act)
			}
		})
	}
	beside := judgeMany(t, j)
	cancel()
	wg.Wait()
	require.NotEmpty(t, beside)
	at := func(gaps []time.Duration, part float64) time.Duration { return gaps[int(part*float64(len(gaps)-1))] }
	t.Logf("stall p99 %v, max %v; alone p99 %v, max %v", at(beside, 0.99), at(beside, 1), at(alone, 0.99), at(alone, 1))
	// All finished, which is what a busy machine can show; how long the host
	// stalled says something only where nothing else runs, and no more than the
	// same load did without the others.
	if os.Getenv("PENSTOCK_SOAK") == "" {
		return
	}
	assert.Less(t, at(beside, 0.99), max(50*time.Millisecond, at(alone, 0.99)))
	assert.Less(t, at(beside, 1), max(200*time.Millisecond, at(alone, 1)))
}
