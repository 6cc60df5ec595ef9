package anthropic

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
)

func TestEncodeRequest(t *testing.T) {
	temperature, topP, topK, most, think := 0.25, 1.0, 7, 100, true
	text := func(s string) []chat.Part { return []chat.Part{{Type: chat.Text, Text: s}} }
	c := &chat.Conversation{
		Messages: []chat.Message{
			{Role: chat.System, Parts: text("sys")},
			{Role: chat.System, Parts: text("late")},
			{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "hi"}, {Type: chat.Image, URL: "https://x/y"}}},
			{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Reasoning, Text: "hm"}, {Type: chat.ToolCall, ID: "a", Name: "t"}, {Type: chat.ToolCall, ID: "b", Name: "t", Arguments: []byte(`"{x"`), ArgumentsRaw: true}}},
			{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "a", Content: text("1")}}},
			{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "b", IsError: true}}},
			{Role: chat.User, Parts: text("next")},
			{Role: chat.User, Parts: text("more")},
		},
		Tools: []chat.Tool{
			{Name: "t", Description: "d", Parameters: []byte(`{"type":"object"}`), Raw: []byte(`{"name":"t","description":"d","input_schema":{"type":"object"},"eager_input_streaming":true}`)},
			{Name: "changed", Description: "new", Parameters: []byte(`{}`), Raw: []byte(`{"name":"changed","description":"old","input_schema":{}}`)},
			{Name: "foreign", Raw: []byte(`{"type":"function","function":{"name":"foreign"}}`)},
		},
		ToolChoice: &chat.Choice{Mode: chat.ChoiceNamed, Name: "t", DisableParallel: true},
		Sampling:   chat.Sampling{Temperature: &temperature, TopP: &topP, TopK: &topK, MaxTokens: &most, Stop: []string{"END"}},
		Thinking:   &think,
	}
	body, err := EncodeRequest(c, EncodeOptions{Model: "m", Stream: true})
	require.NoError(t, err)
	assert.Equal(t, `{"model":"m","max_tokens":100,"temperature":0.25,"top_p":1,"top_k":7,"stop_sequences":["END"],"thinking":{"type":"adaptive"},`+
		`"system":[{"type":"text","text":"sys"}],"messages":[{"role":"system","content":[{"type":"text","text":"late"}]},`+
		`{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image","source":{"type":"url","url":"https://x/y"}}]},`+
		`{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"`+Signature("hm")+`"},{"type":"tool_use","id":"a","name":"t","input":{}},{"type":"tool_use","id":"b","name":"t","input":{"__unparsedToolInput":{"raw":"{x","len":2}}}]},`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"1"}]},{"type":"tool_result","tool_use_id":"b","is_error":true},{"type":"text","text":"next"}]},`+
		`{"role":"user","content":[{"type":"text","text":"more"}]}],`+
		`"tools":[{"name":"t","description":"d","input_schema":{"type":"object"},"eager_input_streaming":true},{"name":"changed","description":"new","input_schema":{}},{"name":"foreign","input_schema":{"type":"object","properties":{}}}],`+
		`"tool_choice":{"type":"tool","name":"t","disable_parallel_tool_use":true},"stream":true}`, string(body))

	r := decodeOK(t, body)
	again, err := EncodeRequest(&r.Chat, EncodeOptions{Model: "m", Stream: true})
	require.NoError(t, err)
	assert.Equal(t, string(body), string(again))

	off := false
	body, err = EncodeRequest(&chat.Conversation{Thinking: &off}, EncodeOptions{Model: "m"})
	require.NoError(t, err)
	assert.Equal(t, `{"model":"m","max_tokens":8192,"thinking":{"type":"disabled"},"messages":[]}`, string(body))
}

func TestEncodeRequestRefusesWhatHasNoForm(t *testing.T) {
	image := []chat.Part{{Type: chat.Image, Data: "AA"}}
	for want, c := range map[string]*chat.Conversation{
		`write messages[0]: part 0: a part of type "image" can't be in a system message`:          {Messages: []chat.Message{{Role: chat.System, Parts: image}}},
		`write messages[1]: part 0: a part of type "image" can't be in an assistant message`:      {Messages: []chat.Message{{Role: chat.System}, {Role: chat.Assistant, Parts: image}}},
		`write messages[0]: part 0: part 0: a part of type "tool_call" can't be in a tool result`: {Messages: []chat.Message{{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, Content: []chat.Part{{Type: chat.ToolCall}}}}}}},
		`write tools[0]: a tool of type "web_search" has no form here`:                            {Tools: []chat.Tool{{Type: "web_search", Raw: json.RawMessage(`{"type":"web_search"}`), Name: "w"}}},
	} {
		_, err := EncodeRequest(c, EncodeOptions{Model: "m"})
		assert.EqualError(t, err, want)
	}
}
