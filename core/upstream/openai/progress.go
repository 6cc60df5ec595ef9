package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// progress is what is known of a reply so far, and what has to agree in it.
type progress struct {
	s     *server
	where string // the endpoint
	want  bool   // ids and logprobs
	sent  []int32
	stops []string // the client's own
	trim  trim

	ids          int // tokens so far
	promptSeen   bool
	promptTokens int
	outputTokens int // the engine's own count
	cachedTokens int
	cost         *float64 // what the server charges, where it says so
	finish       upstream.Finish
	stopped      string
	said         string // the stop string that the engine named
}

func (s *server) progress(r *upstream.Request, where string) *progress {
	p := &progress{s: s, where: where, want: r.WantIDs, sent: r.PromptIDs, stops: r.Sampling.Stop}
	if s.engine && s.o.OwnFormat {
		p.trim.watch(r.Sampling.Stop, r.Stops)
	}
	return p
}

// errorf is an error about what the server sent.
func (p *progress) errorf(format string, a ...any) error {
	return fmt.Errorf("%s: %s: %s", p.s.info.Server, p.where, fmt.Sprintf(format, a...))
}

// open checks that an event is JSON and tells of no error.
func (p *progress) open(v gjson.Result, data []byte) error {
	if !v.IsObject() || !gjson.ValidBytes(data) {
		return p.errorf("sent an event that is no JSON object: %s", p.s.c.Excerpt(data))
	}
	e := v.Get("error")
	if !e.IsObject() && e.Type != gjson.String && v.Get("object").Str != "error" {
		return nil
	}
	status := 500
	for _, path := range []string{"error.code", "error.status", "code"} {
		if n := v.Get(path).Int(); n >= 400 && n < 600 {
			status = int(n)
			break
		}
	}
	return p.s.c.Refused(status, data)
}

// prompt takes the prompt's ids, which have to be those that were sent.
func (p *progress) prompt(v gjson.Result, c *upstream.Chunk) error {
	if !p.want || !v.IsArray() || p.promptSeen {
		return nil
	}
	ids, err := integers(nil, v.Raw)
	if err != nil {
		return p.errorf("prompt_token_ids: %v", err)
	}
	p.promptSeen = true
	if p.sent != nil && !slices.Equal(ids, p.sent) {
		return p.errorf("the engine read %d prompt ids that aren't the %d that were sent", len(ids), len(p.sent))
	}
	c.PromptIDs = ids
	return nil
}

// tokens takes token ids and the logprobs that stand beside them, in the form
// of either endpoint. What doesn't agree leaves c as it was.
func (p *progress) tokens(ids, logprobs gjson.Result, c *upstream.Chunk) error {
	if !p.want {
		return nil
	}
	from := len(c.IDs)
	t := &named{p: p, c: c, from: from}
	var err error
	if ids.IsArray() {
		c.IDs, err = integers(c.IDs, ids.Raw)
	} else {
		t.only = true // an engine may only name them
	}
	if err == nil {
		err = t.all(logprobs)
	}
	if err == nil && len(c.IDs)-from != t.n {
		err = fmt.Errorf("gave %d token_ids and %d logprobs in one event", len(c.IDs)-from, t.n)
	}
	if err != nil {
		c.IDs, c.Logprobs = c.IDs[:from], c.Logprobs[:from]
		return p.errorf("%v", err)
	}
	p.ids += t.n
	return nil
}

// named takes the logprobs of one event, which name their tokens.
type named struct {
	p    *progress
	c    *upstream.Chunk
	from int  // where the event's ids begin
	only bool // the names are all there is
	n    int
}

func (t *named) all(logprobs gjson.Result) (err error) {
	if content := logprobs.Get("content"); content.IsArray() {
		content.ForEach(func(_, v gjson.Result) bool {
			err = t.one(v.Get("token").Str, v.Get("logprob"))
			return err == nil
		})
		return err
	}
	names := logprobs.Get("tokens").Array()
	for i, v := range logprobs.Get("token_logprobs").Array() {
		name := ""
		if i < len(names) {
			name = names[i].Str
		}
		if err := t.one(name, v); err != nil {
			return err
		}
	}
	return nil
}

