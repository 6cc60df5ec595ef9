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
// is itself, in three dialects, and finds all calls in the trace.
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
	for !strings.Contains(said, "GEMINI") && lines.Scan() { // the last line
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

	// As gemini-cli is pointed at it, with the root as its base.
	assert.Contains(t, said, "export GOOGLE_GEMINI_BASE_URL="+base[1]+" GEMINI_API_KEY="+key[1]+" GEMINI_MODEL=policy\n")
	assert.Contains(t, said, "export OPENAI_BASE_URL="+base[1]+"/v1 OPENAI_API_KEY="+key[1]+" OPENAI_MODEL=policy\n")
	status, body = ask("/v1beta/models/policy:generateContent?key="+key[1], "", `{"contents":[{"role":"user","parts":[{"text":"What is 5 + 6?"}]}],
		"tools":[{"functionDeclarations":[{"name":"mcp__calculator__calculator","parametersJsonSchema":{"type":"object","properties":{"expression":{"type":"string"}}}}]}]}`)
	require.Equal(t, 200, status, body)
	assert.Equal(t, "5 + 6", gjson.Get(body, "candidates.0.content.parts.#(functionCall).functionCall.args.expression").String(), body)

	status, body = ask("/v1/messages", "pst-wrong", `{}`)
	assert.Equal(t, 401, status, body)
	assert.Equal(t, "authentication_error", gjson.Get(body, "error.type").String(), body)

	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	_, _ = io.Copy(io.Discard, stdout)
	require.NoError(t, cmd.Wait())
	text, code := penstock(t, root, "trace", "ls", out)
	require.Equal(t, 0, code, text)
	assert.Contains(t, text, "3 calls", text)
}
