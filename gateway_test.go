package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// TestGatewayAlone serves the models of a pipeline to a client that the test
// is itself, in two dialects, and finds both calls in the trace.
func TestGatewayAlone(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "exact"))))
	out := filepath.Join(dir, "out")
	cmd := exec.Command(built, "gateway", filepath.Join(dir, "pipeline.yaml"), "--out", out)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(stdout)
	var said string
	for lines.Scan() && !strings.Contains(lines.Text(), "OPENAI_BASE_URL") {
		said += lines.Text() + "\n"
	}
	base := regexp.MustCompile(`ANTHROPIC_BASE_URL=(\S+)`).FindStringSubmatch(said)
	key := regexp.MustCompile(`ANTHROPIC_API_KEY=(\S+)`).FindStringSubmatch(said)
	require.NotNil(t, base, said)
	require.NotNil(t, key, said)

	ask := func(path, token, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base[1]+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Api-Key", token)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	const tool = `"parameters":{"type":"object","properties":{"expression":{"type":"string"}}}`
	status, body := ask("/v1/messages", key[1], `{"model":"policy","max_tokens":200,"messages":[{"role":"user","content":"What is 1 + 2?"}],
		"tools":[{"name":"mcp__calculator__calculator","input_schema":{"type":"object","properties":{"expression":{"type":"string"}}}}]}`)
	require.Equal(t, 200, status, body)
	assert.Equal(t, "1 + 2", gjson.Get(body, `content.#(type=="tool_use").input.expression`).String(), body)
	assert.Equal(t, "tool_use", gjson.Get(body, "stop_reason").String())

	status, body = ask("/v1/chat/completions", key[1], `{"model":"policy","messages":[{"role":"user","content":"What is 3 + 4?"}],
		"tools":[{"type":"function","function":{"name":"mcp__calculator__calculator",`+tool+`}}]}`)
	require.Equal(t, 200, status, body)
	assert.Equal(t, `{"expression": "3 + 4"}`, gjson.Get(body, "choices.0.message.tool_calls.0.function.arguments").String(), body)

	status, body = ask("/v1/messages", "pst-wrong", `{}`)
	assert.Equal(t, 401, status, body)
	assert.Equal(t, "authentication_error", gjson.Get(body, "error.type").String(), body)

	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	_, _ = io.Copy(io.Discard, stdout)
	require.NoError(t, cmd.Wait())
	text, code := penstock(t, root, "trace", "ls", out)
	require.Equal(t, 0, code, text)
	assert.Contains(t, text, "2 calls", text)
}
