package format

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/core/jinja"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// UnreadableError is a template that writes calls in a way that the named
// format doesn't read.
type UnreadableError struct {
	File, Named string
	// Call is what the template writes.
	Call string
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("format is %s, but the chat template in %s writes a tool call as %q, which that format doesn't read; name the format of the model", e.Named, e.File, e.Call)
}

// The words of the conversation that templates are tried out with.
const (
	tryTool  = "get_weather"
	tryCity  = "Reykjavik"
	tryWords = "How warm is it?"
)

func tryChat() *chat.Conversation {
	text := func(s string) []chat.Part { return []chat.Part{{Type: chat.Text, Text: s}} }
	return &chat.Conversation{
		Messages: []chat.Message{
			{Role: chat.User, Parts: text(tryWords)},
			{Role: chat.Assistant, Parts: []chat.Part{{Type: chat.ToolCall, ID: "call00001", Name: tryTool, Arguments: json.RawMessage(`{"city": "` + tryCity + `"}`)}}},
			{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "call00001", Name: tryTool, Content: text("4 degrees")}}},
		},
		Tools: []chat.Tool{{
			Name: tryTool, Description: "Tells the weather of a city.",
			Parameters: json.RawMessage(`{"type": "object", "properties": {"city": {"type": "string", "description": "A city."}}, "required": ["city"]}`),
		}},
	}
}

// try renders what every conversation has, finds out how the template wants
// calls, and holds what it writes against the format.
func (f *templated) try(ctx context.Context) error {
	for _, t := range []*jinja.Template{f.plain, f.tools} {
		f.styles[t] = styleOf(t)
	}
	hello := tryChat()
	hello.Messages, hello.Tools = hello.Messages[:1], nil
	text, err := f.run(ctx, hello)
	if err != nil {
		return err
	}
	if !strings.Contains(text.String(), tryWords) {
		return fmt.Errorf("the chat template %s leaves out what the user says", f.file.Path)
	}
	if !f.tools.Reads("tools") {
		return nil // a conversation with tools is refused when it comes
	}
	return f.tryCalls(ctx)
}

// tryCalls renders a call with its arguments as an object, and where that
// fails as text.
func (f *templated) tryCalls(ctx context.Context) error {
	c := tryChat()
	st := f.styles[f.tools]
	var first error
	for _, st.argumentsText = range []bool{false, true} {
		text, err := f.runAs(ctx, f.tools, c, st)
		if err == nil && !strings.Contains(text.String(), tryCity) {
			err = fmt.Errorf("the chat template %s leaves out the arguments of a call", f.file.Path)
		}
		if err == nil {
			f.styles[f.tools] = st
			return f.holdAgainst(ctx, c)
		}
		if first == nil {
			first = err
		}
	}
	var raised *jinja.RaisedError
	if errors.As(first, &raised) {
		return nil // it says itself what it can't render, when that comes
	}
	return fmt.Errorf("try out a tool call: %w", first)
}

// holdAgainst parses what the template writes for a call as a model would have
// sampled it.
func (f *templated) holdAgainst(ctx context.Context, c *chat.Conversation) error {
	before := *c
	before.Messages = c.Messages[:1]
	prompt, err := f.run(ctx, &before)
	if err != nil {
		return err
	}
	whole, err := f.run(ctx, c)
	if err != nil {
		return err
	}
	from := shared(prompt.String(), whole.String())
	end, _ := f.turnEnd(whole, from, 1, format.EndedOther)
	sampled := whole.String()[from:max(from, end)]
	p, err := f.Format.Open(ctx, &format.ParseOptions{Tools: c.Tools, State: format.State{ReasoningOpen: f.opensReasoning(whole.String()[:from])}})
	if err != nil {
		return fmt.Errorf("try format %s: %w", f.name, err)
	}
	defer p.Close()
	events := p.Finish(p.Feed(nil, []byte(sampled)))
	if err := p.Err(); err != nil {
		return fmt.Errorf("try format %s: %w", f.name, err)
	}
	got := format.Collect(events)
	if len(got.Calls) == 1 && got.Calls[0].Name == tryTool && strings.Contains(got.Calls[0].Arguments, tryCity) {
		return nil
	}
	return &UnreadableError{File: f.file.Path, Named: f.name, Call: strings.TrimSpace(sampled)}
}

// shared is how much of a prompt stands at the start of the whole one, up to
// the end of a marker or a line where they part inside of one.
func shared(prompt, whole string) int {
	n := 0
	for n < len(prompt) && n < len(whole) && prompt[n] == whole[n] {
		n++
	}
	if n == len(prompt) {
		return n
	}
	return strings.LastIndexAny(prompt[:n], ">]\n") + 1
}
