package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/trace"
)

const greeting = "Héllo, wörld: 你好 👋 <b>&amp;</b>"

// sdkClient runs one of the clients of .ci/npm against the built binary and
// gives what each of its cases gave, and the calls that were recorded.
func sdkClient(t *testing.T, script, sdk string) (gjson.Result, []*trace.Call) {
	t.Helper()
	npm := os.Getenv("PENSTOCK_NPM")
	if npm == "" {
		t.Skip("PENSTOCK_NPM is not set: make deps installs the SDKs, which needs npm")
	}
	if _, err := os.Stat(filepath.Join(npm, sdk, "package.json")); err != nil {
		t.Skipf("%s has no %s: make deps installs it", npm, sdk)
	}
	node := filepath.Join(npm, ".bin", "node") // newer than many a machine's own
	if _, err := os.Stat(node); err != nil {
		t.Skipf("%s has no node: make deps installs it", npm)
	}
	s := serve(t, filepath.Join("testdata", "sdk", "pipeline.yaml"), "PENSTOCK_LIMITS_BODY=64KiB")
	cmd := exec.CommandContext(t.Context(), node, filepath.Join(".ci", "npm", script))
	cmd.Env = append(append(os.Environ(), s.env...), "PENSTOCK_NPM="+npm)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	require.True(t, json.Valid(out), "%s", out)
	s.stop(t)
	st := s.store(t)
	sessions, err := st.Sessions(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, sessions, 1)
	calls, err := st.Calls(t.Context(), sessions[0].ID)
	require.NoError(t, err)
	return gjson.ParseBytes(out), calls
}

// checks compares values of the cases' results by their paths. A nil value is
// one that must be there, whatever it is.
func checks(t *testing.T, got gjson.Result, want map[string]any) {
	t.Helper()
	for path, value := range want {
		v := got.Get(path)
		if assert.True(t, v.Exists(), "%s is missing in %.500s", path, got.Get(gjsonHead(path)).Raw) && value != nil {
			assert.Equal(t, fmt.Sprint(value), v.String(), path)
		}
	}
}

func gjsonHead(path string) string {
	for i := range path {
		if path[i] == '.' {
			return path[:i]
		}
	}
	return path
}

// isRefused checks that a case failed in the way that the SDK has for it.
func isRefused(t *testing.T, got gjson.Result, want map[string]string) {
	t.Helper()
	for name, is := range want {
		e := got.Get(name + ".error")
		assert.Equal(t, is, fmt.Sprintf("%s %s %s", e.Get("class"), e.Get("status"), e.Get("type")), "%s: %s", name, got.Get(name).Raw)
		assert.NotEmpty(t, e.Get("request").String(), name)
	}
}

// wasRetried checks that a call was tried twice, with the pause that the
// answer asked for.
func wasRetried(t *testing.T, got gjson.Result, word string, status int) {
	t.Helper()
	tries := got.Get("retry " + word + ".value.tries")
	require.Len(t, tries.Array(), 2, got.Get("retry "+word).Raw)
	assert.EqualValues(t, status, tries.Get("0.status").Int())
	assert.EqualValues(t, 200, tries.Get("1.status").Int())
	assert.Equal(t, "1", tries.Get("1.retry").String())
	if status == 429 {
		assert.GreaterOrEqual(t, tries.Get("1.began").Int()-tries.Get("0.began").Int(), int64(990), "Retry-After was honoured")
	}
}

// sdkRecord checks what the calls of a client left in the trace.
func sdkRecord(t *testing.T, calls []*trace.Call, dialect string) {
	t.Helper()
	status := map[string]int{}
	for _, c := range calls {
		status[c.Status]++
		if c.Status == trace.CallOK && !c.ClientGone {
			assert.NotNil(t, c.Served, c.ID)
			assert.Len(t, c.Logprobs, len(c.SampledIDs), c.ID)
			assert.True(t, c.Delivered, "%s: %s", c.ID, c.Raw)
		}
		if c.Status != trace.CallOK {
			assert.NotNil(t, c.Error, c.ID)
		}
	}
	assert.Contains(t, calls[0].Dialect, dialect)
	assert.Greater(t, status[trace.CallOK], 12, "%v", status)
	assert.GreaterOrEqual(t, status[trace.CallInvalid], 5, "401 is none of a session: %v", status)
	assert.GreaterOrEqual(t, status[trace.CallError], 6, "%v", status)
}

