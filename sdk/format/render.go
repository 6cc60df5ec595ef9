package format

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// renderer writes prompts with the templates of a RenderSpec.
type renderer struct {
	name      string
	spec      *RenderSpec
	stops     []string
	ids       string // the scheme of call ids
	templates *template.Template
	presses   sync.Pool // of *press
	heads     heads
}

// The names of the templates.
const (
	pieceHead      = "head"
	pieceSystem    = "system"
	pieceUser      = "user"
	pieceAssistant = "assistant"
	pieceTool      = "tool"
	pieceStop      = "stop"
	pieceAfter     = "after"
	pieceGenerate  = "generate"
)

func newRenderer(s *Spec) (*renderer, error) {
	r := &renderer{name: s.Name, spec: s.Render, stops: s.Stops, ids: s.IDs}
	r.templates = template.New(s.Name).Funcs(templateFuncs)
	pieces := map[string]string{
		pieceHead: s.Render.Head, pieceSystem: s.Render.System, pieceUser: s.Render.User,
		pieceAssistant: s.Render.Assistant, pieceTool: s.Render.Tool, pieceStop: s.Render.Stop,
		pieceAfter: s.Render.After, pieceGenerate: s.Render.Generate,
	}
	for name, text := range s.Render.Define {
		pieces[name] = text
	}
	for name, text := range pieces {
		if _, err := r.templates.New(name).Parse(text); err != nil {
			return nil, fmt.Errorf("read template of %s: %w", name, err)
		}
	}
	for _, t := range r.templates.Templates() {
		if t.Tree != nil {
			markData(t.Root)
		}
	}
	return r, nil
}

// Render implements Format.
func (d *declared) Render(_ context.Context, q *RenderRequest) (*Rendered, error) {
	return d.render.run(q.Chat, -1, "")
}

// Tail implements Format.
func (d *declared) Tail(_ context.Context, q *RenderRequest, k int, ended Ended) (*Rendered, error) {
	if k < 0 || k >= len(q.Chat.Messages) || q.Chat.Messages[k].Role != chat.Assistant {
		return nil, fmt.Errorf("format %s: message %d is no assistant's", d.spec.Name, k)
	}
	return d.render.run(q.Chat, k, ended)
}

// run renders a conversation, or with k >= 0 what follows the sampled tokens
// of message k.
func (r *renderer) run(c *chat.Conversation, k int, ended Ended) (*Rendered, error) {
	p, err := r.press()
	if err != nil {
		return nil, err
	}
	defer r.release(p)
	v := newView(r, c)
	w := &segmentWriter{press: p, message: -1}
	out := &Rendered{Stops: r.stops}
	first := v.leading
	if k < 0 {
		if err := v.writeHead(w); err != nil {
			return nil, err
		}
	} else {
		first = k + 1
		w.message = k
		unstable, err := v.closeTurn(w, k, ended)
		if err != nil {
			return nil, err
		}
		out.Unstable = unstable
	}
	for _, m := range c.Messages[:first] {
		v.calls += len(chat.Calls(m.Parts))
	}
	for i := first; i < len(c.Messages); i++ {
		if err := v.writeMessage(w, i); err != nil {
			return nil, err
		}
	}
	w.message = -1
	from := len(w.segments)
	v.standAt(len(c.Messages))
	if err := r.execute(w, pieceGenerate, v); err != nil {
		return nil, err
	}
	out.State.ReasoningOpen = r.opens(w.segments[from:])
	if k >= 0 && ended == EndedStop && r.spec.Stop == "" {
		out.Unstable = w.cutStop(r.stops)
	}
	if k >= 0 && out.Unstable == "" {
		unstable, err := v.unstable(p, k)
		if err != nil {
			return nil, err
		}
		out.Unstable = unstable
	}
	out.Segments = w.segments
	return out, nil
}

