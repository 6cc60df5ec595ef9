package xtuner

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/converter"
)

// The statuses of a RolloutState that a finished run can have. Only completed
// ones are trained.
const (
	initial   = "init"
	completed = "completed"
	aborted   = "aborted"
	failed    = "failed"
	filtered  = "filtered"
)

// ignored is the label of a token that isn't trained.
const ignored = -100

// state is a RolloutState of XTuner's main branch. Fields that XTuner fills
// in itself, and those that no row has, are left out: they have defaults.
//
// Ids are integers there, so each is the first 63 bits of the SHA-256 of ours;
// ours are in ExtraFields.
type state struct {
	GroupID    int64          `json:"group_id"`
	Message    []chat.Message `json:"message"` // always empty: the ids say it all
	PromptIDs  []int32        `json:"prompt_ids"`
	NumTokens  int            `json:"num_tokens"`
	DataSource *string        `json:"data_source"`

	SessionID    int64        `json:"session_id"`
	Tokens       []int32      `json:"tokens"`
	SampleParams sampleParams `json:"sample_params"`

	// With the main branch's form ResponseIDs are the trained tokens alone;
	// InputIDs, Labels and Logprobs are of the whole conversation.
	ResponseIDs        []int32   `json:"response_ids"`
	Logprobs           []float64 `json:"logprobs"` // 0 where nothing is trained
	FinishReason       string    `json:"finish_reason"`
	ResponseMask       []int8    `json:"response_mask"`
	ResponseModelSteps []int     `json:"response_model_steps"`
	InputIDs           []int32   `json:"input_ids"`
	Labels             []int32   `json:"labels"`

	Reward map[string]float64 `json:"reward"`

	RolloutID   int64   `json:"rollout_id"`
	UID         int64   `json:"uid"`
	TaskName    *string `json:"task_name"`
	Status      string  `json:"status"`
	ErrorMsg    *string `json:"error_msg"`
	ExtraFields extra   `json:"extra_fields"`
}

// rlDesignState is a RolloutState of XTuner's branch rl_design.
type rlDesignState struct {
	MessageUID         int64              `json:"message_uid"`
	Message            []chat.Message     `json:"message"`
	PromptIDs          []int32            `json:"prompt_ids"`
	NumTokens          int                `json:"num_tokens"`
	DataSource         *string            `json:"data_source"`
	SessionUID         int64              `json:"session_uid"`
	Tokens             []int32            `json:"tokens"`
	SampleParams       sampleParams       `json:"sample_params"`
	ResponseIDs        []int32            `json:"response_ids"` // all that follows the first prompt
	Logprobs           []float64          `json:"logprobs"`     // of each of them; 0 where the mask is 0
	FinishReason       string             `json:"finish_reason"`
	ResponseMask       []int8             `json:"response_mask"`
	ResponseModelSteps []int              `json:"response_model_steps"`
	Reward             map[string]float64 `json:"reward"`
	UID                int64              `json:"uid"`
	TaskName           *string            `json:"task_name"`
	Status             string             `json:"status"`
	ErrorMsg           *string            `json:"error_msg"`
	ExtraFields        extra              `json:"extra_fields"`
}

// sampleParams are the settings as applied; those not given have XTuner's
// defaults.
type sampleParams struct {
	TopK         *int     `json:"top_k,omitempty"`
	TopP         *float64 `json:"top_p,omitempty"`
	Temperature  *float64 `json:"temperature,omitempty"`
	MaxTokens    *int     `json:"max_tokens,omitempty"`
	Stops        []string `json:"stops,omitempty"`
	SamplingSeed *int64   `json:"sampling_seed,omitempty"`
}

// extra is what XTuner passes through.
type extra struct {
	Row            string              `json:"row"`
	Run            string              `json:"run"`
	Rollout        string              `json:"rollout"`
	Task           string              `json:"task"`
	Sample         int                 `json:"sample"`
	Attempt        string              `json:"attempt"`
	Session        string              `json:"session"`
	SegmentIndex   int                 `json:"segment_index"`
	SegmentCount   int                 `json:"segment_count"`
	Lineage        string              `json:"lineage"`
	LineageKind    string              `json:"lineage_kind"`
	ParentRow      string              `json:"parent_row,omitempty"`
	Calls          []string            `json:"calls"`
	ExitStatus     string              `json:"exit_status"`
	WeightVersions []string            `json:"weight_versions,omitempty"`
	Model          string              `json:"model"`
	Engine         string              `json:"engine"`
	Format         string              `json:"format"`
	TokenizerHash  string              `json:"tokenizer_hash,omitempty"`
	TemplateHash   string              `json:"template_hash,omitempty"`
	Integrity      converter.Integrity `json:"integrity"`
}

