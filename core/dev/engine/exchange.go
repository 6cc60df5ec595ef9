package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/openaichat"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// exchange is one request and its answer.
type exchange struct {
	e     *Engine
	w     http.ResponseWriter
	r     *http.Request
	body  []byte
	fault *fault

	events int
	over   bool // nothing may follow
	begun  bool
	runes  sse.Runes
}

// session is what the caller says to be one.
func (x *exchange) session() string {
	for _, name := range []string{"X-Session-Id", "X-Smg-Routing-Key"} {
		if v := x.r.Header.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// refuse answers an error, or cuts an answer that has begun.
func (x *exchange) refuse(err error) {
	if x.begun {
		panic(http.ErrAbortHandler)
	}
	status := http.StatusInternalServerError
	var refused *upstream.StatusError
	if errors.As(err, &refused) {
		if status = refused.Status; refused.RetryAfter > 0 {
			x.w.Header().Set("Retry-After", strconv.Itoa(refused.RetryAfter))
		}
	}
	x.e.fail(x.w, status, err.Error())
}

// sse is an event; Anthropic's have names.
func (x *exchange) sse(name string, data []byte) []byte {
	b := make([]byte, 0, len(data)+64)
	if x.e.o.Kind == Anthropic {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	return append(append(append(b, "data: "...), data...), "\n\n"...)
}

// send sends one event, or what the faults make of it.
func (x *exchange) send(event []byte) error {
	if x.over {
		return nil
	}
	if !x.begun {
		x.begun = true
		x.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		x.w.WriteHeader(http.StatusOK)
	}
	out, on := x.fault.at(x.events, event, x)
	x.events++
	x.over = !on
	if _, err := x.w.Write(out); err != nil {
		return err
	}
	x.flush()
	return nil
}

func (x *exchange) flush() { _ = http.NewResponseController(x.w).Flush() }

// prompt is what the script is asked with.
type prompt struct {
	*token.Prompt
	chat *chat.Conversation
}

// run has the script generate, and gives each chunk to each.
func (x *exchange) run(p *prompt, s chat.Sampling, stops []string, each func(*upstream.Chunk) error) error {
	if n := len(p.IDs); n >= x.e.o.Context {
		return &upstream.StatusError{Status: 400, Message: fmt.Sprintf(
			"This model's maximum context length is %d tokens. However, your request has %d input tokens.", x.e.o.Context, n)}
	}
	ask := &upstream.Request{
		Model: x.e.o.Model, PromptIDs: p.IDs, Prompt: p.Text, LastMessage: p.LastMessage, Chat: p.chat,
		Sampling: s, Stops: stops, WantIDs: true, AffinityKey: x.session(),
	}
	stream, err := x.e.model.Generate(x.r.Context(), ask)
	if err != nil && s.MaxTokens != nil && *s.MaxTokens == 1 {
		stream, err = x.e.probe.Generate(x.r.Context(), ask)
	}
	if err != nil {
		return err
	}
	defer stream.Close()
	output := 0
	for {
		c, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		output += len(c.IDs)
		c.PromptTokens, c.OutputTokens = len(p.IDs), output
		if err := each(&c); err != nil {
			return err
		}
	}
}

// stopped appends the stop string that ended a generation, as an engine does
// that was asked to include it.
func (x *exchange) stopped(c *upstream.Chunk) {
	if c.StopSequence == "" {
		return
	}
	c.Text = append(c.Text, c.StopSequence...)
	ids := x.e.tok.Encode(nil, c.StopSequence, true)
	c.IDs = append(c.IDs[:len(c.IDs):len(c.IDs)], ids...)
	c.Logprobs = c.Logprobs[:len(c.Logprobs):len(c.Logprobs)]
	for range ids {
		c.Logprobs = append(c.Logprobs, -0.5)
	}
	c.OutputTokens += len(ids)
}

// rendered is a prompt that came rendered, as text or as ids.
func (x *exchange) rendered(v gjson.Result) *prompt {
	p := &token.Prompt{}
	if v.IsArray() {
		for _, id := range v.Array() {
			p.IDs = append(p.IDs, int32(id.Int()))
		}
		p.Text = string(x.e.tok.Decode(nil, p.IDs))
	} else {
		p.Text = v.String()
		p.IDs = x.e.tok.Encode(nil, p.Text, true)
	}
	p.LastMessage = newest(p.Text)
	c := &chat.Conversation{}
	for range strings.Count(p.Text, turnOpen+"assistant") - 1 { // for the script's turn
		c.Messages = append(c.Messages, chat.Message{Role: chat.Assistant})
	}
	return &prompt{p, c}
}

// newest is the newest message of a rendered prompt.
func newest(text string) string {
	end := strings.LastIndex(text, turnOpen)
	if end < 0 {
		return text
	}
	text = text[:end]
	return text[max(strings.LastIndex(text, turnOpen), 0):]
}

// render renders the body of a chat request.
func (e *Engine) render(ctx context.Context, body []byte) (*prompt, error) {
	if !gjson.GetBytes(body, "model").Exists() {
		return nil, errors.New("model is required")
	}
	q, err := openaichat.New().Decode(body)
	if err != nil {
		return nil, err
	}
	return e.assemble(ctx, q)
}

func (e *Engine) assemble(ctx context.Context, q *wire.Request) (*prompt, error) {
	p, err := token.Assemble(ctx, e.format, e.tok, &q.Chat, nil)
	if err != nil {
		return nil, err
	}
	return &prompt{p, &q.Chat}, nil
}
