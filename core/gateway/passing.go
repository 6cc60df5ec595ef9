package gateway

import (
	"bytes"
	"slices"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// An upstream that speaks the client's dialect gets the client's bytes, and the
// client those of the reply, so that what only the two of them know survives:
// signatures, cache breakpoints, fields of tomorrow. Only what a hook changed is
// written anew. The parsed reply stands beside the bytes, for the record and for
// hooks that watch.

// raw is the client's own request, nil where the upstream doesn't take it.
func (c *call) raw() *upstream.RawRequest {
	if !c.own {
		return nil
	}
	return &upstream.RawRequest{
		Dialect: c.in.dialect.Name(), Query: c.in.r.URL.RawQuery, Header: c.in.r.Header,
		Body: c.body, Stream: c.req.Stream, Changed: c.changed, Needs: c.req.Needs,
	}
}

// changes are the parts of a conversation that a hook made others of.
func changes(before, after *chat.Conversation) upstream.Changed {
	type tools struct {
		Tools  []chat.Tool
		Choice *chat.Choice
	}
	return upstream.Changed{
		Messages: !sameValue(before.Messages, after.Messages),
		Tools:    !sameValue(tools{before.Tools, before.ToolChoice}, tools{after.Tools, after.ToolChoice}),
		Sampling: !sameValue(before.Sampling, after.Sampling),
	}
}

// sameValue compares what two values are as JSON.
func sameValue(a, b any) bool {
	x, errA := chat.Marshal(a)
	y, errB := chat.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// relay enters what an upstream parsed by itself. The first chunk that says
// anything settles whether the reply is passed on as it came: if there are bytes
// to pass on, and no hook may change them.
func (g *generation) relay(chunk *upstream.Chunk) error {
	if !g.begun && len(chunk.Raw)+len(chunk.Deltas) > 0 {
		g.begun = true
		if len(chunk.Raw) > 0 && !g.served.holdCalls && !g.served.holdReply {
			g.verbatim = true
			g.served.stream, g.served.single = false, false // parts alone
			g.parsed.id = g.c.knowID
		}
	}
	for i := range chunk.Deltas {
		if err := g.parsed.delta(&chunk.Deltas[i]); err != nil {
			return err
		}
	}
	return nil
}

// pass passes a chunk on. The last one is kept back until the call is
// committed, as it ends the reply.
func (g *generation) pass(chunk *upstream.Chunk) {
	if chunk.Finish != (upstream.Finish{}) {
		g.c.tail = chunk.Raw
		if g.c.tail == nil {
			g.c.tail = []byte{}
		}
		return
	}
	g.c.out.pass(chunk.Raw)
}

// answeredBy notes which of several upstreams generates.
func (c *call) answeredBy(u upstream.Upstream) {
	c.rec.Engine = u.Kind()
	info := upstream.InfoOf(u)
	if c.prices = info.Prices; info.Model != "" {
		c.rec.ModelServed = info.Model
	}
}

// knowID enters the id of a tool call that the client gets as it is.
func (c *call) knowID(id string) string {
	c.s.claimID(id)
	return id
}

// notExtended is the class of a prompt that an engine made of a conversation
// that goes on, and that doesn't begin with the ids of the turn before.
const notExtended = "not_extended"

// extends says whether a prompt that the engine tokenized begins with the ids
// of the turn before, sampled ones included.
func (c *call) extends() {
	p := c.link.Parent
	if c.m.Capture != CaptureReported || p == nil || len(p.PromptIDs) == 0 {
		return
	}
	n, m, ids := len(p.PromptIDs), len(p.SampledIDs), c.rec.PromptIDs
	c.rec.Extends = len(ids) >= n+m && slices.Equal(ids[:n], p.PromptIDs) && slices.Equal(ids[n:n+m], p.SampledIDs)
	if !c.rec.Extends && c.rec.Fork == "" {
		c.rec.Fork = notExtended
	}
}
