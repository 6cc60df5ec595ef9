package plugin

import (
	"context"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
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
// is a judger as people write them, in Go and in AssemblyScript. On a machine
// that does other things, too, cpu-ms/op says more than the time on the clock.
//
// wazero reads the compiled code into fresh pages and sums it, and a virtual
// machine can make fresh pages dear. The pages of exact42's code alone are
// "pages", the baseline: x-pages/op is the cost of a start in these.
func BenchmarkStart(b *testing.B) {
	exact42, err := New(Options{CacheDir: zooBuilt.cache}).build(b.Context(), calculator("exact42"), goWasm)
	require.NoError(b, err)
	pages := benchPages(b, exact42)
	for _, c := range []struct {
		name   string
		source Source
	}{
		{"process", Source{Key: "judger/tame", Process: []string{zooBuilt.process}}},
		{"wasm/zoo", Source{Key: "judger/tame", Wasm: zooBuilt.wasm}},
		{"wasm/exact42", Source{Key: "judger/exact42", Wasm: exact42}},
		{"wasm/assemblyscript", Source{Key: "judger/exact", Wasm: "testdata/guests/exact.ts.wasm"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			_, judge, _ := strings.Cut(c.source.Key, "/")
			start := func() {
				r := New(Options{CacheDir: zooBuilt.cache})
				require.NoError(b, r.Add(context.Background(), c.source))
				_, err := open(b, r, judge).Judge(context.Background(), judgeRequest(`{"task":{"answer":"1"},"rollout":{"final_text":"skip"}}`))
				require.NoError(b, err)
				require.NoError(b, r.Close(context.Background()))
			}
			start() // so that all is cached
			used := cpuTime(b)
			for b.Loop() {
				start()
			}
			each := (cpuTime(b) - used) / time.Duration(b.N)
			b.ReportMetric(float64(each.Microseconds())/1000, "cpu-ms/op")
			if pages > 0 {
				b.ReportMetric(float64(each)/float64(pages), "x-pages/op")
			}
		})
	}
}

// benchPages measures what it takes to copy the compiled code of a module into
// fresh pages and to sum it. It is zero if this wasn't to be measured.
func benchPages(b *testing.B, module string) (each time.Duration) {
	dir := b.TempDir()
	r := New(Options{CacheDir: dir})
	require.NoError(b, r.Add(b.Context(), Source{Key: "judger/exact42", Wasm: module}))
	require.NoError(b, r.Close(b.Context()))
	var compiled string
	require.NoError(b, filepath.WalkDir(filepath.Join(dir, "wazero"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			compiled = path
		}
		return err
	}))
	code, err := os.ReadFile(compiled)
	require.NoError(b, err)
	b.Run("pages", func(b *testing.B) {
		used := cpuTime(b)
		for b.Loop() {
			fresh, err := unix.Mmap(-1, 0, len(code), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			require.NoError(b, err)
			copy(fresh, code)
			crc32.Checksum(fresh, crc32.MakeTable(crc32.Castagnoli))
			require.NoError(b, unix.Munmap(fresh))
		}
		each = (cpuTime(b) - used) / time.Duration(b.N)
		b.ReportMetric(float64(each.Microseconds())/1000, "cpu-ms/op")
		b.ReportMetric(float64(len(code))/(1<<20), "MB")
	})
	return each
}

// cpuTime is what this process used of the processors so far.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
