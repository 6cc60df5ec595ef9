package anthropic

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// with is a request with fields beside the required ones.
func with(fields string) []byte {
	return []byte(`{"model":"m","max_tokens":9,` + fields + `}`)
}

// asking is a request with one user message beside the given fields.
func asking(fields string) []byte {
	return with(`"messages":[{"role":"user","content":"hi"}],` + fields)
}

func decodeOK(t *testing.T, body []byte) *wire.Request {
	t.Helper()
	r, err := New().Decode(body)
	require.NoError(t, err)
	return r
}

// Cases 2 of 10a and 1 of 10b.
func TestToolResultsBecomeToolMessagesInOrder(t *testing.T) {
	r := decodeOK(t, with(`"messages":[
		{"role":"user","content":"go"},
		{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"Read","input":{}},{"type":"tool_use","id":"b","name":"Bash","input":{}},{"type":"tool_use","id":"c","name":"Shot","input":{}}]},
		{"role":"user","content":[
			{"type":"tool_result","tool_use_id":"b","content":"boom","is_error":true},
			{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},
			{"type":"text","text":"between"},
			{"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},
			{"type":"tool_result","tool_use_id":"d"},
			{"type":"text","text":"after"},{"type":"image","source":{"type":"url","url":"https://x/y.png"}}]}]`))
	text := func(s string) chat.Part { return chat.Part{Type: chat.Text, Text: s} }
	assert.Equal(t, []chat.Message{
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "b", Name: "Bash", IsError: true, Content: []chat.Part{text("boom")}}}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "a", Name: "Read", Content: []chat.Part{text("one"), text("two")}}}},
		{Role: chat.User, Parts: []chat.Part{text("between")}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "c", Name: "Shot", Content: []chat.Part{{Type: chat.Image, MediaType: "image/png", Data: "AAAA"}}}}},
		{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "d"}}},
		{Role: chat.User, Parts: []chat.Part{text("after"), {Type: chat.Image, URL: "https://x/y.png"}}},
	}, r.Chat.Messages[2:])
	assert.Len(t, r.Messages, 3)
}

// Cases 3 of 10a and 4 of 10b.
func TestThinkingIsReadFromItsOwnKey(t *testing.T) {
	ours := Signature("mine")
	r := decodeOK(t, with(`"messages":[{"role":"assistant","content":[
		{"type":"thinking","thinking":"theirs","signature":"EqQB"},
		{"type":"thinking","thinking":"mine","signature":"`+ours+`"},
		{"type":"thinking","thinking":"other text","signature":"`+ours+`"},
		{"type":"redacted_thinking","data":"opaque"},
		{"type":"text","text":"so"}]}]`))
	assert.Equal(t, []chat.Part{
		{Type: chat.Reasoning, Text: "theirs", Signature: "EqQB"},
		{Type: chat.Reasoning, Text: "mine"},
		{Type: chat.Reasoning, Text: "other text", Signature: ours},
		{Type: chat.Reasoning, Data: "opaque"},
		{Type: chat.Text, Text: "so"},
	}, r.Chat.Messages[0].Parts)
}

// Cases 9 of 10a and 9 of 10b.
func TestOrderNullsAndBigIntegersStay(t *testing.T) {
	schema := `{"type":"object","properties":{"z":{"type":["string","null"],"default":null},"a":{"const":12345678901234567890}},"required":[]}`
	input := `{"z":null,"a":12345678901234567890,"e":1.50e2,"s":"\u00e9\/<>&"}`
	r := decodeOK(t, with(`"tools":[{"name":"t","input_schema":`+schema+`}],"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"t","input":`+input+`}]}]`))
	assert.Equal(t, schema, string(r.Chat.Tools[0].Parameters))
	assert.Equal(t, input, string(r.Chat.Messages[0].Parts[0].Arguments))
	body, err := EncodeRequest(&r.Chat, EncodeOptions{Model: "m"})
	require.NoError(t, err)
	assert.Contains(t, string(body), schema)
	assert.Contains(t, string(body), input)
}