// TestAnthropicSDK drives the gateway with Anthropic's own TypeScript SDK:
// whole and streamed replies, tools, errors, token counts, retries.
func TestAnthropicSDK(t *testing.T) {
	got, calls := sdkClient(t, "anthropic.mjs", "@anthropic-ai/sdk")
	checks(t, got, map[string]any{
		"create.value.content.0.text":             greeting,
		"create.value.stop_reason":                "end_turn",
		"create.value.role":                       "assistant",
		"create.value.id":                         nil,
		"stream.value.text":                       greeting,
		"stream.value.message.content.0.text":     greeting,
		"stream.value.message.stop_reason":        "end_turn",
		"stream.value.message.usage.input_tokens": got.Get("create.value.usage.input_tokens").Int(),
		"stream.value.events.0":                   "message_start",
		"stream.value.events.1":                   "content_block_start",
		"stream.value.events.2":                   "content_block_delta",
		"raw stream.value.0.type":                 "message_start",
		"max_tokens.value.stop_reason":            "max_tokens",
		"max_tokens.value.content.0.text":         "one t",
		"max_tokens.value.usage.output_tokens":    5,
		"stop_sequences.value.stop_reason":        "stop_sequence",
		"stop_sequences.value.stop_sequence":      "four",
		"stop_sequences.value.content.0.text":     "one two three ",
		"tool.value.stop_reason":                  "tool_use",
		"tool.value.content.0.name":               "weather",
		"tool.value.content.0.input":              `{"city":"Bern"}`,
		"tools.value.message.content.#":           3,
		"tools.value.message.content.1.input":     `{"city":"Bern"}`,
		"tools.value.message.content.2.input":     `{"city":"Rome","days":3}`,
		"tools.value.second.content.0.text":       "It says: rain in Rome.",
		"one at a time.value.content.#":           2,
		"tool runner.value.content.0.text":        "It says: snow in Oslo.",
		"models.value":                            `["policy","policy-small"]`,
		"alias.value.content.0.text":              greeting,
		"aborted.error.class":                     "APIUserAbortError",
		"retry busy.value.message.content.0.text": "Now I have time.",
		"retry overloaded.value.message.content":  nil,
		"retry broken.value.message.content":      nil,
	})
	assert.NotEqual(t, got.Get("tools.value.message.content.1.id").String(), got.Get("tools.value.message.content.2.id").String())
	// The runner's last turn has the whole conversation, not the last message.
	assert.Greater(t, got.Get("tool runner.value.usage.input_tokens").Int(), got.Get("tool.value.usage.input_tokens").Int())
	assert.Equal(t, got.Get("count.value.counted").Int(), got.Get("count.value.used").Int())
	assert.NotZero(t, got.Get("count.value.used").Int())
	isRefused(t, got, map[string]string{
		"401":        "AuthenticationError 401 authentication_error",
		"404":        "NotFoundError 404 not_found_error",
		"400":        "BadRequestError 400 invalid_request_error",
		"400 choice": "BadRequestError 400 invalid_request_error",
		"400 long":   "BadRequestError 400 invalid_request_error",
		"413":        "ContentTooLargeError 413 request_too_large",
		"429":        "RateLimitError 429 rate_limit_error",
		"429 stream": "RateLimitError 429 rate_limit_error",
		"cut stream": "APIError  api_error",
	})
	assert.Equal(t, "7", got.Get("429.error.retry_after").String())
	assert.Contains(t, got.Get("400 long.error.message").String(), "prompt is too long")
	wasRetried(t, got, "busy", 429)
	wasRetried(t, got, "overloaded", 529)
	wasRetried(t, got, "broken", 502)
	sdkRecord(t, calls, "anthropic")
}

