package llm

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/invoker"
)

func plan(t *testing.T, cfg Config, input string, s invoker.Session) map[string]any {
	t.Helper()
	l, err := New(cfg)
	require.NoError(t, err)
	p, err := l.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(input), Session: s})
	require.NoError(t, err)
	assert.Empty(t, p.Argv)
	assert.Equal(t, "/v1/chat/completions", p.Call.Path)
	var body map[string]any
	require.NoError(t, json.Unmarshal(p.Call.Body, &body))
	return body
}

func TestPlanIsOneCallWithoutTools(t *testing.T) {
	warm := 0.5
	body := plan(t, Config{MaxTokens: 9, Temperature: &warm}, `{"prompt":"hello","system":"Be brief."}`, invoker.Session{Model: "policy"})
	assert.Equal(t, map[string]any{
		"model": "policy", "max_tokens": 9.0, "temperature": 0.5,
		"messages": []any{
			map[string]any{"role": "system", "content": "Be brief."},
			map[string]any{"role": "user", "content": "hello"},
		},
	}, body)
	body = plan(t, Config{}, `{"prompt":"hello"}`, invoker.Session{Model: "policy"})
	assert.NotContains(t, body, "max_tokens", "what the entry says holds")
	assert.NotContains(t, body, "temperature")
}

// TestTheSchemaIsTold: the model is told what its answer has to be, once.
func TestTheSchemaIsTold(t *testing.T) {
	s := invoker.Session{Model: "policy", OutputSchema: json.RawMessage(`{"type":"object"}`)}
	prompt := func(body map[string]any) any { return body["messages"].([]any)[0].(map[string]any)["content"] }

	body := plan(t, Config{}, `{"prompt":"hello"}`, s)
	assert.Equal(t, "hello\n\nAnswer with one JSON object that fits this JSON Schema, and nothing else:\n{\"type\":\"object\"}", prompt(body))
	body = plan(t, Config{}, `{"prompt":"hello {\"type\":\"object\"}"}`, s)
	assert.Equal(t, `hello {"type":"object"}`, prompt(body))
	body = plan(t, Config{Schema: "response_format"}, `{"prompt":"hello"}`, s)
	assert.Equal(t, "hello", prompt(body))
	assert.Equal(t, map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "output", "schema": map[string]any{"type": "object"}}}, body["response_format"])
}

func TestPlanRefusesAnEmptyPrompt(t *testing.T) {
	l, err := New(Config{})
	require.NoError(t, err)
	_, err = l.Plan(t.Context(), &invoker.PlanRequest{Input: json.RawMessage(`{"prompt":" \n"}`)})
	assert.ErrorContains(t, err, "the prompt is empty")
}

func TestConfig(t *testing.T) {
	cold := -1.0
	for want, c := range map[string]Config{
		"mode subscription is not wired": {Mode: "subscription"},
		"mode bedrock is not wired":      {Mode: "bedrock"},
		`mode is "apii", want api`:       {Mode: "apii"},
		"max_tokens is negative":         {MaxTokens: -1},
		"temperature is negative":        {Temperature: &cold},
		`schema is "x"`:                  {Schema: "x"},
	} {
		_, err := New(c)
		assert.ErrorContains(t, err, want)
	}
}

// TestResultIsTheReplyOrSaysWhyThereIsNone: no error, refusal or cut reply
// passes for an answer.
func TestResultIsTheReplyOrSaysWhyThereIsNone(t *testing.T) {
	for _, c := range []struct {
		exit                int
		answer              string
		text, status, wrong string
	}{
		{0, `{"choices":[{"message":{"content":"42"},"finish_reason":"stop"}]}`, "42", "ok", ""},
		{0, `{"choices":[{"message":{"content":"4"},"finish_reason":"length"}]}`, "4", "agent_error", "the reply was cut"},
		{0, `{"choices":[{"message":{"content":null,"refusal":"I won't."},"finish_reason":"stop"}]}`, "", "agent_error", "the model refused: I won't."},
		{0, `{"choices":[{"message":{"content":"part"},"finish_reason":"content_filter"}]}`, "", "agent_error", "withheld"},
		{0, `{"choices":[{"message":{"content":" "},"finish_reason":"stop"}]}`, "", "agent_error", "no text"},
		{0, `{"choices":[]}`, "", "agent_error", "holds no reply"},
		{0, `<html>`, "", "agent_error", "is no JSON"},
		{403, `{"error":{"message":"over budget"}}`, "", "agent_error", "HTTP status 403: over budget"},
		{502, `bad gateway`, "", "agent_error", "HTTP status 502"},
		{-1, ``, "", "", ""},
	} {
		l, err := New(Config{})
		require.NoError(t, err)
		r, err := l.Result(t.Context(), &invoker.ResultRequest{Exit: c.exit, Stdout: c.answer})
		require.NoError(t, err)
		assert.Equal(t, c.text, r.Text, c.answer)
		assert.Equal(t, c.status, r.ExitStatus, c.answer)
		if c.wrong == "" {
			assert.Empty(t, r.Error, c.answer)
		} else {
			assert.Contains(t, r.Error, c.wrong)
		}
	}
}
