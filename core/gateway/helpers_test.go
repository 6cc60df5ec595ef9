package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// TestMain checks that nothing that a test started outlives it.
func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		victim(dir)
		return
	}
	before := runtime.NumGoroutine()
	code := m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); code == 0 && n > before {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%d goroutines at the start, %d at the end\n%s\n", before, n, buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

// store is a CallStore in memory. before is asked about each call ahead of
// its commit.
type store struct {
	mu        sync.Mutex
	sessions  []trace.Session
	calls     []*trace.Call
	delivered map[string]bool
	before    func(*trace.Call) error
}

func (s *store) PutSession(_ context.Context, t *trace.Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = append(s.sessions, *t)
	return nil
}

func (s *store) PutCall(_ context.Context, c *trace.Call) error {
	if s.before != nil {
		if err := s.before(c); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	return nil
}

func (s *store) SetDelivered(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delivered == nil {
		s.delivered = map[string]bool{}
	}
	s.delivered[id] = true
	return nil
}

func (s *store) all() []*trace.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*trace.Call(nil), s.calls...)
}

// only waits for the one call that the store gets.
func (s *store) only(t testing.TB) *trace.Call {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.all()) > 0 }, 5*time.Second, time.Millisecond, "no call was recorded")
	calls := s.all()
	require.Len(t, calls, 1)
	return calls[0]
}

func (s *store) wasDelivered(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delivered[id]
}

var tokenizer = token.NewBytes(toy{}.Markers())

// engine is an upstream whose replies are given by a test.
type engine struct {
	reply func(ctx context.Context, r *upstream.Request) (upstream.Stream, error)

	mu       sync.Mutex
	requests []*upstream.Request
}

func (e *engine) Kind() string { return "test" }
func (e *engine) Close() error { return nil }

func (e *engine) Generate(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
	e.mu.Lock()
	e.requests = append(e.requests, r)
	e.mu.Unlock()
	return e.reply(ctx, r)
}

func (e *engine) seen() []*upstream.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*upstream.Request(nil), e.requests...)
}

// says is an engine that always says the same, size bytes at a time.
func says(text string, size int) *engine {
	return &engine{reply: func(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
		return stream(text, size), nil
	}}
}

// chunks is a stream of chunks and of steps that are waited for between them.
type chunks struct {
	list []upstream.Chunk
	wait func(i int) error // ahead of chunk i
	at   int
}

func stream(text string, size int) *chunks {
	s := &chunks{}
	ids := tokenizer.Encode(nil, text, true)
	for at := 0; at < len(ids); at += size {
		part := ids[at:min(at+size, len(ids))]
		c := upstream.Chunk{IDs: part, Text: tokenizer.Decode(nil, part)}
		for range part {
			c.Logprobs = append(c.Logprobs, -0.5)
		}
		s.list = append(s.list, c)
	}
	if len(s.list) == 0 {
		s.list = []upstream.Chunk{{}}
	}
	s.list[len(s.list)-1].Finish = upstream.Finish{Raw: "stop", Reason: chat.FinishStop}
	return s
}

func (s *chunks) Next() (upstream.Chunk, error) {
	if s.wait != nil {
		if err := s.wait(s.at); err != nil {
			return upstream.Chunk{}, err
		}
	}
	if s.at == len(s.list) {
		return upstream.Chunk{}, io.EOF
	}
	s.at++
	return s.list[s.at-1], nil
}

func (s *chunks) Close() error { return nil }

// bench is a gateway with one model, for one test.
type bench struct {
	*gateway.Gateway
	store *store
	model *gateway.Model
	n     int
}

type setting func(*gateway.Options, *gateway.Model)

func start(t testing.TB, e *engine, settings ...setting) *bench {
	t.Helper()
	b := &bench{store: &store{}}
	o := gateway.Options{Calls: b.store}
	b.model = &gateway.Model{
		Entry: "policy", Name: "upstream-name", Format: toy{}, FormatName: "toy",
		Tokenizer: tokenizer, Upstream: e, Capture: gateway.CaptureExact,
	}
	for _, set := range settings {
		set(&o, b.model)
	}
	g, err := gateway.New(o)
	require.NoError(t, err)
	b.Gateway = g
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, g.Close(ctx))
	})
	return b
}

