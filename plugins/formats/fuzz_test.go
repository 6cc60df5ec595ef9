package formats_test

import (
	"context"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

// FuzzParse feeds any text to every format: it must not panic, the events must
// not depend on the split, and no text may get lost.
func FuzzParse(f *testing.F) {
	for _, c := range readCases(f) {
		f.Add(c.Text, uint64(len(c.Text)), c.ReasoningOpen)
	}
	all := map[string]format.Format{}
	for _, name := range names(f) {
		all[name] = open(f, name)
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64, opened bool) {
		for name, format := range all {
			checkParse(t, name, format, text, seed, opened)
		}
	})
}

// TestRandomMarkup parses random texts made of the pieces that formats are
// made of.
func TestRandomMarkup(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for _, name := range names(t) {
		f := open(t, name)
		pieces := piecesOf(t, f, name)
		for range 500 {
			var text strings.Builder
			for range r.IntN(14) {
				text.WriteString(pieces[r.IntN(len(pieces))])
			}
			if !checkParse(t, name, f, text.String(), r.Uint64(), r.IntN(3) == 0) {
				return
			}
		}
	}
}

// piecesOf cuts the cases of a format at its markup.
func piecesOf(t testing.TB, f format.Format, name string) []string {
	out := []string{"\n", " ", "\r\n", "x", "é", "\xff", "\xe6\x97", "{", "}", "[", "]", "\"", "\\", ",", ":", "'", "<", ">", "`", "null", "1"}
	out = append(out, f.Markers()...)
	for _, c := range readCases(t) {
		if c.Format != name {
			continue
		}
		for i := 0; i < len(c.Text); {
			n := 1
			for i+n < len(c.Text) && !strings.ContainsRune("<>\n{}[],:\"", rune(c.Text[i+n])) {
				n++
			}
			n = min(n+1, len(c.Text)-i)
			out = append(out, c.Text[i:i+n])
			i += n
		}
	}
	for _, m := range f.Markers() {
		out = append(out, m[:len(m)/2])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func checkParse(t *testing.T, name string, f format.Format, text string, seed uint64, opened bool) bool {
	t.Helper()
	tools := []chat.Tool{{Name: "bash", Parameters: []byte(`{"properties":{"command":{"type":"string"},"n":{"type":"integer"}}}`)}, lawTools[0], lawTools[1]}
	o := format.ParseOptions{Tools: tools, State: format.State{ReasoningOpen: opened}}
	parse := func(chunks []string) []format.Event {
		events, err := cases.Parse(context.Background(), f, o, chunks)
		require.NoError(t, err)
		return events
	}
	whole := parse([]string{text})
	joined := format.Join(whole)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, chunks := range [][]string{cases.Bytes(text), cases.Random(r, text), cases.Random(r, text)} {
		if got := format.Join(parse(chunks)); !reflect.DeepEqual(joined, got) {
			return assert.Fail(t, "events depend on the split", "%s: %q in %q\n%v\n%v", name, text, chunks, joined, got)
		}
	}
	result := format.Collect(whole)
	for _, c := range result.Calls {
		if !c.Incomplete && !cases.Same([]byte(c.Arguments), []byte(c.Arguments)) {
			return assert.Fail(t, "arguments are no JSON", "%s: %q: %q", name, text, c.Arguments)
		}
	}
	return checkCover(t, name, f, text, joined)
}

// markupWords are words that belong to the markup of a format and are no tokens.
var markupWords = map[string][]string{
	"gemma4": {"thought"}, "functionary_v32": {">>>all", "all\n"}, "hunyuan_a13b": {"<answer>", "</answer>", "助手："},
	"kimi_k3": {"<|open|>think<|sep|>", "<|close|>think<|sep|>", "<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"},
	"ernie45": {"<response>", "</response>"}, "granite3p3": {"<response>", "</response>"},
}

// checkCover holds that every byte that is neither whitespace nor a marker
// comes out: as content, as reasoning, in a call's markup, or in a warning.
func checkCover(t *testing.T, name string, f format.Format, text string, events []format.Event) bool {
	t.Helper()
	covered := make([]bool, len(text))
	for _, e := range events {
		switch e.Kind {
		case format.Content, format.Reason:
			if !assert.Equal(t, strings.ReplaceAll(text[e.Span.Start:e.Span.End], "", ""), text[e.Span.Start:e.Span.End]) {
				return false
			}
		case format.CallEnd, format.Warning:
		default:
			continue
		}
		for i := e.Span.Start; i < e.Span.End; i++ {
			covered[i] = true
		}
	}
	var lost strings.Builder
	for i := range len(text) {
		if !covered[i] {
			lost.WriteByte(text[i])
		}
	}
	rest := lost.String()
	for _, word := range markupWords[name] {
		rest = strings.ReplaceAll(rest, word, "")
	}
	if name == "glimmer" { // so are the words of a header
		rest = regexp.MustCompile(`(assistant)?\s*to=[^<\s]+`).ReplaceAllString(rest, "")
	}
	if name == "harmony" { // the words of its headers are markup
		rest = strings.NewReplacer("analysis", "", "commentary", "", "final", "", "assistant", "").Replace(rest)
	}
	for changed := true; changed; {
		changed = false
		for _, m := range f.Markers() {
			if strings.Contains(rest, m) {
				rest, changed = strings.ReplaceAll(rest, m, ""), true
			}
		}
	}
	rest = strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n", r) {
			return -1
		}
		return r
	}, rest)
	return assert.Empty(t, rest, "%s lost text of %q: %v", name, text, events)
}

