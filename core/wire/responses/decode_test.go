package responses

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/sdk/chat"
)

func asking(fields string) []byte {
	return []byte(`{"model":"m","input":"hi",` + fields + `}`)
}

func telling(items string) []byte {
	return []byte(`{"model":"m","input":[` + items + `]}`)
}

func decodeOK(t *testing.T, body []byte) *wire.Request {
	t.Helper()
	r, err := New().Decode(body)
	require.NoError(t, err)
	return r
}

// Case 8 of 10a: reasoning, text and calls in a row are one assistant turn.
func TestItemsOfOneTurnAreOneMessage(t *testing.T) {
	r := decodeOK(t, telling(`
		{"type":"message","role":"developer","content":"dev"},
		{"role":"user","content":[{"type":"input_text","text":"see"},{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]},
		{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"short"}],"content":[{"type":"reasoning_text","text":"long"}],"encrypted_content":"theirs"},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Both.","annotations":[]}]},
		{"type":"function_call","call_id":"a","name":"Read","arguments":"{\"p\": 1}"},
		{"type":"function_call","call_id":"b","name":"calculator","namespace":"mcp__calc","arguments":"{\"broken"},
		{"type":"custom_tool_call","call_id":"c","name":"apply_patch","input":"*** Begin\n"},
		{"type":"function_call_output","call_id":"b","output":"boom"},
		{"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"one"},{"type":"input_image","image_url":"https://x/y"}]},
		{"type":"custom_tool_call_output","call_id":"c","output":"ok"},
		{"type":"reasoning","summary":[],"encrypted_content":"`+seal("ours, whole")+`"},
		{"type":"message","role":"assistant","content":"done"}`))
	text := func(s string) chat.Part { return chat.Part{Type: chat.Text, Text: s} }
	result := func(id, name string, content ...chat.Part) chat.Message {
		return chat.Message{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: id, Name: name, Content: content}}}
	}
	assert.Equal(t, []chat.Message{
		{Role: chat.System, Parts: []chat.Part{text("dev")}},
		{Role: chat.User, Parts: []chat.Part{text("see"), {Type: chat.Image, MediaType: "image/png", Data: "AAAA"}}},
		{Role: chat.Assistant, Parts: []chat.Part{
			{Type: chat.Reasoning, Text: "long", Signature: "theirs"}, text("Both."),
			{Type: chat.ToolCall, ID: "a", Name: "Read", Arguments: json.RawMessage(`{"p": 1}`)},
			{Type: chat.ToolCall, ID: "b", Name: "mcp__calc__calculator", Arguments: json.RawMessage(`"{\"broken"`), ArgumentsRaw: true},
			{Type: chat.ToolCall, ID: "c", Name: "apply_patch", Arguments: json.RawMessage(`{"input":"*** Begin\n"}`)},
		}},
		result("b", "mcp__calc__calculator", text("boom")),
		result("a", "Read", text("one"), chat.Part{Type: chat.Image, URL: "https://x/y"}),
		result("c", "apply_patch", text("ok")),
		{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Reasoning, Text: "ours, whole"}, text("done")}},
	}, r.Chat.Messages)
	assert.Len(t, r.Messages, 12)
}

func TestFieldsOfTheEnvelope(t *testing.T) {
	r := decodeOK(t, asking(`"instructions":"sys","store":true,"metadata":{"a":null},"new":1,"truncation":"auto","previous_response_id":null,"background":false,"max_output_tokens":7,"temperature":0,"top_p":0.5,"reasoning":{"effort":"none"},"text":{"format":{"type":"json_schema"},"verbosity":"low"},"include":["reasoning.encrypted_content","message.output_text.logprobs"],"top_logprobs":2`))
	assert.Equal(t, []string{"new", "truncation"}, r.Unknown)
	assert.Equal(t, []string{"text.format", "top_logprobs", "include message.output_text.logprobs"}, r.Needs)
	assert.JSONEq(t, `{"max_tokens":7,"temperature":0,"top_p":0.5}`, asJSON(t, r.Chat.Sampling))
	assert.False(t, *r.Chat.Thinking)
	assert.Equal(t, chat.System, r.Chat.Messages[0].Role)
	assert.Equal(t, `"hi"`, string(r.Messages[0]))
	assert.Contains(t, string(r.Envelope), `{"model":"m","input":[],"instructions":"sys"`)
	assert.Nil(t, decodeOK(t, asking(`"reasoning":{"summary":"auto"}`)).Chat.Thinking)
	assert.True(t, *decodeOK(t, asking(`"reasoning":{"effort":"low"}`)).Chat.Thinking)
}