// press takes a press for one prompt; release gives it back.
func (r *renderer) press() (*press, error) {
	if p, ok := r.presses.Get().(*press); ok {
		return p, nil
	}
	p, err := newPress(r.templates)
	if err != nil {
		return nil, fmt.Errorf("format %s: %w", r.name, err)
	}
	return p, nil
}

func (r *renderer) release(p *press) {
	clear(p.long)
	p.long = p.long[:0]
	r.presses.Put(p)
}

func (r *renderer) execute(w *segmentWriter, piece string, data any) error {
	if err := w.press.templates.ExecuteTemplate(w, piece, data); err != nil {
		return fmt.Errorf("format %s: render %s: %w", r.name, piece, err)
	}
	return nil
}

// closeTurn writes the close of turn k where what was sampled lacks it. A turn
// that the history closes with another marker than the model samples isn't
// stable.
func (v *view) closeTurn(w *segmentWriter, k int, ended Ended) (unstable string, err error) {
	stop := &segmentWriter{press: w.press, message: k}
	if err := v.r.execute(stop, pieceStop, v.assistant(k)); err != nil {
		return "", err
	}
	switch text := Text(stop.segments); {
	case ended != EndedStop:
		w.add(text, Markup)
	case text != "" && !slices.Contains(v.r.stops, text):
		unstable = "turn_end_changed"
	}
	return unstable, v.r.execute(w, pieceAfter, v.assistant(k))
}

// lastQuery is the index of the last message that a user wrote, -1 when there
// is none. Text that is nothing but a tool's response is no query.
func lastQuery(messages []chat.Message) int {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role != chat.User {
			continue
		}
		text := strings.TrimSpace(chat.PlainText(messages[i].Parts))
		if !strings.HasPrefix(text, "<tool_response>") || !strings.HasSuffix(text, "</tool_response>") {
			return i
		}
	}
	return -1
}

// keeps reports whether reasoning of message i is rendered when the last query
// is there.
func (v *view) keeps(i, query int) bool {
	switch v.r.spec.Keep {
	case "none":
		return false
	case "last_query":
		return i > query
	case "with_tools":
		return i > query || v.tooled
	}
	return true
}

// unstable says why what was sampled for message k isn't what is rendered now:
// reasoning that was in the prompt, or in what was sampled, is dropped, or the
// turn doesn't begin as the prompt did that it was sampled from.
func (v *view) unstable(p *press, k int) (string, error) {
	if v.r.spec.MovesWithQuery && v.query > k {
		return "template_moved", nil
	}
	before := lastQuery(v.c.Messages[:k])
	for i := before + 1; i <= k; i++ {
		m := v.c.Messages[i]
		if m.Role != chat.Assistant || v.keeps(i, v.query) == v.keeps(i, before) && (i != k || v.r.spec.Keep != "none") {
			continue
		}
		opened, err := v.openedAt(p, i)
		if err != nil {
			return "", err
		}
		if opened || joinReasoning(m.Parts) != "" {
			return "reasoning_dropped", nil
		}
	}
	return v.moved(p, k)
}

// moved reports, as template_moved, that turn k is written without what the
// prompt had behind the turn's opening, such as a block of reasoning that was
// closed at once. Where the prompt opened reasoning, that is part of the turn.
func (v *view) moved(p *press, k int) (string, error) {
	begin, turn := &segmentWriter{press: p}, &segmentWriter{press: p}
	v.standAt(k)
	if err := v.r.execute(begin, pieceGenerate, v); err != nil {
		return "", err
	}
	if v.r.opens(begin.segments) {
		return "", nil
	}
	if err := v.r.execute(turn, pieceAssistant, v.assistant(k)); err != nil {
		return "", err
	}
	if !strings.HasPrefix(Text(turn.segments), Text(begin.segments)) {
		return "template_moved", nil
	}
	return "", nil
}

// openedAt reports whether the prompt that message i was sampled from had
// opened reasoning.
func (v *view) openedAt(p *press, i int) (bool, error) {
	w := &segmentWriter{press: p}
	v.standAt(i)
	if err := v.r.execute(w, pieceGenerate, v); err != nil {
		return false, err
	}
	return v.r.opens(w.segments), nil
}

