package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/trace"
)

// standIn starts penstock dev engine with the script of testdata/upstreams, in
// a folder of its own, and returns its URL and the path of its log.
func standIn(t *testing.T, kind string, args ...string) (url, log string) {
	t.Helper()
	return standInWith(t, filepath.Join("testdata", "upstreams", "model.yaml"), kind, args...)
}

func standInWith(t *testing.T, script, kind string, args ...string) (url, log string) {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(script)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), text, 0o600))
	cmd := exec.Command(built, append([]string{"dev", "engine", "--kind", kind, "--script", "model.yaml"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan(), "the stand-in says no URL")
	return lines.Text(), filepath.Join(dir, "engine.jsonl")
}

// pipelineWith writes the pipeline of testdata/upstreams with these lines of its
// model, and returns its folder.
func pipelineWith(t *testing.T, model ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "upstreams", "pipeline.yaml"))
	require.NoError(t, err)
	dir := t.TempDir()
	text := strings.Replace(string(b), "# MODEL", strings.Join(model, "\n    "), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pipeline.yaml"), []byte(text), 0o600))
	return dir
}

// runWith runs a pipeline, which has to succeed with every answer right, and
// returns its run folder.
func runWith(t *testing.T, dir string) string {
	t.Helper()
	text, code := penstock(t, dir, "run", "pipeline.yaml", "--out", "out")
	require.Equal(t, 0, code, text)
	out := filepath.Join(dir, "out")
	rollouts := readLines[trace.Rollout](t, filepath.Join(out, "rollouts.jsonl"))
	require.Len(t, rollouts, 2)
	for _, r := range rollouts {
		require.NotNil(t, r.Reward, r.ID)
		assert.Equal(t, 1.0, *r.Reward, r.ID)
		assert.Equal(t, 2, r.Calls, r.ID)
		assert.Positive(t, r.Usage.Input, r.ID)
		assert.Positive(t, r.Usage.Output, r.ID)
	}
	return out
}

// TestEngineIDs runs agents against engines that give ids, in each of the ways
// to get them, and holds every row against what the engine itself logged.
func TestEngineIDs(t *testing.T) {
	for name, c := range map[string]struct {
		kind, format, capture string
		more                  []string
	}{
		"vllm, our format, exact":         {kind: "vllm", format: "hermes", capture: "exact", more: []string{"tokenizer: bytes"}},
		"vllm, our format, reported":      {kind: "vllm", format: "hermes", capture: "reported"},
		"vllm, its own format, reported":  {kind: "vllm", format: "upstream", capture: "reported"},
		"sglang, our format, exact":       {kind: "sglang", format: "hermes", capture: "exact", more: []string{"tokenizer: bytes"}},
		"sglang, our format, reported":    {kind: "sglang", format: "hermes", capture: "reported"},
		"sglang, its own format reported": {kind: "sglang", format: "upstream", capture: "reported"},
		"lmdeploy, our format, exact":     {kind: "lmdeploy", format: "hermes", capture: "exact", more: []string{"tokenizer: bytes"}},
		"lmdeploy, our format, reported":  {kind: "lmdeploy", format: "hermes", capture: "reported"},
	} {
		t.Run(name, func(t *testing.T) {
			url, log := standIn(t, c.kind)
			out := runWith(t, pipelineWith(t, append([]string{
				"upstream: { kind: " + c.kind + ", url: " + url + " }", "model: stand-in",
				"format: " + c.format, "capture: " + c.capture,
			}, c.more...)...))
			rows := readLines[row](t, filepath.Join(out, "rows.jsonl"))
			require.Len(t, rows, 2)
			var logged []engineCall
			for _, e := range readLines[engineCall](t, log) {
				if e.Session != "" { // what was asked to probe has none
					logged = append(logged, e)
				}
			}
			checkRows(t, rows, logged)
			for _, r := range rows {
				assert.Len(t, r.Calls, 2, "both turns make one row")
				assert.Equal(t, "main", r.Kind)
			}
			file, err := os.ReadFile(filepath.Join(out, "run.json"))
			require.NoError(t, err)
			version := ", version 0.0.0+stand-in"
			if c.kind == "lmdeploy" {
				version = "" // it doesn't tell
			}
			assert.Equal(t, c.kind+" at "+url+version, gjson.GetBytes(file, "engines.policy").String())
		})
	}
}

