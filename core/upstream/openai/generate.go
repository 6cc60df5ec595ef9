package openai

import (
	"context"
	"math"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
)

// generate asks the native endpoint of SGLang or LMDeploy, always with ids.
func (s *server) generate(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
	if r.PromptIDs == nil {
		ids, err := s.tokenize(ctx, r)
		if err != nil {
			return nil, err
		}
		tokenized := *r
		tokenized.PromptIDs = ids
		r = &tokenized
	}
	body := s.lmdeployBody
	if s.o.Kind == KindSGLang {
		body = s.sglangBody
	}
	p := s.progress(r, "/generate")
	e, err := s.c.Events(ctx, s.post(r, s.root+"/generate", body(r)))
	if err != nil {
		return nil, err
	}
	d := &generation{progress: p}
	out := &stream{events: e, p: p, decode: d.event}
	if r.WantIDs {
		out.first = &upstream.Chunk{PromptIDs: r.PromptIDs} // those that it was sent
	}
	return out, nil
}

// tokenize has the server turn a rendered prompt into ids.
func (s *server) tokenize(ctx context.Context, r *upstream.Request) ([]int32, error) {
	o := exchange.NewObject(len(r.Prompt) + 128)
	path, field := s.root+"/tokenize", "tokens"
	switch s.o.Kind {
	case KindLMDeploy:
		path, field = s.api+"/encode", "input_ids"
		o.String("input", r.Prompt).Bool("do_preprocess", false).Bool("add_bos", false)
	default:
		o.String("model", s.model(r)).String("prompt", r.Prompt).Bool("add_special_tokens", false)
	}
	body, err := s.c.Body(ctx, s.post(r, path, o.Bytes()))
	if err != nil {
		return nil, err
	}
	where := strings.TrimPrefix(path, s.root)
	ids := gjson.GetBytes(body, field)
	if !gjson.ValidBytes(body) || !ids.IsArray() {
		return nil, s.lacks(where, field, "answered "+s.c.Excerpt(body))
	}
	out, err := integers(make([]int32, 0, len(ids.Raw)/4), ids.Raw)
	if err != nil {
		return nil, s.lacks(where, field, err.Error())
	}
	return out, nil
}

func (s *server) sglangBody(r *upstream.Request) []byte {
	p := exchange.NewObject(256)
	p.Int("max_new_tokens", int64(s.room(r.Sampling.MaxTokens, len(r.PromptIDs))))
	s.sampling(p, r, "sampling_seed", -1)
	if stop := stops(r); len(stop) > 0 {
		p.Strings("stop", stop)
	}
	if r.Guide != nil {
		p.String("json_schema", string(r.Guide)) // text, not an object
	}
	p.Bool("no_stop_trim", true).Bool("skip_special_tokens", false).Bool("spaces_between_special_tokens", false)
	o := exchange.NewObject(8*len(r.PromptIDs) + 512)
	o.IDs("input_ids", r.PromptIDs).Raw("sampling_params", p.Bytes()).Bool("return_logprob", r.WantIDs)
	return o.Bool("stream", true).Bytes()
}

func (s *server) lmdeployBody(r *upstream.Request) []byte {
	o := exchange.NewObject(8*len(r.PromptIDs) + 512)
	o.IDs("input_ids", r.PromptIDs)
	o.Int("max_tokens", int64(s.room(r.Sampling.MaxTokens, len(r.PromptIDs))))
	s.sampling(o, r, "seed", 0)
	if stop := stops(r); len(stop) > 0 {
		o.Strings("stop", stop)
	}
	o.Bool("include_stop_str_in_output", true).Bool("skip_special_tokens", false).Bool("spaces_between_special_tokens", false)
	return o.Bool("return_logprob", r.WantIDs).Bool("stream", true).Bytes()
}

// generation reads the events of /generate. LMDeploy gives what is new in
// each; SGLang gives all so far, or what is new where it was started with
// --incremental-streaming-output, which only its count of tokens tells apart.
type generation struct {
	*progress
	text   int // bytes so far
	tokens int // of the engine's count
	growth growth
}

