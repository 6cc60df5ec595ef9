package engine

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

func TestParseFault(t *testing.T) {
	for text, want := range map[string]Fault{
		"429": {What: "429"}, "429x2": {What: "429", Times: 2}, "cut@3": {What: "cut", At: 3}, "stall@1x4": {What: "stall", At: 1, Times: 4}, "hang": {What: "hang"},
	} {
		got, err := ParseFault(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, bad := range []string{"", "200", "cut@", "cut@x", "429x0", "explode", "600"} {
		_, err := ParseFault(bad)
		assert.Error(t, err, bad)
	}
}

// TestCommand drives the stand-in as a user would.
func TestCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.yaml")
	require.NoError(t, os.WriteFile(file, []byte("penstock: script/v1\nrules:\n  - when: { last: 'hi (\\w+)' }\n    reply: hello $1\n"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := Command()
	out, in := io.Pipe()
	c.SetOut(in)
	c.SetArgs([]string{"--kind", "vllm", "--script", file, "--fault", "429x1", "--retry-after", "3", "--key", "k"})
	done := make(chan error, 1)
	go func() { done <- c.ExecuteContext(ctx) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	url := strings.TrimSpace(line)

	post := func() (*http.Response, []byte) {
		r, err := http.NewRequest("POST", url+"/v1/completions", bytes.NewReader([]byte(
			`{"model":"stand-in","prompt":"<|im_start|>user\nhi bob<|im_end|>\n<|im_start|>assistant\n","max_tokens":50}`)))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer k")
		a, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer a.Body.Close()
		b, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		return a, b
	}
	a, body := post()
	assert.Equal(t, 429, a.StatusCode)
	assert.Equal(t, "3", a.Header.Get("Retry-After"))
	assert.Equal(t, "rate_limit_error", gjson.GetBytes(body, "error.type").Str)
	a, body = post()
	assert.Equal(t, 200, a.StatusCode)
	assert.Equal(t, "hello bob", gjson.GetBytes(body, "choices.0.text").Str)

	http.DefaultClient.CloseIdleConnections()
	cancel()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("the stand-in does not end")
	}
}

func TestCommandRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.yaml")
	require.NoError(t, os.WriteFile(file, []byte("penstock: script/v1\notherwise: { reply: x }\n"), 0o600))
	for want, args := range map[string][]string{
		"--script is needed":    {},
		`kind "tgi", want vllm`: {"--kind", "tgi", "--script", file},
		`fault "boom"`:          {"--script", file, "--fault", "boom"},
		"no such file":          {"--script", file + ".gone"},
	} {
		c := Command()
		c.SetArgs(args)
		require.ErrorContains(t, c.ExecuteContext(t.Context()), want)
	}
}
