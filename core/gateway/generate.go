package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// generation is one reply as it comes: from the upstream's chunks through
// the parser to the parts that are served.
type generation struct {
	c      *call
	parser format.Parser // nil where the upstream parses by itself
	died   bool          // the parser's transport died once
	parsed *parsed
	served *serving
	events []format.Event

	raw      []byte // sampled text
	reply    []byte // in the client's own dialect, as it came
	ids      []int32
	logprobs []float64
	last     upstream.Chunk // the one with the reason to stop

	begun    bool // it is settled whether the reply is
	verbatim bool // passed on as it came
}

// generate has the reply generated, streams it as it comes, and commits the
// call before the reply's end goes out.
func (c *call) generate() *failure {
	head := c.head()
	c.open(head)
	stream, err := c.m.Upstream.Generate(c.ctx, c.request())
	if err != nil {
		c.rec.Usage = chat.Usage{}
		return c.upstreamFailure(err)
	}
	defer stream.Close()
	c.settle(true)
	if a, ok := stream.(upstream.Answered); ok {
		c.answeredBy(a.By())
	}

	g := &generation{c: c, served: newServing(c)}
	g.parsed = &parsed{sink: g.served, id: c.claimID}
	if c.m.Format != nil {
		if g.parser, err = g.open(); err != nil {
			return g.failed(fail(trace.CallError, wire.Internal, "open format %s: %v", c.m.FormatName, err))
		}
		defer func() { g.parser.Close() }()
	}
	if f := g.read(stream); f != nil {
		return g.failed(f)
	}
	return g.finish(head)
}

// head is the opening of the reply.
func (c *call) head() *chat.Reply {
	return &chat.Reply{ID: c.first.id, Model: c.m.served(), Usage: chat.Usage{Input: c.rec.Usage.Input}}
}

// open accepts a streamed reply, if one is wanted.
func (c *call) open(head *chat.Reply) {
	if c.req.Stream {
		c.out.open(wire.StreamFor(c.in.dialect.Dialect, c.req), head)
	}
}

func (c *call) request() *upstream.Request {
	return &upstream.Request{
		Model:     c.m.Name,
		Raw:       c.raw(),
		PromptIDs: c.prompt.IDs, Prompt: c.prompt.Text, LastMessage: c.prompt.LastMessage,
		Chat: c.conv, Sampling: c.rec.Effective, Stops: c.prompt.Stops,
		WantIDs: c.m.training(), AffinityKey: c.s.ID(), Guide: c.guide(),
	}
}

// claimID makes the id of a tool call one that the session doesn't have yet.
func (c *call) claimID(id string) string {
	for id == "" || !c.s.claimID(id) {
		id = newCallID()
	}
	return id
}

func newCallID() string { return "call_" + randomHex(12) }

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// open opens a parser for the reply.
func (g *generation) open() (format.Parser, error) {
	c := g.c
	return c.m.Format.Open(c.ctx, &format.ParseOptions{
		Tools: c.conv.Tools, State: c.prompt.State, Choice: c.conv.ToolChoice, NewID: newCallID,
	})
}

// read reads the upstream to its end, whether the client still listens or
// not.
func (g *generation) read(stream upstream.Stream) *failure {
	for {
		chunk, err := stream.Next()
		if err != nil {
			return g.cut(err)
		}
		g.c.s.touch()
		g.take(&chunk)
		if err := g.enter(&chunk); err != nil {
			return fail(trace.CallError, wire.Internal, "%v", err)
		}
		if g.verbatim {
			g.pass(&chunk)
		} else if !chunk.More {
			if err := g.c.out.deltas(g.served.take()); err != nil {
				return fail(trace.CallError, wire.Internal, "write the reply: %v", err)
			}
		}
		if chunk.Finish != (upstream.Finish{}) {
			g.last = chunk
			return nil
		}
	}
}

// cut is the failure of a generation that ended before its end.
func (g *generation) cut(err error) *failure {
	if errors.Is(err, io.EOF) {
		return fail(trace.CallError, wire.Upstream, "upstream ended without a reason")
	}
	return g.c.upstreamFailure(fmt.Errorf("the reply was cut: %w", err))
}

