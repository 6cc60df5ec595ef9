package gateway

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// What an upstream declares it refuses is taken out of requests before they are
// sent, and nothing else is: each rule acts for one refusal, and what it took
// out stands among the edits of the record.

// sanitizedBy is the name of such edits.
const sanitizedBy = "upstream"

// refuses says that the upstream declares to refuse something.
func (c *call) refuses(r upstream.Refusal) bool { return slices.Contains(c.s.info.Refuses, r) }

// sanitized records what was taken out of the request.
func (c *call) sanitized(r upstream.Refusal, before, after any, reason string, args ...any) {
	e := trace.Edit{
		Hook: sanitizedBy, Point: string(hook.Request), Action: string(hook.Replace),
		Reason: string(r) + ": " + fmt.Sprintf(reason, args...),
	}
	e.Before, _ = chat.Marshal(before) // values that came as JSON
	if after != nil {
		e.After, _ = chat.Marshal(after)
	}
	c.rec.Edits = append(c.rec.Edits, e)
}

// sanitize applies the rules to the conversation and, where the upstream gets
// the client's bytes, to these.
func (c *call) sanitize() *failure {
	if len(c.s.info.Refuses) == 0 {
		return nil
	}
	conv := *c.conv
	s := &sanitizer{call: c, conv: &conv}
	for _, rule := range []struct {
		refusal upstream.Refusal
		apply   func()
	}{
		{upstream.RefusesServerTools, s.serverTools},
		{upstream.RefusesEmptyTools, s.emptyTools},
		{upstream.RefusesOrphanChoice, s.orphanChoice},
		{upstream.RefusesCacheControl, s.cacheControl},
		{upstream.RefusesInnerSystem, s.innerSystem},
		{upstream.RefusesToolImages, s.toolImages},
		{upstream.RefusesUnsigned, s.unsigned},
		{upstream.RefusesReasoning, s.reasoning},
	} {
		if c.refuses(rule.refusal) {
			rule.apply()
		}
	}
	if s.messages || s.tools {
		c.conv = s.conv
		c.changed.Messages = c.changed.Messages || s.messages
		c.changed.Tools = c.changed.Tools || s.tools
	}
	return nil
}

// sanitizer is the work on one request. conv is a copy whose lists are shared
// until they are changed.
type sanitizer struct {
	*call
	conv            *chat.Conversation
	messages, tools bool // these were changed
}

// serverTools leaves out tools that another provider runs. A client of the
// upstream's own dialect knows what it asks for.
func (s *sanitizer) serverTools() {
	if s.own {
		return
	}
	var kept, gone []chat.Tool
	for _, t := range s.conv.Tools {
		if t.Type == "" {
			kept = append(kept, t)
		} else {
			gone = append(gone, t)
		}
	}
	if gone == nil {
		return
	}
	s.conv.Tools, s.tools = kept, true
	names := make([]string, len(gone))
	for i, t := range gone {
		names[i] = t.Name
	}
	s.sanitized(upstream.RefusesServerTools, map[string]any{"/tools": gone}, nil, "%v are run by another provider", names)
	if c := s.conv.ToolChoice; c != nil && (len(kept) == 0 || c.Mode == chat.ChoiceNamed && slices.Contains(names, c.Name)) {
		s.dropChoice(upstream.RefusesServerTools, "of a tool that isn't there")
	}
}

func (s *sanitizer) dropChoice(r upstream.Refusal, why string) {
	s.sanitized(r, map[string]any{"/tool_choice": s.conv.ToolChoice}, nil, "a tool choice %s", why)
	s.conv.ToolChoice, s.tools = nil, true
}

// emptyTools takes an empty list of tools out of the client's bytes; in the
// conversation there is no such thing.
func (s *sanitizer) emptyTools() {
	if len(s.conv.Tools) > 0 || !s.own || !hasEmptyTools(s.body) {
		return
	}
	s.tools = true
	s.sanitized(upstream.RefusesEmptyTools, map[string]any{"/tools": []any{}}, nil, "an empty list of tools")
}

func (s *sanitizer) orphanChoice() {
	if len(s.conv.Tools) == 0 && s.conv.ToolChoice != nil {
		s.dropChoice(upstream.RefusesOrphanChoice, "without tools")
	}
}

// cacheControl takes cache breakpoints out of the client's bytes; the
// conversation has none.
func (s *sanitizer) cacheControl() {
	if !s.own {
		return
	}
	body, n := withoutCacheControl(s.body)
	if n > 0 {
		s.body = body
		s.sanitized(upstream.RefusesCacheControl, n, 0, "%d cache breakpoints", n)
	}
}

// innerSystem has what a system message says after the first others be said by
// the user.
func (s *sanitizer) innerSystem() {
	begun := false
	for i, m := range s.conv.Messages {
		if m.Role != chat.System {
			begun = true
		} else if begun {
			s.unshare()
			s.conv.Messages[i].Role = chat.User
			s.sanitized(upstream.RefusesInnerSystem, map[string]any{pointer(i): "system"}, map[string]any{pointer(i): "user"}, "a system message after others")
		}
	}
}

// unshare makes the list of messages one that may be changed.
func (s *sanitizer) unshare() {
	if !s.messages {
		s.conv.Messages, s.messages = slices.Clone(s.conv.Messages), true
	}
}

