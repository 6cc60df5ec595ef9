package redact

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// Store is where sessions and calls are committed, as the gateway knows it.
type Store interface {
	PutSession(ctx context.Context, s *trace.Session) error
	PutCall(ctx context.Context, c *trace.Call) error
	SetDelivered(ctx context.Context, call string) error
	Calls(ctx context.Context, session string) ([]*trace.Call, error)
}

// Calls is a store that gets every call redacted. The calls themselves stay as
// they are: the next turn builds on them. With a nil Redactor it is s.
func Calls(s Store, r *Redactor) Store {
	if r == nil {
		return s
	}
	return &calls{s, r}
}

type calls struct {
	Store
	r *Redactor
}

func (c *calls) PutCall(ctx context.Context, call *trace.Call) error {
	clean := c.r.Call(call)
	err := c.Store.PutCall(ctx, clean)
	call.Stored = clean.Stored
	return err
}

// Call redacts the record of a call. One without a secret is returned as it
// is; else it is a copy that shares what did not change. Where the text of its
// tokens held a secret it has no ids, and a warning says so.
func (r *Redactor) Call(c *trace.Call) *trace.Call {
	if r == nil {
		return c
	}
	out := *c
	p := &pass{r: r, look: true}
	p.call(&out)
	if !p.hit {
		return c
	}
	p = &pass{r: r}
	p.call(&out)
	if p.tokens {
		out.Warnings = append(slices.Clone(out.Warnings), trace.Warning{Kind: trace.WarnRedacted})
		out.PromptIDs, out.SampledIDs, out.Logprobs, out.Rendered = nil, nil, nil, ""
	}
	if p.found == nil && !p.tokens {
		return c // a number that only looked like a secret
	}
	out.Redactions = append(slices.Clone(c.Redactions), p.found...)
	return &out
}

// pass is one walk through a record: one that only looks whether there is
// anything, which nearly always is all, or one that changes it.
type pass struct {
	r      *Redactor
	look   bool
	hit    bool
	path   []step
	found  []trace.Redaction
	tokens bool // the text of tokens held a secret
}

func (p *pass) call(c *trace.Call) {
	p.request(c)
	p.reply(c)
	p.strings(c)
}

// step is a part of a JSON pointer: a name, or a number where there is none.
type step struct {
	name string
	i    int
}

func (p *pass) in(name string) { p.path = append(p.path, step{name: name}) }
func (p *pass) at(i int)       { p.path = append(p.path, step{i: i}) }
func (p *pass) out()           { p.path = p.path[:len(p.path)-1] }

func (p *pass) note(found []Found) {
	if len(found) == 0 {
		return
	}
	var field strings.Builder
	for _, s := range p.path {
		field.WriteByte('/')
		if s.name == "" {
			field.WriteString(strconv.Itoa(s.i))
		} else {
			field.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(s.name))
		}
	}
	for _, f := range found {
		p.found = append(p.found, trace.Redaction{Field: field.String(), Offset: f.Offset, Length: f.Length, Kind: f.Kind})
	}
}

func (p *pass) text(name string, s *string) []Found { return p.plain(p.r.all, name, s) }

// plain redacts a text with a matcher of its own choice.
func (p *pass) plain(m *matcher, name string, s *string) (found []Found) {
	if p.look {
		p.hit = p.hit || m.has(*s)
		return nil
	}
	if *s, found = m.text(*s); found != nil {
		p.in(name)
		p.note(found)
		p.out()
	}
	return found
}

func (p *pass) json(name string, raw *json.RawMessage) {
	p.in(name)
	p.value(raw)
	p.out()
}

// value redacts a JSON value where the path is that of it.
func (p *pass) value(raw *json.RawMessage) {
	if p.look {
		p.hit = p.hit || p.r.all.hides(*raw)
		return
	}
	var found []Found
	if *raw, found = p.r.JSON(*raw); found != nil {
		p.note(found)
	}
}

