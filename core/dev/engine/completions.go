package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// object is a JSON object.
type object = map[string]any

// asked are the fields of a request that several endpoints share.
type asked struct {
	chat.Sampling
	stream, usage bool
	ids, named    bool // token ids, and tokens by their ids in logprobs
	logprobs      bool
	includeStop   bool
}

func (x *exchange) asked() (a asked) {
	v := gjson.ParseBytes(x.body)
	a.stream, a.usage = v.Get("stream").Bool(), v.Get("stream_options.include_usage").Bool()
	a.ids = x.e.o.Kind == VLLM && x.e.has("token_ids") && v.Get("return_token_ids").Bool()
	a.named = x.e.o.Kind == VLLM && v.Get("return_tokens_as_token_ids").Bool()
	a.logprobs = x.e.has("logprobs") && v.Get("logprobs").Exists() && v.Get("logprobs").Type != gjson.False
	a.includeStop = x.e.o.Kind != OpenAI && v.Get("include_stop_str_in_output").Bool()
	for _, name := range []string{"max_completion_tokens", "max_tokens", "max_new_tokens"} {
		if n := v.Get(name); n.Type == gjson.Number && a.MaxTokens == nil {
			most := int(n.Int())
			a.MaxTokens = &most
		}
	}
	stop := v.Get("stop")
	if stop.Type == gjson.String {
		a.Stop = []string{stop.Str}
	}
	for _, s := range stop.Array() {
		if stop.IsArray() {
			a.Stop = append(a.Stop, s.Str)
		}
	}
	return a
}

// completions serves /v1/completions.
func (x *exchange) completions() error {
	a := x.asked()
	if a.MaxTokens == nil {
		most := 16 // as the API has it
		a.MaxTokens = &most
	}
	p := x.rendered(gjson.GetBytes(x.body, "prompt"))
	id := fmt.Sprintf("cmpl-%d", now())
	first, offset := true, 0
	var whole strings.Builder
	var last upstream.Chunk
	err := x.run(p, chat.Sampling{MaxTokens: a.MaxTokens}, a.Stop, func(c *upstream.Chunk) error {
		stop := any(nil)
		if c.StopSequence != "" {
			stop = c.StopSequence
		}
		text := x.text(c, a)
		whole.WriteString(text)
		last = *c
		if !a.stream {
			return nil
		}
		choice := object{"index": 0, "text": text, "logprobs": nil, "finish_reason": nil}
		if c.Finish != (upstream.Finish{}) {
			choice["finish_reason"] = c.Finish.Raw
			if x.e.o.Kind == VLLM {
				choice["stop_reason"] = stop
			}
		}
		if a.logprobs {
			choice["logprobs"] = x.tokenLogprobs(c, a, &offset)
		}
		if a.ids {
			choice["token_ids"] = c.IDs
			if first && x.e.has("prompt_token_ids") {
				choice["prompt_token_ids"] = p.IDs
			}
		}
		first = false
		return x.json("", x.chunk(id, "text_completion", choice))
	})
	if err != nil {
		return err
	}
	if !a.stream {
		choice := object{"index": 0, "text": whole.String(), "logprobs": nil, "finish_reason": last.Finish.Raw}
		out := x.chunk(id, "text_completion", choice)
		out["usage"] = usage(&last)
		reply(x.w, out)
		return nil
	}
	return x.done(id, "text_completion", a, &last)
}

// text is a chunk's text as an engine shows it: whole runes, and the stop only
// where that was asked for.
func (x *exchange) text(c *upstream.Chunk, a asked) string {
	end := c.Finish != (upstream.Finish{})
	if end && a.includeStop {
		x.stopped(c)
	}
	text := c.Text
	if end && !a.includeStop {
		for _, m := range x.e.o.Markers {
			if s, ok := strings.CutSuffix(string(text), m); ok && strings.HasPrefix(m, "<|") {
				text = []byte(s)
				break
			}
		}
	}
	out := x.runes.Next(string(text))
	if end {
		out += x.runes.Rest()
	}
	return out
}

// tokenLogprobs is the form of /v1/completions.
func (x *exchange) tokenLogprobs(c *upstream.Chunk, a asked, offset *int) object {
	names, values, offsets := []string{}, []any{}, []int{}
	for i, id := range c.IDs {
		names = append(names, x.name(id, a))
		values = append(values, number(c.Logprobs[i]))
		offsets = append(offsets, *offset)
		*offset += len(x.e.tok.Decode(nil, []int32{id}))
	}
	return object{"tokens": names, "token_logprobs": values, "text_offset": offsets, "top_logprobs": nil}
}

// contentLogprobs is the form of /v1/chat/completions.
func (x *exchange) contentLogprobs(c *upstream.Chunk, a asked) object {
	content := []any{}
	for i, id := range c.IDs {
		content = append(content, object{"token": x.name(id, a), "logprob": number(c.Logprobs[i]), "bytes": nil, "top_logprobs": []any{}})
	}
	return object{"content": content}
}

func (x *exchange) name(id int32, a asked) string {
	if a.named {
		return fmt.Sprintf("token_id:%d", id)
	}
	return strings.ToValidUTF8(string(x.e.tok.Decode(nil, []int32{id})), "\uFFFD")
}

// number is null for what isn't one.
func number(f float64) any {
	if math.IsNaN(f) {
		return nil
	}
	return f
}

func (x *exchange) chunk(id, kind string, choices ...any) object {
	if choices == nil {
		choices = []any{}
	}
	return object{"id": id, "object": kind, "created": now(), "model": x.e.o.Model, "choices": choices}
}

func (x *exchange) json(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return x.send(x.sse(name, b))
}

func usage(c *upstream.Chunk) object {
	return object{
		"prompt_tokens": c.PromptTokens, "completion_tokens": c.OutputTokens, "total_tokens": c.PromptTokens + c.OutputTokens,
		"prompt_tokens_details": object{"cached_tokens": 0},
	}
}

// done ends a stream.
func (x *exchange) done(id, kind string, a asked, last *upstream.Chunk) error {
	if a.usage {
		out := x.chunk(id, kind)
		out["usage"] = usage(last)
		if err := x.json("", out); err != nil {
			return err
		}
	}
	return x.send(x.sse("", []byte("[DONE]")))
}
