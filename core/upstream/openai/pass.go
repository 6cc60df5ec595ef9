package openai

import (
	"context"
	"net/http"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// passed are the client's headers that the protocol knows.
var passed = []string{"Openai-Beta"}

// pass sends the client's own bytes, and passes the reply's on as they come.
func (s *server) pass(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
	body, added, err := s.splice(r)
	if err != nil {
		return nil, err
	}
	request := s.post(r, s.api+"/chat/completions", body)
	if r.Raw.Query != "" {
		request.URL += "?" + r.Raw.Query
	}
	for _, name := range passed {
		if v := r.Raw.Header.Values(name); len(v) > 0 {
			request.Header[http.CanonicalHeaderKey(name)] = v
		}
	}
	p := s.progress(r, "/chat/completions")
	p.want = false
	if !r.Raw.Stream {
		answer, err := s.c.Body(ctx, request)
		if err != nil {
			return nil, err
		}
		out, err := p.whole(answer)
		if err != nil {
			return nil, err
		}
		out.(*whole).c.Raw = answer
		return out, nil
	}
	e, err := s.c.Events(ctx, request)
	if err != nil {
		return nil, err
	}
	out := &stream{events: e, p: p, decode: (&reply{progress: p}).event, raw: true}
	if added {
		out.skip = onlyUsage
	}
	return out, nil
}

// onlyUsage is the event that the client did not ask for.
func onlyUsage(data []byte) bool {
	v := gjson.ParseBytes(data)
	return v.Get("usage").IsObject() && v.Get("choices.#").Int() == 0
}

// splice changes of the client's body what has to differ. added says that the
// usage was asked for on our own behalf.
func (s *server) splice(r *upstream.Request) (body []byte, added bool, err error) {
	had := gjson.ParseBytes(r.Raw.Body)
	var set []exchange.Field
	if want := s.model(r); had.Get("model").String() != want {
		set = append(set, exchange.Field{Name: "model", Value: exchange.AppendString(nil, want)})
	}
	if r.Raw.Changed.Messages {
		messages, err := s.messages(r.Chat)
		if err != nil {
			return nil, false, err
		}
		set = append(set, exchange.Field{Name: "messages", Value: messages})
	}
	if r.Raw.Changed.Tools {
		fields, err := s.changedTools(r.Chat)
		if err != nil {
			return nil, false, err
		}
		set = append(set, fields...)
	}
	limit := s.maxTokens()
	for _, name := range []string{"max_completion_tokens", "max_tokens"} {
		if v := had.Get(name); v.Exists() && v.Type != gjson.Null {
			limit = name
			break
		}
	}
	set = append(set, exchange.Sampling(had, r.Sampling, exchange.Names{MaxTokens: limit, Seed: "seed", Stop: "stop", TopK: !s.company, Exact: r.Raw.Changed.Sampling})...)
	if usage := had.Get("stream_options.include_usage"); r.Raw.Stream && !usage.Bool() {
		added = true
		set = append(set, exchange.Field{Name: "stream_options", Value: []byte(`{"include_usage":true}`)})
	}
	body, err = exchange.Splice(r.Raw.Body, set)
	return body, added, err
}

// changedTools writes the tools anew; without any, nothing of them stays.
func (s *server) changedTools(c *chat.Conversation) ([]exchange.Field, error) {
	out := []exchange.Field{{Name: "tools"}, {Name: "tool_choice"}, {Name: "parallel_tool_calls"}}
	o := exchange.NewObject(1024)
	if err := s.tools(o, c); err != nil {
		return nil, err
	}
	written := gjson.ParseBytes(o.Bytes())
	for i := range out {
		if v := written.Get(out[i].Name); v.Exists() {
			out[i].Value = []byte(v.Raw)
		}
	}
	return out, nil
}
