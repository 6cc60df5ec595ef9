package openaichat

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// asking is a request with one user message beside the given fields.
func asking(fields string) []byte {
	return []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],` + fields + `}`)
}

// telling is a request of the given messages.
func telling(messages string) []byte {
	return []byte(`{"model":"m","messages":[` + messages + `]}`)
}

func decodeOK(t *testing.T, body []byte) *wire.Request {
	t.Helper()
	r, err := New().Decode(body)
	require.NoError(t, err)
	return r
}

// Case 7 of 10a, 7 of 10b: nothing is demoted or dropped.
func TestRolesAndPartsKeepWhatTheySay(t *testing.T) {
	r := decodeOK(t, telling(`
		{"role":"developer","content":"dev"},
		{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
		{"role":"user","name":"bob","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"high"}},{"type":"image_url","image_url":{"url":"https://x/y.png"}}]},
		{"role":"assistant","reasoning_content":"hm","content":"Both.","refusal":null,"tool_calls":[
			{"id":"a","type":"function","function":{"name":"Read","arguments":"{\"p\": 1}"}},
			{"id":"b","type":"function","function":{"name":"Bash","arguments":"{\"broken"}},
			{"id":"c","function":{"name":"Now","arguments":""}}]},
		{"role":"tool","tool_call_id":"b","content":"boom"},
		{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"one"}]},
		{"role":"assistant","reasoning":"short","content":null,"refusal":"I can't."},
		{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]}`))
	text := func(s string) chat.Part { return chat.Part{Type: chat.Text, Text: s} }
	assert.Equal(t, []chat.Message{
		{Role: chat.System, Parts: []chat.Part{text("dev")}},
		{Role: chat.System, Parts: []chat.Part{text("a"), text("b")}},
		{Role: chat.User, Parts: []chat.Part{text("see"), {Type: chat.Image, MediaType: "image/png", Data: "AAAA"}, {Type: chat.Image, URL: "https://x/y.png"}}},
		{Role: chat.Assistant, Parts: []chat.Part{
			{Type: chat.Reasoning, Text: "hm"}, text("Both."),
			{Type: chat.ToolCall, ID: "a", Name: "Read", Arguments: json.RawMessage(`{"p": 1}`)},
			{Type: chat.ToolCall, ID: "b", Name: "Bash", Arguments: json.RawMessage(`"{\"broken"`), ArgumentsRaw: true},
			{Type: chat.ToolCall, ID: "c", Name: "Now"},
		}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "b", Name: "Bash", Content: []chat.Part{text("boom")}}}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "a", Name: "Read", Content: []chat.Part{text("one")}}}},
		{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Reasoning, Text: "short"}, text("I can't.")}},
		{Role: chat.Assistant, Parts: []chat.Part{text("No.")}},
	}, r.Chat.Messages)
	assert.Len(t, r.Messages, 8)
}

// Cases 9 of 10a and 9 of 10b.
func TestOrderNullsAndBigIntegersStay(t *testing.T) {
	schema := `{"type":"object","properties":{"z":{"default":null},"a":{"const":12345678901234567890}},"required":[]}`
	args := `{"z":null, "a":12345678901234567890,"s":"\u00e9\/<>&"}`
	quoted, _ := chat.Marshal(args)
	r := decodeOK(t, []byte(`{"model":"m","tools":[{"type":"function","function":{"name":"t","parameters":`+schema+`,"strict":false}}],"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"i","type":"function","function":{"name":"t","arguments":`+string(quoted)+`}}]}]}`))
	assert.Equal(t, schema, string(r.Chat.Tools[0].Parameters))
	assert.Equal(t, args, string(r.Chat.Messages[0].Parts[0].Arguments))
	body, err := EncodeRequest(&r.Chat, EncodeOptions{Model: "m"})
	require.NoError(t, err)
	assert.Contains(t, string(body), schema)
	assert.Contains(t, string(body), string(quoted))
	assert.Contains(t, string(body), `"strict":false`)
}

