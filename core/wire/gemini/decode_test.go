package gemini

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
	return []byte(`{"contents":[{"role":"user","parts":[{"text":"hi"}]}],` + fields + `}`)
}

func telling(contents string) []byte { return []byte(`{"contents":[` + contents + `]}`) }

func decodeOK(t *testing.T, body []byte) *wire.Request {
	t.Helper()
	r, err := New().Decode(body)
	require.NoError(t, err)
	return r
}

func TestPartsKeepWhatTheySay(t *testing.T) {
	r := decodeOK(t, telling(`
		{"parts":[{"text":"see"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"fileData":{"mimeType":"image/png","fileUri":"https://x/y"}}]},
		{"role":"model","parts":[{"text":"hm","thought":true,"thoughtSignature":"theirs"},{"text":"All."},
			{"functionCall":{"id":"Read_17_0","name":"Read","args":{"z":null, "a":12345678901234567890}},"thoughtSignature":"`+mark("call_x")+`"},
			{"functionCall":{"name":"Bash"}},{"functionCall":{"name":"Bash","args":{"__raw_arguments":"{\"broken"}}}]},
		{"role":"user","parts":[
			{"functionResponse":{"name":"Bash","response":{"output":"first"}}},
			{"functionResponse":{"id":"Read_17_0","name":"Read","response":{"error":"boom"}}},
			{"text":"between"},
			{"functionResponse":{"name":"Bash","response":{"output":"x","code":1},"parts":[{"inlineData":{"mimeType":"image/png","data":"BB"}}]}},
			{"functionResponse":{"id":"odd","name":"Other"}}]}`))
	text := func(s string) chat.Part { return chat.Part{Type: chat.Text, Text: s} }
	assert.Equal(t, []chat.Message{
		{Role: chat.User, Parts: []chat.Part{text("see"), {Type: chat.Image, MediaType: "image/png", Data: "AAAA"}, {Type: chat.Image, MediaType: "image/png", URL: "https://x/y"}}},
		{Role: chat.Assistant, Parts: []chat.Part{
			{Type: chat.Reasoning, Text: "hm", Signature: "theirs"}, text("All."),
			{Type: chat.ToolCall, ID: "call_x", Name: "Read", Arguments: json.RawMessage(`{"z":null, "a":12345678901234567890}`)},
			{Type: chat.ToolCall, ID: "call_2", Name: "Bash", Arguments: json.RawMessage(`{}`)},
			{Type: chat.ToolCall, ID: "call_3", Name: "Bash", Arguments: json.RawMessage(`"{\"broken"`), ArgumentsRaw: true},
		}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "call_2", Name: "Bash", Content: []chat.Part{text("first")}}}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "call_x", Name: "Read", IsError: true, Content: []chat.Part{text("boom")}}}},
		{Role: chat.User, Parts: []chat.Part{text("between")}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "call_3", Name: "Bash", Content: []chat.Part{text(`{"output":"x","code":1}`), {Type: chat.Image, MediaType: "image/png", Data: "BB"}}}}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "odd", Name: "Other"}}},
	}, r.Chat.Messages)
	assert.Len(t, r.Messages, 3)
}

func TestConfiguration(t *testing.T) {
	r := decodeOK(t, asking(`"system_instruction":{"parts":[{"text":"sys"}]},"safetySettings":[],"new":1,"generationConfig":{"temperature":0,"topP":0.5,"topK":3,"maxOutputTokens":7,"seed":1,"stopSequences":["E"],"candidateCount":1,"responseMimeType":"application/json","responseSchema":{},"responseModalities":["TEXT"],"presencePenalty":1,"thinkingConfig":{"thinkingBudget":0}}`))
	assert.JSONEq(t, `{"temperature":0,"top_p":0.5,"top_k":3,"max_tokens":7,"seed":1,"stop":["E"]}`, asJSON(t, r.Chat.Sampling))
	assert.Equal(t, []string{"new", "generationConfig.presencePenalty"}, r.Unknown)
	assert.Equal(t, []string{"generationConfig.responseMimeType", "generationConfig.responseSchema"}, r.Needs)
	assert.False(t, *r.Chat.Thinking)
	assert.Equal(t, chat.System, r.Chat.Messages[0].Role)
	for config, want := range map[string]any{
		`{"thinkingBudget":-1}`: true, `{"thinkingLevel":"LOW"}`: true, `{"includeThoughts":true}`: true, `{"includeThoughts":false}`: nil, `{}`: nil,
	} {
		got := decodeOK(t, asking(`"generationConfig":{"thinkingConfig":`+config+`}`)).Chat.Thinking
		if want == nil {
			assert.Nil(t, got, config)
		} else {
			assert.Equal(t, want, *got, config)
		}
	}
}