// take keeps what a chunk brought.
func (g *generation) take(chunk *upstream.Chunk) {
	rec := g.c.rec
	if rec.FirstByte.IsZero() {
		rec.FirstByte = time.Now()
	}
	g.raw = append(g.raw, chunk.Text...)
	g.reply = append(g.reply, chunk.Raw...)
	g.ids = append(g.ids, chunk.IDs...)
	if chunk.Logprobs != nil || g.logprobs != nil {
		for len(g.logprobs) < len(g.ids)-len(chunk.IDs) {
			g.logprobs = append(g.logprobs, math.NaN())
		}
		g.logprobs = append(g.logprobs, chunk.Logprobs[:min(len(chunk.Logprobs), len(chunk.IDs))]...)
		for len(g.logprobs) < len(g.ids) {
			g.logprobs = append(g.logprobs, math.NaN())
		}
	}
	if chunk.WeightVersion != "" {
		rec.Weights = chunk.WeightVersion
	}
	if len(chunk.PromptIDs) > 0 && g.c.m.Capture == CaptureReported {
		rec.PromptIDs = chunk.PromptIDs
		rec.Usage.Input = len(rec.PromptIDs)
	}
	if chunk.PromptTokens > 0 && rec.PromptIDs == nil {
		rec.Usage.Input = chunk.PromptTokens
	}
	rec.Usage.Cached = max(rec.Usage.Cached, chunk.CachedTokens)
	rec.Usage.CacheWrite = max(rec.Usage.CacheWrite, chunk.CacheWriteTokens)
	if chunk.Cost != nil {
		g.c.billed = chunk.Cost
	}
	rec.Usage.Output = max(len(g.ids), rec.Usage.Output)
	if g.ids == nil {
		rec.Usage.Output = max(rec.Usage.Output, chunk.OutputTokens)
	}
	g.c.out.counted(rec.Usage.Input, rec.Usage.Cached, rec.Usage.CacheWrite)
}

// enter takes what a chunk adds to the reply.
func (g *generation) enter(chunk *upstream.Chunk) error {
	if g.parser == nil {
		return g.relay(chunk)
	}
	return g.feed(chunk.Text)
}

// feed parses a chunk. A parser whose transport died is opened again once,
// and given all that was sampled so far.
func (g *generation) feed(text []byte) error {
	return g.parse(func(p format.Parser, dst []format.Event) []format.Event { return p.Feed(dst, text) })
}

func (g *generation) parse(step func(format.Parser, []format.Event) []format.Event) error {
	g.events = step(g.parser, g.events[:0])
	err := g.parser.Err()
	if err == nil {
		return g.parsed.applyAll(g.events)
	}
	return g.again(err, step)
}

// again repeats the parse on a fresh parser. The events of the step that
// died are not used; the raw text holds the step's chunk already.
func (g *generation) again(died error, step func(format.Parser, []format.Event) []format.Event) error {
	if g.died {
		return fmt.Errorf("the format failed for the second time: %w", died)
	}
	g.died = true
	g.c.g.log.Warn("format failed, its parse is repeated", "call", g.c.rec.ID, "format", g.c.m.FormatName, "error", died)
	g.parser.Close()
	parser, err := g.open()
	if err != nil {
		return fmt.Errorf("the format failed: %w; opened again: %w", died, err)
	}
	g.parser = parser
	fresh := &parsed{id: func(id string) string { return id }}
	g.events = parser.Feed(g.events[:0], g.raw)
	if g.last.Finish != (upstream.Finish{}) {
		g.events = step(parser, g.events)
	}
	if err := parser.Err(); err != nil {
		return fmt.Errorf("the format failed for the second time: %w", err)
	}
	if err := fresh.applyAll(g.events); err != nil {
		return err
	}
	if err := fresh.resume(g.parsed); err != nil {
		return fmt.Errorf("the format failed: %w; then %w", died, err)
	}
	g.parsed = fresh
	return nil
}

// keep enters what was sampled into the record.
func (g *generation) keep() {
	rec := g.c.rec
	rec.Raw, rec.RawReply = string(g.raw), g.reply
	rec.SampledIDs, rec.Logprobs = g.ids, g.logprobs
	rec.Finish = g.last.Finish.Raw
	if rec.Usage.Output == 0 && g.ids == nil && g.parser != nil && g.c.m.Tokenizer != nil {
		rec.Usage.Output = len(g.c.m.Tokenizer.Encode(nil, rec.Raw, true))
	}
	if g.parsed != nil {
		rec.Spans, rec.Warnings = g.parsed.spans, append(rec.Warnings, g.parsed.warnings...)
	}
}

// failed keeps what was sampled of a reply that isn't whole. Of an upstream that
// parses by itself that is what it had parsed.
func (g *generation) failed(f *failure) *failure {
	g.keep()
	if rec := g.c.rec; g.parser == nil && g.parsed != nil {
		g.parsed.sink = nil
		g.parsed.end()
		if len(g.parsed.parts) > 0 {
			rec.Parsed = &chat.Reply{ID: g.c.first.id, Model: g.c.m.served(), Parts: g.parsed.parts, Finish: chat.FinishError, Usage: rec.Usage}
		}
	}
	return f
}