// TestEngineTexts runs agents against each kind of engine without ids, in a format
// of ours and in the engine's own: the rows have the conversation, and say that
// there is no more.
func TestEngineTexts(t *testing.T) {
	for _, kind := range []string{"vllm", "sglang", "lmdeploy", "openai"} {
		url, _ := standIn(t, kind)
		for _, format := range []string{"hermes", "upstream"} {
			t.Run(kind+", "+format, func(t *testing.T) {
				out := runWith(t, pipelineWith(t, "upstream: { kind: "+kind+", url: "+url+" }", "model: stand-in", "format: "+format))
				rows := readLines[map[string]any](t, filepath.Join(out, "rows.jsonl"))
				require.Len(t, rows, 2)
				for _, r := range rows {
					assert.Equal(t, kind, r["engine"])
					assert.Nil(t, r["input_ids"])
					require.Len(t, r["messages"], 4, "question, call, result, answer")
					call := r["messages"].([]any)[1].(map[string]any)["parts"].([]any)
					assert.Equal(t, "tool_call", call[len(call)-1].(map[string]any)["type"])
				}
			})
		}
	}
}

// TestReportedByAScript: a scripted model tells the ids of prompts that come as
// text, so that this way of capturing works offline.
func TestReportedByAScript(t *testing.T) {
	dir := pipelineWith(t, "upstream: { kind: script, file: model.yaml }", "format: hermes", "capture: reported")
	b, err := os.ReadFile(filepath.Join("testdata", "upstreams", "model.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), b, 0o600))
	out := runWith(t, dir)
	rows := readLines[row](t, filepath.Join(out, "rows.jsonl"))
	require.Len(t, rows, 2)
	checkRows(t, rows, readLines[engineCall](t, filepath.Join(dir, "engine.jsonl")))
}

// TestFormatByTemplate: prompts are rendered by the model's chat template, which
// picks the format that parses, or the file is refused before anything runs.
func TestFormatByTemplate(t *testing.T) {
	dir := pipelineWith(t, "upstream: { kind: script, file: model.yaml }", "format: auto", "template: chat.jinja")
	b, err := os.ReadFile(filepath.Join("testdata", "upstreams", "model.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), b, 0o600))
	template := filepath.Join(dir, "chat.jinja")
	qwen, err := os.ReadFile(filepath.Join("core", "jinja", "testdata", "models", "qwen2.5-0.5b.jinja"))
	require.NoError(t, err)
	for text, want := range map[string]string{
		"{{ messages }}":                                                 "chat.jinja is of no format that is known",
		string(qwen) + "\n{% if x %}":                                    "doesn't compile",
		string(qwen) + "{{ raise_exception('not today') }}":              "not today",
		strings.ReplaceAll(string(qwen), `"arguments": '`, `"parms": '`): "which that format doesn't read",
	} {
		require.NoError(t, os.WriteFile(template, []byte(text), 0o600))
		said, code := penstock(t, dir, "run", "pipeline.yaml", "--out", "out")
		assert.Equal(t, 2, code, said)
		assert.Contains(t, said, want)
		assert.NoFileExists(t, filepath.Join(dir, "out", "rollouts.jsonl"))
	}
	require.NoError(t, os.WriteFile(template, []byte(strings.ReplaceAll(string(qwen), "You are a helpful assistant", "You are a template")), 0o600))
	out := runWith(t, dir)
	rows := readLines[map[string]any](t, filepath.Join(out, "rows.jsonl"))
	require.Len(t, rows, 2)
	for _, r := range rows {
		assert.Equal(t, "qwen2p5", r["format"])
		assert.Len(t, r["template_hash"], 64)
		assert.Contains(t, r["lineage"], "/main0", "the second call extends the first one")
	}
}

// TestProviders runs agents, which speak Anthropic's dialect, against providers
// that parse by themselves: one of that dialect, one of another, and one that
// stands in for another.
func TestProviders(t *testing.T) {
	t.Setenv("PROVIDER_KEY", "key-of-the-provider-1")
	t.Setenv("OTHER_KEY", "key-of-the-provider-2")
	anthropic, _ := standIn(t, "anthropic", "--key", "key-of-the-provider-1")
	openai, _ := standIn(t, "openai", "--key", "key-of-the-provider-2")
	busy, _ := standIn(t, "anthropic", "--fault", "529x1000")
	answered := map[string]string{"anthropic, bytes passed on": "anthropic"} // else openai
	for name, model := range map[string]string{
		"anthropic, bytes passed on": "upstream: { kind: anthropic, url: " + anthropic + ", api_key: \"${env:PROVIDER_KEY}\" }",
		"openai, translated":         "upstream: { kind: openai, url: " + openai + ", api_key: \"${env:OTHER_KEY}\" }",
		"anthropic, then openai": "upstream: { kind: anthropic, url: " + busy + ", tries: 1, " +
			"fallback: [{ kind: openai, url: " + openai + ", api_key: \"${env:OTHER_KEY}\" }] }",
	} {
		t.Run(name, func(t *testing.T) {
			out := runWith(t, pipelineWith(t, model, "model: stand-in", "format: upstream"))
			rows := readLines[map[string]any](t, filepath.Join(out, "rows.jsonl"))
			require.Len(t, rows, 2)
			engine := answered[name]
			if engine == "" {
				engine = "openai"
			}
			for _, r := range rows {
				assert.Equal(t, engine, r["engine"])
				assert.Nil(t, r["input_ids"])
				assert.Len(t, r["messages"], 4, "question, call, result, answer")
			}
			for _, key := range []string{"key-of-the-provider-1", "key-of-the-provider-2"} {
				noneHolds(t, out, key)
			}
		})
	}
}

// noneHolds checks that no file of a run folder holds a text.
func noneHolds(t *testing.T, dir, text string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		assert.NotContains(t, string(b), text, path)
		return err
	}))
}

// TestBytesPassedOn sends a request to Anthropic's dialect through the gateway
// and to the stand-in itself: the client gets the same bytes but for the id, and
// the signature of the thinking goes back to the server as it was.
func TestBytesPassedOn(t *testing.T) {
	url, _ := standIn(t, "anthropic")
	dir := pipelineWith(t, "upstream: { kind: anthropic, url: "+url+" }", "model: stand-in", "serve_as: stand-in", "format: upstream")
	s := serve(t, filepath.Join(dir, "pipeline.yaml"))
	session := s.open(t, "policy", 1)[0]
	ask := func(base, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Api-Key", session.Token)
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, 200, res.StatusCode, "%s", b)
		return string(b)
	}
	id := func(text string) string {
		at := strings.Index(text, `"id":"msg_`)
		require.Positive(t, at, text)
		return text[:at] + text[at+len(`"id":"msg_`)+26:]
	}
	first := `{"model":"stand-in","max_tokens":500,"stream":STREAM,"thinking":{"type":"enabled","budget_tokens":1024},` +
		`"messages":[{"role":"user","content":[{"type":"text","text":"What is 1 + 2? Think","cache_control":{"type":"ephemeral"}}]}]}`
	for _, stream := range []string{"true", "false"} {
		body := strings.Replace(first, "STREAM", stream, 1)
		got, want := ask(s.url+"/v1/messages", body), ask(url+"/v1/messages", body)
		assert.Equal(t, id(want), id(got), "stream: %s", stream)
		assert.Contains(t, got, `"signature"`)
	}
	whole := ask(s.url+"/v1/messages", strings.Replace(first, "STREAM", "false", 1))
	content := gjson.Get(whole, "content").Raw
	signature := gjson.Get(whole, "content.0.signature").String()
	require.NotEmpty(t, signature, whole)
	ask(s.url+"/v1/messages", `{"model":"stand-in","max_tokens":500,"messages":[{"role":"user","content":[{"type":"text","text":"What is 1 + 2? Think"}]},`+
		`{"role":"assistant","content":`+content+`},{"role":"user","content":"What is 1 + 2? Think again"}]}`)
	n := gjson.Get(ask(s.url+"/v1/messages/count_tokens", `{"model":"stand-in","messages":[{"role":"user","content":"hello"}]}`), "input_tokens").Int()
	assert.Equal(t, gjson.Get(ask(url+"/v1/messages/count_tokens", `{"model":"stand-in","messages":[{"role":"user","content":"hello"}]}`), "input_tokens").Int(), n)
	s.stop(t)
	calls, err := s.store(t).Calls(t.Context(), session.ID)
	require.NoError(t, err)
	require.Len(t, calls, 4)
	for _, c := range calls {
		assert.Equal(t, trace.CallOK, c.Status)
		assert.True(t, c.Delivered)
		assert.Empty(t, c.Edits)
		assert.Equal(t, signature, c.Served.Parts[0].Signature, "the same text has the same signature")
	}
	last := calls[3]
	assert.Equal(t, calls[2].ID, last.Parent, "the conversation goes on")
	sent, err := json.Marshal(last.Messages[1])
	require.NoError(t, err)
	assert.Contains(t, string(sent), signature)
	assert.Equal(t, signature, last.Chat.Messages[1].Parts[0].Signature)
}
