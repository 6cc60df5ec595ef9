package openaichat

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

// stream writes one reply. Each method builds its chunks in buf and writes
// them at once.
type stream struct {
	now   func() time.Time
	usage bool // the client asked for the usage

	buf   []byte
	head  []byte // what each chunk begins with
	text  bool   // some text was sent
	calls int    // calls opened so far
	open  chat.DeltaType
	part  int // of the deltas of the open part
	runes sse.Runes
	args  callargs.Stream
}

// closed is the type of no delta: no part is open.
const closed chat.DeltaType = ""

// Start implements wire.Stream.
func (s *stream) Start(w io.Writer, r *chat.Reply) error {
	s.head = append(appendHead([]byte("data: "), "chat.completion.chunk", r, s.now().Unix()), `"choices":[`...)
	s.buf = s.buf[:0]
	s.choice(func(b []byte) []byte { return append(b, `"role":"assistant","content":null,"refusal":null`...) })
	return s.flush(w)
}

// choice appends a chunk whose delta is what add appends.
func (s *stream) choice(add func(b []byte) []byte) {
	b := append(s.buf, s.head...)
	b = append(b, `{"index":0,"delta":{`...)
	b = add(b)
	s.buf = s.end(append(b, `},"logprobs":null,"finish_reason":null}]`...))
}

// end closes a chunk.
func (s *stream) end(b []byte) []byte {
	if s.usage {
		b = append(b, `,"usage":null`...)
	}
	return append(b, "}\n\n"...)
}

// field appends a chunk whose delta is one string.
func (s *stream) field(name, text string) {
	if text == "" {
		return
	}
	s.choice(func(b []byte) []byte {
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":`...)
		return sse.AppendString(b, text)
	})
}

// Delta implements wire.Stream. Signatures and redacted reasoning have no
// form here.
func (s *stream) Delta(w io.Writer, d chat.Delta) error {
	s.buf = s.buf[:0]
	if s.open != closed && d.Part != s.part {
		s.close()
	}
	switch d.Type {
	case chat.DeltaText:
		s.start(d)
		s.say(s.runes.Next(d.Text))
	case chat.DeltaReasoning:
		s.start(d)
		s.field("reasoning_content", s.runes.Next(d.Text))
	case chat.DeltaSignature, chat.DeltaRedacted:
	case chat.DeltaCallStart:
		s.start(d)
		s.call(d)
	case chat.DeltaCallArgs:
		if s.open != chat.DeltaCallStart {
			return fmt.Errorf("write a chunk: arguments of part %d before its call_start", d.Part)
		}
		s.arguments(s.args.Next(d.Text))
	case chat.DeltaPartEnd:
		s.close()
	default:
		return fmt.Errorf("write a chunk: a delta of type %q can't be sent", d.Type)
	}
	return s.flush(w)
}

// start opens the part of a delta, unless it is open.
func (s *stream) start(d chat.Delta) {
	if s.open != d.Type {
		s.close()
		s.open, s.part = d.Type, d.Part
	}
}

func (s *stream) say(text string) {
	s.text = s.text || text != ""
	s.field("content", text)
}

func (s *stream) call(d chat.Delta) {
	s.choice(func(b []byte) []byte {
		b = append(b, `"tool_calls":[{"index":`...)
		b = strconv.AppendInt(b, int64(s.calls), 10)
		b = append(b, ',')
		b = append(b, appendCall(nil, chat.Part{ID: d.ID, Name: d.Name}, "")[1:]...)
		return append(b, ']')
	})
	s.calls++
}

func (s *stream) arguments(text string) {
	if text == "" {
		return
	}
	s.choice(func(b []byte) []byte {
		b = append(b, `"tool_calls":[{"index":`...)
		b = strconv.AppendInt(b, int64(s.calls-1), 10)
		b = append(b, `,"function":{"arguments":`...)
		b = sse.AppendString(b, text)
		return append(b, `}}]`...)
	})
}

// close ends the open part with what it still owes.
func (s *stream) close() {
	switch s.open {
	case chat.DeltaText:
		s.say(s.runes.Rest())
	case chat.DeltaReasoning:
		s.field("reasoning_content", s.runes.Rest())
	case chat.DeltaCallStart:
		s.arguments(s.args.Rest())
	}
	s.open = closed
}

// Finish implements wire.Stream. A reply that failed isn't ended: clients
// would take it for a whole one.
func (s *stream) Finish(w io.Writer, r *chat.Reply) error {
	if r.Finish == chat.FinishError {
		return s.Error(w, wire.Errorf(wire.Upstream, "The reply was cut"))
	}
	s.buf = s.buf[:0]
	s.close()
	if !s.text && s.calls == 0 {
		s.choice(func(b []byte) []byte { return append(b, `"content":""`...) })
	}
	b := append(s.buf, s.head...)
	b = append(b, `{"index":0,"delta":{},"logprobs":null,"finish_reason":"`...)
	b = append(b, finishReason(r.Finish, s.calls > 0)...)
	b = s.end(append(b, `"}]`...))
	if s.usage {
		b = append(b, s.head...)
		b = append(b, `],"usage":`...)
		b = append(appendUsage(b, r.Usage), "}\n\n"...)
	}
	s.buf = append(b, "data: [DONE]\n\n"...)
	return s.flush(w)
}

// KeepAlive implements wire.Stream.
func (s *stream) KeepAlive(w io.Writer) error {
	_, err := io.WriteString(w, sse.Comment)
	return err
}

// Error implements wire.Stream.
func (s *stream) Error(w io.Writer, e *wire.Error) error {
	s.buf = append(openai.AppendError(append(s.buf[:0], "data: "...), e), "\n\n"...)
	return s.flush(w)
}

func (s *stream) flush(w io.Writer) error {
	if len(s.buf) == 0 {
		return nil
	}
	_, err := w.Write(s.buf)
	return err
}