// finish ends the reply: parse, hooks, commit, and then its end.
func (g *generation) finish(head *chat.Reply) *failure {
	c, rec := g.c, g.c.rec
	if g.parser != nil {
		if err := g.parse(func(p format.Parser, dst []format.Event) []format.Event { return p.Finish(dst) }); err != nil {
			return g.failed(fail(trace.CallError, wire.Internal, "%v", err))
		}
	}
	if err := g.parsed.finish(); err != nil {
		return g.failed(fail(trace.CallError, wire.Internal, "%v", err))
	}
	g.keep()
	if f := g.complete(); f != nil {
		return f
	}
	if f := g.kept(); f != nil {
		return g.failed(f)
	}
	g.served.awaits = false
	reason, stop := g.reason()
	rec.Parsed = &chat.Reply{
		ID: head.ID, Model: head.Model, Parts: g.parsed.parts,
		Finish: finishOf(reason, g.parsed.parts), StopSequence: stop, Usage: rec.Usage,
	}
	served := *rec.Parsed
	served.Parts, served.Finish = g.served.parts, finishOf(reason, g.served.parts)
	rec.Served = c.hookReply(&served)
	if c.ctx.Err() != nil {
		return c.cancelled()
	}
	if g.served.holdReply {
		g.served.all(rec.Served.Parts)
	}
	if err := c.out.deltas(g.served.take()); err != nil {
		return fail(trace.CallError, wire.Internal, "write the reply: %v", err)
	}
	rec.Status = trace.CallOK
	c.extends()
	if err := c.commit(200); err != nil {
		c.g.log.Error("a call could not be recorded", "call", rec.ID, "error", err)
		return fail(trace.CallError, wire.Internal, "the call could not be recorded")
	}
	c.s.graph.Add(c.link, &c.req.Chat, rec.Served, trace.Node{
		Call: rec.ID, Lineage: rec.Lineage, Kind: rec.Kind,
		PromptIDs: rec.PromptIDs, SampledIDs: rec.SampledIDs, Ended: g.ended(),
	})
	c.link = nil
	return c.deliver()
}

// complete checks that a reply has what its record needs.
func (g *generation) complete() *failure {
	switch {
	case g.last.Finish.Reason == chat.FinishError || g.last.Finish.Reason == "":
		return fail(trace.CallError, wire.Upstream, "upstream ended the reply with %q", g.last.Finish.Raw)
	case g.c.m.training() && (len(g.raw) > 0 || len(g.parsed.parts) > 0) && len(g.ids) == 0:
		return fail(trace.CallError, wire.Upstream, "upstream gave no token ids, and capture is %s", g.c.m.Capture)
	case g.c.m.training() && len(g.c.rec.PromptIDs) == 0:
		return fail(trace.CallError, wire.Upstream, "upstream gave no ids of the prompt, and capture is %s", g.c.m.Capture)
	}
	return nil
}

// reason is why the model stopped. A stop sequence counts as one only if the
// client knows it.
func (g *generation) reason() (chat.Finish, string) {
	reason, stop := g.last.Finish.Reason, g.last.StopSequence
	if stop != "" && slices.Contains(g.c.rec.Effective.Stop, stop) {
		return chat.FinishStopSequence, stop
	}
	if reason == chat.FinishStopSequence {
		reason = chat.FinishStop
	}
	return reason, ""
}

// ended says how the sampled tokens end, which the next turn's prompt builds
// on.
func (g *generation) ended() format.Ended {
	if g.last.Finish.Reason == chat.FinishLength {
		return format.EndedLength
	}
	for _, stop := range g.c.prompt.Stops {
		if stop != "" && bytes.HasSuffix(g.raw, []byte(stop)) {
			return format.EndedStop
		}
	}
	return format.EndedOther
}

// deliver writes the end of a reply that is committed.
func (c *call) deliver() *failure {
	out, err := c.end(c.rec.Served)
	if err != nil {
		return fail(trace.CallError, wire.Internal, "write the reply: %v", err)
	}
	c.s.repeats.finish(c.first, c.rec.Served, out)
	if out {
		c.delivered(c.rec.ID)
	}
	return nil
}

// end writes the end of a streamed reply, or the whole one; true when it went
// out.
func (c *call) end(r *chat.Reply) (bool, error) {
	switch {
	case c.tail != nil && c.req.Stream:
		return c.out.finishRaw(c.tail), nil
	case c.tail != nil:
		return c.out.whole(c.tail), nil
	case c.req.Stream:
		return c.out.finish(r)
	}
	return c.out.whole(wire.ReplyFor(c.in.dialect.Dialect, c.req, r)), nil
}

// delivered marks calls as delivered, without keeping the client from its
// next one. The session waits for it.
func (c *call) delivered(ids ...string) {
	c.s.hold()
	go func() {
		defer c.s.drop()
		for _, id := range ids {
			if err := c.g.calls.SetDelivered(context.WithoutCancel(c.ctx), id); err != nil {
				c.g.log.Error("a delivered call could not be marked", "call", id, "error", err)
			}
		}
	}()
}
