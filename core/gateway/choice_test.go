package gateway_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

const (
	anyTool   = `"tool_choice":{"type":"any"}`
	thatTool  = `"tool_choice":{"type":"tool","name":"add"}`
	otherTool = `"tool_choice":{"type":"tool","name":"sub"}`
)

// TestDemandedCallsAreHeld: a reply with the call that was demanded is served,
// whole and streamed; one without it is an error, of which nothing was served.
func TestDemandedCallsAreHeld(t *testing.T) {
	for _, c := range []struct {
		text, choice string
		served       bool
	}{
		{`Well. <call add>{"a":1}</call>` + imEnd, anyTool, true},
		{`<call add>{"a":1}</call>` + imEnd, thatTool, true},
		{`I would rather not.` + imEnd, anyTool, false},
		{`I would rather not.` + imEnd, thatTool, false},
		{`<call mul>{"a":1}</call>` + imEnd, thatTool, false},
		{`<call add>{"a":1}</call><call mul>{"a":1}</call>` + imEnd, thatTool, false},
	} {
		for _, streamed := range []bool{true, false} {
			b := start(t, says(c.text, 3))
			a := post(t, b.session(t), ask("hello", streamed, addTool, c.choice))
			if c.served {
				m := decodedOrJoined(t, a, streamed)
				assert.Equal(t, "tool_use", m["stop_reason"], c.text)
				continue
			}
			call := b.store.only(t)
			assert.Equal(t, trace.CallError, call.Status, c.text)
			assert.Contains(t, call.Error.Message, "tool_choice demands a call", c.text)
			assert.Equal(t, c.text, call.Raw, "what was sampled is kept")
			assert.NotContains(t, a.body, "rather")
			if !streamed {
				isAnthropicError(t, a, 502, "api_error")
			}
		}
	}
}

// TestReplyCutByLengthIsNoBrokenDemand: it says itself that it is cut.
func TestReplyCutByLengthIsNoBrokenDemand(t *testing.T) {
	e := &engine{reply: func(context.Context, *upstream.Request) (upstream.Stream, error) {
		s := stream("I think", 3)
		last := &s.list[len(s.list)-1]
		last.Finish = upstream.Finish{Raw: "length", Reason: chat.FinishLength}
		return s, nil
	}}
	m := decodedOrJoined(t, post(t, start(t, e).session(t), ask("hello", true, addTool, anyTool)), true)
	assert.Equal(t, "max_tokens", m["stop_reason"])
	assert.Equal(t, "I think", at(m, "content", 0, "text"))
}

// TestImpossibleDemandsAreRefused before anything is sampled.
func TestImpossibleDemandsAreRefused(t *testing.T) {
	e := says("hi", 3)
	b := start(t, e)
	isAnthropicError(t, post(t, b.session(t), ask("hello", true, addTool, otherTool)), 400, "invalid_request_error")
	isAnthropicError(t, post(t, b.session(t), ask("hello", false, anyTool)), 400, "invalid_request_error")
	assert.Empty(t, e.seen())
}

// TestGuides: what the upstream is asked to be held to.
func TestGuides(t *testing.T) {
	const two = `"tools":[{"name":"add","input_schema":{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"integer"}}}},{"name":"now"}]`
	guide := func(with ...string) string {
		e := says(`<call add>{"a":1}</call>`+imEnd, 3)
		b := start(t, e, func(o *gateway.Options, m *gateway.Model) {})
		require.Equal(t, 200, post(t, b.session(t), ask("hello", false, with...)).status)
		return string(e.seen()[0].Guide)
	}
	assert.Empty(t, guide(two))
	assert.Empty(t, guide(two, `"tool_choice":{"type":"auto"}`))
	assert.JSONEq(t, `{"type":"object","properties":{"a":{"type":"integer"}}}`, guide(addTool, thatTool))
	want := `{"type":"array","minItems":1,"$defs":{"n":{"type":"integer"}},"items":{"type":"object","anyOf":[
		{"type":"object","required":["name","parameters"],"properties":{"name":{"type":"string","enum":["add"]},"parameters":{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}}}}},
		{"type":"object","required":["name","parameters"],"properties":{"name":{"type":"string","enum":["now"]},"parameters":{"type":"object"}}}]}}`
	assert.JSONEq(t, want, guide(two, anyTool))
	var one map[string]any
	require.NoError(t, json.Unmarshal([]byte(guide(two, `"tool_choice":{"type":"any","disable_parallel_tool_use":true}`)), &one))
	assert.Equal(t, 1.0, one["maxItems"])
	const clash = `"tools":[{"name":"add","input_schema":{"type":"object","$defs":{"n":{"type":"integer"}}}},{"name":"b","input_schema":{"type":"object","$defs":{"n":{"type":"string"}}}}]`
	assert.Empty(t, guide(clash, anyTool), "such definitions can't stand side by side; the reply is checked all the same")
}
