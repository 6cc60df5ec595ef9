package responses

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/callargs"
	"github.com/penstock-dev/penstock/core/wire/openai"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// stream writes one reply. Each method builds its events in buf and writes
// them at once. Events are numbered from 0 without a gap.
type stream struct {
	now   func() time.Time
	tools map[string]form

	buf     []byte
	reply   chat.Reply // its ID and Model
	created int64
	started bool
	next    int // number of the next event

	output []byte // the items that are done, separated by commas
	count  int    // items opened so far
	item   *outItem
	part   int // of the deltas of the open item
	text   []byte
	held   []byte // arguments of a custom call
	runes  sse.Runes
	args   callargs.Stream
}

// Start implements wire.Stream. Codex doesn't count comments as activity, so
// that Start should come before a long wait: after it KeepAlive writes an
// event.
func (s *stream) Start(w io.Writer, r *chat.Reply) error {
	s.buf, s.started, s.created = s.buf[:0], true, s.now().Unix()
	s.reply = chat.Reply{ID: r.ID, Model: r.Model}
	for _, name := range []string{"response.created", "response.in_progress"} {
		s.event(name)
		b := append(s.buf, `,"response":`...)
		b = appendHead(b, &s.reply, s.created, "in_progress", "null", "null")
		s.buf = append(b, `,"output":[],"usage":null}`...)
		s.end()
	}
	return s.flush(w)
}

// event opens an event; end closes it.
func (s *stream) event(name string) {
	b := append(s.buf, "event: "...)
	b = append(b, name...)
	b = append(b, "\ndata: {\"type\":\""...)
	b = append(b, name...)
	b = append(b, `","sequence_number":`...)
	s.buf = strconv.AppendInt(b, int64(s.next), 10)
	s.next++
}

func (s *stream) end() { s.buf = append(s.buf, "}\n\n"...) }

// itemEvent opens an event about what is inside the open item.
func (s *stream) itemEvent(name string) {
	s.event(name)
	b := append(s.buf, `,"item_id":`...)
	b = sse.AppendString(b, s.item.id)
	b = append(b, `,"output_index":`...)
	b = strconv.AppendInt(b, int64(s.count-1), 10)
	switch s.item.kind {
	case "message":
		b = append(b, `,"content_index":0`...)
	case "reasoning":
		b = append(b, `,"summary_index":0`...)
	}
	s.buf = b
}

