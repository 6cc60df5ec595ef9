package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// The canaries: one that the pipeline refers to, one that only the environment
// of penstock has, one that only its shape tells.
const (
	canaryService = `Canary-7f3a/9c+0d42"e`
	canaryAmbient = "canary-ambient-5512"
	canaryShape   = "ghp" + "_CANARYcanary0123456789CANARYcanary0123"
)

// canaryForms are all ways in which a run could give a canary away.
func canaryForms() map[string]string {
	forms := map[string]string{"shape": canaryShape}
	for name, v := range map[string]string{"service": canaryService, "ambient": canaryAmbient} {
		quoted, _ := json.Marshal(v)
		forms[name], forms[name+" json"], forms[name+" url"] = v, strings.Trim(string(quoted), `"`), url.QueryEscape(v)
		for shift := range 3 {
			text := base64.StdEncoding.EncodeToString([]byte("xyz"[:shift] + v))
			forms[fmt.Sprintf("%s base64 %d", name, shift)] = text[4 : len(text)-4]
		}
	}
	return forms
}

// TestCanary runs an agent that spreads secrets wherever it can: in headers,
// tool output, requests that can't be read, names of models, its own output,
// files and exit. The model, the agent and the judge see them; the run folder
// must not hold one.
func TestCanary(t *testing.T) {
	dir := t.TempDir()
	leak := filepath.Join(dir, "leak.json")
	secrets, err := json.Marshal([]string{canaryService, canaryAmbient, canaryShape})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(leak, secrets, 0o600))
	self, err := os.Executable()
	require.NoError(t, err)
	out := filepath.Join(dir, "out")
	sent := collect(t)
	cmd := exec.CommandContext(t.Context(), built, "run", filepath.Join("testdata", "canary", "pipeline.yaml"), "--out", out, "--log-level", "debug")
	cmd.Env = append(os.Environ(), "CANARY_AGENT="+self, "CANARY_FILE="+leak, "CANARY_SERVICE="+canaryService, "CANARY_API_TOKEN="+canaryAmbient,
		"PENSTOCK_TELEMETRY_OTLP="+sent.url, "PENSTOCK_TELEMETRY_CONTENT=true")
	shown, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", shown)

	stdout, err := os.ReadFile(filepath.Join(out, "artifacts", "one~0", "solve", "1.1", "stdout"))
	require.NoError(t, err)
	require.Contains(t, string(stdout), "done", "the agent got every secret back from the model")
	assert.Contains(t, string(stdout), "[redacted:value]")
	for _, name := range []string{"solve/1.1/stderr", "solve/1.1/workspace.diff", "fails/1.1/stdout", "fails/1.1/stderr"} {
		text, err := os.ReadFile(filepath.Join(out, "artifacts", "one~0", filepath.FromSlash(name)))
		require.NoError(t, err)
		assert.Contains(t, string(text), "[redacted:", name)
	}
	assert.NoFileExists(t, filepath.Join(out, "gateway.json"))

	assertNoCanary(t, "what was shown", shown)
	spans := sent.bytes()
	for _, want := range []string{"invoke_workflow canary", "stage solve", "invoke_agent solve", "chat scripted", "[redacted:value]"} {
		assert.Contains(t, string(spans), want, "what a collector got")
	}
	assertNoCanary(t, "what a collector got", spans)
	require.NoError(t, filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			assertNoCanary(t, path, text)
		}
		return nil
	}))
	checkCanaryStore(t, filepath.Join(out, "trace", "penstock.db"))

	rows, err := os.ReadFile(filepath.Join(out, "rows.jsonl"))
	require.NoError(t, err)
	got := readLines[row](t, filepath.Join(out, "rows.jsonl"))
	require.Len(t, got, 1, "only what came before the secrets is a row: %s", rows)
	assert.Len(t, got[0].Calls, 1)
}

// collector keeps what is sent to it.
type collector struct {
	url string
	mu  sync.Mutex
	buf bytes.Buffer
}

func collect(t *testing.T) *collector {
	c := &collector{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, _ = c.buf.ReadFrom(r.Body) // what is missing is missed by the test
	}))
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

func (c *collector) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.buf.Bytes())
}

func assertNoCanary(t *testing.T, where string, text []byte) {
	t.Helper()
	for name, form := range canaryForms() {
		if i := bytes.Index(text, []byte(form)); i >= 0 {
			t.Errorf("%s holds the canary (%s): %q", where, name, text[max(0, i-80):min(len(text), i+80)])
		}
	}
}