func TestFieldsOfTheEnvelope(t *testing.T) {
	r := decodeOK(t, asking(`"store":false,"metadata":{"a":null},"user":"u","new":1,"frequency_penalty":0,"presence_penalty":0.5,"logit_bias":{},"logprobs":true,"top_logprobs":3,"response_format":{"type":"json_schema","json_schema":{}}`))
	assert.Equal(t, []string{"new", "presence_penalty"}, r.Unknown)
	assert.Equal(t, []string{"logprobs", "top_logprobs", "response_format"}, r.Needs)
	assert.Equal(t, "logprobs, top_logprobs, response_format is not supported by this model's upstream", r.Refusal().Message)
	assert.Equal(t, `{"model":"m","messages":[],"store":false,"metadata":{"a":null},"user":"u","new":1,"frequency_penalty":0,"presence_penalty":0.5,"logit_bias":{},"logprobs":true,"top_logprobs":3,"response_format":{"type":"json_schema","json_schema":{}}}`, string(r.Envelope))
	assert.Equal(t, `{"role":"user","content":"hi"}`, string(r.Messages[0]))

	r = decodeOK(t, asking(`"response_format":{"type":"text"},"logprobs":false,"modalities":["text"],"n":1,"functions":null`))
	assert.Empty(t, r.Needs)
	assert.Nil(t, r.Refusal())
	assert.Equal(t, []string{"modalities"}, decodeOK(t, asking(`"modalities":["text","audio"]`)).Needs)
}

func TestSamplingAndThinking(t *testing.T) {
	r := decodeOK(t, asking(`"max_tokens":5,"max_completion_tokens":7,"temperature":0,"top_p":0.95,"top_k":20,"seed":-3,"stop":"END"`))
	assert.JSONEq(t, `{"temperature":0,"top_p":0.95,"top_k":20,"max_tokens":7,"seed":-3,"stop":["END"]}`, asJSON(t, r.Chat.Sampling))
	assert.Equal(t, []string{"a", "b"}, decodeOK(t, asking(`"stop":["a","b"]`)).Chat.Sampling.Stop)
	assert.Nil(t, decodeOK(t, asking(`"stop":null`)).Chat.Thinking)
	for fields, want := range map[string]bool{
		`"reasoning_effort":"low"`:                         true,
		`"reasoning_effort":"none"`:                        false,
		`"enable_thinking":false`:                          false,
		`"chat_template_kwargs":{"enable_thinking":true}`:  true,
		`"chat_template_kwargs":{"enable_thinking":false}`: false,
	} {
		assert.Equal(t, want, *decodeOK(t, asking(fields)).Chat.Thinking, fields)
	}
	assert.Equal(t, []string{"chat_template_kwargs.other"}, decodeOK(t, asking(`"chat_template_kwargs":{"other":1}`)).Unknown)
}

func TestToolsAndChoice(t *testing.T) {
	tools := `"tools":[{"type":"function","function":{"name":"t","description":"d"}},{"type":"custom","custom":{"name":"patch"}}]`
	r := decodeOK(t, asking(tools))
	assert.Nil(t, r.Chat.ToolChoice)
	assert.Equal(t, "patch", r.Chat.Tools[1].Name)
	assert.Equal(t, "custom", r.Chat.Tools[1].Type)
	for fields, want := range map[string]chat.Choice{
		`"tool_choice":"auto"`:     {Mode: chat.ChoiceAuto},
		`"tool_choice":"none"`:     {Mode: chat.ChoiceNone},
		`"tool_choice":"required"`: {Mode: chat.ChoiceRequired},
		`"tool_choice":{"type":"function","function":{"name":"t"}}`: {Mode: chat.ChoiceNamed, Name: "t"},
		`"parallel_tool_calls":false`:                               {Mode: chat.ChoiceAuto, DisableParallel: true},
	} {
		assert.Equal(t, want, *decodeOK(t, asking(tools+","+fields)).Chat.ToolChoice, fields)
	}
	assert.Nil(t, decodeOK(t, asking(`"parallel_tool_calls":true`)).Chat.ToolChoice)
}