// state makes the record of the i-th of n rows of a session.
func (x *xtuner) state(row *converter.Row, i, n int) *state {
	prompt := row.InputIDs[:*row.PromptLen]
	s := &state{
		GroupID: number(row.Run, row.Group), Message: []chat.Message{}, PromptIDs: prompt, NumTokens: len(row.InputIDs),
		DataSource: optional(x.DataSource), SessionID: number(row.Run, row.Session), Tokens: prompt, SampleParams: params(row.Effective),
		FinishReason: row.FinishReason, InputIDs: row.InputIDs, Reward: reward(row),
		RolloutID: number(row.Run, row.Rollout), UID: number(row.Run, row.Row), TaskName: optional(x.TaskName),
		ExtraFields: extra{
			Row: row.Row, Run: row.Run, Rollout: row.Rollout, Task: row.Task, Sample: row.Sample, Attempt: row.Attempt,
			Session: row.Session, SegmentIndex: i, SegmentCount: n, Lineage: row.Lineage, LineageKind: row.LineageKind,
			ParentRow: row.ParentRow, Calls: row.Calls, ExitStatus: row.ExitStatus, WeightVersions: row.WeightVersions,
			Model: row.Model, Engine: row.Engine, Format: row.Format, TokenizerHash: row.TokenizerHash,
			TemplateHash: row.TemplateHash, Integrity: row.Integrity,
		},
	}
	s.Status, s.ErrorMsg = x.status(row)
	s.Labels = make([]int32, len(row.InputIDs))
	s.Logprobs = make([]float64, len(row.InputIDs))
	for i, id := range row.InputIDs {
		s.Labels[i] = ignored
		if row.LossMask[i] == 1 {
			s.Labels[i], s.Logprobs[i] = id, *row.Logprobs[i]
			s.ResponseIDs = append(s.ResponseIDs, id)
			s.ResponseMask = append(s.ResponseMask, 1)
		}
	}
	s.ResponseModelSteps = steps(row.WeightVersions, len(s.ResponseIDs))
	return s
}

// rlDesign is the record in the form of that branch.
func (s *state) rlDesign(row *converter.Row) *rlDesignState {
	n := *row.PromptLen
	return &rlDesignState{
		MessageUID: s.GroupID, Message: s.Message, PromptIDs: s.PromptIDs, NumTokens: s.NumTokens, DataSource: s.DataSource,
		SessionUID: s.SessionID, Tokens: s.Tokens, SampleParams: s.SampleParams,
		ResponseIDs: row.InputIDs[n:], Logprobs: s.Logprobs[n:], FinishReason: s.FinishReason, ResponseMask: row.LossMask[n:],
		ResponseModelSteps: steps(row.WeightVersions, len(row.InputIDs)-n),
		Reward:             s.Reward, UID: s.UID, TaskName: s.TaskName, Status: s.Status, ErrorMsg: s.ErrorMsg, ExtraFields: s.ExtraFields,
	}
}

// status maps what became of the rollout. One that was not judged is filtered:
// without a reward there is nothing to learn from it.
func (x *xtuner) status(row *converter.Row) (status string, message *string) {
	why := "exit_status " + row.ExitStatus
	switch row.Status {
	case "completed":
	case "queued", "running":
		return initial, nil
	case "cancelled", "parked":
		why = "status " + row.Status
		return aborted, &why
	default:
		return failed, &why
	}
	switch row.ExitStatus {
	case "timeout":
		status = x.Timeout
	case "agent_error":
		status = x.AgentError
	case "ok", "max_turns", "budget":
		status = completed
	case "cancelled":
		status = aborted
	default:
		status = failed
	}
	if status == completed && row.Reward == nil {
		why = "no reward"
		return filtered, &why
	}
	if row.ExitStatus == "ok" {
		return status, nil
	}
	return status, &why
}

// reward is null when there is none.
func reward(row *converter.Row) map[string]float64 {
	if row.Reward == nil {
		return nil
	}
	r := map[string]float64{}
	for name, v := range row.Components {
		r[name] = v
	}
	r["score"] = *row.Reward
	return r
}

// steps gives each of n tokens its model step, if all calls had one version
// and it is a number; else it is not known which token had which.
func steps(versions []string, n int) []int {
	if len(versions) == 0 {
		return nil
	}
	step, err := strconv.Atoi(versions[0])
	if err != nil {
		return nil
	}
	for _, v := range versions {
		if v != versions[0] {
			return nil
		}
	}
	out := make([]int, n)
	for i := range out {
		out[i] = step
	}
	return out
}

func params(s chat.Sampling) sampleParams {
	return sampleParams{TopK: s.TopK, TopP: s.TopP, Temperature: s.Temperature, MaxTokens: s.MaxTokens, Stops: s.Stop, SamplingSeed: s.Seed}
}

// number makes an integer of an id, the same in every conversion of a run.
func number(run, id string) int64 {
	h := sha256.Sum256([]byte(run + "\x00" + id))
	return int64(binary.BigEndian.Uint64(h[:8]) >> 1)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