// TestLinearTime parses 128 KB of hostile text, also in small chunks. Linear
// time is milliseconds; anything quadratic is many seconds.
func TestLinearTime(t *testing.T) {
	hostile := map[string]func(n int) string{
		"value": func(n int) string {
			return "<tool_call>\n<function=bash>\n<parameter=command>\n" + strings.Repeat("x", n)
		},
		"typed value": func(n int) string { return "<tool_call>\n<function=bash>\n<parameter=n>\n" + strings.Repeat("[", n) },
		"spaces":      func(n int) string { return strings.Repeat(" ", n) + "x" },
		"spaces in tag": func(n int) string {
			return "<tool_call>" + strings.Repeat("\n", n) + "<function=bash>" + strings.Repeat("\n", n)
		},
		"closers": func(n int) string {
			return "<tool_call>\n<function=bash>\n<parameter=command>\n<parameter=q>\n" + strings.Repeat("</function>\n", n/12)
		},
		"closer, spaces": func(n int) string {
			return "<tool_call>\n<function=bash>\n<parameter=command>\nx</parameter>" + strings.Repeat(" ", n) + "y"
		},
		"nested": func(n int) string {
			return "<tool_call>\n<function=bash>\n<parameter=command>\n" + strings.Repeat("<function=f>\n", n/13)
		},
		"openers":    func(n int) string { return strings.Repeat("<tool_call>", n/11) },
		"json heads": func(n int) string { return strings.Repeat(`<tool_call>{"a":"`, n/17) },
		"json keys":  func(n int) string { return `<tool_call>{"` + strings.Repeat(`<tool_call>{x`, n/13) },
		"json deep":  func(n int) string { return `<tool_call>{"name": "bash", "arguments": {"a":` + strings.Repeat("[", n) },
		"json args":  func(n int) string { return `<tool_call>{"name": "bash", "arguments": {"a":"` + strings.Repeat("x", n) },
		"number":     func(n int) string { return `<tool_call>{"name": "bash", "arguments": {"a":` + strings.Repeat("1", n) },
		"args first": func(n int) string {
			return `<tool_call>{"arguments": {"a":"` + strings.Repeat(`\n`, n/2) + `"}, "name": "bash"}`
		},
		"stops":  func(n int) string { return strings.Repeat("<|im_end|>", n/10) + "x" },
		"tag":    func(n int) string { return "<tool_call>\n<function=" + strings.Repeat("a", n) },
		"think":  func(n int) string { return strings.Repeat("</think>\n", n/9) },
		"commas": func(n int) string { return `<tool_call>{"name": "bash", "arguments": {"a":[1` + strings.Repeat(",", n) },
	}
	const size = 1 << 17
	for _, name := range names(t) {
		f := open(t, name)
		for what, text := range hostile {
			for _, chunk := range []int{0, 7} {
				hostile := text(size)
				took := cpuTime(t, func() { parseTime(t, f, hostile, chunk) })
				assert.Less(t, took, time.Second, "%s, %s, chunks of %d", name, what, chunk)
			}
		}
	}
}

func parseTime(t testing.TB, f format.Format, text string, chunk int) time.Duration {
	t.Helper()
	o := &format.ParseOptions{Tools: []chat.Tool{{Name: "bash", Parameters: []byte(`{"properties":{"command":{"type":"string"},"n":{"type":"array"}}}`)}}}
	p, err := f.Open(t.Context(), o)
	require.NoError(t, err)
	start := time.Now()
	rest := []byte(text)
	var events []format.Event
	for chunk > 0 && len(rest) > chunk {
		events = p.Feed(events[:0], rest[:chunk])
		rest = rest[chunk:]
	}
	events = p.Feed(events[:0], rest)
	p.Finish(events)
	return time.Since(start)
}

// The first byte of a string argument leaves with the chunk that brings it.
func TestStringArgumentsStream(t *testing.T) {
	for name, text := range map[string][2]string{
		"qwen3_coder": {"<tool_call>\n<function=bash>\n<parameter=command>\n", "ls -la\n<b>é"},
		"qwen3p5":     {"<tool_call>\n<function=bash>\n<parameter=command>\n", "ls -la\n<b>é"},
		"hermes":      {"<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"", "ls -la <b>é"},
	} {
		p, err := open(t, name).Open(t.Context(), &format.ParseOptions{Tools: []chat.Tool{{Name: "bash", Parameters: []byte(`{"properties":{"command":{"type":"string"}}}`)}}})
		require.NoError(t, err)
		p.Feed(nil, []byte(text[0]))
		for _, r := range text[1] {
			if r == '<' || r == '\n' {
				p.Feed(nil, []byte(string(r)))
				continue // it may begin a tag
			}
			events := p.Feed(nil, []byte(string(r)))
			require.NotEmpty(t, events, "%s holds %q back", name, r)
			last := events[len(events)-1]
			assert.Equal(t, format.CallArgs, last.Kind)
			assert.True(t, strings.HasSuffix(last.Text, string(r)), "%s: %q", name, last.Text)
			assert.True(t, utf8.ValidString(last.Text))
		}
	}
}