func TestRefusalsNameWhatAndWhere(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"cut":             {[]byte(`{"model"`), "not valid JSON: unexpected end"},
		"list":            {[]byte(`[]`), "must be a JSON object"},
		"duplicate":       {asking(`"model":"x"`), "duplicate"},
		"deep":            {asking(`"x":` + strings.Repeat("[", 300) + strings.Repeat("]", 300)), "nested more than 200 levels deep"},
		"no model":        {[]byte(`{"messages":[{"role":"user","content":"x"}]}`), "model: Field required"},
		"no messages":     {[]byte(`{"model":"m"}`), "messages: Field required"},
		"zero messages":   {telling(``), "messages: at least one message is required"},
		"n":               {asking(`"n":2`), "n: only 1 is supported"},
		"stream":          {asking(`"stream":1`), "stream: must be a boolean, not a number"},
		"functions":       {asking(`"functions":[{"name":"x"}]`), "functions: can't be mapped; use tools"},
		"stop":            {asking(`"stop":[1]`), "stop[0]: must be a string, not a number"},
		"max":             {asking(`"max_completion_tokens":0`), "max_completion_tokens: must be at least 1"},
		"format":          {asking(`"response_format":{}`), "response_format.type: Field required"},
		"role":            {telling(`{"role":"function","content":"x"}`), `messages[0].role: must be system, developer, user, assistant or tool, not "function"`},
		"null content":    {telling(`{"role":"user","content":null}`), "messages[0].content: Field required"},
		"audio":           {telling(`{"role":"user","content":[{"type":"text","text":"x"},{"type":"input_audio","input_audio":{}}]}`), `messages[0].content[1]: a part of type "input_audio" can't be mapped in a message of role user`},
		"file":            {telling(`{"role":"user","content":[{"type":"file","file":{}}]}`), `messages[0].content[0]: a part of type "file" can't be mapped`},
		"image of system": {telling(`{"role":"system","content":[{"type":"image_url","image_url":{"url":"x"}}]}`), `messages[0].content[0]: a part of type "image_url" can't be mapped in a message of role system`},
		"image url":       {telling(`{"role":"user","content":[{"type":"image_url","image_url":{}}]}`), "messages[0].content[0].image_url.url: Field required"},
		"no call id":      {telling(`{"role":"tool","content":"x"}`), "messages[0].tool_call_id: Field required"},
		"custom call":     {telling(`{"role":"assistant","tool_calls":[{"id":"a","type":"custom","custom":{}}]}`), `messages[0].tool_calls[0]: a call of type "custom" can't be mapped`},
		"call name":       {telling(`{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{}}]}`), "messages[0].tool_calls[0].function.name: Field required"},
		"call args":       {telling(`{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":7}}]}`), "messages[0].tool_calls[0].function.arguments: must be a string"},
		"function_call":   {telling(`{"role":"assistant","function_call":{"name":"x"}}`), "messages[0].function_call: can't be mapped"},
		"audio reply":     {telling(`{"role":"assistant","audio":{"id":"x"}}`), "messages[0].audio: can't be mapped"},
		"tool type":       {asking(`"tools":[{"function":{"name":"x"}}]`), "tools[0].type: Field required"},
		"tool name":       {asking(`"tools":[{"type":"function","function":{}}]`), "tools[0].function.name: Field required"},
		"choice":          {asking(`"tool_choice":"any"`), `tool_choice: must be auto, none, required or a tool, not "any"`},
		"choice type":     {asking(`"tool_choice":{"type":"allowed_tools"}`), `tool_choice: a choice of type "allowed_tools" can't be mapped`},
		"choice of none":  {asking(`"tool_choice":"required"`), "tool_choice: a tool can't be required without tools"},
		"choice strange":  {asking(`"tool_choice":{"type":"function","function":{"name":"x"}}`), `tool_choice: there is no tool "x" in tools`},
		"usage":           {asking(`"stream_options":{"include_usage":"yes"}`), "stream_options.include_usage: must be a boolean"},
		"reasoning":       {telling(`{"role":"assistant","reasoning_content":{}}`), "messages[0].reasoning_content: must be a string, not an object"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New().Decode(c.body)
			var e *wire.Error
			require.True(t, errors.As(err, &e), "%v", err)
			assert.Equal(t, wire.Invalid, e.Kind)
			assert.Contains(t, e.Message, c.want)
		})
	}
}

// FuzzDecode: whatever comes in, decoding doesn't panic, and what is accepted
// can be written again and says the same.
func FuzzDecode(f *testing.F) {
	files, _ := filepath.Glob("testdata/requests/*.json")
	for _, file := range files {
		body, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := New().Decode(body)
		if err != nil {
			return
		}
		require.True(t, json.Valid(r.Envelope), "%s", r.Envelope)
		again, err := EncodeRequest(&r.Chat, EncodeOptions{Model: r.Model, Stream: r.Stream})
		if err != nil {
			t.Fatal(err)
		}
		second, err := New().Decode(again)
		require.NoError(t, err, "%s", again)
		require.Len(t, second.Chat.Messages, len(r.Chat.Messages))
		third, err := EncodeRequest(&second.Chat, EncodeOptions{Model: r.Model, Stream: r.Stream})
		require.NoError(t, err)
		require.Equal(t, string(again), string(third))
	})
}