// item redacts a text where the path is that of it.
func (p *pass) item(s *string) {
	if p.look {
		p.hit = p.hit || p.r.Has(*s)
		return
	}
	var found []Found
	if *s, found = p.r.Text(*s); found != nil {
		p.note(found)
	}
}

// each walks through a list, which is copied before the first change.
func each[T any](p *pass, name string, list []T, visit func(*pass, *T)) []T {
	if p.look {
		for i := range list {
			visit(p, &list[i])
		}
		return list
	}
	p.in(name)
	defer p.out()
	same := true
	for i := range list {
		p.at(i)
		one, n := list[i], len(p.found)
		visit(p, &one)
		if len(p.found) > n {
			if same {
				list, same = slices.Clone(list), false
			}
			list[i] = one
		}
		p.out()
	}
	return list
}

// request redacts what came in.
func (p *pass) request(c *trace.Call) {
	if p.look {
		p.hit = p.hit || c.Body != nil && p.r.all.find(c.Body, nil, true) != nil
	} else if body, found := p.r.Bytes(c.Body); found != nil {
		c.Body = body
		p.in("body")
		p.note(found)
		p.out()
	}
	p.json("envelope", &c.Envelope)
	c.Messages = each(p, "messages", c.Messages, (*pass).value)
	p.headers(c)
}

func (p *pass) headers(c *trace.Call) {
	if p.look {
		for name, value := range c.Headers {
			p.hit = p.hit || p.r.Header(name) || p.r.Has(value)
		}
		return
	}
	c.Headers = maps.Clone(c.Headers)
	p.in("headers")
	defer p.out()
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		value := c.Headers[name]
		if p.r.Header(name) {
			c.Headers[name] = Mark(KindHeader)
			p.in(name)
			p.note([]Found{{Kind: KindHeader, Length: len(c.Headers[name])}})
			p.out()
		} else if p.text(name, &value) != nil {
			c.Headers[name] = value
		}
	}
}

// reply redacts what the model saw and wrote.
func (p *pass) reply(c *trace.Call) {
	n := len(p.found)
	c.Chat = p.conversation("chat", c.Chat)
	p.text("prompt", &c.Prompt)
	inPrompt := len(p.found) > n && c.Rendered == "" || p.r.Has(c.Rendered)
	p.hit = p.hit || inPrompt
	found := p.text("raw", &c.Raw)
	if found != nil {
		c.Spans, c.Warnings = slices.Clone(c.Spans), slices.Clone(c.Warnings)
		for i := range c.Spans {
			c.Spans[i] = shifted(found, c.Spans[i])
		}
		for i := range c.Warnings {
			c.Warnings[i].Span = shifted(found, c.Warnings[i].Span)
		}
	}
	p.tokens = inPrompt || found != nil
	n = len(p.found)
	c.Parsed = p.replied("parsed", c.Parsed)
	// An engine that parses by itself gives no text of what was sampled.
	p.tokens = p.tokens || c.Raw == "" && len(p.found) > n
	c.Served = p.replied("served", c.Served)
	p.rawReply(c, p.found[n:])
}

// rawReply takes away the bytes of a reply that holds a secret, of which inParsed
// are those found in what it says: in a stream one may be cut into many events.
func (p *pass) rawReply(c *trace.Call, inParsed []trace.Redaction) {
	if c.RawReply == nil {
		return
	}
	if p.look {
		p.hit = p.hit || p.r.all.find(c.RawReply, nil, true) != nil
		return
	}
	kind := ""
	if len(inParsed) > 0 {
		kind = inParsed[0].Kind
	} else if _, found := p.r.Bytes(c.RawReply); found != nil {
		kind = found[0].Kind
	} else {
		return
	}
	c.RawReply = []byte(Mark(kind))
	p.in("raw_reply")
	p.note([]Found{{Kind: kind, Length: len(c.RawReply)}})
	p.out()
}

