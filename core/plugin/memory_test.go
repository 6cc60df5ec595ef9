package plugin

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Memory grows up to its limit, keeps what was written, and is zero beyond,
// whoever gives it; what it shows has no room behind it.
func TestGuestMemoryGrows(t *testing.T) {
	const limit = 64 * wasmPage
	for name, m := range map[string]*guestMemory{"of the system": newGuestMemory(limit), "of Go": {max: limit}} {
		require.NoError(t, m.enter())
		for size := uint64(wasmPage); size <= limit; size += wasmPage {
			buf := m.Reallocate(size)
			require.Len(t, buf, int(size), name)
			require.Zero(t, buf[size-wasmPage], name)
			require.Zero(t, buf[size-1], name)
			buf[size-1] = byte(size / wasmPage)
			for at := uint64(wasmPage); at <= size; at += wasmPage {
				require.EqualValues(t, at/wasmPage, buf[at-1], name)
			}
			if m.room != nil {
				require.Equal(t, len(buf), cap(buf), "nothing may be written behind it")
			}
		}
		assert.Nil(t, m.Reallocate(limit+wasmPage), name)
		m.Free()
		assert.NotNil(t, m.buf, "a call is at work in it")
		assert.ErrorIs(t, m.enter(), errMemoryGone)
		m.leave()
		assert.Nil(t, m.buf, name)
		assert.Nil(t, m.Reallocate(wasmPage), name)
	}
}

// Instances that are closed while calls are at work in them end those calls,
// and nothing else.
func TestClosingWhileGuestsWork(t *testing.T) {
	const limit = time.Minute
	for range 3 {
		r := New(Options{CacheDir: zooBuilt.cache})
		require.NoError(t, r.Add(t.Context(), Source{Key: "judger/wild", Wasm: zooBuilt.wasm, Limits: Limits{Timeout: limit, Memory: 64 << 20}}))
		j := open(t, r, "wild")
		var calls sync.WaitGroup
		for _, act := range []string{"loop", "hog", "flood", "loop"} {
			calls.Go(func() {
				_, err := ask(j, act)
				if act == "loop" {
					fails(t, err, Unavailable)
				} else {
					assert.Error(t, err, act) // it may have failed by itself
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		began := time.Now()
		require.NoError(t, r.Close(context.Background()))
		calls.Wait()
		assert.Less(t, time.Since(began), limit, "the loops were ended")
	}
}
