package engine

import (
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// generate serves the native endpoint of SGLang and LMDeploy.
func (x *exchange) generate() error {
	v := gjson.ParseBytes(x.body)
	if !v.Get("input_ids").IsArray() || v.Get("prompt").Exists() {
		return bad("input_ids must be a list of ids, and no prompt beside it")
	}
	a := x.asked()
	sglang := x.e.o.Kind == SGLang
	if sglang { // keeps them in an object of their own
		inner := *x
		inner.body = []byte(v.Get("sampling_params").Raw)
		s := inner.asked()
		a.Sampling, a.includeStop = s.Sampling, v.Get("sampling_params.no_stop_trim").Bool()
	}
	if a.MaxTokens == nil {
		most := 128
		a.MaxTokens = &most
	}
	p := x.rendered(v.Get("input_ids"))
	g := &nativeTurn{x: x, logprobs: v.Get("return_logprob").Bool() && x.e.has("logprobs"), entire: sglang && !x.e.o.Incremental}
	err := x.run(p, chat.Sampling{MaxTokens: a.MaxTokens}, a.Stop, func(c *upstream.Chunk) error {
		matched := any(nil)
		if c.StopSequence != "" {
			matched = c.StopSequence
		}
		text := x.text(c, a)
		out := g.event(c, text, matched)
		if !a.stream {
			g.lastEvent = out
			return nil
		}
		return x.json("", out)
	})
	if err != nil {
		return err
	}
	if !a.stream {
		reply(x.w, g.lastEvent)
		return nil
	}
	return x.send(x.sse("", []byte("[DONE]")))
}

// nativeTurn is one reply of a native endpoint.
type nativeTurn struct {
	x        *exchange
	logprobs bool
	entire   bool // each event has all so far

	text      string
	ids       []int32
	values    []float64
	lastEvent object
}

func (g *nativeTurn) event(c *upstream.Chunk, text string, matched any) object {
	sglang := g.x.e.o.Kind == SGLang
	ids, values := c.IDs, c.Logprobs
	g.text += text
	g.ids, g.values = append(g.ids, ids...), append(g.values, values...)
	if g.entire {
		text, ids, values = g.text, g.ids, g.values
	}
	meta := object{"prompt_tokens": c.PromptTokens, "completion_tokens": len(g.ids), "finish_reason": nil}
	if sglang {
		meta["id"], meta["cached_tokens"] = "rid-0", 0
		meta["weight_version"] = "default"
		if c.WeightVersion != "" {
			meta["weight_version"] = c.WeightVersion
		}
	}
	if g.logprobs {
		meta["output_token_logprobs"] = pairs(ids, values, sglang)
		if sglang {
			meta["output_token_logprobs_length"] = len(g.ids)
		}
	}
	if c.Finish != (upstream.Finish{}) {
		reason := object{"type": c.Finish.Raw}
		if sglang && c.Finish.Raw == "stop" {
			reason["matched"] = matched
		}
		meta["finish_reason"] = reason
	}
	out := object{"text": text, "meta_info": meta}
	if g.x.e.has("token_ids") {
		out["output_ids"] = append([]int32{}, ids...)
	}
	return out
}
