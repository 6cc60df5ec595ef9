// Package llm is the invoker of a single answer: a prompt goes in, a reply is
// the result. No tool and no second turn unless they are asked for, so that a
// stage that only has to answer can't turn into an agent's session.
//
// How the model is reached is the mode. In api and bedrock it is one call of the
// stage's model through the gateway, recorded as all calls are. In subscription
// it is a headless Claude Code that holds the subscription's token and talks to
// the provider by itself, so that its calls are not recorded.
//
// What never enters: which upstream answers, how often it is asked again, and
// credentials that the config doesn't name.
package llm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// The modes.
const (
	API          = "api"
	Bedrock      = "bedrock"
	Subscription = "subscription"
)

// Config is what a stage's `with:` sets once.
type Config struct {
	Mode        string   `json:"mode,omitempty" enum:"api,bedrock,subscription" desc:"how the model is reached: api (the default) is the stage's model through the gateway, bedrock the same where its upstream is Amazon Bedrock, subscription a headless Claude Code with the subscription's token, whose calls are not recorded"`
	MaxTokens   int      `json:"max_tokens,omitempty" desc:"most tokens of the reply; default what the model's entry says"`
	Temperature *float64 `json:"temperature,omitempty" desc:"default what the model's entry says, which wins where token ids are captured"`
	Schema      string   `json:"schema,omitempty" enum:"prompt,response_format" desc:"how the model is told the schema of output: at the end of the prompt (the default), or as the response_format of Chat Completions, which the upstream has to honour"`

	Token    string      `json:"token,omitempty" format:"secret" desc:"subscription: its token, such as ${env:CLAUDE_CODE_OAUTH_TOKEN}"`
	Model    string      `json:"model,omitempty" desc:"subscription: the model that the program asks for, such as sonnet"`
	BaseURL  string      `json:"base_url,omitempty" desc:"subscription: where the program sends its calls, and the token with them; default the provider"`
	Command  schema.Argv `json:"command,omitempty" desc:"subscription: the program and its arguments, or the program alone; a relative path starts at the folder of the pipeline file; default claude"`
	Tools    []string    `json:"tools,omitempty" desc:"subscription: the program's own tools, exactly; default none"`
	MaxTurns int         `json:"max_turns,omitempty" desc:"subscription: most replies of the model; default 1, or 2 where output has a schema" min:"1"`
	MaxUSD   float64     `json:"max_usd,omitempty" desc:"subscription: the program ends when what all tries of the stage used would cost more, by its own estimate in US dollars"`
}

// Input is what `with:` gives for each rollout.
type Input struct {
	Prompt string `json:"prompt" desc:"what the model is asked" min:"1"`
	System string `json:"system,omitempty" desc:"system prompt"`
}

// mode is how a model is reached.
type mode interface {
	plan(r *invoker.PlanRequest, in Input) (*invoker.Plan, error)
	result(r *invoker.ResultRequest) *invoker.Result
}

type llm struct{ mode }

// New checks the config.
func New(cfg Config) (invoker.Invoker, error) {
	switch {
	case cfg.MaxTokens < 0:
		return nil, errors.New("max_tokens is negative")
	case cfg.Temperature != nil && *cfg.Temperature < 0:
		return nil, errors.New("temperature is negative")
	case cfg.MaxTurns < 0:
		return nil, errors.New("max_turns is negative")
	case cfg.MaxUSD < 0:
		return nil, errors.New("max_usd is negative")
	}
	switch cfg.Schema {
	case "", "prompt", "response_format":
	default:
		return nil, fmt.Errorf("schema is %q, want prompt or response_format", cfg.Schema)
	}
	switch cfg.Mode {
	case "", API, Bedrock:
		if cfg.Token+cfg.Model+cfg.BaseURL != "" || len(cfg.Command)+len(cfg.Tools)+cfg.MaxTurns > 0 || cfg.MaxUSD > 0 {
			return nil, errors.New("token, model, base_url, command, tools, max_turns and max_usd are of mode subscription only; add mode: subscription, or remove them")
		}
		return &llm{call{cfg}}, nil
	case Subscription:
		s := subscription{cfg}
		if err := s.check(); err != nil {
			return nil, err
		}
		return &llm{s}, nil
	}
	return nil, fmt.Errorf("mode is %q, want api, bedrock or subscription", cfg.Mode)
}

// Plan implements invoker.Invoker.
func (l *llm) Plan(_ context.Context, r *invoker.PlanRequest) (*invoker.Plan, error) {
	var in Input
	if err := r.DecodeInput(&in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Prompt) == "" {
		return nil, errors.New("the prompt is empty")
	}
	return l.plan(r, in)
}

// Line implements invoker.Liner.
func (l *llm) Line(_ context.Context, r *invoker.LineRequest) (invoker.LineResult, error) {
	if s, ok := l.mode.(subscription); ok {
		return s.line(r)
	}
	return invoker.LineResult{State: r.State}, nil
}

// Result implements invoker.Invoker.
func (l *llm) Result(_ context.Context, r *invoker.ResultRequest) (*invoker.Result, error) {
	return l.result(r), nil
}

func init() {
	invoker.Register("llm", New, invoker.Input[Input](), invoker.AlwaysCalls(),
		invoker.Modes("mode", map[string]component.Mode{
			Subscription: {
				Direct: true, Family: "claude", Settings: []string{"token", "model", "base_url", "command", "tools", "max_turns", "max_usd"}, Estimates: []string{"max_usd"}, WithSchema: map[string]int{"max_turns": 2}},
			Bedrock: {Upstream: "bedrock"},
		}),
		invoker.Summary("a single answer of a model: a prompt in, its reply out, through the gateway or by a subscription"))
}