// shifted is a span of a text after the text was redacted.
func shifted(found []Found, s format.Span) format.Span {
	s.Start, s.End = moved(found, s.Start), moved(found, s.End)
	return s
}

func (p *pass) conversation(name string, c *chat.Conversation) *chat.Conversation {
	if c == nil {
		return nil
	}
	if !p.look {
		clone := *c
		c = &clone
	}
	p.in(name)
	messages, tools := each(p, "messages", c.Messages, (*pass).message), each(p, "tools", c.Tools, (*pass).tool)
	stops := p.sampling("sampling", c.Sampling)
	choice := c.ToolChoice
	if choice != nil {
		choice = p.choice(*choice)
	}
	p.out()
	if !p.look {
		c.Messages, c.Tools, c.Sampling, c.ToolChoice = messages, tools, stops, choice
	}
	return c
}

func (p *pass) choice(c chat.Choice) *chat.Choice {
	p.in("tool_choice")
	p.text("name", &c.Name)
	p.out()
	return &c
}

func (p *pass) message(m *chat.Message) {
	if parts := each(p, "parts", m.Parts, (*pass).part); !p.look {
		m.Parts = parts
	}
}

func (p *pass) tool(t *chat.Tool) {
	p.text("type", &t.Type)
	p.text("name", &t.Name)
	p.text("description", &t.Description)
	p.json("parameters", &t.Parameters)
	p.json("raw", &t.Raw)
}

func (p *pass) part(t *chat.Part) {
	p.text("text", &t.Text)
	p.plain(p.r.values, "signature", &t.Signature)
	p.plain(p.r.values, "data", &t.Data)
	p.text("media_type", &t.MediaType)
	p.text("url", &t.URL)
	p.text("id", &t.ID)
	p.text("name", &t.Name)
	p.json("arguments", &t.Arguments)
	if content := each(p, "content", t.Content, (*pass).part); !p.look {
		t.Content = content
	}
}

func (p *pass) sampling(name string, s chat.Sampling) chat.Sampling {
	p.in(name)
	s.Stop = each(p, "stop", s.Stop, (*pass).item)
	p.out()
	return s
}

func (p *pass) replied(name string, r *chat.Reply) *chat.Reply {
	if r == nil {
		return nil
	}
	if !p.look {
		clone := *r
		r = &clone
	}
	p.in(name)
	p.text("id", &r.ID)
	p.text("model", &r.Model)
	parts := each(p, "parts", r.Parts, (*pass).part)
	p.text("stop_sequence", &r.StopSequence)
	p.out()
	if !p.look {
		r.Parts = parts
	}
	return r
}

// strings redacts what is left: short texts of clients, engines and hooks.
func (p *pass) strings(c *trace.Call) {
	p.text("path", &c.Path)
	p.text("method", &c.Method)
	p.text("model_asked", &c.ModelAsked)
	p.text("finish", &c.Finish)
	p.text("weight_version", &c.Weights)
	c.Unknown = each(p, "unknown", c.Unknown, (*pass).item)
	c.Requested, c.Effective = p.sampling("requested", c.Requested), p.sampling("effective", c.Effective)
	c.Warnings = each(p, "warnings", c.Warnings, func(p *pass, w *trace.Warning) { p.text("kind", &w.Kind) })
	c.Edits = each(p, "edits", c.Edits, (*pass).edit)
	if c.Error != nil {
		e := *c.Error
		p.in("error")
		p.text("kind", &e.Kind)
		p.text("message", &e.Message)
		p.out()
		c.Error = &e
	}
}

func (p *pass) edit(e *trace.Edit) {
	p.json("before", &e.Before)
	p.json("after", &e.After)
	p.json("report", &e.Report)
	p.text("hook", &e.Hook)
	p.text("reason", &e.Reason)
	p.text("error", &e.Error)
}
