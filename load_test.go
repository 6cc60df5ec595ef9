package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// loadReply is what the models of testdata/load always say.
const loadReply = "This is step one of the plan. Then comes step two of it, and after that there is nothing left to be done but to say so, which takes a while."

// promised is a time that is promised where nothing else runs, as the long
// form of the tests does; beside them all it may take fifteen times as long.
func promised(d time.Duration) time.Duration {
	if soak() {
		return d
	}
	return 15 * d
}

// soak says that the long forms of tests are wanted.
func soak() bool { return os.Getenv("PENSTOCK_SOAK") != "" }

// dialect is one way in which the load asks.
type dialect struct {
	path       string
	body       func(model, history string, n int) string
	turn       string // of the history, after a reply
	text, last string // what a delta's text follows, and what ends a stream
}

var loadDialects = []dialect{
	{
		path: "/v1/messages",
		body: func(model, history string, n int) string {
			return fmt.Sprintf(`{"model":%q,"max_tokens":500,"stream":true,"messages":[%s{"role":"user","content":"Turn %d."}]}`, model, history, n)
		},
		turn: `{"role":"user","content":"Turn %d."},{"role":"assistant","content":[{"type":"text","text":"%s"}]},`,
		text: `"text_delta","text":"`, last: "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
	},
	{
		path: "/v1/chat/completions",
		body: func(model, history string, n int) string {
			return fmt.Sprintf(`{"model":%q,"stream":true,"messages":[%s{"role":"user","content":"Turn %d."}]}`, model, history, n)
		},
		turn: `{"role":"user","content":"Turn %d."},{"role":"assistant","content":"%s"},`,
		text: `"content":"`, last: "data: [DONE]\n\n",
	},
}

// said joins the text of a stream. It is cheap, since the load shares the
// machine with what it measures.
func (d *dialect) said(stream []byte) string {
	var out []byte
	for {
		i := bytes.Index(stream, []byte(d.text))
		if i < 0 {
			return string(out)
		}
		stream = stream[i+len(d.text):]
		end := bytes.IndexByte(stream, '"')
		out = append(out, stream[:end]...)
		stream = stream[end:]
	}
}

// ask makes one streamed call and returns its id, and an error unless the
// reply came whole.
func (d *dialect) ask(c *http.Client, s *server, o opened, body string) (id string, err error) {
	r, err := http.NewRequest(http.MethodPost, s.url+d.path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+o.Token)
	res, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	id = res.Header.Get("Request-Id")
	got, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return id, err
	case res.StatusCode != http.StatusOK || !bytes.HasSuffix(got, []byte(d.last)):
		return id, fmt.Errorf("call %s: %s, %d bytes that end in %.200q", id, res.Status, len(got), got[max(0, len(got)-200):])
	case d.said(got) != loadReply:
		return id, fmt.Errorf("call %s: the reply is %q", id, d.said(got))
	}
	return id, nil
}

// converse asks one turn after the other in a conversation of some turns,
// then begins another, until over says so. It returns at the first error.
func (d *dialect) converse(c *http.Client, s *server, o opened, model string, over func() bool, done func(id string)) error {
	history := ""
	for n := 1; !over(); n++ {
		if n%10 == 1 {
			history = ""
		}
		id, err := d.ask(c, s, o, d.body(model, history, n))
		if err != nil {
			return err
		}
		done(id)
		history += fmt.Sprintf(d.turn, n, loadReply)
	}
	return nil
}

// front is a server under load: its pipeline, the models that its sessions ask,
// and what it needs of the environment.
type front struct {
	name, pipeline string
	models         []string
	env            []string
}

// fronts are one whose models penstock renders and parses itself, and one before
// servers that do, of both dialects. script is what the models say.
func fronts(t *testing.T, model string) []front {
	t.Helper()
	script := filepath.Join("testdata", "load", model+".yaml")
	anthropic, _ := standInWith(t, script, "anthropic")
	openai, _ := standInWith(t, script, "openai")
	return []front{
		{"a format of ours", filepath.Join("testdata", "load", "pipeline.yaml"), []string{model}, nil},
		{"format upstream", filepath.Join("testdata", "load", "upstreams.yaml"), []string{"claude", "gpt"},
			[]string{"LOAD_ANTHROPIC=" + anthropic, "LOAD_OPENAI=" + openai}},
	}
}

// asker is how the i-th session asks: each model is asked in each dialect.
func (f *front) asker(i int) (*dialect, string) {
	return &loadDialects[i%len(loadDialects)], f.models[i/len(loadDialects)%len(f.models)]
}

// TestLoad has many sessions stream at once from the built binary: no call
// fails, the binary's memory stays bounded, and when the sessions are gone so
// are their goroutines and their memory. It does so with models that penstock
// renders itself, and with those of servers that do (format: upstream), whose
// replies are passed on or translated.
func TestLoad(t *testing.T) {
	sessions, long := 100, 4*time.Second
	if soak() {
		sessions, long = 1000, time.Minute
	}
	for _, f := range fronts(t, "paced") {
		t.Run(f.name, func(t *testing.T) { f.load(t, sessions, long) })
	}
}

