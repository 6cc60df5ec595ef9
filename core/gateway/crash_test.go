package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
)

// victimDir is set for a run of this program that is to be killed: it serves
// with a store in that folder.
const victimDir = "GATEWAY_TEST_VICTIM"

// victim says on standard output where it serves, and serves until it is
// killed or its standard input ends.
func victim(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	st, err := trace.Open(filepath.Join(dir, "penstock.db"), trace.StoreOptions{})
	fail(err)
	g, err := gateway.New(gateway.Options{Calls: st})
	fail(err)
	m := &gateway.Model{Entry: "policy", Format: toy{}, FormatName: "toy", Tokenizer: tokenizer, Upstream: says(strings.Repeat("word ", 20)+imEnd, 5), Capture: gateway.CaptureExact}
	var urls []string
	for i := range 8 {
		s, err := g.Open(context.Background(), gateway.SessionSpec{Session: trace.Session{ID: fmt.Sprint("s-", i)}, Model: m})
		fail(err)
		urls = append(urls, s.BaseURL())
	}
	fail(json.NewEncoder(os.Stdout).Encode(urls))
	io.Copy(io.Discard, os.Stdin)
}

// TestKilledUnderLoad: every call whose reply a client saw to its end is in
// the store, however the gateway died.
func TestKilledUnderLoad(t *testing.T) {
	for i := range 10 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			dir := t.TempDir()
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), victimDir+"="+dir)
			child.Stderr = os.Stderr
			in, err := child.StdinPipe()
			require.NoError(t, err)
			defer in.Close()
			out, err := child.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, child.Start())
			line, err := bufio.NewReader(out).ReadBytes('\n')
			require.NoError(t, err)
			var urls []string
			require.NoError(t, json.Unmarshal(line, &urls))

			var mu sync.Mutex
			var whole []string
			var all sync.WaitGroup
			for _, url := range urls {
				all.Go(func() {
					for {
						res, err := http.Post(url+"/v1/messages", "application/json", strings.NewReader(ask("hello", true)))
						if err != nil {
							return
						}
						body, _ := io.ReadAll(res.Body)
						res.Body.Close()
						if !strings.Contains(string(body), "event: message_stop") {
							return
						}
						mu.Lock()
						whole = append(whole, res.Header.Get("Request-Id"))
						mu.Unlock()
					}
				})
			}
			time.Sleep(time.Duration(20+rand.IntN(150)) * time.Millisecond)
			require.NoError(t, child.Process.Kill())
			_ = child.Wait() // it was killed
			all.Wait()

			st, err := trace.Open(filepath.Join(dir, "penstock.db"), trace.StoreOptions{})
			require.NoError(t, err)
			defer st.Close()
			for _, id := range whole {
				c, err := st.Call(t.Context(), id)
				require.NoError(t, err, id)
				assert.Equal(t, trace.CallOK, c.Status)
				assert.Equal(t, strings.Repeat("word ", 20)+imEnd, c.Raw)
			}
			t.Logf("%d calls were whole", len(whole))
		})
	}
}