// TestOpenAISDK does the same with OpenAI's, over Chat Completions, and with
// two calls over Responses.
func TestOpenAISDK(t *testing.T) {
	got, calls := sdkClient(t, "openai.mjs", "openai")
	const message, completion = ".value.choices.0.message.", ".value.completion.choices.0.message."
	checks(t, got, map[string]any{
		"create" + message + "content":                       greeting,
		"create.value.choices.0.finish_reason":               "stop",
		"create.value.usage.total_tokens":                    got.Get("create.value.usage.prompt_tokens").Int() + got.Get("create.value.usage.completion_tokens").Int(),
		"stream.value.text":                                  greeting,
		"stream" + completion + "content":                    greeting,
		"stream.value.usage.prompt_tokens":                   got.Get("create.value.usage.prompt_tokens").Int(),
		"stream.value.last.choices.#":                        0,
		"raw stream.value.0.choices.0.delta.role":            "assistant",
		"max_tokens.value.choices.0.finish_reason":           "length",
		"max_tokens" + message + "content":                   "one t",
		"stop" + message + "content":                         "one two three ",
		"developer" + message + "content":                    greeting,
		"tool.value.choices.0.finish_reason":                 "tool_calls",
		"tool" + message + "content":                         "",
		"tool" + message + "tool_calls.0.function.name":      "weather",
		"tool" + message + "tool_calls.0.function.arguments": `{"city": "Bern"}`,
		"tools" + completion + "tool_calls.#":                2,
		"tools" + completion + "tool_calls.1.function.name":  "weather",
		"tools.value.second.choices.0.message.content":       "It says: rain in Rome.",
		"one at a time" + message + "tool_calls.#":           1,
		"tool runner.value.text":                             "It says: snow in Oslo.",
		"responses.value.output_text":                        greeting,
		"responses.value.status":                             "completed",
		"responses stream.value.text":                        greeting,
		"responses stream.value.response.output_text":        greeting,
		"models.value":                                       `["policy","policy-small"]`,
		"alias" + message + "content":                        greeting,
		"aborted.error.class":                                "APIUserAbortError",
		"retry busy" + completion + "content":                "Now I have time.",
		"retry overloaded" + completion + "content":          "Here again.",
		"retry broken" + completion + "content":              "Mended.",
	})
	last := got.Get("raw stream.value").Array()
	assert.Equal(t, "stop", last[len(last)-1].Get("choices.0.finish_reason").String(), "no usage chunk unless asked for")
	assert.Greater(t, got.Get("developer.value.usage.prompt_tokens").Int(), got.Get("create.value.usage.prompt_tokens").Int())
	isRefused(t, got, map[string]string{
		"401":        "AuthenticationError 401 authentication_error",
		"404":        "NotFoundError 404 invalid_request_error",
		"400":        "BadRequestError 400 invalid_request_error",
		"400 choice": "BadRequestError 400 invalid_request_error",
		"400 long":   "BadRequestError 400 invalid_request_error",
		"413":        "APIError 413 invalid_request_error",
		"429":        "RateLimitError 429 rate_limit_error",
		"429 stream": "RateLimitError 429 rate_limit_error",
		"cut stream": "APIError  server_error",
	})
	assert.Equal(t, "7", got.Get("429.error.retry_after").String())
	assert.Equal(t, "context_length_exceeded", got.Get("400 long.error.code").String())
	assert.Equal(t, "model_not_found", got.Get("404.error.code").String())
	wasRetried(t, got, "busy", 429)
	wasRetried(t, got, "overloaded", 503)
	wasRetried(t, got, "broken", 502)
	sdkRecord(t, calls, "openaichat")
}

// TestGenaiSDK does the same with Google's.
func TestGenaiSDK(t *testing.T) {
	got, calls := sdkClient(t, "genai.mjs", "@google/genai")
	checks(t, got, map[string]any{
		"create.value.text":                  greeting,
		"create.value.finish":                "STOP",
		"create.value.id":                    nil,
		"stream.value.text":                  greeting,
		"stream.value.finish":                "STOP",
		"stream.value.usage":                 got.Get("create.value.usage").String(),
		"system.value.text":                  greeting,
		"no thoughts.value.text":             greeting,
		"max_tokens.value.finish":            "MAX_TOKENS",
		"max_tokens.value.text":              "one t",
		"stop.value.text":                    "one two three ",
		"tool.value.calls.0.name":            "weather",
		"tool.value.calls.0.args":            `{"city":"Bern"}`,
		"tools.value.text":                   "I look at both.",
		"tools.value.calls.#":                2,
		"tools.value.calls.1.args":           `{"city":"Rome","days":3}`,
		"tools.value.second.text":            "It says: rain in Rome.",
		"chat.value.text":                    "one two three four five six seven eight nine ten",
		"chat.value.turns":                   4,
		"models.value":                       `["models/policy","models/policy-small"]`,
		"alias.value.text":                   greeting,
		"create.value.usage.totalTokenCount": got.Get("create.value.usage.promptTokenCount").Int() + got.Get("create.value.usage.candidatesTokenCount").Int(),
	})
	assert.Greater(t, got.Get("system.value.usage.promptTokenCount").Int(), got.Get("create.value.usage.promptTokenCount").Int())
	assert.Equal(t, got.Get("count.value.counted").Int(), got.Get("count.value.used").Int())
	assert.NotZero(t, got.Get("count.value.used").Int())
	for name, want := range map[string]string{
		"401": "401 UNAUTHENTICATED", "404": "404 NOT_FOUND", "400": "400 INVALID_ARGUMENT", "400 code": "400 INVALID_ARGUMENT",
		"400 file": "400 INVALID_ARGUMENT", "400 long": "400 INVALID_ARGUMENT", "413": "413 INVALID_ARGUMENT",
		"429": "429 RESOURCE_EXHAUSTED", "429 stream": "429 RESOURCE_EXHAUSTED", "503": "503 UNAVAILABLE", "502": "502 UNAVAILABLE", "cut": "502 UNAVAILABLE",
	} {
		e := got.Get(name + ".value")
		assert.Equal(t, want, e.Get("code").String()+" "+e.Get("status").String(), "%s: %s", name, got.Get(name).Raw)
		assert.True(t, e.Get("api").Bool(), name)
		assert.NotEmpty(t, e.Get("message").String(), name)
	}
	assert.Contains(t, got.Get("400 code.value.message").String(), "executableCode", "what can't be mapped is refused by name")
	assert.Contains(t, got.Get("400 file.value.message").String(), "fileData")
	assert.NotEmpty(t, got.Get("cut stream.error.message").String(), "a cut stream is an error: %s", got.Get("cut stream").Raw)
	sdkRecord(t, calls, "gemini")
}

