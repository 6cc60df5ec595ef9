package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

type object = map[string]any

// The reply of the backend: 60 chunks of text, then a tool call whose
// arguments are 40 chunks. Its last words are looked for in every answer.
const (
	textChunks, callChunks = 60, 40
	toolName               = "Tool03"
	lastText, lastArgument = "word059", "word098"
)

func word(i int) string { return fmt.Sprintf(" word%03d", i) }

// serveBackend answers like an engine that has thought already: Chat
// Completions with the call parsed, Completions with it as the model writes
// it.
func serveBackend() (ready, error) {
	mux := http.NewServeMux()
	for path, events := range map[string][][]byte{
		"/v1/chat/completions": chatEvents(),
		"/v1/completions":      completionEvents(),
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			f := w.(http.Flusher)
			for _, e := range events {
				_, _ = w.Write(e)
				f.Flush()
			}
		})
	}
	url, err := serve(mux)
	return ready{URL: url}, err
}

func event(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return fmt.Appendf(nil, "data: %s\n\n", b)
}

func usageEvent(kind string) []byte {
	return event(object{"id": "cmpl-0123456789abcdef", "object": kind, "created": 1760000000, "model": "mock", "choices": []object{},
		"usage": object{"prompt_tokens": 30000, "completion_tokens": textChunks + callChunks, "total_tokens": 30100}})
}

func chatEvents() [][]byte {
	const kind = "chat.completion.chunk"
	chunk := func(delta object, finish any) []byte {
		return event(object{"id": "chatcmpl-0123456789abcdef", "object": kind, "created": 1760000000, "model": "mock", "choices": []object{
			{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish, "token_ids": nil}}})
	}
	out := [][]byte{chunk(object{"role": "assistant", "content": ""}, nil)}
	for i := range textChunks {
		out = append(out, chunk(object{"content": word(i)}, nil))
	}
	for i := range callChunks {
		function, call := object{"arguments": word(textChunks + i)}, object{"index": 0}
		switch i {
		case 0:
			function["name"], function["arguments"] = toolName, `{"command":"`
			call["id"], call["type"] = "call_0123456789", "function"
		case callChunks - 1:
			function["arguments"] = `"}`
		}
		call["function"] = function
		out = append(out, chunk(object{"tool_calls": []object{call}}, nil))
	}
	return append(out, chunk(object{}, "tool_calls"), usageEvent(kind), []byte("data: [DONE]\n\n"))
}

func completionEvents() [][]byte {
	const kind = "text_completion"
	chunk := func(text string, finish any) []byte {
		return event(object{"id": "cmpl-0123456789abcdef", "object": kind, "created": 1760000000, "model": "mock", "choices": []object{
			{"index": 0, "text": text, "logprobs": nil, "finish_reason": finish, "stop_reason": nil}}})
	}
	var out [][]byte
	for i := range textChunks {
		out = append(out, chunk(word(i), nil))
	}
	for i := range callChunks {
		text := word(textChunks + i)
		switch i {
		case 0:
			text = "\n\n<tool_call>\n<function=" + toolName + ">\n<parameter=command>\n"
		case callChunks - 1:
			text = "\n</parameter>\n</function>\n</tool_call>"
		}
		out = append(out, chunk(text, nil))
	}
	return append(out, chunk("<|im_end|>", "stop"), usageEvent(kind), []byte("data: [DONE]\n\n"))
}

// texts makes prose as agents send it, the same at each run: words, newlines,
// quotes, markup, and some that isn't ASCII.
type texts struct{ state uint64 }

var words = strings.Fields("the agent reads file src main module function returns value error path test build run config cache token session request handler stream buffer index record worker queue retry deadline commit branch merge patch diff line column parse encode decode schema field type string number object array null true false import package")

func (t *texts) next(n int) int {
	t.state = t.state*6364136223846793005 + 1442695040888963407
	return int(t.state>>33) % n
}