// opens reports whether a prompt that ends so has opened reasoning.
func (r *renderer) opens(end []Segment) bool {
	open := r.spec.OpenReasoning
	return open != "" && strings.HasSuffix(Text(end), open)
}

// Tools are the tools on offer, read when a template first asks for them.
func (v *view) Tools() ([]toolView, error) {
	if v.read {
		return v.tools, nil
	}
	for _, t := range v.c.Tools {
		if t.Type != "" && t.Type != "function" {
			return nil, fmt.Errorf("tool %q has type %q, which only its provider can run", t.Name, t.Type)
		}
		tool, err := viewTool(t)
		if err != nil {
			return nil, err
		}
		v.tools = append(v.tools, tool)
	}
	v.read = true
	return v.tools, nil
}

// writeHead renders what stands before all messages, unless it is known from an
// earlier prompt. Nothing else has been written.
func (v *view) writeHead(w *segmentWriter) error {
	key := v.headKey()
	if segments, ok := v.r.heads.get(key); ok {
		w.segments = segments
		return nil
	}
	if _, err := v.Tools(); err != nil {
		return fmt.Errorf("format %s: %w", v.r.name, err)
	}
	if err := v.r.execute(w, pieceHead, v); err != nil {
		return err
	}
	v.r.heads.put(key, w.segments)
	return nil
}

// standAt makes the view that of a piece written after the first i messages.
func (v *view) standAt(i int) {
	v.AfterUser = i > 0 && v.c.Messages[i-1].Role == chat.User
	v.AfterTool = i > 0 && v.c.Messages[i-1].Role == chat.ToolRole
}

func viewTool(t chat.Tool) (toolView, error) {
	out := toolView{Name: t.Name, Description: t.Description}
	members := []Member{{"name", stringValue(t.Name)}}
	if t.Description != "" {
		members = append(members, Member{"description", stringValue(t.Description)})
	}
	if len(t.Parameters) > 0 {
		p, err := ParseValue(t.Parameters)
		if err != nil {
			return out, fmt.Errorf("read parameters of tool %q: %w", t.Name, err)
		}
		out.Parameters = p
		members = append(members, Member{"parameters", p})
	}
	out.Function = Value{kind: kindObject, members: members}
	out.Definition = Value{kind: kindObject, members: []Member{{"type", stringValue("function")}, {"function", out.Function}}}
	return out, nil
}

func stringValue(s string) Value { return Value{kind: kindString, text: s} }

// writeMessage renders message i.
func (v *view) writeMessage(w *segmentWriter, i int) error {
	m := v.c.Messages[i]
	w.message = i
	v.standAt(i)
	for _, p := range m.Parts {
		if p.Type == chat.Image {
			return fmt.Errorf("format %s: message %d has an image, which this format can't render", v.r.name, i)
		}
	}
	switch m.Role {
	case chat.System:
		return v.r.execute(w, pieceSystem, messageView{view: v, Text: joinText(m.Parts, "\n\n")})
	case chat.User:
		return v.r.execute(w, pieceUser, messageView{view: v, Text: joinText(m.Parts, "\n"), FirstTurn: i == v.first, LastTurn: i == v.query})
	case chat.Assistant:
		return v.writeAssistant(w, i)
	case chat.ToolRole:
		return v.writeResults(w, i)
	}
	return fmt.Errorf("format %s: message %d has role %q", v.r.name, i, m.Role)
}

func (v *view) writeAssistant(w *segmentWriter, i int) error {
	m := v.assistant(i)
	v.calls += len(m.Calls)
	for _, piece := range []string{pieceAssistant, pieceStop, pieceAfter} {
		if err := v.r.execute(w, piece, m); err != nil {
			return err
		}
	}
	return nil
}

