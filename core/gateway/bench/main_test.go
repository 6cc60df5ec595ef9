// Package bench measures the gateway beside floors: what it costs to translate
// and record a call, in CPU, latency and memory, against a bare reverse proxy
// and against a bare translation, all in one run on one machine.
//
// Each of them is a process of its own (this test program, started again), so
// that its CPU and memory can be told apart. What never enters: production
// code.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// roleVar says what a run of this program is; roleTo is where its backend is.
// profilesVar is a folder in which every role leaves profiles of its CPU and of
// what it allocated.
const (
	roleVar     = "PENSTOCK_BENCH_ROLE"
	roleTo      = "PENSTOCK_BENCH_BACKEND"
	profilesVar = "PENSTOCK_BENCH_PROFILES"
)

// roles are what this program can be. Each returns its URL, and the keys of
// sessions where it has any.
var roles = map[string]func(backend string) (ready, error){
	"backend":    func(string) (ready, error) { return serveBackend() },
	"proxy":      serveProxy,
	"translate":  serveTranslate,
	"own-format": serveOwnFormat,
	"upstream":   serveUpstreamFormat,
	"script":     serveScript,
}

// ready is what a role says on standard output once it serves.
type ready struct {
	URL   string
	Keys  []string // tokens, the next one to be used for each so many calls
	Usage string   // where its usage can be asked
}

func TestMain(m *testing.M) {
	role, ok := roles[os.Getenv(roleVar)]
	if !ok {
		os.Exit(m.Run())
	}
	r, err := role(os.Getenv(roleTo))
	if err == nil {
		r.Usage, err = serve(http.HandlerFunc(answerUsage))
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	stop, err := profile()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the benchmark ends
	stop()
}

// profile writes a CPU profile until it is stopped, if one is wanted.
func profile() (stop func(), err error) {
	dir := os.Getenv(profilesVar)
	if dir == "" {
		return func() {}, nil
	}
	f, err := os.Create(filepath.Join(dir, os.Getenv(roleVar)+".pprof"))
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		return func() {}, err
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
		runtime.GC() // what was allocated is counted at the next collection
		if f, err := os.Create(filepath.Join(dir, os.Getenv(roleVar)+".allocs.pprof")); err == nil {
			_ = pprof.Lookup("allocs").WriteTo(f, 0)
			f.Close()
		}
	}, nil
}

// serve serves on a loopback port.
func serve(h http.Handler) (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = http.Serve(l, h) }()
	return "http://" + l.Addr().String(), nil
}

// usage is what a process has used so far.
type usage struct {
	CPU  float64 // seconds
	Peak float64 // MiB of resident memory
}

func answerUsage(w http.ResponseWriter, _ *http.Request) {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	// The peak isn't Maxrss, which a process has from the one that started it.
	u := usage{CPU: seconds(r.Utime) + seconds(r.Stime), Peak: peakOf("self")}
	_ = json.NewEncoder(w).Encode(u)
}

// child is a role at work.
type child struct {
	ready
	name    string
	process int // of one that is no role, else 0
}

func start(b *testing.B, name, backend string) *child {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+name, roleTo+"="+backend, "TMPDIR="+b.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	c := &child{name: name}
	require.NoError(b, json.NewDecoder(out).Decode(&c.ready), "start %s", name)
	return c
}

func (c *child) usage(b *testing.B) (u usage) {
	b.Helper()
	if c.process != 0 {
		return usageOf(b, c.process)
	}
	res, err := http.Get(c.Usage)
	require.NoError(b, err)
	defer res.Body.Close()
	require.NoError(b, json.NewDecoder(res.Body).Decode(&u))
	return u
}
