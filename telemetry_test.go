package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTelemetry: the built binary tells nobody anything unless its settings say
// so, whatever the environment has for other programs; then a collector gets
// spans without what was said, and the operator alone reads the metrics.
func TestTelemetry(t *testing.T) {
	pipeline := filepath.Join("testdata", "acceptance", "pipeline.yaml")
	scrape := func(s *server, token string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/metrics", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(body)
	}

	foreign := collect(t)
	s := serve(t, pipeline, "OTEL_EXPORTER_OTLP_ENDPOINT="+foreign.url, "OTEL_TRACES_EXPORTER=otlp", "OTEL_METRICS_EXPORTER=otlp")
	askers[0].ask(t, s, s.open(t, "policy", 1)[0], "prose")
	status, _ := scrape(s, s.token)
	assert.Equal(t, 404, status)
	s.stop(t)
	assert.Empty(t, foreign.bytes(), "nothing is told to whom nobody named")

	ours := collect(t)
	s = serve(t, pipeline, "PENSTOCK_TELEMETRY_OTLP="+ours.url, "PENSTOCK_TELEMETRY_PROMETHEUS=true")
	o := s.open(t, "policy", 1)[0]
	askers[0].ask(t, s, o, "prose")
	status, _ = scrape(s, o.Token)
	assert.Equal(t, 401, status, "a session's token reads no metrics")
	status, text := scrape(s, s.token)
	require.Equal(t, 200, status)
	for _, want := range []string{
		`penstock_calls_total{kind="main",model_entry="policy",status="ok"} 1`, "penstock_sessions_open 2", "penstock_trace_bytes_total ",
		"gen_ai_client_operation_duration_seconds_count", "gen_ai_client_token_usage_sum",
	} {
		assert.Contains(t, text, want)
	}
	s.stop(t)
	spans := string(ours.bytes())
	assert.Contains(t, spans, "gen_ai.usage.input_tokens")
	assert.NotContains(t, spans, "to begin a call", "what was said is sent only when that is asked for")

	// The same by a file in the working directory, as the README has it.
	dir := t.TempDir()
	ours = collect(t)
	settings := "telemetry:\n  otlp: " + ours.url + "\n  content: true\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "penstock.settings.yaml"), []byte(settings), 0o600))
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "exact"))))
	shown, code := penstock(t, dir, "run", "pipeline.yaml", "--out", "out")
	require.Equal(t, 0, code, shown)
	spans = string(ours.bytes())
	for _, want := range []string{"invoke_workflow", "stage solve", "invoke_agent solve", "execute_tool", "gen_ai.input.messages", "gen_ai.evaluation.result"} {
		assert.Contains(t, spans, want)
	}
}
