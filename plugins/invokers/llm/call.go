package llm

import (
	"strings"

	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/model"
)

// call is modes api and bedrock: one call of the model through the gateway.
type call struct{ cfg Config }

func (c call) plan(r *invoker.PlanRequest, in Input) (*invoker.Plan, error) {
	q := model.Question{Model: r.Session.Model, MaxTokens: c.cfg.MaxTokens, Temperature: c.cfg.Temperature}
	if schema := r.Session.OutputSchema; len(schema) > 0 {
		if c.cfg.Schema == "response_format" {
			q.Schema = schema
		} else if !strings.Contains(in.Prompt, string(schema)) { // unless the host told it beside what was wrong
			in.Prompt += "\n\nAnswer with one JSON object that fits this JSON Schema, and nothing else:\n" + string(schema)
		}
	}
	if in.System != "" {
		q.Messages = append(q.Messages, model.Message{Role: "system", Content: in.System})
	}
	q.Messages = append(q.Messages, model.Message{Role: "user", Content: in.Prompt})
	body, err := q.Body()
	if err != nil {
		return nil, err
	}
	return &invoker.Plan{Call: &invoker.ModelCall{Path: model.TextPath, Body: body}}, nil
}

func (c call) result(r *invoker.ResultRequest) *invoker.Result {
	if r.Exit < 0 {
		return &invoker.Result{} // the host knows why there is no answer
	}
	if r.Exit != 0 {
		err := &model.StatusError{Status: r.Exit, Body: []byte(r.Stdout)}
		return &invoker.Result{ExitStatus: invoker.AgentError, Error: err.Error()}
	}
	text, err := model.Reply([]byte(r.Stdout))
	if err != nil {
		return &invoker.Result{Text: text, ExitStatus: invoker.AgentError, Error: err.Error()}
	}
	return &invoker.Result{Text: text, ExitStatus: invoker.OK}
}
