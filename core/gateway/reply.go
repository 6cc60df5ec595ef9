package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// sink is told of a reply's parts as they grow. The Text and Arguments of an
// opened part are empty; those of an ended one are whole.
type sink interface {
	opened(p *chat.Part)
	grew(p *chat.Part, text string)
	marked(p *chat.Part, t chat.DeltaType, text string)
	ended(p *chat.Part)
}

// parsed builds the parts of a reply from the events of its parser.
type parsed struct {
	parts    []chat.Part // the last one is open while open is set
	spans    []format.Span
	warnings []trace.Warning

	open bool
	text []byte // of the open part
	call int    // index of the open call
	sink sink   // nil while a parse is repeated
	// id makes sure that the id of a call is new in its session.
	id func(string) string
}

// apply enters one event. An error says that the format broke the order that
// parsers have to keep.
func (r *parsed) apply(e *format.Event) error {
	switch e.Kind {
	case format.Content:
		return r.add(chat.Text, e.Text)
	case format.Reason:
		return r.add(chat.Reasoning, e.Text)
	case format.CallStart:
		if r.inCall() {
			return fmt.Errorf("format began call %d within call %d", e.Index, r.call)
		}
		r.call = e.Index
		r.begin(chat.Part{Type: chat.ToolCall, ID: r.id(e.ID), Name: e.Name})
	case format.CallArgs:
		if !r.inCall() || e.Index != r.call {
			return fmt.Errorf("format gave arguments of call %d, which isn't open", e.Index)
		}
		r.grow(e.Text)
	case format.CallEnd:
		if !r.inCall() || e.Index != r.call {
			return fmt.Errorf("format ended call %d, which isn't open", e.Index)
		}
		r.spans = append(r.spans, e.Span)
		if e.Incomplete {
			r.warnings = append(r.warnings, trace.Warning{Kind: "incomplete_call", Span: e.Span})
		}
		r.end()
	case format.Warning:
		r.warnings = append(r.warnings, trace.Warning{Kind: e.Text, Span: e.Span})
	}
	return nil
}