// TestResponsesSDK does the same with OpenAI's over Responses.
func TestResponsesSDK(t *testing.T) {
	got, calls := sdkClient(t, "responses.mjs", "openai")
	const text = ".output.0.content.0.text"
	checks(t, got, map[string]any{
		"create.value.output_text":                          greeting,
		"create.value.status":                               "completed",
		"stream.value.text":                                 greeting,
		"stream.value.response" + text:                      greeting,
		"stream.value.first":                                "response.created",
		"stream.value.last":                                 "response.completed",
		"stream.value.done.#":                               1,
		"stream.value.response.usage.input_tokens":          got.Get("create.value.usage.input_tokens").Int(),
		"messages.value.output_text":                        greeting,
		"messages.value.usage.input_tokens":                 got.Get("create.value.usage.input_tokens").Int(),
		"max_output_tokens.value.status":                    "incomplete",
		"max_output_tokens.value.incomplete_details.reason": "max_output_tokens",
		"max_output_tokens.value.output_text":               "one t",
		"max_output_tokens stream.value.last":               "response.incomplete",
		"max_output_tokens stream.value.response.status":    "incomplete",
		"tool.value.output.0.type":                          "function_call",
		"tool.value.output.0.arguments":                     `{"city": "Bern"}`,
		"tools.value.response.output.#":                     3,
		"tools.value.done.1.name":                           "weather",
		"tools.value.done.2.call_id":                        got.Get("tools.value.response.output.2.call_id").String(),
		"tools.value.second.output_text":                    "It says: rain in Rome.",
		"one at a time.value.output.#":                      2,
		"alias.value.output_text":                           greeting,
		"retry busy.value.response.output_text":             "Now I have time.",
		"retry overloaded.value.response.output_text":       "Here again.",
		"retry broken.value.response.output_text":           "Mended.",
	})
	for _, name := range []string{"stream", "max_output_tokens stream", "tools"} {
		for i, n := range got.Get(name + ".value.numbers").Array() {
			assert.EqualValues(t, i, n.Int(), "%s: events are numbered without a gap", name)
		}
	}
	isRefused(t, got, map[string]string{
		"401":          "AuthenticationError 401 authentication_error",
		"404":          "NotFoundError 404 invalid_request_error",
		"400":          "BadRequestError 400 invalid_request_error",
		"400 item":     "BadRequestError 400 invalid_request_error",
		"400 previous": "BadRequestError 400 invalid_request_error",
		"400 file":     "BadRequestError 400 invalid_request_error",
		"400 long":     "BadRequestError 400 invalid_request_error",
		"413":          "APIError 413 invalid_request_error",
		"429":          "RateLimitError 429 rate_limit_error",
		"429 stream":   "RateLimitError 429 rate_limit_error",
	})
	assert.Equal(t, "7", got.Get("429.error.retry_after").String())
	assert.Equal(t, "context_length_exceeded", got.Get("400 long.error.code").String())
	for name, what := range map[string]string{"item": "item_reference", "previous": "previous_response_id", "file": "input_file"} {
		assert.Contains(t, got.Get("400 "+name+".error.message").String(), what, "what can't be mapped is refused by name")
	}
	assert.NotEmpty(t, got.Get("cut stream.error.message").String(), "a cut stream is an error: %s", got.Get("cut stream").Raw)
	wasRetried(t, got, "busy", 429)
	wasRetried(t, got, "overloaded", 503)
	wasRetried(t, got, "broken", 502)
	sdkRecord(t, calls, "responses")
}
