package openaichat

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
)

func TestEncodeRequest(t *testing.T) {
	temperature, topP, topK, most, seed := 0.25, 1.0, 7, 100, int64(3)
	text := func(s string) []chat.Part { return []chat.Part{{Type: chat.Text, Text: s}} }
	c := &chat.Conversation{
		Messages: []chat.Message{
			{Role: chat.System, Parts: text("sys")},
			{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "hi"}, {Type: chat.Image, MediaType: "image/png", Data: "AA"}}},
			{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Reasoning, Text: "hm"}, {Type: chat.ToolCall, ID: "a", Name: "t"}, {Type: chat.ToolCall, ID: "b", Name: "t", Arguments: []byte(`"{x"`), ArgumentsRaw: true}}},
			{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "a", Content: text("1")}}},
			{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "b", IsError: true}}},
			{Role: chat.Assistant, Parts: text("done")},
		},
		Tools: []chat.Tool{
			{Name: "t", Description: "d", Parameters: []byte(`{"type":"object"}`), Raw: []byte(`{"type":"function","function":{"name":"t","description":"d","parameters":{"type":"object"},"strict":true}}`)},
			{Name: "t2", Description: "new", Parameters: []byte(`{}`), Raw: []byte(`{"name":"t2","description":"new","input_schema":{}}`)},
		},
		ToolChoice: &chat.Choice{Mode: chat.ChoiceNamed, Name: "t", DisableParallel: true},
		Sampling:   chat.Sampling{Temperature: &temperature, TopP: &topP, TopK: &topK, MaxTokens: &most, Seed: &seed, Stop: []string{"END"}},
	}
	body, err := EncodeRequest(c, EncodeOptions{Model: "m", Stream: true, Fields: []Field{{"return_token_ids", json.RawMessage(`true`)}}})
	require.NoError(t, err)
	assert.Equal(t, `{"model":"m","messages":[{"role":"system","content":"sys"},`+
		`{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]},`+
		`{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"t","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"t","arguments":"{x"}}]},`+
		`{"role":"tool","tool_call_id":"a","content":"1"},{"role":"tool","tool_call_id":"b","content":""},{"role":"assistant","content":"done"}],`+
		`"tools":[{"type":"function","function":{"name":"t","description":"d","parameters":{"type":"object"},"strict":true}},{"type":"function","function":{"name":"t2","description":"new","parameters":{}}}],`+
		`"tool_choice":{"type":"function","function":{"name":"t"}},"parallel_tool_calls":false,`+
		`"max_tokens":100,"temperature":0.25,"top_p":1,"top_k":7,"seed":3,"stop":["END"],"stream":true,"stream_options":{"include_usage":true},"return_token_ids":true}`, string(body))
}

func TestEncodeRequestRefusesWhatHasNoForm(t *testing.T) {
	image := chat.Part{Type: chat.Image, Data: "AA"}
	for want, c := range map[string]*chat.Conversation{
		`write messages[0]: part 0: a part of type "image" can't be here`:                    {Messages: []chat.Message{{Role: chat.System, Parts: []chat.Part{image}}}},
		`write messages[0]: part 0: a part of type "image" can't be in an assistant message`: {Messages: []chat.Message{{Role: chat.Assistant, Parts: []chat.Part{image}}}},
		`write messages[0]: a tool message must be exactly one tool result`:                  {Messages: []chat.Message{{Role: chat.ToolRole}}},
		`write tools[0]: a tool of type "web_search" has no form here`:                       {Tools: []chat.Tool{{Type: "web_search", Raw: json.RawMessage(`{"type":"web_search_1","name":"w"}`), Name: "w"}}},
	} {
		_, err := EncodeRequest(c, EncodeOptions{Model: "m"})
		assert.EqualError(t, err, want)
	}
}
