package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/dev/calculator"
)

// TestMain lets the test binary be the agent and the calculator as well.
func TestMain(m *testing.M) {
	switch os.Getenv("PENSTOCK_TEST_BE") {
	case "agent":
		var exit *ExitError
		if err := Command().ExecuteContext(context.Background()); errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		} else if err != nil {
			os.Exit(2)
		}
	case "calculator":
		if calculator.Command().ExecuteContext(context.Background()) != nil {
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// answer writes one reply of the stand-in for the API.
type answer func(w http.ResponseWriter)

// api gives its answers one after the other, the last one again and again.
type api struct {
	answers []answer
	mu      sync.Mutex
	bodies  []string
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	next := a.answers[min(len(a.bodies), len(a.answers)-1)]
	a.bodies = append(a.bodies, string(data))
	a.mu.Unlock()
	if r.URL.Path != "/s/tok/v1/messages" || r.Header.Get("X-Api-Key") != "tok" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	next(w)
}

func (a *api) calls() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string{}, a.bodies...)
}

// reply streams content blocks; each is a start and its deltas.
func replyWith(stop string, blocks ...[]string) answer {
	return func(w http.ResponseWriter) {
		send(w, `{"type":"message_start","message":{"id":"msg_1","model":"served","usage":{"input_tokens":10,"cache_read_input_tokens":4,"output_tokens":1}}}`)
		send(w, `{"type":"ping"}`)
		for i, b := range blocks {
			send(w, fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, b[0]))
			for _, d := range b[1:] {
				send(w, fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, i, d))
			}
			send(w, fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i))
		}
		if stop == "" {
			return // cut
		}
		send(w, `{"type":"message_delta","delta":{"stop_reason":"`+stop+`"},"usage":{"output_tokens":5}}`)
		send(w, `{"type":"message_stop"}`)
	}
}

func send(w http.ResponseWriter, data string) {
	_, _ = fmt.Fprintf(w, "event: x\ndata: %s\n\n", data)
	w.(http.Flusher).Flush()
}

func textBlock(parts ...string) []string {
	b := []string{`{"type":"text","text":""}`}
	for _, p := range parts {
		q, _ := json.Marshal(p)
		b = append(b, `{"type":"text_delta","text":`+string(q)+`}`)
	}
	return b
}

func callBlock(id, name string, parts ...string) []string {
	b := []string{`{"type":"tool_use","id":"` + id + `","name":"` + name + `","input":{}}`}
	for _, p := range parts {
		q, _ := json.Marshal(p)
		b = append(b, `{"type":"input_json_delta","partial_json":`+string(q)+`}`)
	}
	return b
}

func status(code int, headers ...string) answer {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"some_error","message":"the reason"}}`)
	}
}

// ran is what a run of the command came to.
type ran struct {
	stdout string
	lines  []map[string]any
	err    error
	calls  []string
}

func (r ran) result(t *testing.T) map[string]any {
	t.Helper()
	require.NotEmpty(t, r.lines)
	last := r.lines[len(r.lines)-1]
	require.Equal(t, "result", last["type"])
	return last
}

// run runs the command against answers, with its prompt on standard input.
func run(t *testing.T, prompt string, args []string, answers ...answer) ran {
	t.Helper()
	a := &api{answers: answers}
	server := httptest.NewServer(a)
	defer server.Close()
	t.Setenv("ANTHROPIC_BASE_URL", server.URL+"/s/tok/")
	t.Setenv("ANTHROPIC_API_KEY", "tok")
	c := Command()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SetIn(strings.NewReader(prompt))
	c.SetArgs(append([]string{"--model", "policy", "--output-format", "stream-json"}, args...))
	r := ran{err: c.ExecuteContext(t.Context())}
	r.stdout, r.calls = out.String(), a.calls()
	for l := range strings.Lines(r.stdout) {
		var m map[string]any
		if json.Unmarshal([]byte(l), &m) == nil {
			r.lines = append(r.lines, m)
		}
	}
	return r
}

// mcpFile names the calculator, this very binary.
func mcpFile(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "mcp.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"mcpServers":{"calc":{"type":"stdio","command":"`+self+`","args":[],"env":{"PENSTOCK_TEST_BE":"calculator"}}}}`), 0o600))
	return path
}

