package plugin

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// BenchmarkJudge judges a rollout of 250 KB. Those with "two fields" read just
// two, one in Go and one by hand; the others also look for what isn't there,
// which is a look through all of it.
func BenchmarkJudge(b *testing.B) {
	message := `{"role":"assistant","parts":[{"type":"text","text":"` + strings.Repeat("all work and no play \\n", 40) + `"}]}`
	d := doc.Bytes(`{"input":{},"task":{"id":"t1","answer":"4"},"rollout":{"id":"t1~0","final_text":"4","messages":[` +
		strings.TrimSuffix(strings.Repeat(message+",", 270), ",") + `]}}`)
	bench := func(name string, load func(testing.TB) *Registry, judge string) {
		b.Run(name, func(b *testing.B) {
			j := open(b, load(b), judge)
			b.SetBytes(int64(len(d)))
			for b.Loop() {
				_, err := j.Judge(context.Background(), judger.NewRequest(d))
				require.NoError(b, err)
			}
		})
	}
	for name, load := range transports(component.Judger, "tame") {
		bench(name, load, "tame")
	}
	bench("two fields process", func(b testing.TB) *Registry { return example(b, "judger/exact42", "exact42", Process) }, "exact42")
	bench("two fields wasm", func(b testing.TB) *Registry { return example(b, "judger/exact42", "exact42", Wasm) }, "exact42")
	bench("two fields smallest wasm", func(b testing.TB) *Registry {
		r, _ := load(b, Source{Key: "judger/smallest", Wasm: wat(b, "exact")})
		return r
	}, "smallest")
}

// BenchmarkFeed feeds a reply in chunks of 16 bytes; one operation is a chunk.
func BenchmarkFeed(b *testing.B) {
	for name, load := range transports(component.Format, "letters") {
		b.Run(name, func(b *testing.B) {
			f, err := load(b).Format(context.Background(), "letters", nil)
			require.NoError(b, err)
			p, err := f.Open(context.Background(), &format.ParseOptions{})
			require.NoError(b, err)
			defer p.Close()
			var events []format.Event
			for b.Loop() {
				events = p.Feed(events[:0], []byte("sixteen letters."))
			}
			require.NoError(b, p.Err())
		})
	}
}

// BenchmarkStart loads a plugin whose description and code are cached, and
// makes its first call. The zoo has every kind and is big for a plugin; exact42
// is a judger as people write them. On a machine that does other things, too,
// cpu-ms/op says more than the time on the clock. Most of it is the number of
// pages that the compiled code fills: wazero copies and sums all of it.
func BenchmarkStart(b *testing.B) {
	typical := New(Options{CacheDir: zooBuilt.cache})
	exact42, err := typical.build(b.Context(), calculator("exact42"), goWasm)
	require.NoError(b, err)
	for name, s := range map[string]Source{
		Process:           {Key: "judger/tame", Process: []string{zooBuilt.process}},
		Wasm:              {Key: "judger/tame", Wasm: zooBuilt.wasm},
		"typical " + Wasm: {Key: "judger/exact42", Wasm: exact42},
	} {
		b.Run(name, func(b *testing.B) {
			_, judge, _ := strings.Cut(s.Key, "/")
			used := cpuTime(b)
			for b.Loop() {
				r := New(Options{CacheDir: zooBuilt.cache})
				require.NoError(b, r.Add(context.Background(), s))
				_, err := open(b, r, judge).Judge(context.Background(), judgeRequest(`{"task":{"answer":"1"},"rollout":{"final_text":"skip"}}`))
				require.NoError(b, err)
				require.NoError(b, r.Close(context.Background()))
			}
			b.ReportMetric(float64((cpuTime(b)-used).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpuTime is what this process used of the processors so far.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
