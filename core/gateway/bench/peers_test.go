package bench

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// peersVar is the node_modules that make peers fills.
const peersVar = "PENSTOCK_PEERS"

// startRouter starts claude-code-router before the backend, with its log off;
// nil and a reason where it isn't installed.
func startRouter(b *testing.B, backend string) (c *child, why string) {
	b.Helper()
	program := filepath.Join(os.Getenv(peersVar), "@musistudio", "claude-code-router", "dist", "cli.js")
	node, err := exec.LookPath("node")
	switch {
	case os.Getenv(peersVar) == "":
		return nil, "claude-code-router is left out: " + peersVar + " is not set; make peers installs it"
	case err != nil:
		return nil, "claude-code-router is left out: there is no node on the PATH"
	}
	if _, err := os.Stat(program); err != nil {
		return nil, "claude-code-router is left out: " + err.Error()
	}
	home := b.TempDir()
	dir := filepath.Join(home, ".claude-code-router")
	require.NoError(b, os.MkdirAll(dir, 0o700))
	port := freePort(b)
	require.NoError(b, os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, `{
		"LOG": false, "HOST": "127.0.0.1", "PORT": %d, "NON_INTERACTIVE_MODE": true, "API_TIMEOUT_MS": 60000,
		"Providers": [{"name": "mock", "api_base_url": "%s/v1/chat/completions", "api_key": "sk-test", "models": ["mock"]}],
		"Router": {"default": "mock,mock"}}`, port, backend), 0o600))
	cmd := exec.Command(node, program, "start")
	cmd.Env = append(os.Environ(), "HOME="+home, "NO_PROXY=127.0.0.1")
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c = &child{name: "router", ready: ready{URL: fmt.Sprint("http://127.0.0.1:", port)}, process: cmd.Process.Pid}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if res, err := http.Get(c.URL + "/health"); err == nil {
			res.Body.Close()
			return c, ""
		}
		if time.Now().After(end) {
			return nil, "claude-code-router is left out: it didn't start in 30 s"
		}
	}
}

func freePort(b *testing.B) int {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// usageOf reads what a process has used, to 10 ms, from the system.
func usageOf(b *testing.B, process int) usage {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	require.NoError(b, err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	var ticks float64
	for _, field := range strings.Fields(rest)[11:13] {
		n, _ := strconv.ParseFloat(field, 64)
		ticks += n
	}
	return usage{CPU: ticks / 100, Peak: peakOf(strconv.Itoa(process))}
}

// peakOf is the most resident memory that a process had, in MiB.
func peakOf(process string) float64 {
	b, _ := os.ReadFile("/proc/" + process + "/status")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}
