package gemini

import (
	"fmt"
	"io"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// stream writes one reply as chunks, each a response of its own. A call is one
// part and goes out when it is whole. The chunks are server-sent events or the
// items of one array.
type stream struct {
	array     bool
	some      bool // an item of the array was written
	buf       []byte
	identity  []byte
	open      bool
	kind      chat.PartType
	part      int // of the deltas of the open part
	runes     sse.Runes
	call      chat.Part
	signature string
}

// Start implements wire.Stream. There is nothing to say before the first part.
func (s *stream) Start(_ io.Writer, r *chat.Reply) error {
	s.identity = appendIdentity(s.identity[:0], r)
	return nil
}

// Delta implements wire.Stream. Redacted reasoning has no form here.
func (s *stream) Delta(w io.Writer, d chat.Delta) error {
	s.buf = s.buf[:0]
	if s.open && d.Part != s.part {
		s.close()
	}
	switch d.Type {
	case chat.DeltaText:
		s.start(chat.Text, d)
		s.say(s.runes.Next(d.Text), "")
	case chat.DeltaReasoning:
		s.start(chat.Reasoning, d)
		s.say(s.runes.Next(d.Text), "")
	case chat.DeltaSignature:
		s.start(chat.Reasoning, d)
		s.signature += d.Text
	case chat.DeltaRedacted:
	case chat.DeltaCallStart:
		s.start(chat.ToolCall, d)
		s.call = chat.Part{Type: chat.ToolCall, ID: d.ID, Name: d.Name}
	case chat.DeltaCallArgs:
		if !s.open || s.kind != chat.ToolCall {
			return fmt.Errorf("write a chunk: arguments of part %d before its call_start", d.Part)
		}
		s.call.Arguments = append(s.call.Arguments, d.Text...)
	case chat.DeltaPartEnd:
		s.close()
	default:
		return fmt.Errorf("write a chunk: a delta of type %q can't be sent", d.Type)
	}
	return s.flush(w)
}

func (s *stream) start(kind chat.PartType, d chat.Delta) {
	if s.open && s.kind == kind {
		return
	}
	s.close()
	s.open, s.kind, s.part, s.signature = true, kind, d.Part, ""
}

// say sends text of the open part. What goes out with a signature is the end
// of the part.
func (s *stream) say(text, signature string) {
	if text != "" || signature != "" {
		s.chunk(chat.Part{Type: s.kind, Text: text, Signature: signature})
	}
}

// chunk appends a chunk with one part.
func (s *stream) chunk(p chat.Part) {
	b := append(s.item(), `{"candidates":[{"content":{"role":"model","parts":[`...)
	b = appendPart(b, p)
	b = append(b, `]},"index":0}]`...)
	b = append(b, s.identity...)
	s.buf = s.end(append(b, '}'))
}

// item is the buffer with what stands ahead of a chunk.
func (s *stream) item() []byte {
	switch {
	case !s.array:
		return append(s.buf, "data: "...)
	case s.some:
		return append(s.buf, ",\n"...)
	}
	s.some = true
	return append(s.buf, '[')
}

// end appends what stands behind a chunk.
func (s *stream) end(b []byte) []byte {
	if s.array {
		return b
	}
	return append(b, "\n\n"...)
}

// last is end for the chunk that no other follows.
func (s *stream) last(b []byte) []byte {
	if s.array {
		return append(b, "]\n"...)
	}
	return s.end(b)
}

func (s *stream) close() {
	if !s.open {
		return
	}
	if s.kind == chat.ToolCall {
		s.chunk(s.call)
	} else {
		s.say(s.runes.Rest(), s.signature)
	}
	s.open = false
}

// Finish implements wire.Stream. A reply that failed isn't ended: clients
// would take it for a whole one.
func (s *stream) Finish(w io.Writer, r *chat.Reply) error {
	if r.Finish == chat.FinishError {
		return s.Error(w, wire.Errorf(wire.Upstream, "The reply was cut"))
	}
	s.buf = s.buf[:0]
	s.close()
	b := append(s.item(), `{"candidates":[{"content":{"role":"model","parts":[{"text":""}]},"finishReason":"`...)
	b = append(b, finishReason(r.Finish)...)
	b = append(b, `","index":0}],"usageMetadata":`...)
	b = appendUsage(b, r.Usage)
	b = append(b, s.identity...)
	s.buf = s.last(append(b, '}'))
	return s.flush(w)
}

// KeepAlive implements wire.Stream: an empty chunk, because the official SDK
// reads nothing but data. Between the items of an array it is a blank, which
// JSON allows.
func (s *stream) KeepAlive(w io.Writer) error {
	beat := "data: {}\n\n"
	if s.array {
		beat = "\n"
	}
	_, err := io.WriteString(w, beat)
	return err
}

// Error implements wire.Stream.
func (s *stream) Error(w io.Writer, e *wire.Error) error {
	s.buf = s.buf[:0]
	s.buf = s.last(appendError(s.item(), e))
	return s.flush(w)
}

func (s *stream) flush(w io.Writer) error {
	if len(s.buf) == 0 {
		return nil
	}
	_, err := w.Write(s.buf)
	return err
}
