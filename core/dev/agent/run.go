package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// The words of a result, as Claude Code has them.
const (
	completed  = "completed"
	apiFailed  = "api_error"
	turnsOver  = "max_turns"
	cutShort   = "max_tokens"
	refused    = "refusal"
	toolFailed = "mcp_error"
	aborted    = "aborted"
)

// outcome is how a run ended.
type outcome struct {
	text    string
	reason  string // one of the words above
	err     error  // nil if completed
	turns   int
	usage   usage
	stop    string
	elapsed time.Duration
}

// agent runs one prompt to its end.
type agent struct {
	client    *client
	tools     *toolbox
	print     printer
	model     string
	system    string
	maxTokens int
	maxTurns  int // 0: no limit
}

// run asks the model and answers its tool calls until it has no more. A turn
// is one reply of the model.
func (a *agent) run(ctx context.Context, prompt string) *outcome {
	o := &outcome{reason: completed}
	started := time.Now()
	defer func() { o.elapsed = time.Since(started) }()
	if a.tools.failures != nil {
		return o.fail(toolFailed, errors.Join(a.tools.failures...))
	}
	messages := []json.RawMessage{message("user", prompt)}
	for {
		r, err := a.client.send(ctx, &request{
			Model: a.model, MaxTokens: a.maxTokens, System: a.system,
			Messages: messages, Tools: a.tools.tools, Stream: true,
		})
		if ctx.Err() != nil {
			return o.fail(aborted, context.Cause(ctx))
		}
		if err != nil {
			return o.fail(apiFailed, err)
		}
		o.turns++
		o.usage.add(r.Usage)
		o.stop = r.StopReason
		if text := r.text(); text != "" {
			o.text = text
		}
		a.print.assistant(r)
		calls := r.calls()
		switch {
		case r.StopReason == "max_tokens":
			return o.fail(cutShort, errors.New("the reply was cut at max_tokens"))
		case r.StopReason == "refusal":
			return o.fail(refused, errors.New("the model refused"))
		case len(calls) == 0:
			o.text = r.text()
			return o
		case a.maxTurns > 0 && o.turns >= a.maxTurns:
			return o.fail(turnsOver, fmt.Errorf("reached maximum number of turns (%d)", a.maxTurns))
		}
		results := make([]toolResult, len(calls))
		for i, c := range calls {
			got := a.tools.run(ctx, c)
			results[i] = toolResult{"tool_result", c.ID, got.content, got.isError}
		}
		if ctx.Err() != nil {
			return o.fail(aborted, context.Cause(ctx))
		}
		answer := message("user", results)
		a.print.user(answer)
		messages = append(messages, message("assistant", r.Blocks), answer)
	}
}

func (o *outcome) fail(reason string, err error) *outcome {
	o.reason, o.err = reason, err
	return o
}

type toolResult struct {
	Type      string            `json:"type"`
	ToolUseID string            `json:"tool_use_id"`
	Content   []json.RawMessage `json:"content"`
	IsError   bool              `json:"is_error,omitempty"`
}

// message writes one message. All that it is given has a JSON form.
func message(role string, content any) json.RawMessage {
	b, err := marshal(struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	}{role, content})
	if err != nil {
		panic(fmt.Sprintf("message without a JSON form: %v", err))
	}
	return b
}