func (t *named) one(name string, value gjson.Result) error {
	id, isID := tokenID(name)
	at := t.from + t.n
	switch {
	case t.only && !isID:
		return fmt.Errorf("gave no token_ids, and logprobs name a token %.40q", name)
	case t.only:
		t.c.IDs = append(t.c.IDs, id)
	case at < len(t.c.IDs) && isID && t.c.IDs[at] != id:
		return fmt.Errorf("token %d is %d in token_ids and %d in logprobs", t.p.ids+t.n, t.c.IDs[at], id)
	}
	lp := math.NaN()
	if value.Type == gjson.Number {
		lp = value.Num
	}
	t.c.Logprobs = append(t.c.Logprobs, lp)
	t.n++
	return nil
}

// tokenID reads the name "token_id:N".
func tokenID(name string) (int32, bool) {
	digits, ok := strings.CutPrefix(name, "token_id:")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	return int32(n), err == nil
}

// usage takes the engine's own counts.
func (p *progress) usage(v gjson.Result) {
	if !v.IsObject() {
		return
	}
	p.promptTokens = int(v.Get("prompt_tokens").Int())
	p.outputTokens = int(v.Get("completion_tokens").Int())
	p.cachedTokens = int(v.Get("prompt_tokens_details.cached_tokens").Int())
	for _, path := range []string{"cost", "cost.total_cost"} { // as OpenRouter writes it, and Perplexity
		if n := v.Get(path); n.Type == gjson.Number && n.Num >= 0 {
			p.cost = &n.Num
		}
	}
}

// ends notes why the reply ended.
func (p *progress) ends(reason, said string) {
	p.finish = upstream.Finish{Raw: reason, Reason: chat.FinishError}
	switch reason {
	case "stop", "eos":
		p.finish.Reason = chat.FinishStop
	case "length", "max_tokens":
		p.finish.Reason = chat.FinishLength
	case "tool_calls", "function_call":
		p.finish.Reason = chat.FinishToolCalls
	case "content_filter":
		p.finish.Reason = chat.FinishRefusal
	}
	p.said = said
}

// last completes the chunk that ends a reply.
func (p *progress) last(c *upstream.Chunk) error {
	if p.finish == (upstream.Finish{}) {
		return p.errorf("the stream ended without a finish_reason")
	}
	if p.want {
		switch {
		case p.ids == 0 && p.outputTokens > 0:
			return p.errorf("gave no token ids")
		case p.outputTokens > 0 && p.outputTokens != p.ids && p.s.o.Kind != KindLMDeploy: // which counts otherwise at a stop
			return p.errorf("counts %d completion_tokens and gave the ids of %d", p.outputTokens, p.ids)
		}
	}
	if p.finish.Reason == chat.FinishStop {
		c.Text, p.stopped = p.trim.stop(c.Text, p.said)
		if p.stopped == "" && slices.Contains(p.stops, p.said) {
			p.stopped = p.said
		}
		if p.stopped != "" {
			p.finish.Reason = chat.FinishStopSequence
		}
	} else {
		c.Text = p.trim.flush(c.Text)
	}
	c.Finish, c.StopSequence = p.finish, p.stopped
	c.PromptTokens, c.OutputTokens, c.CachedTokens, c.Cost = p.promptTokens, p.outputTokens, p.cachedTokens, p.cost
	return nil
}

// integers appends the ids of a JSON list of integers to dst.
func integers(dst []int32, raw string) ([]int32, error) {
	n := int64(-1)
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c >= '0' && c <= '9':
			if n = max(n, 0)*10 + int64(c-'0'); n > math.MaxInt32 {
				return dst, fmt.Errorf("an id is too large")
			}
		case c == ',' || c == ']' || c == ' ' || c == '[' || c == '\n' || c == '\r' || c == '\t':
			if n >= 0 {
				dst = append(dst, int32(n))
			}
			n = -1
		default:
			return dst, fmt.Errorf("%q is no list of ids", raw[:min(len(raw), 40)])
		}
	}
	return dst, nil
}

// text of a JSON string value that holds arguments which aren't JSON.
func rawArguments(p *chat.Part) string {
	if p.ArgumentsRaw {
		var s string
		if json.Unmarshal(p.Arguments, &s) == nil {
			return s
		}
	}
	if len(p.Arguments) == 0 {
		return "{}"
	}
	return string(p.Arguments)
}
