package model

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQuestion(t *testing.T) {
	cold := 0.0
	body, err := Question{Model: "m", Messages: []Message{{"user", "hi <b>"}}, Temperature: &cold}.Body()
	require.NoError(t, err)
	assert.Equal(t, `{"model":"m","messages":[{"role":"user","content":"hi <b>"}],"temperature":0}`, string(body))
	body, err = Question{Model: "m", MaxTokens: 9, Schema: json.RawMessage(`{"type":"object"}`)}.Body()
	require.NoError(t, err)
	assert.JSONEq(t, `{"model":"m","messages":null,"max_tokens":9,"response_format":{"type":"json_schema","json_schema":{"name":"output","schema":{"type":"object"}}}}`, string(body))
}

// TestReply: no error, refusal, silence or cut reply passes for an answer.
func TestReply(t *testing.T) {
	for answer, want := range map[string]struct{ text, wrong string }{
		`{"choices":[{"message":{"content":"42"},"finish_reason":"stop"}]}`:                      {"42", ""},
		`{"choices":[{"message":{"content":"4"},"finish_reason":"length"}]}`:                     {"4", "the reply was cut at its most tokens"},
		`{"choices":[{"message":{"content":null,"refusal":"I won't."},"finish_reason":"stop"}]}`: {"", "the model refused: I won't."},
		`{"choices":[{"message":{"content":"part"},"finish_reason":"content_filter"}]}`:          {"", "the reply was withheld by the provider's filter"},
		`{"choices":[{"message":{"content":" "},"finish_reason":"stop"}]}`:                       {"", "the reply holds no text"},
		`{"choices":[]}`: {"", "the answer holds no reply"},
		`<html>`:         {"", "the answer is no JSON: invalid character '<' looking for beginning of value"},
	} {
		text, err := Reply([]byte(answer))
		assert.Equal(t, want.text, text, answer)
		if want.wrong == "" {
			assert.NoError(t, err, answer)
		} else {
			assert.EqualError(t, err, want.wrong)
		}
	}
}

func TestStatusError(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"over budget"}}`: "the call was answered with HTTP status 403: over budget",
		`bad gateway`:                         "the call was answered with HTTP status 403: bad gateway",
		``:                                    "the call was answered with HTTP status 403",
	} {
		assert.EqualError(t, &StatusError{403, []byte(body)}, want)
	}
}