func pointer(message int) string { return fmt.Sprintf("/messages/%d", message) }

// toolImages moves the images of tool results to the user's side, behind the
// results.
func (s *sanitizer) toolImages() {
	if !slices.ContainsFunc(s.conv.Messages, hasToolImage) {
		return
	}
	var out []chat.Message
	var images []chat.Part
	moved := 0
	flush := func() {
		if len(images) > 0 {
			out = append(out, chat.Message{Role: chat.User, Parts: images})
			moved += len(images)
			images = nil
		}
	}
	for _, m := range s.conv.Messages {
		if m.Role != chat.ToolRole {
			flush()
		} else if hasToolImage(m) {
			m.Parts = slices.Clone(m.Parts)
			for i := range m.Parts {
				m.Parts[i].Content = withoutImages(m.Parts[i].Content, &images)
			}
		}
		out = append(out, m)
	}
	flush()
	s.conv.Messages, s.messages = out, true
	s.sanitized(upstream.RefusesToolImages, moved, nil, "%d images in tool results, which a message of the user has now", moved)
}

func hasToolImage(m chat.Message) bool {
	return m.Role == chat.ToolRole && slices.ContainsFunc(m.Parts, func(p chat.Part) bool {
		return slices.ContainsFunc(p.Content, func(c chat.Part) bool { return c.Type == chat.Image })
	})
}

// withoutImages is the content of a result with words in place of its images,
// which are added to images.
func withoutImages(content []chat.Part, images *[]chat.Part) []chat.Part {
	out := slices.Clone(content)
	for i := range out {
		if out[i].Type == chat.Image {
			*images = append(*images, out[i])
			out[i] = chat.Part{Type: chat.Text, Text: "[an image, in the next message]"}
		}
	}
	return out
}

// unsigned leaves out reasoning of other models: the provider refuses what it
// hasn't signed.
func (s *sanitizer) unsigned() {
	s.leaveOut(upstream.RefusesUnsigned, "parts of reasoning without a signature", func(p chat.Part) bool {
		return p.Type == chat.Reasoning && p.Signature == "" && p.Data == ""
	})
}

// reasoning leaves out all of it.
func (s *sanitizer) reasoning() {
	s.leaveOut(upstream.RefusesReasoning, "parts of reasoning", func(p chat.Part) bool { return p.Type == chat.Reasoning })
}

func (s *sanitizer) leaveOut(r upstream.Refusal, what string, is func(chat.Part) bool) {
	n := 0
	gone := map[string]any{}
	for i := range s.conv.Messages {
		m := s.conv.Messages[i]
		if m.Role != chat.Assistant || !slices.ContainsFunc(m.Parts, is) {
			continue
		}
		var kept, left []chat.Part
		for _, p := range m.Parts {
			if is(p) {
				left = append(left, p)
			} else {
				kept = append(kept, p)
			}
		}
		s.unshare()
		s.conv.Messages[i].Parts = kept
		gone[pointer(i)] = left
		n += len(left)
	}
	if n > 0 {
		s.sanitized(r, gone, nil, "%d %s", n, what)
	}
}

// sanitizeSampling leaves out of the sampling what the upstream refuses.
func (c *call) sanitizeSampling() {
	if k := c.rec.Effective.TopK; k != nil && c.refuses(upstream.RefusesTopK) {
		c.rec.Effective.TopK, c.changed.Sampling = nil, true
		c.sanitized(upstream.RefusesTopK, map[string]any{"/sampling/top_k": *k}, nil, "top_k")
	}
}

// templateRoom is how many tokens a template may add that no byte of the request
// stands for.
const templateRoom = 1024

// clamp bounds a reply that may be longer than the context, where only the
// upstream knows the length of the prompt: it is asked for it. If it doesn't
// count, the bound is left out, and the reply has what room there is.
func (c *call) clamp() *failure {
	most := c.rec.Effective.MaxTokens
	if most == nil || !c.refuses(upstream.RefusesLongMaxTokens) {
		return nil
	}
	if *most+c.promptBytes() <= c.m.Context {
		return nil
	}
	before := map[string]any{"/sampling/max_tokens": *most}
	n, err := c.count()
	switch {
	case c.ctx.Err() != nil:
		return c.cancelled()
	case err != nil:
		if !errors.Is(err, upstream.ErrNoCount) {
			c.g.log.Warn("the upstream doesn't count a prompt", "call", c.rec.ID, "error", err)
		}
		c.rec.Effective.MaxTokens, c.changed.Sampling = nil, true
		c.sanitized(upstream.RefusesLongMaxTokens, before, nil, "max_tokens %d, more than may fit a context of %d", *most, c.m.Context)
		return nil
	case n >= c.m.Context:
		return c.overflow(n)
	}
	if remains := c.m.Context - n; *most > remains {
		c.rec.Effective.MaxTokens = &remains
		c.sanitized(upstream.RefusesLongMaxTokens, before, map[string]any{"/sampling/max_tokens": remains},
			"max_tokens %d, after a prompt of %d tokens in a context of %d", *most, n, c.m.Context)
	}
	return nil
}

// hasEmptyTools says that a body has a list of tools without any.
func hasEmptyTools(body []byte) bool {
	tools := gjson.GetBytes(body, "tools")
	return tools.IsArray() && len(tools.Array()) == 0
}
