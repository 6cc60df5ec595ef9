package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/redact"
	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/upstream/script"
)

// What one request of 20 MB is to stay within.
const (
	largeBytes = 20 << 20
	mostLarge  = 1.5 // s
	mostHeld   = 250 // MiB at the peak
)

// serveScript is the gateway with a scripted model and capture exact, behind a
// redactor: it renders, tokenizes and stores the prompt itself.
func serveScript(string) (r ready, err error) {
	f, err := ownFormat()
	if err != nil {
		return r, err
	}
	s, err := script.Parse([]byte("penstock: script/v1\nweights: w\ndefaults: { think_time: 0s, delay: 0s, chunk: [64] }\nrules:\n  - name: all\n    when: { last: 'a' }\n    reply: fine\n"))
	if err != nil {
		return r, err
	}
	tokenizer := token.NewBytes(f.Markers())
	return openPenstock(context.Background(), &gateway.Model{
		Entry: "policy", Name: "mock", Format: f, FormatName: "qwen3_coder", Tokenizer: tokenizer,
		Upstream: script.New(s, tokenizer, script.Options{}), Capture: gateway.CaptureExact,
	}, redact.New(redact.Options{Values: []string{"a secret that is nowhere"}}))
}

// BenchmarkLarge sends requests of 20 MB, each to a gateway of its own: one
// message, then many.
func BenchmarkLarge(b *testing.B) {
	for _, messages := range []int{1, 1001, 19001} {
		b.Run(fmt.Sprintf("%d-messages", messages), func(b *testing.B) {
			body := largeBody(largeBytes, messages)
			b.SetBytes(int64(len(body)))
			var took time.Duration
			var cpu, peak float64
			n := 0
			for b.Loop() {
				p := start(b, "script", "")
				before := p.usage(b)
				began := time.Now()
				askLarge(b, p.ready, 0, body)
				took += time.Since(began)
				u := p.usage(b)
				cpu, peak = cpu+u.CPU-before.CPU, max(peak, u.Peak)
				n++
			}
			b.ReportMetric(took.Seconds()/float64(n), "s/request")
			b.ReportMetric(cpu/float64(n), "cpu-s/request")
			b.ReportMetric(peak, "peak-MiB")
			load, _ := os.ReadFile("/proc/loadavg")
			fmt.Fprintf(os.Stdout, "\nload average %.14s; CPU %s; peak %s\n", load,
				verdict(cpu/float64(n), mostLarge, "s"), verdict(peak, mostHeld, "MiB"))
		})
	}
}

func askLarge(b testing.TB, p ready, key int, body []byte) {
	r, err := http.NewRequest(http.MethodPost, p.URL+"/v1/messages", bytes.NewReader(body))
	require.NoError(b, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Api-Key", p.Keys[key])
	res, err := http.DefaultClient.Do(r)
	require.NoError(b, err)
	got, err := io.ReadAll(res.Body)
	res.Body.Close()
	require.NoError(b, err)
	require.Equal(b, http.StatusOK, res.StatusCode, "%.500s", got)
	require.Contains(b, string(got), "fine")
}

// largeBody is a conversation of so many bytes and messages.
func largeBody(bytes, messages int) []byte {
	t := &texts{42}
	size := bytes/messages - 100
	list := make([]object, messages)
	for i := range list {
		id, role := fmt.Sprint("toolu_", (i+1)/2), "user"
		part := object{"type": "tool_result", "tool_use_id": id, "content": []object{{"type": "text", "text": t.some(size)}}}
		switch {
		case i == 0:
			part = object{"type": "text", "text": t.some(size)}
		case i%2 == 1:
			role, part = "assistant", object{"type": "tool_use", "id": id, "name": toolName, "input": object{"command": t.some(size)}}
		}
		list[i] = object{"role": role, "content": []object{part}}
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(object{"model": "policy", "max_tokens": 100, "system": t.some(14000), "tools": t.tools(20), "messages": list})
	return []byte(b.String())
}

// What a large request takes grows with its size, and by little more than its
// text, its ids and their packed form: memory is counted, because it is the
// same at each run.
func TestLargeRequestsStaySmall(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r, err := serveScript("")
	require.NoError(t, err)
	for i, test := range []struct {
		size, messages int
		most           float64 // bytes that are allocated for a byte of the request
	}{{2 << 20, 1, 20}, {6 << 20, 1, 20}, {2 << 20, 101, 20}, {6 << 20, 301, 20}} {
		body := largeBody(test.size, test.messages)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		askLarge(t, r, i, body)
		runtime.ReadMemStats(&after)
		used := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(body))
		assert.Less(t, used, test.most, "%d messages, %d bytes", test.messages, len(body))
		t.Logf("%d messages, %d bytes: %.1f bytes allocated for each", test.messages, len(body), used)
	}
}
