package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-dev/penstock/core/point"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// event makes the document of one call of a hook.
func (s *Session) event(p hook.Point, subject, tools json.RawMessage) doc.Bytes {
	var b bytes.Buffer
	b.Grow(len(subject) + len(tools) + len(s.spec.Task) + 256)
	field := func(name string, value []byte) {
		if b.Len() == 0 {
			b.WriteByte('{')
		} else {
			b.WriteByte(',')
		}
		b.WriteString(`"` + name + `":`)
		b.Write(value)
	}
	str := func(v any) []byte { out, _ := chat.Marshal(v); return out }
	field("point", str(p))
	field(p.Subject(), subject)
	if tools != nil {
		field("tools", tools)
	}
	if len(s.spec.Task) > 0 {
		field("task", s.spec.Task)
	}
	if r := &s.spec.Session; r.Rollout != "" {
		field("rollout", str(struct {
			ID      string `json:"id"`
			Attempt string `json:"attempt,omitempty"`
		}{r.Rollout, r.Attempt}))
	}
	b.WriteByte('}')
	return b.Bytes()
}

// applyHooks runs the hooks of a point in order. What each one does is added
// to the record's edits.
func (c *call) applyHooks(hooks []*Hook, p hook.Point, subject, tools json.RawMessage, check func(json.RawMessage) error) point.Outcome {
	passage := point.Passage{
		Point: p, Log: c.g.log.With("call", c.rec.ID), Check: check,
		Event: func(value json.RawMessage) doc.Doc { return c.s.event(p, value, tools) },
	}
	if p == hook.Request {
		passage.Differ = difference
	}
	out := passage.Run(c.ctx, hooks, subject)
	c.rec.Edits = append(c.rec.Edits, out.Edits...)
	if out.Err != nil {
		c.s.hookFailed(p, out.Failed, out.Err)
	}
	return out
}

// observe shows a subject to the hooks that only watch.
func (c *call) observe(p hook.Point, subject, tools json.RawMessage) {
	c.g.watch.Send(c.m.Hooks, p, c.s.event(p, subject, tools))
}

// difference keeps of two conversations only what differs: objects whose keys
// are JSON Pointers into them, so that a word changed in one message doesn't
// store a long conversation twice. A conversation that was denied is stored
// as received already.
func difference(before, after json.RawMessage) (json.RawMessage, json.RawMessage) {
	if after == nil {
		return nil, nil
	}
	b, a := pieces(before), pieces(after)
	if b == nil || a == nil {
		return before, after
	}
	for pointer, value := range b {
		if other, ok := a[pointer]; ok && bytes.Equal(value, other) {
			delete(a, pointer)
			delete(b, pointer)
		}
	}
	beforeJSON, err := chat.Marshal(b)
	if err != nil {
		return before, after
	}
	afterJSON, err := chat.Marshal(a)
	if err != nil {
		return before, after
	}
	return beforeJSON, afterJSON
}

// pieces splits a conversation into its fields and messages.
func pieces(conversation json.RawMessage) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(conversation, &fields) != nil {
		return nil
	}
	var messages []json.RawMessage
	if json.Unmarshal(fields["messages"], &messages) != nil {
		return nil
	}
	out := make(map[string]json.RawMessage, len(fields)+len(messages))
	for name, value := range fields {
		if name != "messages" {
			out["/"+doc.Escape(name)] = value
		}
	}
	for i, m := range messages {
		out[fmt.Sprintf("/messages/%d", i)] = m
	}
	return out
}

// toolCall is the subject of the point tool_call.
type toolCall struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Arguments    json.RawMessage `json:"arguments"`
	ArgumentsRaw bool            `json:"arguments_raw,omitempty"`
}

func (t *toolCall) decode(value json.RawMessage) error {
	if err := json.Unmarshal(value, t); err != nil {
		return err
	}
	if t.Name == "" || len(t.Arguments) == 0 {
		return fmt.Errorf("a tool call needs name and arguments")
	}
	return nil
}

