package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/anthropic"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// messages serves /v1/messages.
func (x *exchange) messages() error {
	q, err := anthropic.New().Decode(x.body)
	if err != nil {
		return bad(err.Error())
	}
	if q.Model != x.e.o.Model {
		return &upstream.StatusError{Status: 404, Message: "model: " + q.Model}
	}
	p, err := x.e.assemble(x.r.Context(), q)
	if err != nil {
		return bad(err.Error())
	}
	parsed, err := x.e.parse(x.r.Context(), p, "toolu_")
	if err != nil {
		return err
	}
	defer parsed.parser.Close()
	t := &messageTurn{x: x, q: q, parsed: parsed, stream: anthropic.New().Stream()}
	t.head = &chat.Reply{ID: "msg_" + rand.Text(), Model: q.Model, Usage: chat.Usage{Input: len(p.IDs)}}
	if err := x.run(p, q.Chat.Sampling, p.Stops, t.take); err != nil {
		return err
	}
	if !q.Stream {
		x.w.Header().Set("Content-Type", "application/json")
		_, err = x.w.Write(anthropic.New().Reply(t.reply()))
		return err
	}
	return t.write(func(b *bytes.Buffer) error { return t.stream.Finish(b, t.reply()) })
}

// messageTurn is one reply of /v1/messages.
type messageTurn struct {
	x      *exchange
	q      *wire.Request
	parsed *parsed
	stream wire.Stream
	head   *chat.Reply
	begun  bool
	last   upstream.Chunk
}

func (t *messageTurn) take(c *upstream.Chunk) error {
	deltas := t.parsed.take(c)
	t.last = *c
	if !t.q.Stream {
		return nil
	}
	if !t.begun {
		t.begun = true
		if err := t.write(func(b *bytes.Buffer) error { return t.stream.Start(b, t.head) }); err != nil {
			return err
		}
	}
	return t.write(func(b *bytes.Buffer) error {
		for _, d := range deltas {
			if err := t.stream.Delta(b, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// write sends what f writes, event by event.
func (t *messageTurn) write(f func(*bytes.Buffer) error) error {
	var b bytes.Buffer
	if err := f(&b); err != nil {
		return err
	}
	for _, event := range bytes.SplitAfter(b.Bytes(), []byte("\n\n")) {
		if len(event) == 0 {
			continue
		}
		if err := t.x.send(event); err != nil {
			return err
		}
	}
	return nil
}

// reply is the whole reply.
func (t *messageTurn) reply() *chat.Reply {
	r := *t.head
	r.Parts, r.Finish, r.StopSequence = t.parsed.parts, t.last.Finish.Reason, t.last.StopSequence
	if r.Finish == chat.FinishStop && len(chat.Calls(r.Parts)) > 0 {
		r.Finish = chat.FinishToolCalls
	}
	r.Usage.Output = t.last.OutputTokens
	return &r
}

// countMessages serves /v1/messages/count_tokens.
func (e *Engine) countMessages(w http.ResponseWriter, body []byte) {
	q, err := anthropic.New().(wire.TokenCounter).DecodeCount(body)
	if err != nil {
		e.fail(w, 400, err.Error())
		return
	}
	p, err := e.assemble(context.Background(), q)
	if err != nil {
		e.fail(w, 400, fmt.Sprintf("count: %v", err))
		return
	}
	reply(w, map[string]any{"input_tokens": len(p.IDs)})
}