// checkCanaryStore looks through the records of a run, unpacked.
func checkCanaryStore(t *testing.T, path string) {
	ctx := t.Context()
	s, err := trace.Open(path, trace.StoreOptions{ReadOnly: true})
	require.NoError(t, err)
	defer s.Close()
	sessions, err := s.Sessions(ctx, "")
	require.NoError(t, err)
	require.Len(t, sessions, 1)
	calls, err := s.Calls(ctx, sessions[0].ID)
	require.NoError(t, err)
	require.Len(t, calls, 5)
	kinds := map[string]int{}
	for _, c := range calls {
		text, err := chat.Marshal(c)
		require.NoError(t, err)
		assertNoCanary(t, c.ID, text)
		assertNoCanary(t, c.ID+" body", c.Body)
		assertNoCanary(t, c.ID+" prompt", spelt(c.PromptIDs))
		assertNoCanary(t, c.ID+" sampled", spelt(c.SampledIDs))
		for _, r := range c.Redactions {
			kinds[r.Kind]++
		}
	}
	assert.Empty(t, calls[0].Redactions)
	assert.NotEmpty(t, calls[0].PromptIDs)
	for kind, least := range map[string]int{"value": 8, "github_token": 2, "base64": 2, "url": 2, "session_token": 1} {
		assert.GreaterOrEqual(t, kinds[kind], least, "%s: %v", kind, kinds)
	}
	stages, err := s.Stages(ctx, "one~0")
	require.NoError(t, err)
	rollouts, err := s.Rollouts(ctx)
	require.NoError(t, err)
	text, err := chat.Marshal([]any{stages, rollouts})
	require.NoError(t, err)
	assertNoCanary(t, "stages and rollouts", text)
	assert.Contains(t, string(text), "sh exited with 3: ")
}

// spelt is what ids of the scripted model's tokenizer stand for.
func spelt(ids []int32) []byte {
	var out []byte
	for _, id := range ids {
		if id < 256 {
			out = append(out, byte(id))
		}
	}
	return out
}

// canaryAgent is the agent of TestCanary, run as a program of its own. It is
// done when the model has repeated every secret to it.
func canaryAgent() int {
	if err := spread(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("done")
	return 0
}

func spread(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var secrets []string
	if err := json.Unmarshal(text, &secrets); err != nil {
		return err
	}
	if got := os.Getenv("SERVICE"); got != secrets[0] {
		return fmt.Errorf("SERVICE is not what the pipeline refers to")
	}
	c := &client{base: os.Getenv("BASE_URL"), token: os.Getenv("TOKEN")}
	if _, err := c.say("policy", "hello"); err != nil {
		return err
	}
	all := strings.Join(append(secrets,
		url.QueryEscape(secrets[0]), base64.StdEncoding.EncodeToString([]byte("user:"+secrets[1])), c.token), "|")
	c.header = secrets[1]
	reply, err := c.say("policy", "show "+all)
	if err != nil {
		return err
	}
	if !strings.Contains(reply, all) {
		return fmt.Errorf("the model saw other words: %s", reply)
	}
	if _, err := c.say("policy", "hello again"); err != nil {
		return err
	}
	if _, err := c.say(secrets[1], "hello"); err == nil {
		return fmt.Errorf("a model of that name is served")
	}
	if _, err := c.post([]byte(`{"messages": broken ` + all)); err == nil {
		return fmt.Errorf("a broken request is served")
	}
	fmt.Fprintf(os.Stderr, "error: %s\n", all)
	for _, b := range []byte("out: " + all + "\n") { // in pieces
		os.Stdout.Write([]byte{b})
	}
	home := filepath.Join(os.Getenv("HOME"), "transcript.jsonl")
	if err := os.WriteFile(home, []byte(all), 0o600); err != nil {
		return err
	}
	return os.WriteFile("leaked.txt", []byte(all+"\n"), 0o600)
}

type client struct {
	base, token, header string
	messages            []map[string]any
}

// say adds a message to the conversation and returns the reply's text.
func (c *client) say(model, text string) (string, error) {
	c.messages = append(c.messages, map[string]any{"role": "user", "content": text})
	body, err := json.Marshal(map[string]any{"model": model, "max_tokens": 500, "messages": c.messages})
	if err != nil {
		return "", err
	}
	answer, err := c.post(body)
	if err != nil {
		return "", err
	}
	var reply struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(answer, &reply); err != nil || len(reply.Content) == 0 {
		return "", fmt.Errorf("no reply: %s", answer)
	}
	c.messages = append(c.messages, map[string]any{"role": "assistant", "content": reply.Content[0].Text})
	return reply.Content[0].Text, nil
}

func (c *client) post(body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/messages?note="+url.QueryEscape(c.header), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Api-Key", c.token)
	if c.header != "" {
		r.Header.Set("X-Note", c.header)
		r.Header.Set("Cookie", "id="+c.header)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", answer.StatusCode, text)
	}
	return text, err
}
