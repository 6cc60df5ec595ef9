package llm

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

// call is modes api and bedrock: one call of the model through the gateway.
type call struct{ cfg Config }

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type request struct {
	Model          string          `json:"model"`
	Messages       []message       `json:"messages"`
	MaxTokens      int             `json:"max_tokens,omitempty"`
	Temperature    *float64        `json:"temperature,omitempty"`
	ResponseFormat *responseFormat `json:"response_format,omitempty"`
}

type responseFormat struct {
	Type   string     `json:"type"`
	Schema jsonSchema `json:"json_schema"`
}

type jsonSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

func (c call) plan(r *invoker.PlanRequest, in Input) (*invoker.Plan, error) {
	q := request{Model: r.Session.Model, MaxTokens: c.cfg.MaxTokens, Temperature: c.cfg.Temperature}
	if schema := r.Session.OutputSchema; len(schema) > 0 {
		if c.cfg.Schema == "response_format" {
			q.ResponseFormat = &responseFormat{"json_schema", jsonSchema{"output", schema}}
		} else if !strings.Contains(in.Prompt, string(schema)) { // unless the host told it beside what was wrong
			in.Prompt += "\n\nAnswer with one JSON object that fits this JSON Schema, and nothing else:\n" + string(schema)
		}
	}
	if in.System != "" {
		q.Messages = append(q.Messages, message{"system", in.System})
	}
	q.Messages = append(q.Messages, message{"user", in.Prompt})
	body, err := chat.Marshal(q)
	if err != nil {
		return nil, err
	}
	return &invoker.Plan{Call: &invoker.ModelCall{Path: "/v1/chat/completions", Body: body}}, nil
}

// answer is what of a reply, or of an error, is read.
type answer struct {
	Choices []struct {
		Message struct {
			Content *string `json:"content"`
			Refusal string  `json:"refusal"`
		} `json:"message"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

func failed(format string, args ...any) *invoker.Result {
	return &invoker.Result{ExitStatus: invoker.AgentError, Error: fmt.Sprintf(format, args...)}
}

// result reads the reply. What is no whole answer is never an "ok": an error's
// words are not the model's, a refusal is none, and a reply that was cut may
// lack its end.
func (c call) result(r *invoker.ResultRequest) *invoker.Result {
	var a answer
	err := json.Unmarshal([]byte(r.Stdout), &a)
	switch {
	case r.Exit < 0:
		return &invoker.Result{} // the host knows why there is no answer
	case r.Exit != 0 && a.Error.Message != "":
		return failed("the call was answered with HTTP status %d: %s", r.Exit, a.Error.Message)
	case r.Exit != 0:
		return failed("the call was answered with HTTP status %d", r.Exit)
	case err != nil:
		return failed("the answer is no JSON: %v", err)
	case len(a.Choices) == 0:
		return failed("the answer holds no reply")
	}
	choice := a.Choices[0]
	text := ""
	if choice.Message.Content != nil {
		text = *choice.Message.Content
	}
	switch {
	case choice.Message.Refusal != "":
		return failed("the model refused: %s", choice.Message.Refusal)
	case choice.Finish == "content_filter":
		return failed("the reply was withheld by the provider's filter")
	case choice.Finish == "length":
		return &invoker.Result{Text: text, ExitStatus: invoker.AgentError, Error: "the reply was cut at its most tokens"}
	case strings.TrimSpace(text) == "":
		return failed("the reply holds no text")
	}
	return &invoker.Result{Text: text, ExitStatus: invoker.OK}
}