// growth is whether events hold all so far or only what is new.
type growth uint8

const (
	unknown growth = iota
	entire
	fresh
)

func (d *generation) event(data []byte, c *upstream.Chunk) error {
	v := gjson.ParseBytes(data)
	if err := d.open(v, data); err != nil {
		return err
	}
	meta := v.Get("meta_info")
	if !meta.IsObject() {
		return d.errorf("sent an event without meta_info: %s", d.s.c.Excerpt(data))
	}
	ids, err := integers(nil, v.Get("output_ids").Raw)
	if err != nil {
		return d.errorf("output_ids: %v", err)
	}
	count := int(meta.Get("completion_tokens").Int())
	if err := d.settle(len(ids), count); err != nil {
		return err
	}
	if err := d.take(ids, meta.Get("output_token_logprobs"), c); err != nil {
		return err
	}
	text := v.Get("text").String()
	if d.growth == entire {
		if len(text) < d.text {
			return d.errorf("took text back that it had given")
		}
		text = text[d.text:]
	}
	d.text += len(text)
	c.Text = d.trim.push(c.Text, text)
	if w := meta.Get("weight_version").String(); w != "" {
		c.WeightVersion = w
	}
	if n := int(meta.Get("prompt_tokens").Int()); n > 0 {
		d.promptTokens = n
	}
	d.outputTokens, d.cachedTokens = count, int(meta.Get("cached_tokens").Int())
	if reason := meta.Get("finish_reason"); reason.IsObject() {
		d.ends(reason.Get("type").Str, reason.Get("matched").Str)
		if reason.Get("type").Str == "abort" && reason.Get("message").Str != "" {
			d.finish.Raw += ": " + reason.Get("message").Str
		}
	}
	return nil
}

// settle finds out in which way the stream grows, at the first event that
// tells.
func (d *generation) settle(given, count int) error {
	switch {
	case given == 0 && count > d.tokens:
		return d.errorf("counts %d completion_tokens and gave no output_ids", count)
	case d.s.o.Kind == KindLMDeploy:
		d.growth = fresh
	case d.growth != unknown || given == 0 || d.tokens == 0:
	case given == count:
		d.growth = entire
	case d.tokens+given == count:
		d.growth = fresh
	default:
		return d.errorf("counts %d completion_tokens and gave %d output_ids after %d", count, given, d.tokens)
	}
	if given > 0 && d.tokens == 0 && d.growth == unknown {
		d.tokens = given
		return nil
	}
	switch d.growth {
	case entire:
		d.tokens = given
	case fresh:
		d.tokens += given
	}
	return nil
}

// take takes the ids that are new and their logprobs.
func (d *generation) take(ids []int32, logprobs gjson.Result, c *upstream.Chunk) error {
	if !d.want {
		d.ids = d.tokens
		return nil
	}
	pairs := logprobs.Array()
	if d.growth == entire {
		if len(ids) < d.ids || len(pairs) < d.ids {
			return d.errorf("took tokens back that it had given")
		}
		ids, pairs = ids[d.ids:], pairs[d.ids:]
	}
	if len(ids) != len(pairs) {
		return d.errorf("gave %d output_ids and %d output_token_logprobs", len(ids), len(pairs))
	}
	lps := c.Logprobs
	for i, pair := range pairs {
		id := pair.Get("1")
		if id.Type != gjson.Number || int32(id.Int()) != ids[i] {
			return d.errorf("token %d is %d in output_ids and %s in output_token_logprobs", d.ids+i, ids[i], id.Raw)
		}
		lp := math.NaN()
		if v := pair.Get("0"); v.Type == gjson.Number {
			lp = v.Num
		}
		lps = append(lps, lp)
	}
	c.IDs, c.Logprobs = append(c.IDs, ids...), lps
	d.ids += len(ids)
	return nil
}
