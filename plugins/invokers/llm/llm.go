// Package llm is the invoker of one call of a model: a prompt goes in, its
// reply is the result. There is no program, no tool and no second turn, so that
// a stage that only has to answer can't turn into an agent's session. What
// never enters: which upstream answers, and how often it is asked again.
package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

// Config is what a stage's `with:` sets once.
type Config struct {
	Mode        string   `json:"mode,omitempty" desc:"how the model is reached: api (the default), through the gateway"`
	MaxTokens   int      `json:"max_tokens,omitempty" desc:"most tokens of the reply; default what the model's entry says"`
	Temperature *float64 `json:"temperature,omitempty" desc:"default what the model's entry says, which wins where token ids are captured"`
	Schema      string   `json:"schema,omitempty" enum:"prompt,response_format" desc:"how the model is told the schema of output: at the end of the prompt (the default), or as the response_format of Chat Completions, which the upstream has to honour"`
}

// Input is what `with:` gives for each rollout.
type Input struct {
	Prompt string `json:"prompt" desc:"what the model is asked"`
	System string `json:"system,omitempty" desc:"system prompt"`
}

type llm struct{ cfg Config }

// New checks the config.
func New(cfg Config) (invoker.Invoker, error) {
	switch cfg.Mode {
	case "", "api":
	case "subscription":
		return nil, errors.New("mode subscription is not wired: it would need the program of a subscription; invoker/claude-code starts one, or use mode api with a model")
	case "bedrock":
		return nil, errors.New("mode bedrock is not wired: there is no upstream for it; use mode api with a model whose upstream is there")
	default:
		return nil, fmt.Errorf("mode is %q, want api", cfg.Mode)
	}
	if cfg.MaxTokens < 0 {
		return nil, errors.New("max_tokens is negative")
	}
	if t := cfg.Temperature; t != nil && *t < 0 {
		return nil, errors.New("temperature is negative")
	}
	switch cfg.Schema {
	case "", "prompt", "response_format":
	default:
		return nil, fmt.Errorf("schema is %q, want prompt or response_format", cfg.Schema)
	}
	return &llm{cfg}, nil
}

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

func (l *llm) Plan(_ context.Context, r *invoker.PlanRequest) (*invoker.Plan, error) {
	var in Input
	if err := r.DecodeInput(&in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Prompt) == "" {
		return nil, errors.New("the prompt is empty")
	}
	q := request{Model: r.Session.Model, MaxTokens: l.cfg.MaxTokens, Temperature: l.cfg.Temperature}
	if schema := r.Session.OutputSchema; len(schema) > 0 {
		if l.cfg.Schema == "response_format" {
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

// Result reads the reply. What is no whole answer is never an "ok": an error's
// words are not the model's, a refusal is none, and a reply that was cut may
// lack its end.
func (l *llm) Result(_ context.Context, r *invoker.ResultRequest) (*invoker.Result, error) {
	failed := func(format string, args ...any) (*invoker.Result, error) {
		return &invoker.Result{ExitStatus: invoker.AgentError, Error: fmt.Sprintf(format, args...)}, nil
	}
	var a answer
	err := json.Unmarshal([]byte(r.Stdout), &a)
	switch {
	case r.Exit < 0:
		return &invoker.Result{}, nil // the host knows why there is no answer
	case r.Exit != 0 && a.Error.Message != "":
		return failed("the call was answered with HTTP status %d: %s", r.Exit, a.Error.Message)
	case r.Exit != 0:
		return failed("the call was answered with HTTP status %d", r.Exit)
	case err != nil:
		return failed("the answer is no JSON: %v", err)
	case len(a.Choices) == 0:
		return failed("the answer holds no reply")
	}
	c := a.Choices[0]
	text := ""
	if c.Message.Content != nil {
		text = *c.Message.Content
	}
	switch {
	case c.Message.Refusal != "":
		return failed("the model refused: %s", c.Message.Refusal)
	case c.Finish == "content_filter":
		return failed("the reply was withheld by the provider's filter")
	case c.Finish == "length":
		return &invoker.Result{Text: text, ExitStatus: invoker.AgentError, Error: "the reply was cut at its most tokens"}, nil
	case strings.TrimSpace(text) == "":
		return failed("the reply holds no text")
	}
	return &invoker.Result{Text: text, ExitStatus: invoker.OK}, nil
}

func init() {
	invoker.Register("llm", New, invoker.Input[Input](), invoker.AlwaysCalls(),
		invoker.Summary("one call of the model, without a program: a prompt in, its reply out"))
}