func TestCalculator(t *testing.T) {
	r := run(t, "What is 6 * 7?", []string{"--mcp-config", mcpFile(t), "--system", "Be <brief>.", "--max-turns", "2"},
		replyWith("tool_use",
			[]string{`{"type":"thinking","thinking":"","signature":""}`, `{"type":"thinking_delta","thinking":"hm"}`, `{"type":"signature_delta","signature":"sig"}`},
			textBlock("I will ", "compute."),
			callBlock("t1", "mcp__calc__calculator", `{"expres`, `sion": "6 * 7"}`)),
		replyWith("end_turn", textBlock("42")))
	require.NoError(t, r.err)
	require.Len(t, r.calls, 2)
	assert.Equal(t, `{"model":"policy","max_tokens":8192,"system":"Be <brief>.","messages":[{"role":"user","content":"What is 6 * 7?"}],`+
		`"tools":[{"name":"mcp__calc__calculator","description":"Computes an arithmetic expression exactly.","input_schema":{"additionalProperties":false,`+
		`"properties":{"expression":{"description":"Numbers, + - * / and parentheses, such as (23 + 19) * 2.","type":"string"}},"required":["expression"],"type":"object"}}],"stream":true}`, r.calls[0])
	assert.Contains(t, r.calls[1], `{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"text","text":"I will compute."},`+
		`{"type":"tool_use","id":"t1","name":"mcp__calc__calculator","input":{"expression":"6 * 7"}}]},`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"42"}]}]}`)

	var kinds []string
	for _, l := range r.lines {
		kinds = append(kinds, l["type"].(string))
	}
	assert.Equal(t, []string{"system", "assistant", "assistant", "assistant", "user", "assistant", "result"}, kinds)
	assert.Equal(t, "init", r.lines[0]["subtype"])
	assert.Equal(t, []any{"mcp__calc__calculator"}, r.lines[0]["tools"])
	assert.Equal(t, []any{map[string]any{"name": "calc", "status": "connected"}}, r.lines[0]["mcp_servers"])
	result := r.result(t)
	assert.Equal(t, "success", result["subtype"])
	assert.Equal(t, false, result["is_error"])
	assert.Equal(t, "completed", result["terminal_reason"])
	assert.Equal(t, "42", result["result"])
	assert.EqualValues(t, 2, result["num_turns"])
	assert.Equal(t, map[string]any{"input_tokens": 20.0, "cache_read_input_tokens": 8.0, "cache_creation_input_tokens": 0.0, "output_tokens": 10.0}, result["usage"])
}

func TestTextOutput(t *testing.T) {
	r := run(t, "hi", []string{"--output-format", "text"}, replyWith("end_turn", textBlock("hello")))
	require.NoError(t, r.err)
	assert.Equal(t, "hello\n", r.stdout)
}

func TestToolsThatFail(t *testing.T) {
	r := run(t, "go", []string{"--bash"},
		replyWith("tool_use",
			callBlock("t1", "nothing", `{}`),
			callBlock("t2", "bash", `{"command": "ec`),
			callBlock("t3", "bash", `{}`),
			callBlock("t4", "bash", `{"command":"echo out; echo err >&2; exit 3"}`),
			callBlock("t5", "bash", `{"command":"echo fine"}`)),
		replyWith("end_turn", textBlock("done")))
	require.NoError(t, r.err)
	for _, want := range []string{
		`"tool_use_id":"t1","content":[{"type":"text","text":"there is no tool nothing"}],"is_error":true`,
		`"tool_use_id":"t2","content":[{"type":"text","text":"the arguments are not a JSON object: {\"command\": \"ec"}],"is_error":true`,
		`"tool_use_id":"t3","content":[{"type":"text","text":"command is missing"}],"is_error":true`,
		`"tool_use_id":"t4","content":[{"type":"text","text":"out\nerr\n\nexit status 3"}],"is_error":true`,
		`"tool_use_id":"t5","content":[{"type":"text","text":"fine\n"}]}`,
		`{"type":"tool_use","id":"t2","name":"bash","input":{}}`,
	} {
		assert.Contains(t, r.calls[1], want)
	}
}

