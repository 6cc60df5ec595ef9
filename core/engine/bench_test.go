package engine

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
)

// many is what a run of many tasks came to.
type many struct {
	took        time.Duration
	early, late uint64 // bytes of heap in use after a tenth of the tasks, and after all but a few
	peak        uint64 // most bytes of heap that were seen
	bare        time.Duration
}

// runMany takes n tasks through two stages, a call of the model through the gateway
// and a judge, each with its checkpoint. No program is started.
func runMany(t testing.TB, n int) many {
	t.Helper()
	tasks := filepath.Join(t.TempDir(), "tasks.jsonl")
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "{\"id\":\"t%d\"}\n", i)
	}
	require.NoError(t, os.WriteFile(tasks, []byte(lines.String()), 0o600))
	asked, goOn := make(chan bool, n), make(chan bool)
	close(goOn)
	b, m := &bench{TB: t}, many{}
	var ended atomic.Int64
	b.begin(`
penstock: v1
tasks: { file: "`+tasks+`" }
models:
  m: { upstream: { kind: openai, url: "`+slow(t, asked, goOn)+`" }, model: m, format: upstream }
stages:
  - { id: call, uses: invoker/call, model: m }
  - { id: judge, uses: judger/length }
`, func(e run.Event) {
		if e.Type != run.RolloutEnded {
			return
		}
		switch at := ended.Add(1); at {
		case int64(n / 10):
			m.early = heap()
		case int64(n - n/100):
			m.late = heap()
		}
	}, callers()...)
	for i, task := range b.engine.Pipeline.Tasks {
		require.NoError(t, b.store.PutTasks(t.Context(), []trace.Task{{ID: task.ID, Seq: i, Data: task.Data}}))
	}
	stop := watchHeap(&m.peak)
	began := time.Now()
	totals := b.run()
	m.took = time.Since(began)
	stop()
	require.Equal(t, n, totals.Status["completed"])
	m.bare = bareTransactions(t, 6*n)
	return m
}

// heap is how many bytes are reachable.
func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// watchHeap notes the most heap that is in use until stop.
func watchHeap(peak *uint64) (stop func()) {
	runtime.GC()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			*peak = max(*peak, s.HeapInuse)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// bareTransactions is how long SQLite takes for n transactions of a row each, one
// after the other, set as the store sets it. A task has six: the rollout's begin and
// end, the session's, the call's and two checkpoints.
func bareTransactions(t testing.TB, n int) time.Duration {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "bare.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	require.NoError(t, err)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	ctx := context.Background()
	_, err = conn.ExecContext(ctx, "CREATE TABLE x (id INTEGER PRIMARY KEY, body BLOB)")
	require.NoError(t, err)
	insert, err := conn.PrepareContext(ctx, "INSERT INTO x (body) VALUES (?)")
	require.NoError(t, err)
	defer insert.Close()
	body := make([]byte, 500)
	began := time.Now()
	for range n {
		_, err := insert.ExecContext(ctx, body)
		require.NoError(t, err)
	}
	return time.Since(began)
}

// BenchmarkTasks is 10,000 tasks through two stages with their checkpoints. Memory is
// flat when late/early is near 1; bare/run is the same number of bare SQLite
// transactions for the time of the run.
func BenchmarkTasks(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		m := runMany(b, n)
		small := runMany(b, n/10)
		b.ReportMetric(n/m.took.Seconds(), "tasks/s")
		b.ReportMetric(m.bare.Seconds()/m.took.Seconds(), "bare/run")
		b.ReportMetric(float64(m.early)/(1<<20), "MB-at-1k")
		b.ReportMetric(float64(m.late)/(1<<20), "MB-at-10k")
		b.ReportMetric(float64(m.late)/float64(m.early), "late/early")
		b.ReportMetric(float64(m.peak)/(1<<20), "MB-peak")
		b.ReportMetric(float64(m.peak)/float64(small.peak), "peak-10k/1k")
	}
}

// TestManyTasksTakeNoMemory is a tenth of BenchmarkTasks: what a run holds doesn't
// grow with the tasks that it is through with.
func TestManyTasksTakeNoMemory(t *testing.T) {
	m := runMany(t, 1000)
	t.Logf("%.0f tasks/s; heap %d KB after a tenth, %d KB at the end; bare transactions took %s of %s", 1000/m.took.Seconds(), m.early>>10, m.late>>10, m.bare, m.took)
	assert.Less(t, m.late, m.early+m.early/2+(2<<20))
}