// field appends a string to the open event.
func (s *stream) field(name, text string) {
	b := append(s.buf, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	s.buf = sse.AppendString(b, text)
}

// deltaNames are the events of the text of each kind of item.
var deltaNames = map[string]string{
	"message":          "response.output_text.delta",
	"reasoning":        "response.reasoning_summary_text.delta",
	"function_call":    "response.function_call_arguments.delta",
	"custom_tool_call": "response.custom_tool_call_input.delta",
}

// Delta implements wire.Stream. The input of a custom call is inside its
// arguments and goes out when they are whole.
func (s *stream) Delta(w io.Writer, d chat.Delta) error {
	s.buf = s.buf[:0]
	if s.item != nil && d.Part != s.part {
		s.close()
	}
	switch d.Type {
	case chat.DeltaText:
		if d.Text != "" {
			s.open(d, chat.Part{Type: chat.Text})
			s.send(s.runes.Next(d.Text))
		}
	case chat.DeltaReasoning:
		s.open(d, chat.Part{Type: chat.Reasoning})
		s.send(s.runes.Next(d.Text))
	case chat.DeltaSignature, chat.DeltaRedacted:
		s.open(d, chat.Part{Type: chat.Reasoning})
		s.item.seal += d.Text
	case chat.DeltaCallStart:
		s.open(d, chat.Part{Type: chat.ToolCall, ID: d.ID, Name: d.Name})
	case chat.DeltaCallArgs:
		if s.item == nil || s.item.kind != "function_call" && s.item.kind != "custom_tool_call" {
			return fmt.Errorf("write an event: arguments of part %d before its call_start", d.Part)
		}
		if s.item.form.custom {
			s.held = append(s.held, d.Text...)
		} else {
			s.send(s.args.Next(d.Text))
		}
	case chat.DeltaPartEnd:
		s.close()
	default:
		return fmt.Errorf("write an event: a delta of type %q can't be sent", d.Type)
	}
	return s.flush(w)
}

// open opens the item of a delta, unless it is open.
func (s *stream) open(d chat.Delta, p chat.Part) {
	if s.item != nil {
		return
	}
	s.item, s.part = newItem(s.tools, s.reply.ID, s.count, p), d.Part
	s.text, s.held = s.text[:0], s.held[:0]
	s.event("response.output_item.added")
	s.buf = append(s.buf, `,"output_index":`...)
	s.buf = strconv.AppendInt(s.buf, int64(s.count), 10)
	s.buf = append(s.buf, `,"item":`...)
	s.buf = s.item.append(s.buf, false)
	s.end()
	s.count++
	if s.item.kind == "message" {
		s.itemEvent("response.content_part.added")
		s.buf = appendText(append(s.buf, `,"part":`...), "")
		s.end()
	}
}

// send sends the next text of the open item.
func (s *stream) send(text string) {
	if text == "" {
		return
	}
	if s.item.kind == "reasoning" && len(s.text) == 0 {
		s.itemEvent("response.reasoning_summary_part.added")
		s.buf = appendSummary(append(s.buf, `,"part":`...), "")
		s.end()
	}
	s.text = append(s.text, text...)
	s.itemEvent(deltaNames[s.item.kind])
	s.field("delta", text)
	if s.item.kind == "message" {
		s.buf = append(s.buf, `,"logprobs":[]`...)
	}
	s.end()
}

// close ends the open item with what it still owes.
func (s *stream) close() {
	it := s.item
	if it == nil {
		return
	}
	switch it.kind {
	case "function_call":
		s.send(s.args.Rest())
	case "custom_tool_call":
		s.send(customInput(s.held))
	default:
		s.send(s.runes.Rest())
	}
	it.text = string(s.text)
	s.done(it)
	if s.count > 1 {
		s.output = append(s.output, ',')
	}
	at := len(s.output)
	s.output = it.append(s.output, true)
	s.event("response.output_item.done")
	s.buf = append(s.buf, `,"output_index":`...)
	s.buf = strconv.AppendInt(s.buf, int64(s.count-1), 10)
	s.buf = append(s.buf, `,"item":`...)
	s.buf = append(s.buf, s.output[at:]...)
	s.end()
	s.item = nil
}

// done says the whole text of an item.
func (s *stream) done(it *outItem) {
	switch it.kind {
	case "message":
		s.itemEvent("response.output_text.done")
		s.field("text", it.text)
		s.buf = append(s.buf, `,"logprobs":[]`...)
		s.end()
		s.itemEvent("response.content_part.done")
		s.buf = appendText(append(s.buf, `,"part":`...), it.text)
		s.end()
	case "reasoning":
		if it.text == "" {
			return
		}
		s.itemEvent("response.reasoning_summary_text.done")
		s.field("text", it.text)
		s.end()
		s.itemEvent("response.reasoning_summary_part.done")
		s.buf = appendSummary(append(s.buf, `,"part":`...), it.text)
		s.end()
	case "function_call":
		s.itemEvent("response.function_call_arguments.done")
		s.field("name", it.form.name)
		s.field("arguments", it.text)
		s.end()
	case "custom_tool_call":
		s.itemEvent("response.custom_tool_call_input.done")
		s.field("input", it.text)
		s.end()
	}
}

// Finish implements wire.Stream. A reply that failed ends as failed.
func (s *stream) Finish(w io.Writer, r *chat.Reply) error {
	if r.Finish == chat.FinishError {
		return s.Error(w, wire.Errorf(wire.Upstream, "The reply was cut"))
	}
	s.buf = s.buf[:0]
	s.close()
	name := "response.completed"
	if r.Finish == chat.FinishLength || r.Finish == chat.FinishRefusal {
		name = "response.incomplete"
	}
	s.event(name)
	ended := chat.Reply{ID: s.reply.ID, Model: s.reply.Model, Finish: r.Finish, Usage: r.Usage}
	s.buf = append(s.buf, `,"response":`...)
	s.buf = appendResponse(s.buf, &ended, s.created, func(b []byte) []byte { return append(b, s.output...) })
	s.end()
	return s.flush(w)
}

// KeepAlive implements wire.Stream.
func (s *stream) KeepAlive(w io.Writer) error {
	if !s.started {
		_, err := io.WriteString(w, sse.Comment)
		return err
	}
	s.buf = s.buf[:0]
	s.event("keepalive")
	s.end()
	return s.flush(w)
}

// Error implements wire.Stream: a failed response, or a bare error when none
// was started.
func (s *stream) Error(w io.Writer, e *wire.Error) error {
	s.buf = s.buf[:0]
	code, text := openai.Code(e)
	if code == "" {
		code = "server_error"
	}
	failure := append([]byte(nil), `{"code":`...)
	failure = sse.AppendString(failure, code)
	failure = append(failure, `,"message":`...)
	failure = append(sse.AppendString(failure, text), '}')
	if !s.started {
		s.event("error")
		s.field("code", code)
		s.field("message", text)
		s.buf = append(s.buf, `,"param":null`...)
		s.end()
		return s.flush(w)
	}
	s.event("response.failed")
	s.buf = append(s.buf, `,"response":`...)
	s.buf = appendHead(s.buf, &s.reply, s.created, "failed", string(failure), "null")
	s.buf = append(s.buf, `,"output":[`...)
	s.buf = append(s.buf, s.output...)
	s.buf = append(s.buf, `],"usage":null}`...)
	s.end()
	return s.flush(w)
}

func (s *stream) flush(w io.Writer) error {
	if len(s.buf) == 0 {
		return nil
	}
	_, err := w.Write(s.buf)
	return err
}