func (t *texts) some(n int) string {
	var b strings.Builder
	for b.Len() < n {
		w := words[t.next(len(words))]
		switch t.next(24) {
		case 0:
			b.WriteString("\n")
		case 1:
			b.WriteString(`"` + w + `" `)
		case 2:
			b.WriteString("<" + w + "/> ")
		case 3:
			b.WriteString("`" + w + "` — ")
		default:
			b.WriteString(w + " ")
		}
	}
	return strings.ToValidUTF8(b.String()[:n], "")
}

// conversation is that of a coding agent in the Messages dialect: 14 KB of
// system prompt, 20 tools, and messages that each turn adds to. Over the turns
// of a session its requests are 120 KB on average.
type conversation struct {
	texts
	head     []byte // the request up to its messages
	messages []byte
}

const startMessages = 10 // pairs of the first request

func newConversation() *conversation {
	c := &conversation{texts: texts{42}}
	cached := object{"type": "ephemeral"}
	head, err := json.Marshal(object{
		"model": "policy", "max_tokens": 4096, "stream": true, "temperature": 1,
		"metadata": object{"user_id": "user_0123456789abcdef_account__session_5f0d9b1e"},
		"system": []object{
			{"type": "text", "text": "You are a coding agent.", "cache_control": cached},
			{"type": "text", "text": c.some(14000), "cache_control": cached}},
		"tools": c.tools(20),
	})
	if err != nil {
		panic(err)
	}
	c.head = append(head[:len(head)-1], `,"messages":[`...)
	c.add(object{"role": "user", "content": []object{
		{"type": "text", "text": "<system-reminder>" + c.some(2500) + "</system-reminder>"},
		{"type": "text", "text": c.some(1200), "cache_control": cached}}})
	for i := range startMessages {
		arguments, _ := json.Marshal(object{"command": c.some(160), "param_1": 120000})
		c.turn(c.some(220), fmt.Sprintf("toolu_%08d", i), arguments)
	}
	return c
}

func (t *texts) tools(n int) (tools []object) {
	for i := range n {
		properties := object{}
		for k, kind := range []string{"string", "integer", "boolean", "array", "object"} {
			p := object{"type": kind, "description": t.some(150)}
			switch kind {
			case "array":
				p["items"] = object{"type": "string"}
			case "object":
				p["properties"] = object{"a": object{"type": "string", "enum": []string{"x", "y", "z"}}, "b": object{"type": "number"}}
			}
			properties[fmt.Sprintf("param_%d", k)] = p
		}
		properties["command"] = object{"type": "string", "description": t.some(80)}
		tools = append(tools, object{"name": fmt.Sprintf("Tool%02d", i), "description": t.some(1000), "input_schema": object{
			"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": properties,
			"required": []string{"command"}, "additionalProperties": false}})
	}
	return tools
}

// turn adds what the assistant said and what its call gave.
func (c *conversation) turn(text, id string, arguments json.RawMessage) {
	c.add(object{"role": "assistant", "content": []object{
		{"type": "text", "text": text}, {"type": "tool_use", "id": id, "name": toolName, "input": arguments}}})
	c.add(object{"role": "user", "content": []object{
		{"type": "tool_result", "tool_use_id": id, "content": []object{{"type": "text", "text": c.some(2350)}}}}})
}

func (c *conversation) add(message object) {
	b, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	if len(c.messages) > 0 {
		c.messages = append(c.messages, ',')
	}
	c.messages = append(c.messages, b...)
}

func (c *conversation) body() []byte {
	return slices.Concat(c.head, c.messages, []byte("]}"))
}

// said reads what a stream of either dialect says.
func said(stream []byte) (text, id string, arguments json.RawMessage) {
	for line := range bytes.Lines(stream) {
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		v := gjson.GetManyBytes(data, "delta.text", "choices.0.delta.content", "content_block.id",
			"choices.0.delta.tool_calls.0.id", "delta.partial_json", "choices.0.delta.tool_calls.0.function.arguments")
		text += v[0].Str + v[1].Str
		id += v[2].Str + v[3].Str
		arguments = append(arguments, v[4].Str+v[5].Str...)
	}
	return text, id, arguments
}