// Cases 1 of 10a and 3 of 10b.
func TestUnknownFieldsAreToleratedAndListed(t *testing.T) {
	r := decodeOK(t, asking(`"metadata":{"user_id":"u"},"context_management":{"edits":[]},"output_config":{"effort":"high"},"service_tier":"auto","new_thing":{"x":[1]},"container":"c"`))
	assert.Equal(t, []string{"new_thing", "container"}, r.Unknown)
	r = decodeOK(t, []byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","id":"x","content":[{"type":"text","text":"a","citations":null,"new":1}]}]}`))
	assert.Empty(t, r.Unknown)
	assert.Equal(t, "a", r.Chat.Messages[0].Parts[0].Text)
}

func TestSystemStandsFirstAndInTheList(t *testing.T) {
	r := decodeOK(t, with(`"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}],"messages":[{"role":"user","content":"hi"},{"role":"system","content":"note"},{"role":"system","content":[{"type":"text","text":"more"}]}]`))
	require.Len(t, r.Chat.Messages, 4)
	assert.Equal(t, chat.Message{Role: chat.System, Parts: []chat.Part{{Type: chat.Text, Text: "a"}, {Type: chat.Text, Text: "b"}}}, r.Chat.Messages[0])
	assert.Equal(t, chat.System, r.Chat.Messages[2].Role)
	assert.Equal(t, "more", r.Chat.Messages[3].Parts[0].Text)
	assert.Equal(t, "s", decodeOK(t, asking(`"system":"s"`)).Chat.Messages[0].Parts[0].Text)
}

func TestDeferredToolsWaitUntilTheyAreNamed(t *testing.T) {
	tools := `"tools":[{"name":"ToolSearch","input_schema":{}},{"name":"calc","input_schema":{},"defer_loading":true},{"name":"other","input_schema":{},"defer_loading":true},{"type":"web_search_20250305","name":"web_search","max_uses":5}]`
	names := func(r *wire.Request) (out []string) {
		for _, tool := range r.Chat.Tools {
			out = append(out, tool.Name)
		}
		return out
	}
	r := decodeOK(t, asking(tools))
	assert.Equal(t, []string{"ToolSearch", "web_search"}, names(r))
	assert.Equal(t, "web_search_20250305", r.Chat.Tools[1].Type)
	assert.JSONEq(t, `{"type":"web_search_20250305","name":"web_search","max_uses":5}`, string(r.Chat.Tools[1].Raw))
	assert.Contains(t, string(r.Envelope), `{"name":"other","input_schema":{},"defer_loading":true}`)

	r = decodeOK(t, with(tools+`,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"tool_reference","tool_name":"calc"}]}]}]`))
	assert.Equal(t, []string{"ToolSearch", "calc", "web_search"}, names(r))
	assert.Equal(t, chat.Part{Type: chat.Text, Text: "Tool loaded: calc", Name: "calc"}, r.Chat.Messages[0].Parts[0].Content[0])

	r = decodeOK(t, with(tools+`,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"other","input":{}}]}]`))
	assert.Equal(t, []string{"ToolSearch", "other", "web_search"}, names(r))
	assert.Equal(t, []string{"ToolSearch", "calc", "web_search"}, names(decodeOK(t, asking(tools+`,"tool_choice":{"type":"tool","name":"calc"}`))))
}

func TestInputThatIsNoObject(t *testing.T) {
	for input, want := range map[string]chat.Part{
		`{"a":1}`: {Arguments: []byte(`{"a":1}`)},
		`[1, 2]`:  {Arguments: []byte(`[1, 2]`)},
		`"text"`:  {Arguments: []byte(`"text"`), ArgumentsRaw: true},
		`{"__unparsedToolInput":{"raw":"{\"expression\": \"23 + ","len":21}}`: {Arguments: []byte(`"{\"expression\": \"23 + "`), ArgumentsRaw: true},
		`{"__unparsedToolInput":{"raw":"7","len":1}}`:                         {Arguments: []byte(`7`)},
		`{"__unparsedToolInput":{"raw":7}}`:                                   {Arguments: []byte(`{"__unparsedToolInput":{"raw":7}}`)},
	} {
		r := decodeOK(t, with(`"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"t","input":`+input+`}]}]`))
		want.Type, want.ID, want.Name = chat.ToolCall, "i", "t"
		assert.Equal(t, want, r.Chat.Messages[0].Parts[0], input)
	}
	r := decodeOK(t, with(`"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"t"}]}]`))
	assert.Equal(t, `{}`, string(r.Chat.Messages[0].Parts[0].Arguments))
}

func TestSamplingThinkingAndChoice(t *testing.T) {
	r := decodeOK(t, asking(`"temperature":0.5,"top_p":1,"top_k":40,"stop_sequences":["END"],"stream":true,"thinking":{"type":"adaptive"},"tools":[{"name":"t"}],"tool_choice":{"type":"any","disable_parallel_tool_use":true}`))
	assert.JSONEq(t, `{"temperature":0.5,"top_p":1,"top_k":40,"max_tokens":9,"stop":["END"]}`, asJSON(t, r.Chat.Sampling))
	assert.True(t, r.Stream)
	assert.True(t, *r.Chat.Thinking)
	assert.Equal(t, &chat.Choice{Mode: chat.ChoiceRequired, DisableParallel: true}, r.Chat.ToolChoice)

	assert.Nil(t, decodeOK(t, asking(`"top_k":null`)).Chat.Thinking)
	assert.False(t, *decodeOK(t, asking(`"thinking":{"type":"disabled"}`)).Chat.Thinking)
	r = decodeOK(t, asking(`"thinking":{"type":"auto"}`))
	assert.True(t, *r.Chat.Thinking)
	assert.Equal(t, []string{"thinking.type=auto"}, r.Unknown)
	assert.Equal(t, &chat.Choice{Mode: chat.ChoiceNamed, Name: "t"}, decodeOK(t, asking(`"tools":[{"name":"t"}],"tool_choice":{"type":"tool","name":"t"}`)).Chat.ToolChoice)
}

func TestCountNeedsNoMaxTokens(t *testing.T) {
	c := New().(wire.TokenCounter)
	r, err := c.DecodeCount([]byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
	require.NoError(t, err)
	assert.Equal(t, "hi", r.Chat.Messages[0].Parts[0].Text)
	assert.Equal(t, `{"input_tokens":12}`, string(c.Count(12)))
}

func TestBedrockAndVertexNameTheModelInThePath(t *testing.T) {
	r := decodeOK(t, []byte(`{"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["x"],"max_tokens":1,"messages":[{"role":"user","content":"."}]}`))
	assert.Empty(t, r.Model)
	assert.Empty(t, r.Unknown)
}

func TestHalfASurrogatePairIsTolerated(t *testing.T) {
	r := decodeOK(t, with(`"messages":[{"role":"user","content":"cut \ud83d"}]`))
	assert.Equal(t, "cut \ufffd", r.Chat.Messages[0].Parts[0].Text)
	assert.Contains(t, string(r.Messages[0]), `\ud83d`)
}

func TestRefusalsNameWhatAndWhere(t *testing.T) {
	block := func(role, b string) []byte {
		return with(`"messages":[{"role":"user","content":"x"},{"role":"` + role + `","content":[{"type":"text","text":"x"},` + b + `]}]`)
	}
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"empty":             {nil, "The request body is not valid JSON: empty"},
		"list":              {[]byte(`[]`), "must be a JSON object"},
		"cut":               {[]byte(`{"model":"m"`), "not valid JSON: unexpected end at byte 12"},
		"two values":        {[]byte(`{} {}`), "more text after the value"},
		"duplicate":         {asking(`"max_tokens":3`), "duplicate"},
		"duplicate inside":  {with(`"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"t","input":{"a":1,"a":2}}]}]`), "/messages/0/content/0/input"},
		"utf-8":             {asking(`"x":"` + "\xff" + `"`), "not valid UTF-8"},
		"deep":              {asking(`"x":` + strings.Repeat("[", 300) + strings.Repeat("]", 300)), "nested more than 200 levels deep"},
		"no model":          {[]byte(`{"max_tokens":1,"messages":[{"role":"user","content":"x"}]}`), "model: Field required"},
		"no max_tokens":     {[]byte(`{"model":"m","messages":[{"role":"user","content":"x"}]}`), "max_tokens: Field required"},
		"max_tokens":        {[]byte(`{"model":"m","max_tokens":0,"messages":[]}`), "max_tokens: must be at least 1"},
		"max_tokens string": {[]byte(`{"model":"m","max_tokens":"9","messages":[]}`), "max_tokens: must be a whole number, not a string"},
		"no messages":       {with(`"system":"x"`), "messages: Field required"},
		"zero messages":     {with(`"messages":[]`), "messages: at least one message is required"},
		"stream":            {asking(`"stream":"yes"`), "stream: must be a boolean, not a string"},
		"temperature":       {asking(`"temperature":[]`), "temperature: must be a number, not a list"},
		"stop":              {asking(`"stop_sequences":["a",1]`), "stop_sequences[1]: must be a string, not a number"},
		"role":              {with(`"messages":[{"role":"tool","content":"x"}]`), `messages[0].role: must be user, assistant or system, not "tool"`},
		"no content":        {with(`"messages":[{"role":"user"}]`), "messages[0].content: Field required"},
		"document":          {block("user", `{"type":"document","source":{}}`), `messages[1].content[1]: a block of type "document" can't be mapped`},
		"server tool use":   {block("assistant", `{"type":"server_tool_use","id":"x"}`), `messages[1].content[1]: a block of type "server_tool_use" can't be mapped`},
		"no type":           {block("user", `{"text":"x"}`), "messages[1].content[1].type: Field required"},
		"no text":           {block("user", `{"type":"text"}`), "messages[1].content[1].text: Field required"},
		"thinking text key": {block("assistant", `{"type":"thinking","text":"x"}`), "messages[1].content[1].thinking: Field required"},
		"call of user":      {block("user", `{"type":"tool_use","id":"x","name":"y","input":{}}`), `messages[1].content[1]: a block of type "tool_use" can only be in a message of the assistant`},
		"result of model":   {block("assistant", `{"type":"tool_result","tool_use_id":"x"}`), `messages[1].content[1]: a block of type "tool_result" can't be in a message of the assistant`},
		"inside result":     {block("user", `{"type":"tool_result","tool_use_id":"x","content":[{"type":"document"}]}`), `messages[1].content[1].content[0]: a block of type "document" can't be mapped inside a tool_result`},
		"is_error":          {block("user", `{"type":"tool_result","tool_use_id":"x","is_error":1}`), "messages[1].content[1].is_error: must be a boolean, not a number"},
		"image source":      {block("user", `{"type":"image","source":{"type":"file","file_id":"f"}}`), `messages[1].content[1].source: an image of type "file" can't be mapped`},
		"image data":        {block("user", `{"type":"image","source":{"type":"base64","media_type":"image/png"}}`), "messages[1].content[1].source.data: Field required"},
		"system image":      {asking(`"system":[{"type":"image"}]`), `system[0]: a block of type "image" can't be mapped here, only text`},
		"tool name":         {asking(`"tools":[{"name":"a"},{"description":"x"}]`), "tools[1].name: Field required"},
		"schema":            {asking(`"tools":[{"name":"a","input_schema":[]}]`), "tools[0].input_schema: must be an object"},
		"choice":            {asking(`"tool_choice":{"type":"some"}`), `tool_choice.type: must be auto, any, tool or none, not "some"`},
		"choice of none":    {asking(`"tool_choice":{"type":"any"}`), "tool_choice: a tool can't be required without tools"},
		"choice of strange": {asking(`"tools":[{"name":"a"}],"tool_choice":{"type":"tool","name":"b"}`), "tool_choice: Tool 'b' not found in provided tools"},
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

// TestThreadsAreRefused: a request that sends only what is new would have the
// model answer the last message alone. The refusal is one on which the SDK
// sends the whole conversation.
func TestThreadsAreRefused(t *testing.T) {
	for _, thread := range []string{`{"type":"create"}`, `{"type":"continue","previous_message_id":"msg_1"}`} {
		_, err := New().Decode(asking(`"thread":` + thread))
		var e *wire.Error
		require.ErrorAs(t, err, &e)
		status, body := New().Error(e)
		assert.Equal(t, 400, status)
		assert.JSONEq(t, `{"type":"error","error":{"type":"invalid_request_error","message":"thread: conversations are not kept here; send all messages",
			"details":{"error_code":"thread_unsupported_request","unsupported":["thread"]}}}`, string(body))
	}
	decodeOK(t, asking(`"thread":null`))
}
