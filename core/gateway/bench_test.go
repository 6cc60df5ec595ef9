package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// agentic is the request of a coding agent: about 120 KB, with 14 KB of
// system prompt, 20 tools and 30 messages.
func agentic() string {
	words := strings.Repeat("The quick brown fox jumps over the lazy dog, \\n and \\\"so\\\" on. ", 40)
	var tools, messages []string
	for i := range 20 {
		tools = append(tools, fmt.Sprintf(`{"name":"tool_%d","description":"%s","input_schema":{"type":"object","properties":{"path":{"type":"string","description":"A path."},"limit":{"type":"integer"}},"required":["path"]}}`, i, words[:900]))
	}
	for i := range 15 {
		if i > 0 {
			messages = append(messages, fmt.Sprintf(`{"role":"assistant","content":[{"type":"text","text":"%s"},{"type":"tool_use","id":"call_%d","name":"tool_1","input":{"path":"/a/b/c"}}]}`, words[:600], i))
			messages = append(messages, fmt.Sprintf(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_%d","content":[{"type":"text","text":"%s%s%s"}]}]}`, i, words, words, words[:900]))
			continue
		}
		messages = append(messages, `{"role":"user","content":"`+words[:600]+`"}`)
	}
	return `{"model":"policy","max_tokens":32000,"stream":true,"system":[{"type":"text","text":"` + strings.Repeat(words, 5) + `"}],"tools":[` +
		strings.Join(tools, ",") + `],"messages":[` + strings.Join(messages, ",") + `]}`
}

// reply100 is a reply of 100 chunks: 60 of text and 40 of a tool call.
func reply100() []upstream.Chunk {
	text := strings.Repeat("Some words of it. ", 60) + `<call tool_1>{"path":"` + strings.Repeat("/some/long/path/to", 39) + `"}</call>` + imEnd
	list := stream(text, 18).list
	return list[:len(list):len(list)]
}

func BenchmarkAgentic(b *testing.B) {
	b.Run("direct", func(b *testing.B) { benchmark(b) })
	pass := hookFunc(func(context.Context, *hook.Event) (hook.Result, error) { return hook.Pass(), nil })
	b.Run("hooks", func(b *testing.B) {
		benchmark(b, hooks(changes("request", pass, hook.Request), changes("call", pass, hook.ToolCall)))
	})
}

func benchmark(b *testing.B, settings ...setting) {
	list := reply100()
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		return &chunks{list: list}, nil
	}}
	settings = append(settings, func(o *gateway.Options, m *gateway.Model) { o.Calls = nothing{} })
	g := start(b, e, settings...)
	body := agentic()
	b.SetBytes(int64(len(body)))
	s := g.session(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%50 == 49 { // sessions don't go on for ever
			require.NoError(b, s.Close(b.Context()))
			s = g.session(b)
		}
		res, err := http.DefaultClient.Do(request(b, s, body))
		if err != nil || res.StatusCode != 200 {
			b.Fatal(err, res)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	b.ReportMetric(float64(len(list)), "chunks/op")
}

// nothing is a store that keeps nothing.
type nothing struct{}

func (nothing) PutSession(context.Context, *trace.Session) error { return nil }
func (nothing) PutCall(context.Context, *trace.Call) error       { return nil }
func (nothing) SetDelivered(context.Context, string) error       { return nil }

// BenchmarkSessions is many sessions at once, each streaming one call after
// the other into the real store.
func BenchmarkSessions(b *testing.B) {
	const sessions = 1000
	st, err := trace.Open(filepath.Join(b.TempDir(), "penstock.db"), trace.StoreOptions{})
	require.NoError(b, err)
	b.Cleanup(func() { st.Close() })
	list := reply100()
	e := &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		return &chunks{list: list}, nil
	}}
	g := start(b, e, func(o *gateway.Options, m *gateway.Model) { o.Calls = st })
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: sessions}}
	defer client.CloseIdleConnections()
	open := make([]*gateway.Session, sessions)
	for i := range open {
		open[i] = g.session(b)
	}
	body := ask("hello", true, addTool)
	var next, failed atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for _, s := range open {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				res, err := client.Do(request(b, s, body))
				if err != nil {
					failed.Add(1)
					continue
				}
				got, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || !bytes.HasSuffix(got, []byte("message_stop\"}\n\n")) {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	require.Zero(b, failed.Load())
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	b.ReportMetric(float64(mem.Sys)/(1<<20), "sys-MiB")
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
}
