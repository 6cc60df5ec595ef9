package gateway_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/rows"
	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream/script"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/hook"
)

const calculatorScript = `penstock: script/v1
weights: w-1
defaults: { chunk: [3, 5, 1] }
rules:
  - when: { last: 'What is ([-+* \d]+)\?' }
    reply: |-
      I will compute that.

      <tool_call>
      <function=calculator>
      <parameter=expression>
      $1
      </parameter>
      </function>
      </tool_call>
  - when: { last: '<tool_response>\s*(-?\d+)\s*</tool_response>' }
    reply: The result is $1.
`

const calculatorTool = `"tools":[{"name":"calculator","description":"Computes.","input_schema":{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}}]`

// TestCalculatorThroughTheHouse: a tool call and its answer through the real
// dialect, format, tokenizer, engine and store, and into a training row.
func TestCalculatorThroughTheHouse(t *testing.T) {
	name := filepath.Join("..", "..", "plugins", "formats", "qwen3_coder.yaml")
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	spec, err := format.ParseSpec(name, data)
	require.NoError(t, err)
	f, err := format.New(spec)
	require.NoError(t, err)
	sc, err := script.Parse([]byte(calculatorScript))
	require.NoError(t, err)
	st, err := trace.Open(filepath.Join(t.TempDir(), "penstock.db"), trace.StoreOptions{})
	require.NoError(t, err)
	defer st.Close()
	g, err := gateway.New(gateway.Options{Calls: st})
	require.NoError(t, err)
	tok := token.NewBytes(f.Markers())
	up := script.New(sc, tok, script.Options{})
	defer up.Close()
	m := &gateway.Model{
		Entry: "policy", Name: "Qwen/Qwen3-Coder", Format: f, FormatName: "qwen3_coder", Tokenizer: tok,
		Upstream: up, Capture: gateway.CaptureExact, Context: 32768,
		Hooks: []gateway.Hook{
			changes("mask", swap("kumquat", "***"), hook.Request),
			changes("fix", swap("23 + 19", "23+19"), hook.ToolCall),
		},
	}
	session := trace.Session{
		ID: "s-1", Rollout: "t1~0", Task: "t1", Stage: "solve", Round: 1, Try: 1,
		Attempt: "t1~0~solve~1~1", ModelEntry: "policy", Opened: time.Now(),
	}
	s, err := g.Open(t.Context(), gateway.SessionSpec{Session: session, Model: m, Budget: gateway.Budget{Calls: 2, Turns: 2}})
	require.NoError(t, err)

	first := joined(t, eventsOf(t, post(t, s, ask("A kumquat. What is 23 + 19?", true, calculatorTool))))
	require.Equal(t, "tool_use", first["stop_reason"], first)
	var id any
	for _, block := range first["content"].([]any) {
		if at(block, "type") == "tool_use" {
			id = at(block, "id")
			assert.Equal(t, "23+19", at(block, "input", "expression"))
		}
	}
	next := `{"model":"policy","max_tokens":1000,"stream":true,` + calculatorTool + `,"messages":[{"role":"user","content":[{"type":"text","text":"A kumquat. What is 23 + 19?"}]},` +
		`{"role":"assistant","content":` + quoted(first["content"]) + `},` +
		`{"role":"user","content":[{"tool_use_id":` + quoted(id) + `,"type":"tool_result","content":[{"type":"text","text":"42"}],"cache_control":{"type":"ephemeral"}}]}]}`
	second := joined(t, eventsOf(t, post(t, s, next)))
	assert.Equal(t, "end_turn", second["stop_reason"])
	assert.Equal(t, "The result is 42.", at(second, "content", 0, "text"))
	require.NoError(t, g.Close(t.Context()))

	calls, err := st.Calls(t.Context(), "s-1")
	require.NoError(t, err)
	require.Len(t, calls, 2)
	assert.True(t, calls[0].Delivered && calls[1].Delivered)
	require.True(t, calls[1].Extends, calls[1].Fork)
	prompt := string(tok.Decode(nil, calls[1].PromptIDs))
	assert.Contains(t, prompt, "23 + 19\n</parameter>", "what was sampled is what the model goes on from")
	assert.Contains(t, prompt, "***")
	assert.NotContains(t, prompt, "kumquat")

	made, err := rows.ForRollout(t.Context(), st, "r-1", &trace.Rollout{ID: "t1~0", Task: "t1", Status: trace.Completed})
	require.NoError(t, err)
	require.Len(t, made, 1)
	row := made[0]
	assert.Equal(t, append(append([]int32(nil), calls[1].PromptIDs...), calls[1].SampledIDs...), row.InputIDs)
	sampled := 0
	for _, on := range row.LossMask {
		sampled += int(on)
	}
	assert.Equal(t, len(calls[0].SampledIDs)+len(calls[1].SampledIDs), sampled)
}