func TestMaxTurns(t *testing.T) {
	r := run(t, "go", []string{"--bash", "--max-turns", "2"}, replyWith("tool_use", textBlock("on it"), callBlock("t", "bash", `{"command":"true"}`)))
	var exit *ExitError
	require.ErrorAs(t, r.err, &exit)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Len(t, r.calls, 2)
	result := r.result(t)
	assert.Equal(t, "error_max_turns", result["subtype"])
	assert.Equal(t, true, result["is_error"])
	assert.Equal(t, "max_turns", result["terminal_reason"])
	assert.Equal(t, []any{"reached maximum number of turns (2)"}, result["errors"])
	assert.NotContains(t, result, "result")
}

// What can be tried again is, and a reply that was cut is never half used.
func TestRetries(t *testing.T) {
	good := replyWith("end_turn", textBlock("good"))
	for name, bad := range map[string]answer{
		"overloaded":    status(529, "Retry-After", "0"),
		"rate limit":    status(429, "Retry-After", "0"),
		"internal":      status(500),
		"cut at once":   func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"cut in a call": replyWith("", callBlock("t", "bash", `{"command":"touch never"}`)),
		"error event": func(w http.ResponseWriter) {
			send(w, `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`)
		},
		"garbage": func(w http.ResponseWriter) { send(w, `{"type":`) },
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, "go", []string{"--bash"}, bad, good)
			require.NoError(t, r.err)
			assert.Equal(t, "good", r.result(t)["result"])
			require.Len(t, r.calls, 2)
			assert.Equal(t, r.calls[0], r.calls[1])
			assert.EqualValues(t, 1, r.result(t)["num_turns"])
		})
	}
}

func TestNoRetries(t *testing.T) {
	for name, c := range map[string]struct {
		bad    answer
		status any
	}{
		"bad request":     {status(400), 400.0},
		"forbidden":       {status(403), 403.0},
		"too long a wait": {status(429, "Retry-After", "3600"), 429.0},
		"asked not to":    {status(503, "X-Should-Retry", "false"), 503.0},
		"error event": {func(w http.ResponseWriter) {
			send(w, `{"type":"error","error":{"type":"invalid_request_error","message":"the reason"}}`)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, "go", nil, c.bad)
			require.Error(t, r.err)
			assert.Len(t, r.calls, 1)
			result := r.result(t)
			assert.Equal(t, "api_error", result["terminal_reason"])
			assert.Equal(t, c.status, result["api_error_status"])
			assert.Contains(t, result["result"], "the reason")
			assert.Equal(t, true, result["is_error"])
		})
	}
}

func TestRetriesEnd(t *testing.T) {
	r := run(t, "go", []string{"--retries", "2"}, status(429, "Retry-After", "0"))
	require.Error(t, r.err)
	assert.Len(t, r.calls, 3)
}

func TestOtherEnds(t *testing.T) {
	for stop, want := range map[string]string{"max_tokens": "max_tokens", "refusal": "refusal"} {
		r := run(t, "go", nil, replyWith(stop, textBlock("half")))
		require.Error(t, r.err)
		assert.Equal(t, want, r.result(t)["terminal_reason"])
		assert.Equal(t, true, r.result(t)["is_error"])
	}
	r := run(t, "go", nil, replyWith("end_turn"))
	require.NoError(t, r.err)
	assert.Equal(t, "", r.result(t)["result"])
}

func TestServerThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"mcpServers":{"broken":{"command":"/nonexistent/server"}}}`), 0o600))
	r := run(t, "go", []string{"--mcp-config", path}, replyWith("end_turn"))
	require.Error(t, r.err)
	assert.Empty(t, r.calls)
	assert.Equal(t, []any{map[string]any{"name": "broken", "status": "failed"}}, r.lines[0]["mcp_servers"])
	assert.Equal(t, "error_during_execution", r.result(t)["subtype"])
	assert.Contains(t, fmt.Sprint(r.result(t)["errors"]), "MCP server broken")
}

func TestUsage(t *testing.T) {
	assert.ErrorContains(t, run(t, " \n", nil, replyWith("end_turn")).err, "the prompt is empty")
	assert.ErrorContains(t, run(t, "x", []string{"--output-format", "xml"}, replyWith("end_turn")).err, "want text or stream-json")
	assert.ErrorContains(t, run(t, "x", []string{"--mcp-config", "/nonexistent"}, replyWith("end_turn")).err, "read MCP servers")
	t.Setenv("ANTHROPIC_BASE_URL", "")
	c := Command()
	c.SetArgs([]string{"hi", "--model", "m"})
	c.SetErr(io.Discard)
	assert.ErrorContains(t, c.Execute(), "ANTHROPIC_BASE_URL")
}

func TestBigPrompt(t *testing.T) {
	prompt := strings.Repeat("x", 1<<20)
	r := run(t, prompt, nil, replyWith("end_turn", textBlock("ok")))
	require.NoError(t, r.err)
	assert.Contains(t, r.calls[0], prompt)
}

// A signal ends the agent with its usual code, and its servers with it.
func TestSignal(t *testing.T) {
	held := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-held:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(held)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "--model", "m", "--output-format", "stream-json", "--mcp-config", mcpFile(t), "hi")
	cmd.Env = append(os.Environ(), "PENSTOCK_TEST_BE=agent", "ANTHROPIC_BASE_URL="+server.URL)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	out := bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	assert.Contains(t, line, `"connected"`)
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	require.NoError(t, err)
	var children []string
	for _, task := range tasks {
		pids, err := os.ReadFile(task)
		require.NoError(t, err)
		children = append(children, strings.Fields(string(pids))...)
	}
	require.Len(t, children, 1)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	assert.Empty(t, rest)
	_ = cmd.Wait()
	assert.Equal(t, 143, cmd.ProcessState.ExitCode())
	assert.NoDirExists(t, "/proc/"+children[0])
}

func TestEvents(t *testing.T) {
	e := newEvents(strings.NewReader(": comment\r\n\r\nevent: a\r\ndata: 1\r\n\r\ndata:2\ndata: 3\n\nid: 7\n\ndata: " + strings.Repeat("x", 100_000) + "\n\ndata: cut"))
	for _, want := range []string{"1", "2\n3", strings.Repeat("x", 100_000)} {
		got, err := e.next()
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
	_, err := e.next()
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = newEvents(strings.NewReader("data: 1\n")).next()
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = newEvents(strings.NewReader(": x\n\n")).next()
	assert.ErrorIs(t, err, io.EOF)
}

func FuzzReply(f *testing.F) {
	f.Add("data: {\"type\":\"message_start\"}\n\ndata: {\"type\":\"content_block_start\",\"index\":0}\n\n")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = readReply(strings.NewReader(text), func() {})
	})
}

func TestRetryPause(t *testing.T) {
	c := &client{retries: 10, backoff: time.Second}
	pause, again := c.again(&apiError{Status: 529, retryAfter: 7 * time.Second}, 0)
	assert.True(t, again)
	assert.Equal(t, 7*time.Second, pause)
	pause, _ = c.again(&cutError{io.EOF}, 3)
	assert.GreaterOrEqual(t, pause, 8*time.Second)
	assert.LessOrEqual(t, pause, 10*time.Second)
	_, again = c.again(&cutError{io.EOF}, 10)
	assert.False(t, again)
}
