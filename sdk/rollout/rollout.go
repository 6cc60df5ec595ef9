// Package rollout reads a finished rollout: what judgers and hooks are shown
// of a task, its agent and what came of it. Everything is read lazily from
// the request document, so that a WASM guest pays only for what it reads.
//
// The JSON form: {id, sample, attempt, final_text, exit_status, status,
// messages (chat, the main lineage), tool_calls [{id, name, arguments,
// result, is_error}], usage, cost, workspace, workspace_before, artifacts, stages {<id>:
// {status, output}}}.
package rollout

import (
	"encoding/json"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/doc"
)

// Rollout is one task x one sample.
type Rollout struct{ doc.Object }

// ID is the rollout's id, <task>~<sample>.
func (r Rollout) ID() string { return r.String("id") }

// Sample is the number of the sample, from 0.
func (r Rollout) Sample() int { return r.Int("sample") }

// FinalText is the agent's last answer.
func (r Rollout) FinalText() string { return r.String("final_text") }

// ExitStatus says how the agent ended: ok, agent_error, timeout, max_turns,
// budget and so on.
func (r Rollout) ExitStatus() string { return r.String("exit_status") }

// Workspace is the path of a copy of the agent's workspace, "" in WASM.
func (r Rollout) Workspace() string { return r.String("workspace") }

// WorkspaceBefore is the path of the workspace as the first agent found it, for
// what it made away with. Nothing may be changed there. "" where no agent ran,
// and in WASM.
func (r Rollout) WorkspaceBefore() string { return r.String("workspace_before") }

// Usage counts the tokens of the whole rollout.
func (r Rollout) Usage() chat.Usage {
	return chat.Usage{
		Input: r.Int("/usage/input"), Output: r.Int("/usage/output"),
		Cached: r.Int("/usage/cached"), CacheWrite: r.Int("/usage/cache_write"),
	}
}

// Messages decodes the conversation of the main lineage.
func (r Rollout) Messages() ([]chat.Message, error) {
	var m []chat.Message
	if !r.Has("messages") {
		return nil, nil
	}
	return m, r.Decode("messages", &m)
}

// Stage is the {status, output} of an earlier stage.
func (r Rollout) Stage(id string) doc.Object { return r.At("stages").At(id) }

// Call is one tool call of the rollout with its result.
type Call struct{ doc.Object }

// ID is the call's id.
func (c Call) ID() string { return c.String("id") }

// Name is the tool's name.
func (c Call) Name() string { return c.String("name") }

// Arguments reads the call's arguments.
func (c Call) Arguments() doc.Object { return c.At("arguments") }

// Result is the text of the call's result, "" when there is none.
func (c Call) Result() string { return c.String("result") }

// IsError reports whether the result is an error.
func (c Call) IsError() bool { return c.Bool("is_error") }

// ToolCalls returns the tool calls of the main lineage in order.
func (r Rollout) ToolCalls() []Call {
	var out []Call
	r.Each("tool_calls", func(o doc.Object) bool {
		out = append(out, Call{o})
		return true
	})
	return out
}

// CallData is the JSON form of a Call.
type CallData struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Result    string          `json:"result"`
	IsError   bool            `json:"is_error,omitempty"`
}

// StageData is the JSON form of a stage's result.
type StageData struct {
	Status string          `json:"status"`
	Output json.RawMessage `json:"output,omitempty"`
}

// Data is the JSON form of a Rollout, as the host writes it.
type Data struct {
	ID         string               `json:"id"`
	Sample     int                  `json:"sample"`
	Attempt    string               `json:"attempt"`
	FinalText  string               `json:"final_text"`
	ExitStatus string               `json:"exit_status"`
	Status     string               `json:"status"`
	Workspace  string               `json:"workspace,omitempty"`
	Before     string               `json:"workspace_before,omitempty"`
	Artifacts  map[string]string    `json:"artifacts,omitempty"`
	Usage      chat.Usage           `json:"usage"`
	Cost       *float64             `json:"cost,omitempty"`
	ToolCalls  []CallData           `json:"tool_calls"`
	Stages     map[string]StageData `json:"stages,omitempty"`
	Messages   []chat.Message       `json:"messages"`
}
