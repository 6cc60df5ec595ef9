package anthropic

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// reply reads the events of a reply.
type reply struct {
	s     *server
	parts int    // ended so far
	block int    // the server's index of the open block, -1 for one that has no part
	kind  string // of the open block, "" for none
	any   bool   // the open block has its part
	stop  string
	text  string // the stop sequence
	begun bool
	ended bool // by message_stop

	prompt, output, cached, written int
}

var statuses = map[string]int{
	"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
	"not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500,
	"timeout_error": 504, "overloaded_error": 529,
}

func (d *reply) errorf(format string, a ...any) error {
	return fmt.Errorf("%s: /messages: %s", d.s.info.Server, fmt.Sprintf(format, a...))
}

// event takes one event into c.
func (d *reply) event(data []byte, c *upstream.Chunk) error {
	v := gjson.ParseBytes(data)
	if !v.IsObject() || !gjson.ValidBytes(data) {
		return d.errorf("sent an event that is no JSON object: %s", d.s.c.Excerpt(data))
	}
	switch kind := v.Get("type").Str; kind {
	case "error":
		status := statuses[v.Get("error.type").Str]
		if status == 0 {
			status = 500
		}
		return d.s.c.Refused(status, data)
	case "message_start":
		d.begun = true
		d.usage(v.Get("message.usage"))
		d.count(c) // what a reply that is cut has cost so far
	case "content_block_start":
		return d.start(int(v.Get("index").Int()), v.Get("content_block"), c)
	case "content_block_delta":
		return d.delta(int(v.Get("index").Int()), v.Get("delta"), c)
	case "content_block_stop":
		d.close(c)
	case "message_delta":
		d.usage(v.Get("usage"))
		if reason := v.Get("delta.stop_reason").String(); reason != "" {
			d.close(c)
			d.stop, d.text = reason, v.Get("delta.stop_sequence").String()
		}
	case "message_stop":
		d.ended = true
	}
	return nil // pings, and what isn't known yet
}

func (d *reply) usage(v gjson.Result) {
	if n := v.Get("input_tokens"); n.Exists() {
		d.cached, d.written = int(v.Get("cache_read_input_tokens").Int()), int(v.Get("cache_creation_input_tokens").Int())
		d.prompt = int(n.Int()) + d.cached + d.written
	}
	if n := v.Get("output_tokens"); n.Exists() {
		d.output = int(n.Int())
	}
}

// count gives a chunk the counts so far.
func (d *reply) count(c *upstream.Chunk) {
	c.PromptTokens, c.OutputTokens, c.CachedTokens, c.CacheWriteTokens = d.prompt, d.output, d.cached, d.written
}

// start opens a block. One of a kind that the canonical form doesn't have is
// passed over; it is in Raw.
func (d *reply) start(index int, block gjson.Result, c *upstream.Chunk) error {
	if d.kind != "" {
		return d.errorf("began block %d within block %d", index, d.block)
	}
	d.block, d.kind, d.any = index, block.Get("type").Str, false
	switch d.kind {
	case "text":
		d.add(c, chat.DeltaText, block.Get("text").Str)
	case "thinking":
		d.add(c, chat.DeltaReasoning, block.Get("thinking").Str)
		d.add(c, chat.DeltaSignature, block.Get("signature").Str)
	case "redacted_thinking":
		d.add(c, chat.DeltaRedacted, block.Get("data").Str)
	case "tool_use":
		d.any = true
		c.Deltas = append(c.Deltas, chat.Delta{Type: chat.DeltaCallStart, Part: d.parts, ID: block.Get("id").Str, Name: block.Get("name").Str})
		if input := block.Get("input"); input.IsObject() && len(input.Map()) > 0 {
			d.add(c, chat.DeltaCallArgs, input.Raw)
		}
	default:
		d.kind = "other"
	}
	return nil
}

func (d *reply) delta(index int, delta gjson.Result, c *upstream.Chunk) error {
	if d.kind == "" || index != d.block {
		return d.errorf("sent a delta of block %d, which isn't open", index)
	}
	if d.kind == "other" {
		return nil
	}
	switch delta.Get("type").Str {
	case "text_delta":
		d.add(c, chat.DeltaText, delta.Get("text").Str)
	case "thinking_delta":
		d.add(c, chat.DeltaReasoning, delta.Get("thinking").Str)
	case "signature_delta":
		d.add(c, chat.DeltaSignature, delta.Get("signature").Str)
	case "input_json_delta":
		d.add(c, chat.DeltaCallArgs, delta.Get("partial_json").Str)
	}
	return nil
}