func (r *parsed) applyAll(events []format.Event) error {
	for i := range events {
		if err := r.apply(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// delta enters a step of a reply that the upstream parsed.
func (r *parsed) delta(d *chat.Delta) error {
	switch d.Type {
	case chat.DeltaText:
		return r.add(chat.Text, d.Text)
	case chat.DeltaReasoning:
		return r.add(chat.Reasoning, d.Text)
	case chat.DeltaSignature, chat.DeltaRedacted:
		r.mark(d.Type, d.Text)
	case chat.DeltaCallStart:
		r.begin(chat.Part{Type: chat.ToolCall, ID: r.id(d.ID), Name: d.Name})
	case chat.DeltaCallArgs:
		if !r.inCall() {
			return fmt.Errorf("the upstream gave arguments of part %d, which is no open call", d.Part)
		}
		r.grow(d.Text)
	case chat.DeltaPartEnd:
		r.end()
	default:
		return fmt.Errorf("the upstream gave a delta of type %q", d.Type)
	}
	return nil
}

// mark adds a signature or redacted data to the open reasoning, which it opens
// where there is none.
func (r *parsed) mark(t chat.DeltaType, text string) {
	if !r.open || r.parts[len(r.parts)-1].Type != chat.Reasoning {
		r.begin(chat.Part{Type: chat.Reasoning})
	}
	p := &r.parts[len(r.parts)-1]
	if t == chat.DeltaSignature {
		p.Signature += text
	} else {
		p.Data += text
	}
	if r.sink != nil {
		r.sink.marked(p, t, text)
	}
}

func (r *parsed) inCall() bool {
	return r.open && r.parts[len(r.parts)-1].Type == chat.ToolCall
}

// add adds text to a part of this type, opening one where it must.
func (r *parsed) add(t chat.PartType, text string) error {
	if text == "" {
		return nil
	}
	if r.inCall() {
		return fmt.Errorf("format gave %s within call %d", t, r.call)
	}
	if !r.open || r.parts[len(r.parts)-1].Type != t {
		r.begin(chat.Part{Type: t})
	}
	r.grow(text)
	return nil
}

func (r *parsed) begin(p chat.Part) {
	r.end()
	r.parts = append(r.parts, p)
	r.open = true
	if r.sink != nil {
		r.sink.opened(&r.parts[len(r.parts)-1])
	}
}

func (r *parsed) grow(text string) {
	r.text = append(r.text, text...)
	if r.sink != nil && text != "" {
		r.sink.grew(&r.parts[len(r.parts)-1], text)
	}
}

// end closes the open part, if there is one.
func (r *parsed) end() {
	if !r.open {
		return
	}
	r.open = false
	p := &r.parts[len(r.parts)-1]
	if p.Type == chat.ToolCall {
		p.Arguments, p.ArgumentsRaw = arguments(r.text)
	} else {
		p.Text = string(r.text)
	}
	r.text = r.text[:0]
	if r.sink != nil {
		r.sink.ended(p)
	}
}

// finish ends what the parser left open.
func (r *parsed) finish() error {
	if r.inCall() {
		return fmt.Errorf("format didn't end call %d", r.call)
	}
	r.end()
	return nil
}

// arguments holds the text of a call's arguments: as JSON, or as a string
// where it is none.
func arguments(text []byte) (value json.RawMessage, raw bool) {
	if len(text) == 0 {
		return json.RawMessage("{}"), false
	}
	if json.Valid(text) {
		return slices.Clone(text), false
	}
	quoted, err := chat.Marshal(string(text))
	if err != nil {
		return json.RawMessage(`""`), true
	}
	return quoted, true
}

// argumentsText is the text of a call's arguments, as it is streamed.
func argumentsText(p *chat.Part) string {
	if p.ArgumentsRaw {
		var text string
		if json.Unmarshal(p.Arguments, &text) == nil {
			return text
		}
	}
	if len(p.Arguments) == 0 {
		return "{}"
	}
	return string(p.Arguments)
}

// resume carries on from before with fresh, a repeated parse of the same text
// and some more: what came out before must have come out again, and only what
// is new goes to the sink.
func (fresh *parsed) resume(before *parsed) error {
	closed := len(before.parts)
	if before.open {
		closed--
	}
	if len(fresh.parts) < len(before.parts) || fresh.open && len(fresh.parts)-1 < closed {
		return fmt.Errorf("a repeated parse gives %d parts, not %d", len(fresh.parts), len(before.parts))
	}
	for i := range before.parts {
		fresh.parts[i].ID = before.parts[i].ID // ids may be random
		if i < closed && !samePart(&before.parts[i], &fresh.parts[i]) {
			return fmt.Errorf("a repeated parse gives another part %d", i)
		}
	}
	fresh.sink, fresh.id = before.sink, before.id
	from := closed
	if before.open {
		rest, err := fresh.rest(closed, &before.parts[closed], string(before.text))
		if err != nil {
			return err
		}
		fresh.tell(closed, rest, false)
		from++
	}
	for i := from; i < len(fresh.parts); i++ {
		if p := &fresh.parts[i]; p.Type == chat.ToolCall {
			p.ID = fresh.id(p.ID)
		}
		fresh.tell(i, fresh.textOf(i), true)
	}
	return nil
}

// rest is what part i has beyond the text that was told of it.
func (r *parsed) rest(i int, told *chat.Part, text string) (string, error) {
	p := &r.parts[i]
	rest, ok := strings.CutPrefix(r.textOf(i), text)
	if !ok || p.Type != told.Type || p.Name != told.Name {
		return "", fmt.Errorf("a repeated parse gives another part %d", i)
	}
	return rest, nil
}

// textOf is the text of part i so far.
func (r *parsed) textOf(i int) string {
	p := &r.parts[i]
	switch {
	case r.open && i == len(r.parts)-1:
		return string(r.text)
	case p.Type == chat.ToolCall:
		return argumentsText(p)
	default:
		return p.Text
	}
}

// tell gives part i to the sink, as far as it has got.
func (r *parsed) tell(i int, text string, open bool) {
	p := &r.parts[i]
	if open {
		r.sink.opened(p)
	}
	if text != "" {
		r.sink.grew(p, text)
	}
	if !r.open || i < len(r.parts)-1 {
		r.sink.ended(p)
	}
}

func samePart(a, b *chat.Part) bool {
	return a.Type == b.Type && a.Name == b.Name && a.Text == b.Text && string(a.Arguments) == string(b.Arguments)
}

// finishOf is the reason that goes with the parts of a reply: tool_calls
// exactly when there are calls and the reply wasn't cut at a length.
func finishOf(reason chat.Finish, parts []chat.Part) chat.Finish {
	calls := slices.ContainsFunc(parts, func(p chat.Part) bool { return p.Type == chat.ToolCall })
	switch {
	case reason == chat.FinishLength || reason == chat.FinishRefusal:
		return reason
	case calls:
		return chat.FinishToolCalls
	case reason == chat.FinishToolCalls:
		return chat.FinishStop
	default:
		return reason
	}
}