func TestToolsAndChoice(t *testing.T) {
	tools := `"tools":[{"functionDeclarations":[{"name":"a","description":"d","parametersJsonSchema":{"type":"object","z":null}},{"name":"b","parameters":{"type":"OBJECT","properties":{"type":{"type":"STRING","enum":["STRING"]},"l":{"type":"ARRAY","items":{"type":"NUMBER"}}}}}]},{"googleSearch":{}}]`
	r := decodeOK(t, asking(tools))
	require.Len(t, r.Chat.Tools, 3)
	assert.Equal(t, `{"type":"object","z":null}`, string(r.Chat.Tools[0].Parameters))
	assert.Equal(t, `{"type":"object","properties":{"type":{"type":"string","enum":["STRING"]},"l":{"type":"array","items":{"type":"number"}}}}`, string(r.Chat.Tools[1].Parameters))
	assert.Equal(t, "googleSearch", r.Chat.Tools[2].Type)
	again, err := EncodeRequest(&r.Chat)
	require.NoError(t, err)
	assert.Contains(t, string(again), tools)
	for config, want := range map[string]chat.Choice{
		`{"mode":"AUTO"}`: {Mode: chat.ChoiceAuto}, `{"mode":"NONE"}`: {Mode: chat.ChoiceNone}, `{"mode":"ANY"}`: {Mode: chat.ChoiceRequired},
		`{"mode":"ANY","allowedFunctionNames":["b"]}`: {Mode: chat.ChoiceNamed, Name: "b"},
	} {
		r := decodeOK(t, asking(tools+`,"toolConfig":{"functionCallingConfig":`+config+`}`))
		assert.Equal(t, want, *r.Chat.ToolChoice, config)
		again, err := EncodeRequest(&r.Chat)
		require.NoError(t, err)
		assert.Equal(t, want, *decodeOK(t, again).Chat.ToolChoice, config)
	}
}

func TestRefusalsNameWhatAndWhere(t *testing.T) {
	part := func(role, p string) []byte {
		return telling(`{"role":"` + role + `","parts":[{"text":"x"},` + p + `]}`)
	}
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"cut":          {[]byte(`{"contents"`), "not valid JSON: unexpected end"},
		"no contents":  {[]byte(`{}`), "contents: Field required"},
		"empty":        {telling(``), "contents: at least one is required"},
		"cached":       {asking(`"cachedContent":"c"`), "cachedContent: there is no cache here"},
		"candidates":   {asking(`"generationConfig":{"candidateCount":2}`), "generationConfig.candidateCount: only 1 is supported"},
		"temperature":  {asking(`"generationConfig":{"temperature":"x"}`), "generationConfig.temperature: must be a number, not a string"},
		"role":         {telling(`{"role":"system","parts":[]}`), `contents[0].role: must be user or model, not "system"`},
		"pdf":          {part("user", `{"inlineData":{"mimeType":"application/pdf","data":"x"}}`), `contents[0].parts[1].inlineData: media of type "application/pdf" can't be mapped`},
		"code":         {part("model", `{"executableCode":{}}`), "contents[0].parts[1]: a part with executableCode can't be mapped"},
		"no data":      {part("user", `{"thought":true}`), "contents[0].parts[1]: has no data"},
		"two":          {part("user", `{"text":"x","inlineData":{}}`), "contents[0].parts[1]: has both text and inlineData"},
		"call of user": {part("user", `{"functionCall":{"name":"x"}}`), "contents[0].parts[1]: a functionCall can only be in content of the model"},
		"args":         {part("model", `{"functionCall":{"name":"x","args":[]}}`), "contents[0].parts[1].functionCall.args: must be an object"},
		"result":       {part("model", `{"functionResponse":{"name":"x"}}`), "contents[0].parts[1]: a functionResponse can't be in content of the model"},
		"response":     {part("user", `{"functionResponse":{"name":"x","response":"y"}}`), "contents[0].parts[1].functionResponse.response: must be an object"},
		"model image":  {part("model", `{"inlineData":{"mimeType":"image/png","data":"x"}}`), "contents[0].parts[1]: inlineData can't be in content of the model"},
		"tool name":    {asking(`"tools":[{"functionDeclarations":[{}]}]`), "tools[0].functionDeclarations[0].name: Field required"},
		"mode":         {asking(`"toolConfig":{"functionCallingConfig":{"mode":"SOME"}}`), `toolConfig.functionCallingConfig.mode: must be AUTO, ANY, NONE or VALIDATED, not "SOME"`},
		"two names":    {asking(`"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["a","b"]}}`), "allowedFunctionNames: only one name"},
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

func TestCount(t *testing.T) {
	c := New().(wire.TokenCounter)
	for _, body := range []string{`{"contents":[{"parts":[{"text":"hi"}]}]}`, `{"generateContentRequest":{"model":"models/m","contents":[{"parts":[{"text":"hi"}]}]}}`} {
		r, err := c.DecodeCount([]byte(body))
		require.NoError(t, err)
		assert.Equal(t, "hi", r.Chat.Messages[0].Parts[0].Text)
	}
	assert.Equal(t, `{"totalTokens":3}`, string(c.Count(3)))
}

func TestEncodeRefusesWhatHasNoForm(t *testing.T) {
	_, err := EncodeRequest(&chat.Conversation{Messages: []chat.Message{{Role: chat.User}, {Role: chat.Assistant, Parts: []chat.Part{{Type: chat.Image}}}}})
	assert.EqualError(t, err, `write messages[1]: part 0: a part of type "image" can't be in a message of role assistant`)
	_, err = EncodeRequest(&chat.Conversation{Tools: []chat.Tool{{Type: "web_search", Name: "w"}}})
	assert.EqualError(t, err, `write tools[0]: a tool of type "web_search" has no form here`)
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
		again, err := EncodeRequest(&r.Chat)
		if err != nil {
			return
		}
		second, err := New().Decode(again)
		require.NoError(t, err, "%s", again)
		third, err := EncodeRequest(&second.Chat)
		require.NoError(t, err)
		require.Equal(t, string(again), string(third))
	})
}
