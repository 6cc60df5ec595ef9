package xtuner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/converter"
)

type memory struct {
	files   map[string]*bytes.Buffer
	refused []string
}

type file struct{ *bytes.Buffer }

func (file) Close() error { return nil }

func (m *memory) Create(ending string) (io.WriteCloser, error) {
	if m.files == nil {
		m.files = map[string]*bytes.Buffer{}
	}
	m.files[ending] = &bytes.Buffer{}
	return file{m.files[ending]}, nil
}

func (m *memory) Refuse(row *converter.Row, why []string) {
	m.refused = append(m.refused, row.Row+": "+strings.Join(why, ", "))
}

func sequence(rows []*converter.Row, end error) iter.Seq2[*converter.Row, error] {
	return func(yield func(*converter.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
		if end != nil {
			yield(nil, end)
		}
	}
}

// row is a conversation of two turns: ids 1 2 | 10 11 | 3 | 12, of which 11
// has no logprob.
func row(name, session string, change ...func(*converter.Row)) *converter.Row {
	a, b, n, reward, temperature := -0.1, -0.2, 2, 0.5, 0.7
	r := &converter.Row{Schema: converter.Schema, Row: name, Run: "r-1", Rollout: "t~0", Task: "t", Group: "t", Session: session, LineageKind: "main",
		InputIDs: []int32{1, 2, 10, 11, 3, 12}, LossMask: []int8{0, 0, 1, 0, 0, 1}, Logprobs: []*float64{nil, nil, &a, nil, nil, &b}, PromptLen: &n,
		Reward: &reward, Components: map[string]float64{"style": 1}, Status: "completed", ExitStatus: "ok", FinishReason: "stop",
		WeightVersions: []string{"7", "7"}, Effective: chat.Sampling{Temperature: &temperature}}
	for _, f := range change {
		f(r)
	}
	return r
}

func convert(t *testing.T, config string, rows ...*converter.Row) ([]map[string]any, *memory) {
	t.Helper()
	var c component.Component
	for _, r := range component.Registered() {
		if r.ID() == "converter/xtuner" {
			c = r
		}
	}
	assert.True(t, c.Want("ids"))
	instance, err := c.Open(context.Background(), json.RawMessage(config))
	require.NoError(t, err)
	out := &memory{}
	require.NoError(t, instance.(converter.Converter).Convert(context.Background(), sequence(rows, nil), out))
	var states []map[string]any
	d := json.NewDecoder(out.files["jsonl"])
	d.UseNumber()
	for d.More() {
		var s map[string]any
		require.NoError(t, d.Decode(&s))
		states = append(states, s)
	}
	return states, out
}

func text(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestMainFormTrainsTheWholeConversation(t *testing.T) {
	states, _ := convert(t, `{"data_source":"calc"}`, row("a", "s-1"), row("b", "s-1"), row("c", "s-2"))
	require.Len(t, states, 3)
	s := states[0]
	for field, want := range map[string]string{
		"input_ids":            "[1,2,10,11,3,12]",
		"labels":               "[-100,-100,10,-100,-100,12]",
		"logprobs":             "[0,0,-0.1,0,0,-0.2]",
		"prompt_ids":           "[1,2]",
		"tokens":               "[1,2]",
		"response_ids":         "[10,12]",
		"response_mask":        "[1,1]",
		"response_model_steps": "[7,7]",
		"num_tokens":           "6",
		"reward":               `{"score":0.5,"style":1}`,
		"status":               `"completed"`,
		"error_msg":            "null",
		"message":              "[]",
		"sample_params":        `{"temperature":0.7}`,
		"data_source":          `"calc"`,
		"task_name":            "null",
		"finish_reason":        `"stop"`,
	} {
		assert.Equal(t, want, text(t, s[field]), field)
	}
	assert.Equal(t, s["group_id"], states[2]["group_id"])
	assert.Equal(t, s["session_id"], states[1]["session_id"])
	assert.NotEqual(t, s["session_id"], states[2]["session_id"])
	assert.NotEqual(t, s["uid"], states[1]["uid"])
	n, err := s["uid"].(json.Number).Int64()
	require.NoError(t, err)
	assert.Positive(t, n)
	var segments []string
	for _, s := range states {
		x := s["extra_fields"].(map[string]any)
		segments = append(segments, text(t, []any{x["row"], x["segment_index"], x["segment_count"]}))
	}
	assert.Equal(t, []string{`["a",0,2]`, `["b",1,2]`, `["c",0,1]`}, segments)
}

// XTuner forbids unknown fields: the names are those of each branch.
func TestFieldsAreThoseOfTheBranch(t *testing.T) {
	known := map[string]string{
		"main": "group_id message prompt_ids num_tokens data_source mm_info reward_model session_id tokens tools tool_choice sample_params " +
			"response tool_calls response_ids logprobs routed_experts finish_reason response_mask response_model_steps seq_staleness input_ids " +
			"labels reward rollout_id uid task_name status error_msg position_ids extra_fields proxy_attn_flops",
		"rl_design": "message_uid message prompt_ids num_tokens data_source mm_info reward_model session_uid tokens tools tool_choice sample_params " +
			"response tool_calls response_ids logprobs routed_experts finish_reason response_mask response_model_steps seq_staleness " +
			"reward uid task_name status error_msg position_ids extra_fields proxy_attn_flops",
	}
	for form, fields := range known {
		states, _ := convert(t, `{"form":"`+form+`"}`, row("a", "s-1"))
		for field := range states[0] {
			assert.Contains(t, strings.Fields(fields), field, form)
		}
	}
}

// Acceptance case 27 in that form: a logprob and a mask for each response id.
func TestRLDesignFormMasksWhatFollowsThePrompt(t *testing.T) {
	states, _ := convert(t, `{"form":"rl_design"}`, row("a", "s-1"))
	s := states[0]
	assert.Equal(t, "[10,11,3,12]", text(t, s["response_ids"]))
	assert.Equal(t, "[1,0,0,1]", text(t, s["response_mask"]))
	assert.Equal(t, "[-0.1,0,0,-0.2]", text(t, s["logprobs"]))
	assert.Equal(t, "[7,7,7,7]", text(t, s["response_model_steps"]))
}

func TestStatusesAreMapped(t *testing.T) {
	for _, test := range []struct {
		config, status, exit string
		judged               bool
		want, message        string
	}{
		{`{}`, "completed", "ok", true, "completed", "null"},
		{`{}`, "completed", "max_turns", true, "completed", `"exit_status max_turns"`},
		{`{}`, "completed", "budget", true, "completed", `"exit_status budget"`},
		{`{}`, "completed", "timeout", true, "aborted", `"exit_status timeout"`},
		{`{"timeout":"completed"}`, "completed", "timeout", true, "completed", `"exit_status timeout"`},
		{`{}`, "completed", "agent_error", true, "failed", `"exit_status agent_error"`},
		{`{}`, "completed", "ok", false, "filtered", `"no reward"`},
		{`{}`, "failed", "infra_error", false, "failed", `"exit_status infra_error"`},
		{`{}`, "cancelled", "cancelled", false, "aborted", `"status cancelled"`},
		{`{}`, "parked", "ok", false, "aborted", `"status parked"`},
		{`{}`, "running", "", false, "init", "null"},
	} {
		states, _ := convert(t, test.config, row("a", "s-1", func(r *converter.Row) {
			r.Status, r.ExitStatus = test.status, test.exit
			if !test.judged {
				r.Reward = nil
			}
		}))
		require.Len(t, states, 1)
		assert.Equal(t, test.want, states[0]["status"], "%+v", test)
		assert.Equal(t, test.message, text(t, states[0]["error_msg"]), "%+v", test)
		assert.Equal(t, !test.judged, states[0]["reward"] == nil, "no reward is null, never 0")
	}
}

func TestRowsThatCantBeTrainedAreRefused(t *testing.T) {
	states, out := convert(t, `{}`,
		row("fatal", "s", func(r *converter.Row) { r.Integrity.Fatal = []string{"broken"} }),
		row("text", "s", func(r *converter.Row) { r.InputIDs, r.LossMask, r.Logprobs, r.PromptLen = nil, nil, nil, nil }),
		row("side", "s", func(r *converter.Row) { r.LineageKind = "side" }),
		row("masked", "s", func(r *converter.Row) { r.LossMask = make([]int8, 6) }),
		row("good", "s", func(r *converter.Row) { r.WeightVersions = []string{"7", "8"} }))
	require.Len(t, states, 1)
	assert.Equal(t, "null", text(t, states[0]["response_model_steps"]), "which token had which is not known")
	assert.Equal(t, []string{"fatal: broken", "text: it has no token ids", "side: its lineage is of kind side",
		"masked: none of its tokens can be trained"}, out.refused)
	assert.Equal(t, 4, strings.Count(out.files["refused.jsonl"].String(), "\n"))
	states, _ = convert(t, `{"kinds":["side"]}`, row("side", "s", func(r *converter.Row) { r.LineageKind = "side" }))
	assert.Len(t, states, 1)
}

func TestErrorOfTheRowsEndsTheConversion(t *testing.T) {
	x, err := New(Config{})
	require.NoError(t, err)
	broken := errors.New("store gone")
	assert.ErrorIs(t, x.Convert(context.Background(), sequence(nil, broken), &memory{}), broken)
	_, err = New(Config{Form: "other"})
	assert.ErrorContains(t, err, `form "other"`)
}
