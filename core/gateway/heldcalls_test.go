package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// TestHeldCallsOfNoJSON: a call that is held for hooks reaches each client in the
// form that its dialect has for arguments which are no JSON, and the client that
// says it again is known.
func TestHeldCallsOfNoJSON(t *testing.T) {
	watch := func(_ *gateway.Options, m *gateway.Model) {
		m.Hooks = []gateway.Hook{{Name: "hook/none", Changes: []hook.Point{hook.ToolCall}, Hook: hookFunc(func(context.Context, *hook.Event) (hook.Result, error) {
			return hook.Result{Action: hook.Continue}, nil
		})}}
	}
	const sampled = `{"a": "half`
	b := start(t, says("<call add>"+sampled+"</call>"+imEnd, 3), watch)
	m := joined(t, eventsOf(t, post(t, b.session(t), ask("hello", true, addTool))))
	assert.Equal(t, sampled, at(m["content"], 0, "input", "__unparsedToolInput", "raw"))

	s := b.session(t)
	tools := `"tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}]`
	chat := func(messages string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.BaseURL()+"/v1/chat/completions",
			strings.NewReader(`{"model":"policy","stream":true,`+tools+`,"messages":[{"role":"user","content":"hello"}`+messages+`]}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		a := do(t, r)
		require.Equal(t, 200, a.status, a.body)
		return a.body
	}
	var id, arguments string
	for line := range strings.Lines(chat("")) {
		call := gjson.Get(strings.TrimPrefix(line, "data: "), "choices.0.delta.tool_calls.0")
		id += call.Get("id").String()
		arguments += call.Get("function.arguments").String()
	}
	assert.Equal(t, sampled, arguments, "in a string of its own, which is the client's to refuse")
	chat(`,{"role":"assistant","content":null,"tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"add","arguments":` + quoted(arguments) + `}}]},` +
		`{"role":"tool","tool_call_id":"` + id + `","content":"no"}`)
	calls := b.store.all()
	last := calls[len(calls)-1]
	assert.True(t, last.Extends, last.Fork)
}
