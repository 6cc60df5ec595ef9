package formats_test

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// benchTexts holds, for a format of each family, a reply that writes a file of
// 64 KB of source code.
func benchTexts() map[string]string {
	line := "\tif err := w.put(ctx, key, values[i]); err != nil && i < len(values) { // keep going\n\t\treturn fmt.Errorf(\"put %s: %w\", key, err)\n\t}\n"
	source := strings.Repeat(line, 64<<10/len(line))
	quoted, err := chat.Marshal(source)
	if err != nil {
		panic(err)
	}
	prose := strings.Repeat("The file is written in one go; see below for what it holds. ", 20)
	return map[string]string{
		"qwen3_coder":  prose + "\n\n<tool_call>\n<function=write>\n<parameter=path>\na/b.go\n</parameter>\n<parameter=text>\n" + source + "\n</parameter>\n</function>\n</tool_call>",
		"hermes":       prose + "\n<tool_call>\n{\"name\": \"write\", \"arguments\": {\"path\": \"a/b.go\", \"text\": " + string(quoted) + "}}\n</tool_call>",
		"kimi_k2":      prose + "<|tool_calls_section_begin|><|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>{\"text\": " + string(quoted) + "}<|tool_call_end|><|tool_calls_section_end|>",
		"glm47":        prose + "<tool_call>write<arg_key>text</arg_key><arg_value>" + source + "</arg_value></tool_call>",
		"minimax_m3":   prose + "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"write\">]<]minimax[>[<text>" + source + "]<]minimax[>[</text>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
		"harmony":      "<|channel|>commentary to=functions.write <|constrain|>json<|message|>{\"text\": " + string(quoted) + "}<|call|>",
		"lfm2":         prose + "<|tool_call_start|>[write(text=" + string(quoted) + ")]<|tool_call_end|>",
		"deepseek_v32": prose + "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"write\">\n<｜DSML｜parameter name=\"text\" string=\"true\">" + source + "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
		"gemma4":       prose + "<|tool_call>call:write{text:<|\"|>" + source + "<|\"|>}<tool_call|>",
	}
}

// BenchmarkParse parses whole texts and texts in small chunks. x-IndexByte is
// the processor's time as a multiple of one scan of the same bytes with
// bytes.IndexByte, and MB/cpu-s is by the processor's time as well, so that both
// hold on a machine that does other things too.
func BenchmarkParse(b *testing.B) {
	for name, text := range benchTexts() {
		f := open(b, name)
		for _, size := range []struct {
			name  string
			bytes int
		}{{"whole", len(text)}, {"16", 16}, {"4", 4}} {
			b.Run(name+"/"+size.name, func(b *testing.B) { benchParse(b, f, []byte(text), size.bytes) })
		}
	}
}

func benchParse(b *testing.B, f format.Format, text []byte, size int) {
	o := &format.ParseOptions{Tools: lawTools}
	var events []format.Event
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	took := cpuTime(b, func() {
		for b.Loop() {
			events = parseChunks(b, f, o, text, size, events[:0]...)
		}
	})
	per := took / time.Duration(b.N)
	b.ReportMetric(float64(testing.AllocsPerRun(1, func() { parseChunks(b, f, o, text, size) }))/float64(len(text)>>10), "allocs/KB")
	b.ReportMetric(float64(len(text))/1e6/per.Seconds(), "MB/cpu-s")
	b.ReportMetric(float64(per)/float64(scanTime(b, text)), "x-IndexByte")
}

func parseChunks(b *testing.B, f format.Format, o *format.ParseOptions, text []byte, size int, events ...format.Event) []format.Event {
	p, err := f.Open(b.Context(), o)
	require.NoError(b, err)
	for rest := text; len(rest) > 0; {
		n := min(size, len(rest))
		events = p.Feed(events[:0], rest[:n])
		rest = rest[n:]
	}
	return p.Finish(events[:0])
}

// scanTime is how much of the processor one scan for a byte that isn't there
// takes.
func scanTime(b *testing.B, text []byte) time.Duration {
	const rounds = 5000
	found := 0
	took := cpuTime(b, func() {
		for range rounds {
			found += bytes.IndexByte(text, 0)
		}
	})
	if found > 0 {
		return 1
	}
	return max(1, took/rounds)
}

// TestTimeGrowsWithLength parses an argument of 8 MB in at most ten times the
// time for 1 MB, in a format of each family, where nothing else runs, as the
// long form of the tests does; what runs beside it takes the large argument's
// share of the caches. A parser that looks twice at what it has takes 64 times.
func TestTimeGrowsWithLength(t *testing.T) {
	most := 20.0
	if os.Getenv("PENSTOCK_SOAK") != "" {
		most = 10
	}
	for name, wrap := range map[string][2]string{
		"qwen3_coder":  {"<tool_call>\n<function=bash>\n<parameter=command>\n", "\n</parameter>\n</function>\n</tool_call>"},
		"hermes":       {"<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"", "\"}}\n</tool_call>"},
		"kimi_k2":      {"<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>{\"command\": \"", "\"}<|tool_call_end|><|tool_calls_section_end|>"},
		"glm47":        {"<tool_call>bash<arg_key>command</arg_key><arg_value>", "</arg_value></tool_call>"},
		"minimax_m3":   {"]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"bash\">]<]minimax[>[<command>", "]<]minimax[>[</command>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>"},
		"harmony":      {"<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{\"command\": \"", "\"}<|call|>"},
		"lfm2":         {"<|tool_call_start|>[bash(command=\"", "\")]<|tool_call_end|>"},
		"gemma4":       {"<|tool_call>call:bash{command:<|\"|>", "<|\"|>}<tool_call|>"},
		"deepseek_v32": {"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\" string=\"true\">", "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
	} {
		f := open(t, name)
		small := wrap[0] + strings.Repeat("some text, ", 1<<20/11) + wrap[1]
		large := wrap[0] + strings.Repeat("some text, ", 8<<20/11) + wrap[1]
		ratio := 100.0
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until); { // one undisturbed round is enough
			runtime.GC() // what others left is not the parser's to collect
			short := cpuTime(t, func() { parseTime(t, f, small, 1<<16) })
			long := cpuTime(t, func() { parseTime(t, f, large, 1<<16) })
			if ratio = min(ratio, float64(long)/float64(short)); ratio <= most {
				break
			}
		}
		require.LessOrEqual(t, ratio, most, name)
	}
}

// cpuTime is the processor time that f takes, which doesn't depend on what else
// the machine does.
func cpuTime(t testing.TB, f func()) time.Duration {
	t.Helper()
	var before, after syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	f()
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	return max(time.Microsecond, time.Duration(after.Utime.Nano()-before.Utime.Nano()+after.Stime.Nano()-before.Stime.Nano()))
}