// checkReply says why parts can't be served in a reply. Arguments that the model
// wrote itself may be what they are.
func checkReply(parts, calls []chat.Part) error {
	for i := range parts {
		p := &parts[i]
		switch p.Type {
		case chat.Text, chat.Reasoning:
		case chat.ToolCall:
			own := slices.ContainsFunc(calls, func(c chat.Part) bool { return sameJSON(c.Arguments, p.Arguments) })
			if p.Name == "" {
				return fmt.Errorf("part %d is a tool call without a name", i)
			}
			if args := bytes.TrimSpace(p.Arguments); !own && (len(args) == 0 || args[0] != '{') {
				return fmt.Errorf("the arguments of %s are %s, not an object", p.Name, cmp.Or(string(args), "missing"))
			}
		default:
			return fmt.Errorf("part %d has type %q; a reply has text, reasoning and tool_call", i, p.Type)
		}
	}
	return nil
}

// checkRequest says why messages can't be shown to the model.
func checkRequest(messages []chat.Message) error {
	for i, m := range messages {
		if !slices.Contains([]chat.Role{chat.System, chat.User, chat.Assistant, chat.ToolRole}, m.Role) {
			return fmt.Errorf("message %d has role %q", i, m.Role)
		}
		for _, p := range m.Parts {
			if !slices.Contains([]chat.PartType{chat.Text, chat.Reasoning, chat.Image, chat.ToolCall, chat.ToolResult}, p.Type) {
				return fmt.Errorf("message %d has a part of type %q", i, p.Type)
			}
		}
	}
	return nil
}

// hookRequest runs the hooks of the request. It gives the conversation to go
// on with, or the reason of a denial.
func (c *call) hookRequest(conv *chat.Conversation) (out *chat.Conversation, reason string, denied bool, err error) {
	hooks := point.Changing(c.m.Hooks, hook.Request)
	watched := point.Observed(c.m.Hooks, hook.Request)
	if len(hooks) == 0 && !watched {
		return conv, "", false, nil
	}
	subject, err := chat.Marshal(conv)
	if err != nil {
		return nil, "", false, fmt.Errorf("write the request for hooks: %w", err)
	}
	next := conv
	v := c.applyHooks(hooks, hook.Request, subject, nil, func(value json.RawMessage) error {
		var changed chat.Conversation
		if err := json.Unmarshal(value, &changed); err != nil {
			return err
		}
		if len(changed.Messages) == 0 {
			return fmt.Errorf("it has no messages")
		}
		if err := checkRequest(changed.Messages); err != nil {
			return err
		}
		keepRaw(&changed, conv)
		next = &changed
		return nil
	})
	if v.Denied {
		return nil, v.Reason, true, nil
	}
	if watched && !c.counting {
		c.observe(hook.Request, v.Value, nil)
	}
	return next, "", false, nil
}

// keepRaw gives the tools and the arguments that a hook left as they were
// their own bytes back: the JSON form that hooks see has lost their spaces,
// and what only a dialect knows of a tool.
func keepRaw(c, before *chat.Conversation) {
	tools := map[string]*chat.Tool{}
	for i := range before.Tools {
		tools[before.Tools[i].Name] = &before.Tools[i]
	}
	for i := range c.Tools {
		t := &c.Tools[i]
		b := tools[t.Name]
		if b != nil && t.Type == b.Type && t.Description == b.Description && sameJSON(t.Parameters, b.Parameters) {
			t.Parameters, t.Raw = b.Parameters, b.Raw
		}
	}
	calls := map[string]json.RawMessage{}
	for _, m := range before.Messages {
		for _, p := range chat.Calls(m.Parts) {
			calls[p.ID] = p.Arguments
		}
	}
	for _, m := range c.Messages {
		for i := range m.Parts {
			p := &m.Parts[i]
			if was := calls[p.ID]; p.Type == chat.ToolCall && sameJSON(p.Arguments, was) {
				p.Arguments = was
			}
		}
	}
}

