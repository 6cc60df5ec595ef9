package openai

import (
	"context"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
)

// complete asks /v1/completions.
func (s *server) complete(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
	p := s.progress(r, "/completions")
	e, err := s.c.Events(ctx, s.post(r, s.api+"/completions", s.completion(r)))
	if err != nil {
		return nil, err
	}
	return &stream{events: e, p: p, decode: (&completion{p}).event}, nil
}

func (s *server) completion(r *upstream.Request) []byte {
	size := len(r.Prompt)/8*9 + 512 // escapes are few
	if r.PromptIDs != nil {
		size = 8*len(r.PromptIDs) + 512
	}
	o := exchange.NewObject(size)
	o.String("model", s.model(r))
	if r.PromptIDs != nil {
		o.IDs("prompt", r.PromptIDs)
	} else {
		o.String("prompt", r.Prompt)
	}
	o.Int("max_tokens", int64(s.room(r.Sampling.MaxTokens, len(r.PromptIDs))))
	s.sampling(o, r, "seed", -1)
	if stop := stops(r); len(stop) > 0 {
		o.Strings("stop", stop)
	}
	if s.engine {
		o.Bool("skip_special_tokens", false).Bool("spaces_between_special_tokens", false)
		o.Bool("include_stop_str_in_output", true)
		o.Bool("add_special_tokens", false) // the prompt has them
	}
	if s.o.Kind == KindVLLM && r.Guide != nil {
		if s.oldGuides() {
			o.Raw("guided_json", r.Guide)
		} else {
			o.Raw("structured_outputs", exchange.NewObject(len(r.Guide)+16).Raw("json", r.Guide).Bytes())
		}
	}
	if r.WantIDs {
		o.Bool("return_token_ids", true).Int("logprobs", 0).Bool("return_tokens_as_token_ids", true)
	}
	o.Bool("stream", true).Raw("stream_options", []byte(`{"include_usage":true}`))
	return o.Bytes()
}

// oldGuides reports whether a vLLM is older than 0.11, which knows guided_json
// alone. One that doesn't say is taken for a newer one.
func (s *server) oldGuides() bool {
	var major, minor int
	if _, err := fmt.Sscanf(s.info.Version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major == 0 && minor < 11
}

// stops are all strings at which generation ends, each once.
func stops(r *upstream.Request) []string {
	var out []string
	for _, list := range [][]string{r.Stops, r.Sampling.Stop} {
		for _, s := range list {
			if s != "" && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// room is how many tokens may be asked for after a prompt of n, 0 for one
// whose length isn't known.
func (s *server) room(most *int, n int) int {
	rest := 0
	if s.info.Context > 0 && n > 0 {
		rest = max(s.info.Context-n, 1)
	}
	switch {
	case most == nil && rest > 0:
		return rest
	case most == nil:
		return s.o.MaxTokens
	case rest > 0:
		return min(*most, rest)
	}
	return *most
}

// sampling adds how tokens are drawn. off is the engine's word for no top_k.
func (s *server) sampling(o *exchange.Object, r *upstream.Request, seed string, off int) {
	v := r.Sampling
	if r.WantIDs {
		one := 1.0
		for _, p := range []**float64{&v.Temperature, &v.TopP} {
			if *p == nil {
				*p = &one
			}
		}
		if v.TopK == nil {
			v.TopK = &off
		}
		o.Float("min_p", 0).Float("repetition_penalty", 1)
	}
	if v.Temperature != nil {
		o.Float("temperature", *v.Temperature)
	}
	if v.TopP != nil {
		o.Float("top_p", *v.TopP)
	}
	if v.TopK != nil && !s.company {
		o.Int("top_k", int64(*v.TopK))
	}
	if v.Seed != nil {
		o.Int(seed, *v.Seed)
	}
}

// completion reads the events of /v1/completions.
type completion struct{ *progress }

func (d *completion) event(data []byte, c *upstream.Chunk) error {
	v := gjson.ParseBytes(data)
	if err := d.open(v, data); err != nil {
		return err
	}
	choice := v.Get("choices.0")
	if choice.Exists() {
		if err := d.prompt(choice.Get("prompt_token_ids"), c); err != nil {
			return err
		}
		if err := d.tokens(choice.Get("token_ids"), choice.Get("logprobs"), c); err != nil {
			return err
		}
		c.Text = d.trim.push(c.Text, choice.Get("text").String())
		if reason := choice.Get("finish_reason").String(); reason != "" {
			d.ends(reason, matched(choice))
		}
	}
	d.usage(v.Get("usage"))
	return nil
}

// matched is the stop string that an engine says it found, "" for a token or
// for none.
func matched(choice gjson.Result) string {
	for _, name := range []string{"stop_reason", "matched_stop"} {
		if v := choice.Get(name); v.Type == gjson.String {
			return v.Str
		}
	}
	return ""
}