// assistant is message i, an assistant's, for the templates.
func (v *view) assistant(i int) messageView {
	m := v.c.Messages[i]
	view := messageView{
		view: v, Text: joinText(m.Parts, ""), Keep: v.keeps(i, v.query), LastTurn: i > v.query,
	}
	reasoning := joinReasoning(m.Parts)
	view.Reasoned = reasoning != ""
	if view.Keep {
		view.Reasoning = reasoning
	}
	for n, p := range chat.Calls(m.Parts) {
		call := callView{ID: v.id(p.ID), Name: p.Name, First: n == 0, Index: v.calls + n}
		call.Args, call.Raw = arguments(p)
		call.Params = call.Args.members
		view.Calls = append(view.Calls, call)
	}
	if n := len(view.Calls); n > 0 {
		view.Calls[n-1].Last = true
	}
	return view
}

// arguments are those of a call: an object, or text that is none.
func arguments(p chat.Part) (Value, string) {
	v, err := ParseValue(p.Arguments)
	if err == nil && v.IsString() {
		if inner, err := ParseValue([]byte(v.text)); err == nil && inner.IsObject() {
			return inner, ""
		}
		return Value{}, v.text
	}
	switch {
	case len(p.Arguments) == 0 || err == nil && v.IsNull():
		return Value{kind: kindObject}, ""
	case err != nil || !v.IsObject():
		return Value{}, string(p.Arguments)
	}
	return v, ""
}

// writeResults renders the results of tools in message i, usually one.
func (v *view) writeResults(w *segmentWriter, i int) error {
	all := v.c.Messages
	var results []messageView
	for _, p := range all[i].Parts {
		if p.Type != chat.ToolResult {
			continue
		}
		for _, c := range p.Content {
			if c.Type == chat.Image {
				return fmt.Errorf("format %s: the tool result in message %d has an image, which this format can't render", v.r.name, i)
			}
		}
		results = append(results, messageView{view: v, Text: ResultText(p), Name: v.resultName(p, i), ID: v.id(p.ID)})
	}
	if len(results) == 0 {
		results = []messageView{{view: v, Text: joinText(all[i].Parts, "\n")}}
	}
	if i == 0 || all[i-1].Role != chat.ToolRole {
		v.run = 0
	}
	index := v.run
	v.run++
	for n, m := range results {
		m.First = n == 0 && (i == 0 || all[i-1].Role != chat.ToolRole)
		m.Last = n == len(results)-1 && (i+1 == len(all) || all[i+1].Role != chat.ToolRole)
		m.Index = index + n
		if err := v.r.execute(w, pieceTool, m); err != nil {
			return err
		}
	}
	return nil
}

// resultName is the name of the tool that a result is of, from the result or
// from its call.
func (v *view) resultName(p chat.Part, i int) string {
	if p.Name != "" {
		return p.Name
	}
	if v.names == nil {
		v.names = map[string]string{}
	}
	for ; v.named <= i; v.named++ {
		for _, c := range v.c.Messages[v.named].Parts {
			if c.Type == chat.ToolCall {
				v.names[c.ID] = c.Name
			}
		}
	}
	return v.names[p.ID]
}

// ResultText is the text of a tool's result as prompts have it. Templates have no place for is_error, so an
// error says so itself: where it doesn't, "Error: " is put in front.
func ResultText(p chat.Part) string {
	s := joinText(p.Content, "\n")
	if !p.IsError {
		return s
	}
	start := strings.ToLower(strings.TrimLeft(s, " \t\r\n<"))
	for _, word := range []string{"error", "tool_use_error", "exception", "traceback"} {
		if strings.HasPrefix(start, word) {
			return s
		}
	}
	if s == "" {
		s = "the tool failed without a message"
	}
	return "Error: " + s
}

// joinText joins the text parts.
func joinText(parts []chat.Part, sep string) string {
	var texts []string
	for _, p := range parts {
		if p.Type == chat.Text {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, sep)
}

// joinReasoning joins the reasoning that can be read; a redacted block has no
// text.
func joinReasoning(parts []chat.Part) string {
	var texts []string
	for _, p := range parts {
		if p.Type == chat.Reasoning && p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}