const toolsOfAllKinds = `"tools":[{"type":"function","name":"t","description":"d","parameters":{"z":null,"a":1},"strict":true},
	{"type":"namespace","name":"mcp__calc","description":"x","tools":[{"type":"function","name":"calculator","parameters":{}}]},
	{"type":"custom","name":"apply_patch","description":"p","format":{"type":"grammar"}},{"type":"web_search"}]`

func TestToolsAndChoice(t *testing.T) {
	r := decodeOK(t, asking(toolsOfAllKinds))
	var names, types []string
	for _, tool := range r.Chat.Tools {
		names, types = append(names, tool.Name), append(types, tool.Type)
	}
	assert.Equal(t, []string{"t", "mcp__calc__calculator", "apply_patch", "web_search"}, names)
	assert.Equal(t, []string{"", "", "", "web_search"}, types)
	assert.Equal(t, `{"z":null,"a":1}`, string(r.Chat.Tools[0].Parameters))
	assert.JSONEq(t, customParameters, string(r.Chat.Tools[2].Parameters))
	assert.Nil(t, r.Chat.ToolChoice)
	for choice, want := range map[string]chat.Choice{
		`"tool_choice":"required"`:                                                        {Mode: chat.ChoiceRequired},
		`"tool_choice":"none","parallel_tool_calls":false`:                                {Mode: chat.ChoiceNone, DisableParallel: true},
		`"tool_choice":{"type":"function","name":"t"}`:                                    {Mode: chat.ChoiceNamed, Name: "t"},
		`"tool_choice":{"type":"function","name":"calculator","namespace":"mcp__calc"}`:   {Mode: chat.ChoiceNamed, Name: "mcp__calc__calculator"},
		`"tool_choice":{"type":"custom","name":"apply_patch"},"parallel_tool_calls":true`: {Mode: chat.ChoiceNamed, Name: "apply_patch"},
	} {
		assert.Equal(t, want, *decodeOK(t, asking(toolsOfAllKinds+","+choice)).Chat.ToolChoice, choice)
	}
	assert.Equal(t, map[string]form{
		"mcp__calc__calculator": {namespace: "mcp__calc", name: "calculator"},
		"apply_patch":           {name: "apply_patch", custom: true},
	}, toolForms(r.Envelope))
}