func (d *reply) add(c *upstream.Chunk, t chat.DeltaType, text string) {
	if text != "" {
		d.any = true
		c.Deltas = append(c.Deltas, chat.Delta{Type: t, Part: d.parts, Text: text})
	}
}

// close ends the open block. One that held nothing is no part.
func (d *reply) close(c *upstream.Chunk) {
	if d.kind != "" && d.any {
		c.Deltas = append(c.Deltas, chat.Delta{Type: chat.DeltaPartEnd, Part: d.parts})
		d.parts++
	}
	d.kind = ""
}

// last completes the chunk that ends a reply.
func (d *reply) last(c *upstream.Chunk) error {
	if !d.ended || d.stop == "" {
		return d.errorf("the stream ended without a stop_reason and message_stop")
	}
	c.Finish = upstream.Finish{Raw: d.stop, Reason: chat.FinishStop}
	switch d.stop {
	case "max_tokens", "model_context_window_exceeded":
		c.Finish.Reason = chat.FinishLength
	case "tool_use":
		c.Finish.Reason = chat.FinishToolCalls
	case "stop_sequence":
		c.Finish.Reason, c.StopSequence = chat.FinishStopSequence, d.text
	case "refusal":
		c.Finish.Reason = chat.FinishRefusal
	}
	d.count(c)
	return nil
}

// whole reads a reply that came in one piece, which the client gets as it is.
func (d *reply) whole(body []byte) (upstream.Stream, error) {
	v := gjson.ParseBytes(body)
	if !v.IsObject() || !gjson.ValidBytes(body) || !v.Get("content").IsArray() {
		return nil, d.errorf("answered with no message: %s", d.s.c.Excerpt(body))
	}
	c := upstream.Chunk{Raw: body}
	d.usage(v.Get("usage"))
	var err error
	v.Get("content").ForEach(func(i, block gjson.Result) bool {
		err = d.start(int(i.Int()), block, &c)
		d.close(&c)
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	d.stop, d.text, d.ended = v.Get("stop_reason").String(), v.Get("stop_sequence").String(), true
	if err := d.last(&c); err != nil {
		return nil, err
	}
	return &stream{first: &c}, nil
}

// stream is a reply as it comes.
type stream struct {
	events *exchange.Events // nil for a reply that is here whole
	reply  *reply
	raw    bool
	mark   int // where in Raw the end of the reply begins
	first  *upstream.Chunk
	err    error // what comes after the chunk that is out
}

// Next implements upstream.Stream. Events that are here together make one
// chunk. The last chunk comes when the stream is known to be whole.
func (s *stream) Next() (upstream.Chunk, error) {
	if s.first != nil {
		c := *s.first
		s.first, s.err = nil, io.EOF
		return c, nil
	}
	if s.err != nil {
		return upstream.Chunk{}, s.err
	}
	var c upstream.Chunk
	for {
		err := s.event(&c)
		if err == nil && s.reply.ended {
			s.events.Drain()
			if err = s.reply.last(&c); err == nil {
				s.err = io.EOF
				return c, nil
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return s.cut(&c, s.reply.last(&c))
		case err != nil:
			return s.cut(&c, err)
		case s.reply.stop == "" && !empty(&c) && !s.events.Ready():
			return c, nil
		}
	}
}

// cut gives what came before an error, and the error after it. Bytes that
// would end the reply are kept back.
func (s *stream) cut(c *upstream.Chunk, err error) (upstream.Chunk, error) {
	s.err = err
	if s.reply.stop != "" {
		c.Raw = c.Raw[:min(s.mark, len(c.Raw))]
	}
	c.Finish, c.StopSequence = upstream.Finish{}, ""
	if empty(c) {
		return upstream.Chunk{}, err
	}
	return *c, nil
}

func (s *stream) event(c *upstream.Chunk) error {
	ev, err := s.events.Next()
	if err != nil {
		return err
	}
	before, stop := len(c.Raw), s.reply.stop
	data := ev.Data
	if strings.TrimSpace(string(data[:min(len(data), 8)])) == "[DONE]" {
		return nil // of servers that speak both protocols
	}
	err = s.reply.event(data, c)
	if err == nil && s.raw {
		c.Raw = append(c.Raw, ev.Raw...)
	}
	if stop == "" && s.reply.stop != "" {
		s.mark = before
	}
	return err
}

func empty(c *upstream.Chunk) bool { return len(c.Deltas) == 0 && len(c.Raw) == 0 }

// Close implements upstream.Stream.
func (s *stream) Close() error {
	if s.events == nil {
		return nil
	}
	return s.events.Close()
}