// sameJSON compares JSON but for spaces.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// hookCall runs the hooks of one tool call, and gives the part that is served
// in its place.
func (c *call) hookCall(p *chat.Part) chat.Part {
	hooks := point.Changing(c.m.Hooks, hook.ToolCall)
	served := *p
	if len(hooks) > 0 {
		subject, err := chat.Marshal(toolCall{p.ID, p.Name, p.Arguments, p.ArgumentsRaw})
		if err != nil {
			return chat.Part{Type: chat.Text, Text: fmt.Sprintf("The call of %s can't be shown to hooks: %v", p.Name, err)}
		}
		v := c.applyHooks(hooks, hook.ToolCall, subject, c.toolsJSON(), func(value json.RawMessage) error {
			var t toolCall
			if err := t.decode(value); err != nil {
				return err
			}
			return checkReply([]chat.Part{{Type: chat.ToolCall, Name: t.Name, Arguments: t.Arguments, ArgumentsRaw: t.ArgumentsRaw}}, []chat.Part{*p})
		})
		if v.Denied {
			return chat.Part{Type: chat.Text, Text: v.Reason}
		}
		if v.Changed {
			var t toolCall
			if t.decode(v.Value) == nil { // it was checked before
				served.Name, served.Arguments, served.ArgumentsRaw = t.Name, t.Arguments, t.ArgumentsRaw
			}
		}
	}
	c.observeCall(&served)
	return served
}

// leaveOut records a call that the client, which takes one at a time, doesn't
// get.
func (c *call) leaveOut(p *chat.Part) {
	before, _ := chat.Marshal(toolCall{p.ID, p.Name, p.Arguments, p.ArgumentsRaw})
	c.rec.Edits = append(c.rec.Edits, trace.Edit{
		Hook: "tool_choice", Point: string(hook.ToolCall), Action: string(hook.Deny),
		Before: before, Reason: "the client takes one call in a reply",
	})
}

// observeCall shows a served call to those who watch.
func (c *call) observeCall(p *chat.Part) {
	if !point.Observed(c.m.Hooks, hook.ToolCall) {
		return
	}
	if subject, err := chat.Marshal(toolCall{p.ID, p.Name, p.Arguments, p.ArgumentsRaw}); err == nil {
		c.observe(hook.ToolCall, subject, c.toolsJSON())
	}
}

// toolsJSON are the tools that were offered, as hooks see them.
func (c *call) toolsJSON() json.RawMessage {
	if c.tools == nil {
		tools := c.conv.Tools
		if tools == nil {
			tools = []chat.Tool{}
		}
		c.tools, _ = chat.Marshal(tools)
	}
	return c.tools
}

// hookReply runs the hooks of the whole reply.
func (c *call) hookReply(r *chat.Reply) *chat.Reply {
	hooks := point.Changing(c.m.Hooks, hook.Reply)
	watched := point.Observed(c.m.Hooks, hook.Reply)
	if len(hooks) == 0 && !watched {
		return r
	}
	subject, err := chat.Marshal(r)
	if err != nil {
		subject = json.RawMessage("{}")
	}
	next := r
	v := c.applyHooks(hooks, hook.Reply, subject, nil, func(value json.RawMessage) error {
		var changed chat.Reply
		if err := json.Unmarshal(value, &changed); err != nil {
			return err
		}
		if len(changed.Parts) == 0 && len(r.Parts) > 0 {
			return errors.New("it has no parts; deny leaves a reply out")
		}
		if err := checkReply(changed.Parts, chat.Calls(r.Parts)); err != nil {
			return err
		}
		next = &changed
		return nil
	})
	if v.Denied {
		next = &chat.Reply{Parts: []chat.Part{{Type: chat.Text, Text: v.Reason}}, Finish: chat.FinishStop}
	}
	if next != r {
		next.ID, next.Model, next.Usage = r.ID, r.Model, r.Usage
		next.Finish = finishOf(next.Finish, next.Parts)
	}
	if watched {
		if subject, err := chat.Marshal(next); err == nil {
			c.observe(hook.Reply, subject, nil)
		}
	}
	return next
}