func (f *front) load(t *testing.T, sessions int, long time.Duration) {
	idle := serve(t, f.pipeline, f.env...)
	idle.round(t, f, 4, 0)
	before := idle.goroutines(t)

	s := serve(t, f.pipeline, f.env...)
	first := s.round(t, f, sessions, long)
	second := s.round(t, f, sessions, long)
	_, most := s.memory(t)
	after := s.goroutines(t)
	t.Logf("load average %s; %d sessions for %s, twice: %d and %d calls; resident memory %.0f MiB and %.0f MiB after each, %.0f MiB at most; %d goroutines before, %d after",
		load(), sessions, long, first.calls, second.calls, first.memory, second.memory, most, before, after)
	assert.Less(t, most, 1024.0)
	assert.Less(t, second.memory, first.memory*1.25+16)
	assert.LessOrEqual(t, after, before+2)

	var stored int64
	st := s.store(t)
	list, err := st.Sessions(t.Context(), "")
	require.NoError(t, err)
	for _, session := range list {
		calls, err := st.Calls(t.Context(), session.ID)
		require.NoError(t, err)
		for _, c := range calls {
			stored++
			if c.Status != trace.CallOK || !c.Delivered || c.Served == nil || chat.PlainText(c.Served.Parts) != loadReply {
				t.Errorf("call %s: %s, delivered %v, served %+v", c.ID, c.Status, c.Delivered, c.Served)
			}
			if passed := c.Engine == c.Dialect || c.Engine == "openai" && c.Dialect == "openaichat"; passed != (c.RawReply != nil) {
				t.Errorf("call %s of %s in dialect %s: %d bytes as they came", c.ID, c.Engine, c.Dialect, len(c.RawReply))
			}
		}
	}
	assert.Equal(t, first.calls+second.calls, stored, "every call is in the trace")
}

// round is what one round of load did.
type round struct {
	calls  int64
	memory float64 // MiB, when its sessions were gone
}

// round opens sessions, has each stream one call after the other for some
// time, at least one, and closes them.
func (s *server) round(t *testing.T, f *front, sessions int, long time.Duration) (r round) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: sessions, MaxIdleConnsPerHost: sessions}}
	open := make([]opened, sessions)
	for i := range open {
		_, model := f.asker(i)
		open[i] = s.open(t, model, 1)[0]
	}
	end := time.Now().Add(long)
	var calls atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, sessions)
	for i, o := range open {
		all.Go(func() {
			// Agents don't all start at once.
			time.Sleep(time.Duration(i) * time.Second / time.Duration(sessions))
			begun := false
			over := func() bool {
				defer func() { begun = true }()
				return begun && time.Now().After(end)
			}
			d, model := f.asker(i)
			if err := d.converse(client, s, o, model, over, func(string) { calls.Add(1) }); err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	require.False(t, t.Failed())
	client.CloseIdleConnections()
	s.close(t, open)
	http.DefaultClient.CloseIdleConnections()
	// Memory goes back to the system some time after it was freed.
	r.calls = calls.Load()
	for wait := time.Now().Add(3 * time.Second); time.Now().Before(wait); time.Sleep(200 * time.Millisecond) {
		r.memory, _ = s.memory(t)
	}
	return r
}

// TestKillUnderLoad kills the built binary with -9 at random moments while
// sessions stream in two dialects. Every call whose reply its client has seen
// to the end is in the trace, as it was served.
func TestKillUnderLoad(t *testing.T) {
	kills := 10
	if soak() {
		kills = 200
	}
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("PENSTOCK_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
		seed = n
	}
	t.Logf("seed %d; PENSTOCK_SEED=%d repeats its moments", seed, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	whole := 0
	list := fronts(t, "quick")
	for i := range kills {
		whole += killOnce(t, &list[i%len(list)], time.Duration(5+random.IntN(250))*time.Millisecond)
		require.False(t, t.Failed(), "kill %d of seed %d", i, seed)
	}
	t.Logf("%d kills, %d replies had come whole", kills, whole)
	assert.Greater(t, whole, kills, "the load did reach the gateway")
}

// killOnce kills a server after some load; it returns how many replies had
// come whole.
func killOnce(t *testing.T, f *front, after time.Duration) int {
	s := serve(t, f.pipeline, append(f.env, "PENSTOCK_LOG_LEVEL=error")...)
	const sessions = 8
	var mu sync.Mutex
	var whole []string
	var all sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: sessions, MaxIdleConnsPerHost: sessions}}
	defer client.CloseIdleConnections()
	for i := range sessions {
		d, model := f.asker(i)
		o := s.open(t, model, 1)[0]
		all.Go(func() {
			// It ends with an error: the server dies.
			_ = d.converse(client, s, o, model, func() bool { return false }, func(id string) {
				mu.Lock()
				whole = append(whole, id)
				mu.Unlock()
			})
		})
	}
	time.Sleep(after)
	require.NoError(t, s.cmd.Process.Kill())
	<-s.ended
	all.Wait()
	// The store opens for writing, as resume would.
	st, err := trace.Open(filepath.Join(s.out, "trace", "penstock.db"), trace.StoreOptions{})
	require.NoError(t, err)
	defer st.Close()
	for _, id := range whole {
		c, err := st.Call(t.Context(), id)
		if assert.NoError(t, err, "call %s is lost", id) {
			assert.Equal(t, trace.CallOK, c.Status, id)
			if c.Format != "upstream" {
				assert.True(t, strings.HasPrefix(c.Raw, loadReply), id)
			}
			assert.Equal(t, loadReply, c.Served.Parts[0].Text, id)
			assert.Len(t, c.Logprobs, len(c.SampledIDs), id)
		}
	}
	return len(whole)
}