// Case 8 of 10a and 8 of 10b: nothing is dropped in silence.
func TestRefusalsNameWhatAndWhere(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"cut":               {[]byte(`{"model"`), "not valid JSON: unexpected end"},
		"no model":          {[]byte(`{"input":"x"}`), "model: Field required"},
		"no input":          {[]byte(`{"model":"m"}`), "input: Field required"},
		"empty input":       {telling(``), "input: at least one item is required"},
		"input object":      {[]byte(`{"model":"m","input":{}}`), "input: must be a string or a list"},
		"previous":          {asking(`"previous_response_id":"resp_1"`), "previous_response_id: responses are not stored here"},
		"background":        {asking(`"background":true`), "background: responses are not stored here"},
		"item":              {telling(`{"role":"user","content":"x"},{"type":"web_search_call","id":"x"}`), `input[1]: an item of type "web_search_call" can't be mapped`},
		"reference":         {telling(`{"type":"item_reference","id":"x"}`), `input[0]: an item of type "item_reference" can't be mapped`},
		"shell":             {telling(`{"type":"local_shell_call","id":"x"}`), `input[0]: an item of type "local_shell_call" can't be mapped`},
		"role":              {telling(`{"role":"tool","content":"x"}`), `input[0].role: must be system, developer, user or assistant, not "tool"`},
		"file":              {telling(`{"role":"user","content":[{"type":"input_file","file_id":"x"}]}`), `input[0].content[0]: a part of type "input_file" can't be mapped in a message of role user`},
		"image of file":     {telling(`{"role":"user","content":[{"type":"input_image","file_id":"x"}]}`), "input[0].content[0].image_url: Field required"},
		"output":            {telling(`{"type":"function_call_output","call_id":"x"}`), "input[0].output: Field required"},
		"call id":           {telling(`{"type":"function_call","name":"x","arguments":""}`), "input[0].call_id: Field required"},
		"arguments":         {telling(`{"type":"function_call","call_id":"a","name":"x","arguments":{}}`), "input[0].arguments: must be a string, not an object"},
		"summary":           {telling(`{"type":"reasoning","summary":[{}]}`), "input[0].summary[0].text: Field required"},
		"tool type":         {asking(`"tools":[{"name":"x"}]`), "tools[0].type: Field required"},
		"tool name":         {asking(`"tools":[{"type":"function"}]`), "tools[0].name: Field required"},
		"inner tool":        {asking(`"tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]`), `tools[0].tools[0]: a tool of type "web_search" can't be in a namespace`},
		"two of a name":     {asking(`"tools":[{"type":"function","name":"n__a"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"a"}]}]`), `tools: there are two tools called "n__a"`},
		"choice":            {asking(`"tool_choice":{"type":"allowed_tools"}`), `tool_choice: a choice of type "allowed_tools" can't be mapped`},
		"choice of none":    {asking(`"tool_choice":"required"`), "tool_choice: a tool can't be required without tools"},
		"choice of strange": {asking(`"tool_choice":{"type":"function","name":"x"}`), `tool_choice: there is no tool "x" in tools`},
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

func TestEncodeKeepsCustomCalls(t *testing.T) {
	r := decodeOK(t, []byte(`{"model":"m",`+toolsOfAllKinds+`,"tool_choice":{"type":"custom","name":"apply_patch"},"parallel_tool_calls":false,"input":[{"type":"custom_tool_call","call_id":"c","name":"apply_patch","input":"x"},{"type":"custom_tool_call_output","call_id":"c","output":"ok"}]}`))
	off := false
	r.Chat.Thinking = &off
	body, err := EncodeRequest(&r.Chat, EncodeOptions{Model: "m"})
	require.NoError(t, err)
	assert.Contains(t, string(body), `"input":[{"type":"custom_tool_call","call_id":"c","name":"apply_patch","input":"x"},{"type":"custom_tool_call_output","call_id":"c","output":"ok"}]`)
	assert.Contains(t, string(body), `{"type":"custom","name":"apply_patch","description":"p","format":{"type":"grammar"}}`)
	assert.Contains(t, string(body), `{"type":"function","name":"mcp__calc__calculator","parameters":{},"strict":false}`)
	assert.Contains(t, string(body), `"tool_choice":{"type":"custom","name":"apply_patch"},"parallel_tool_calls":false,"reasoning":{"effort":"none"}`)

	for want, c := range map[string]*chat.Conversation{
		`write messages[0]: part 0: a part of type "image" can't be here`:                    {Messages: []chat.Message{{Role: chat.System, Parts: []chat.Part{{Type: chat.Image}}}}},
		`write messages[0]: part 0: a part of type "image" can't be in an assistant message`: {Messages: []chat.Message{{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Image}}}}},
		`write messages[0]: part 0: a part of type "text" can't be in a tool message`:        {Messages: []chat.Message{{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.Text}}}}},
		`write tools[0]: a tool of type "web_search" has no form here`:                       {Tools: []chat.Tool{{Type: "web_search", Name: "w"}}},
	} {
		_, err := EncodeRequest(c, EncodeOptions{Model: "m"})
		assert.EqualError(t, err, want)
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
	f.Add([]byte(`{"model":"m","input":[{"type":"custom_tool_call","call_id":"c","name":"p","input":"x"},{"type":"reasoning","summary":[{"text":"a"}]}],"tools":[{"type":"custom","name":"p"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := New().Decode(body)
		if err != nil {
			return
		}
		require.True(t, json.Valid(r.Envelope), "%s", r.Envelope)
		again, err := EncodeRequest(&r.Chat, EncodeOptions{Model: r.Model})
		if err != nil {
			return
		}
		second, err := New().Decode(again)
		require.NoError(t, err, "%s", again)
		third, err := EncodeRequest(&second.Chat, EncodeOptions{Model: r.Model})
		require.NoError(t, err)
		require.Equal(t, string(again), string(third))
	})
}