// session opens a session, changed by the functions given.
func (b *bench) session(t testing.TB, change ...func(*gateway.SessionSpec)) *gateway.Session {
	t.Helper()
	b.n++
	spec := gateway.SessionSpec{
		Session: trace.Session{ID: fmt.Sprintf("s-%d", b.n), Rollout: "t1~0", Task: "t1"},
		Model:   b.model, Task: json.RawMessage(`{"id":"t1","word":"kumquat"}`),
	}
	for _, f := range change {
		f(&spec)
	}
	s, err := b.Open(t.Context(), spec)
	require.NoError(t, err)
	return s
}

// ask is the body of a request with one user message.
func ask(text string, streamed bool, more ...string) string {
	fields := append([]string{
		`"model":"policy"`, `"max_tokens":1000`, fmt.Sprintf(`"stream":%v`, streamed),
		`"messages":[{"role":"user","content":` + quoted(text) + `}]`,
	}, more...)
	return "{" + strings.Join(fields, ",") + "}"
}

const addTool = `"tools":[{"name":"add","description":"Adds.","input_schema":{"type":"object","properties":{"a":{"type":"integer"}}}}]`

func quoted(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// request makes a request of a session, the token being in its path.
func request(t testing.TB, s *gateway.Session, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.BaseURL()+"/v1/messages?beta=true", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func do(t testing.TB, r *http.Request) answer {
	t.Helper()
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body), err}
}

func post(t testing.TB, s *gateway.Session, body string) answer {
	t.Helper()
	return do(t, request(t, s, body))
}

// postAside posts without waiting for the answer, whatever it is; the test
// ends only after it has come.
func postAside(t *testing.T, s *gateway.Session, body string) {
	t.Helper()
	r := request(t, s, body)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, err := http.DefaultClient.Do(r.WithContext(ctx))
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// event is one server-sent event.
type event struct {
	name string
	data map[string]any
}

// events reads the events of a stream until it ends.
func events(r io.Reader) ([]event, error) {
	var out []event
	lines := bufio.NewReader(r)
	name := ""
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		line = strings.TrimSuffix(line, "\n")
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		}
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			e := event{name: name}
			if err := json.Unmarshal([]byte(d), &e.data); err != nil {
				return out, err
			}
			out = append(out, e)
		}
	}
}

func eventsOf(t testing.TB, a answer) []event {
	t.Helper()
	out, err := events(strings.NewReader(a.body))
	require.NoError(t, err)
	return out
}

func at(v any, path ...any) any {
	for _, step := range path {
		switch k := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[k]
		case int:
			l, _ := v.([]any)
			if k >= len(l) {
				return nil
			}
			v = l[k]
		}
	}
	return v
}

// joined puts the events of a stream together to the message that they are.
func joined(t testing.TB, list []event) map[string]any {
	t.Helper()
	var message map[string]any
	var content []any
	texts := map[int]string{}
	for _, e := range list {
		i := 0
		if f, ok := e.data["index"].(float64); ok {
			i = int(f)
		}
		switch e.name {
		case "message_start":
			message = e.data["message"].(map[string]any)
		case "content_block_start":
			require.Len(t, content, i)
			content = append(content, e.data["content_block"])
		case "content_block_delta":
			block := content[i].(map[string]any)
			d := e.data["delta"].(map[string]any)
			for _, field := range []string{"text", "thinking", "signature"} {
				if text, ok := d[field].(string); ok {
					block[field] = block[field].(string) + text
				}
			}
			if text, ok := d["partial_json"].(string); ok {
				texts[i] += text
			}
		case "message_delta":
			for k, v := range e.data["delta"].(map[string]any) {
				message[k] = v
			}
			message["usage"] = e.data["usage"]
		}
	}
	for i, text := range texts {
		var v any
		require.NoError(t, json.Unmarshal([]byte(text), &v), text)
		content[i].(map[string]any)["input"] = v
	}
	if content == nil {
		content = []any{}
	}
	message["content"] = content
	return message
}

func decoded(t testing.TB, body string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &v), body)
	return v
}

// names lists the names of events.
func names(list []event) string {
	var out []string
	for _, e := range list {
		out = append(out, e.name)
	}
	return strings.Join(out, " ")
}
