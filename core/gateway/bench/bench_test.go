package bench

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// What the gateway is built to stay within, for this request.
const (
	mostCPU   = 2.5 // times the floor that translates
	mostAdded = 5.0 // ms of median latency above the backend's own
	mostPeak  = 64  // MiB
)

// requests go to each target in an op.
const requests = 300

// BenchmarkFloors sends the same agentic request (120 KB, 20 tools, answered
// in 100 chunks) through each of the floors and the gateway, taking turns, so
// that all meet the same noise. An op is all requests to all of them.
func BenchmarkFloors(b *testing.B) {
	backend := start(b, "backend", "")
	var all []*target
	for _, name := range []string{"proxy", "translate", "upstream", "own-format"} {
		all = append(all, &target{child: start(b, name, backend.URL)})
	}
	router, why := startRouter(b, backend.URL)
	if router != nil {
		all = append(all, &target{child: router})
	}
	direct := &target{child: &child{ready: backend.ready, name: "backend"}, path: "/v1/chat/completions"}
	all = append([]*target{direct}, all...)
	client := &http.Client{Transport: transport()}
	defer client.CloseIdleConnections()
	for _, t := range all {
		for range 20 { // to warm up
			t.ask(b, client)
		}
		t.took, t.before, t.bytes = nil, t.usage(b), 0
	}
	for b.Loop() {
		for range requests {
			for _, t := range all {
				t.ask(b, client)
			}
		}
	}
	b.StopTimer()
	report(b, all, why)
}

// target is one of those that are compared.
type target struct {
	*child
	path   string
	talk   *conversation
	asked  int
	bytes  int
	took   []time.Duration
	before usage
	cpu    float64 // ms of a request
	peak   float64
	median float64 // ms
}

// ask sends the next request of a conversation and checks its answer.
func (t *target) ask(b *testing.B, c *http.Client) {
	path := t.path
	if path == "" {
		path = "/v1/messages"
	}
	if t.asked%callsOfASession == 0 {
		t.talk = newConversation()
	}
	body := t.talk.body()
	r, err := http.NewRequest(http.MethodPost, t.URL+path, bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	if len(t.Keys) > 0 {
		r.Header.Set("X-Api-Key", t.Keys[t.asked/callsOfASession%len(t.Keys)])
	}
	t.asked++
	t.bytes += len(body)
	began := time.Now()
	res, err := c.Do(r)
	if err != nil {
		b.Fatal(t.name, err)
	}
	got, err := io.ReadAll(res.Body)
	res.Body.Close()
	t.took = append(t.took, time.Since(began))
	if err != nil || res.StatusCode != http.StatusOK {
		b.Fatalf("%s: %s, %v: %.500s", t.name, res.Status, err, got)
	}
	text, id, arguments := said(got)
	for _, word := range []string{lastText, lastArgument} {
		if !strings.Contains(text+string(arguments), word) || id == "" || !bytes.Contains(got, []byte(toolName)) {
			b.Fatalf("%s: the answer lacks %s: %.500s", t.name, word, got)
		}
	}
	t.talk.turn(text, id, arguments)
}

// report prints a table and the ratios to the floors.
func report(b *testing.B, all []*target, left string) {
	b.Helper()
	by := map[string]*target{}
	for _, t := range all {
		u := t.usage(b)
		t.cpu = (u.CPU - t.before.CPU) * 1000 / float64(len(t.took))
		t.peak = u.Peak
		slices.Sort(t.took)
		t.median = float64(t.took[len(t.took)/2].Microseconds()) / 1000
		by[t.name] = t
	}
	backend, floor := by["backend"], by["translate"]
	load, _ := os.ReadFile("/proc/loadavg")
	var table strings.Builder
	fmt.Fprintf(&table, "load average %.14s; %d requests of %d bytes each, one at a time\n", load, len(backend.took), backend.bytes/len(backend.took))
	fmt.Fprintf(&table, "%-12s %12s %12s %12s %12s %12s\n", "", "CPU ms", "x translate", "median ms", "added ms", "peak MiB")
	for _, t := range all {
		if t == backend { // its CPU went to all of them
			fmt.Fprintf(&table, "%-12s %12s %12s %12.2f\n", t.name, "", "", t.median)
			continue
		}
		fmt.Fprintf(&table, "%-12s %12.2f %12.2f %12.2f %12.2f %12.1f\n", t.name, t.cpu, t.cpu/floor.cpu, t.median, t.median-backend.median, t.peak)
	}
	for _, name := range []string{"upstream", "own-format"} {
		t := by[name]
		fmt.Fprintf(&table, "penstock, %s: CPU %s; added %s, %.2f x what the floor adds; peak %s\n", name,
			verdict(t.cpu/floor.cpu, mostCPU, "x the floor"), verdict(t.median-backend.median, mostAdded, "ms"),
			(t.median-backend.median)/(floor.median-backend.median), verdict(t.peak, mostPeak, "MiB"))
	}
	ours := by["upstream"]
	if router := by["router"]; router != nil {
		fmt.Fprintf(&table, "claude-code-router, which records nothing: %.1f times the CPU of upstream\n", router.cpu/ours.cpu)
		b.ReportMetric(router.cpu/ours.cpu, "router-x-ours")
	} else {
		fmt.Fprintln(&table, left)
	}
	fmt.Fprint(os.Stdout, "\n", &table) // b.Log keeps ten lines
	b.ReportMetric(ours.cpu, "cpu-ms/call")
	b.ReportMetric(ours.cpu/floor.cpu, "x-translate")
	b.ReportMetric(ours.cpu/by["proxy"].cpu, "x-proxy")
	b.ReportMetric(ours.median-backend.median, "added-ms")
	b.ReportMetric(ours.peak, "peak-MiB")
}

// verdict says how a figure compares with the most that it should be.
func verdict(is, most float64, unit string) string {
	word := "within"
	if is > most {
		word = "OVER"
	}
	return fmt.Sprintf("%.2f %s, %s %g", is, unit, word, most)
}
