package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/trace"
)

// server is the built binary, serving the models of a pipeline.
type server struct {
	out    string   // its run folder
	env    []string // what it says that clients need
	url    string
	token  string // the operator's
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	ended  chan error
}

// serve starts penstock gateway; it is killed at the end of the test if it is
// still there. env is on top of the test's own.
func serve(t testing.TB, pipeline string, env ...string) *server {
	t.Helper()
	return serveIn(t, filepath.Join(t.TempDir(), "out"), pipeline, env...)
}

func serveIn(t testing.TB, out, pipeline string, env ...string) *server {
	t.Helper()
	s := &server{out: out, stderr: &bytes.Buffer{}, ended: make(chan error, 1)}
	s.cmd = exec.Command(built, "gateway", pipeline, "--out", out)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = s.stderr
	stdout, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	lines := bufio.NewScanner(stdout)
	for len(s.env) < 6 && lines.Scan() {
		if list, ok := strings.CutPrefix(lines.Text(), "export "); ok {
			s.env = append(s.env, strings.Fields(list)...)
		}
	}
	require.Len(t, s.env, 6, "%s", s.stderr)
	go func() {
		_, _ = io.Copy(io.Discard, stdout)
		s.ended <- s.cmd.Wait()
	}()
	file, err := os.ReadFile(filepath.Join(out, "gateway.json"))
	require.NoError(t, err)
	s.url, s.token = gjson.GetBytes(file, "url").String(), gjson.GetBytes(file, "operator_token").String()
	return s
}

// stop sends Ctrl-C and waits for the clean end.
func (s *server) stop(t testing.TB) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	select {
	case err := <-s.ended:
		require.NoError(t, err, "%s", s.stderr)
	case <-time.After(30 * time.Second):
		t.Fatalf("penstock gateway doesn't end: %s", s.stderr)
	}
}

// goroutines ends the server and counts the goroutines that it had, save those of
// connections to upstreams that wait to be used again, which are so many at most
// and go after a time.
func (s *server) goroutines(t testing.TB) int {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGQUIT))
	<-s.ended
	n := 0
	for _, one := range strings.Split("\n"+s.stderr.String(), "\ngoroutine ")[1:] {
		if !strings.Contains(one, "net/http.(*persistConn)") {
			n++
		}
	}
	require.NotZero(t, n, "%s", s.stderr)
	return n
}

// control asks a control route.
func (s *server) control(method, path string, body any) ([]byte, error) {
	var send bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&send).Encode(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequest(method, s.url+path, &send)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, got)
	}
	return got, err
}

// opened is a session that the operator opened.
type opened struct{ ID, Token string }

// open opens sessions of a model.
func (s *server) open(t testing.TB, model string, n int) []opened {
	t.Helper()
	out := make([]opened, n)
	for i := range out {
		got, err := s.control(http.MethodPost, "/sessions", map[string]string{"model": model})
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(got, &out[i]))
	}
	return out
}

// close closes sessions, some at a time.
func (s *server) close(t testing.TB, sessions []opened) {
	t.Helper()
	var all sync.WaitGroup
	at := make(chan string)
	failed := make(chan error, len(sessions))
	for range 8 {
		all.Go(func() {
			for id := range at {
				if _, err := s.control(http.MethodPost, "/sessions/"+id+"/clear", nil); err != nil {
					failed <- err
				}
			}
		})
	}
	for _, o := range sessions {
		at <- o.ID
	}
	close(at)
	all.Wait()
	close(failed)
	require.NoError(t, <-failed)
}

// memory is the resident memory of the server in MiB, now and at most.
func (s *server) memory(t testing.TB) (now, most float64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Skip("no /proc here to read the memory of a process from")
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "VmRSS:":
			now = n / 1024
		case "VmHWM:":
			most = n / 1024
		}
	}
	require.NotZero(t, now)
	return now, most
}

// store opens the trace of a server that has ended.
func (s *server) store(t testing.TB) *trace.Store {
	t.Helper()
	st, err := trace.Open(filepath.Join(s.out, "trace", "penstock.db"), trace.StoreOptions{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// load is the machine's, for figures that are printed.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:2], " ")
}
