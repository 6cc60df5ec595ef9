package engine

import (
	"fmt"
	"math"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// chat serves /v1/chat/completions.
func (x *exchange) chat() error {
	a := x.asked()
	v := gjson.ParseBytes(x.body)
	meta := x.e.o.Kind == SGLang && (v.Get("return_meta_info").Bool() || v.Get("return_prompt_token_ids").Bool())
	if meta && a.stream {
		return bad("return_prompt_token_ids is not supported with streaming. Please set stream=false.")
	}
	if model := v.Get("model").Str; model != x.e.o.Model {
		return &upstream.StatusError{Status: 404, Message: fmt.Sprintf("The model `%s` does not exist.", model)}
	}
	if tools := v.Get("tools"); x.e.o.Kind == OpenAI && tools.IsArray() && len(tools.Array()) == 0 {
		return bad("[] is too short - 'tools'")
	}
	p, err := x.e.render(x.r.Context(), x.body)
	if err != nil {
		return bad(err.Error())
	}
	parsed, err := x.e.parse(x.r.Context(), p, "call_")
	if err != nil {
		return err
	}
	defer parsed.parser.Close()
	id := fmt.Sprintf("chatcmpl-%d", now())
	t := &chatTurn{x: x, a: a, p: p, id: id, parsed: parsed}
	if a.stream {
		head := x.chunk(id, "chat.completion.chunk", object{"index": 0, "delta": object{"role": "assistant", "content": ""}, "logprobs": nil, "finish_reason": nil})
		if a.ids && x.e.has("prompt_token_ids") {
			head["prompt_token_ids"] = p.IDs
		}
		t.head = head
	}
	if err := x.run(p, a.Sampling, p.Stops, t.take); err != nil {
		return err
	}
	if a.stream {
		return x.done(id, "chat.completion.chunk", a, &t.last)
	}
	reply(x.w, t.whole(meta))
	return nil
}

func bad(message string) error { return &upstream.StatusError{Status: 400, Message: message} }

// chatTurn is one reply of a chat endpoint.
type chatTurn struct {
	x      *exchange
	a      asked
	p      *prompt
	id     string
	parsed *parsed
	head   object

	ids      []int32
	logprobs []float64
	calls    int
	last     upstream.Chunk
}

// take parses a chunk and streams what came of it.
func (t *chatTurn) take(c *upstream.Chunk) error {
	t.ids, t.logprobs = append(t.ids, c.IDs...), append(t.logprobs, c.Logprobs...)
	deltas := t.parsed.take(c)
	t.last = *c
	if !t.a.stream {
		return nil
	}
	if t.head != nil {
		if err := t.x.json("", t.head); err != nil {
			return err
		}
		t.head = nil
	}
	var messages []object
	for _, d := range deltas {
		if m := t.message(d); m != nil {
			messages = append(messages, m)
		}
	}
	if len(messages) == 0 {
		messages = []object{{}}
	}
	for i, m := range messages {
		choice := object{"index": 0, "delta": m, "logprobs": nil, "finish_reason": nil}
		if i == len(messages)-1 {
			t.measure(choice, c)
		}
		if err := t.x.json("", t.x.chunk(t.id, "chat.completion.chunk", choice)); err != nil {
			return err
		}
	}
	return nil
}

// measure adds to the last delta of a step what the engine knows of the step.
func (t *chatTurn) measure(choice object, c *upstream.Chunk) {
	v := gjson.ParseBytes(t.x.body)
	if t.a.logprobs {
		choice["logprobs"] = t.x.contentLogprobs(c, t.a)
	}
	if t.a.ids {
		choice["token_ids"] = c.IDs
	}
	if t.x.e.o.Kind == LMDeploy && t.x.e.has("token_ids") && v.Get("return_token_ids").Bool() {
		choice["output_ids"] = c.IDs
	}
	if t.x.e.o.Kind == LMDeploy && v.Get("return_logprob").Bool() {
		choice["output_token_logprobs"] = pairs(c.IDs, c.Logprobs, false)
	}
	if c.Finish != (upstream.Finish{}) {
		choice["finish_reason"] = t.finish(c)
		if c.StopSequence != "" && t.x.e.o.Kind == VLLM {
			choice["stop_reason"] = c.StopSequence
		}
		if c.StopSequence != "" && t.x.e.o.Kind == SGLang {
			choice["matched_stop"] = c.StopSequence
		}
	}
}

func (t *chatTurn) finish(c *upstream.Chunk) string {
	if c.Finish.Raw == "stop" && len(chat.Calls(t.parsed.parts)) > 0 {
		return "tool_calls"
	}
	return c.Finish.Raw
}

// reasoning is the engine's name for it.
func (t *chatTurn) reasoning() string {
	if t.x.e.o.Kind == VLLM {
		return "reasoning"
	}
	return "reasoning_content"
}

// message is a delta in the dialect's form, nil for what has none.
func (t *chatTurn) message(d chat.Delta) object {
	switch d.Type {
	case chat.DeltaText:
		return object{"content": d.Text}
	case chat.DeltaReasoning:
		return object{t.reasoning(): d.Text}
	case chat.DeltaCallStart:
		t.calls++
		return object{"tool_calls": []any{object{
			"index": t.calls - 1, "id": d.ID, "type": "function", "function": object{"name": d.Name, "arguments": ""},
		}}}
	case chat.DeltaCallArgs:
		return object{"tool_calls": []any{object{"index": t.calls - 1, "function": object{"arguments": d.Text}}}}
	}
	return nil
}

// whole is the reply in one piece.
func (t *chatTurn) whole(meta bool) object {
	message := object{"role": "assistant", "content": nil}
	var calls []any
	for _, p := range t.parsed.parts {
		switch p.Type {
		case chat.Text:
			message["content"] = p.Text
		case chat.Reasoning:
			message[t.reasoning()] = p.Text
		case chat.ToolCall:
			calls = append(calls, object{"id": p.ID, "type": "function", "function": object{"name": p.Name, "arguments": string(p.Arguments)}})
		}
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	choice := object{"index": 0, "message": message, "logprobs": nil, "finish_reason": t.finish(&t.last)}
	if meta {
		if t.x.e.has("prompt_token_ids") {
			choice["prompt_token_ids"] = t.p.IDs
		}
		if t.x.e.has("token_ids") {
			choice["meta_info"] = object{"output_token_logprobs": pairs(t.ids, t.logprobs, true), "weight_version": t.last.WeightVersion}
		}
	}
	out := t.x.chunk(t.id, "chat.completion", choice)
	out["usage"] = usage(&t.last)
	return out
}

// pairs are [logprob, id] for each token; SGLang has a text as third.
func pairs(ids []int32, logprobs []float64, text bool) []any {
	out := []any{}
	for i, id := range ids {
		lp := any(nil)
		if i < len(logprobs) && !math.IsNaN(logprobs[i]) {
			lp = logprobs[i]
		}
		pair := []any{lp, id}
		if text {
			pair = append(pair, nil)
		}
		out = append(out, pair)
	}
	return out
}
