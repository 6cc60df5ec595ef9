package bedrock

import (
	"bytes"
	"encoding/base64"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// stream puts each event of the Messages dialect into a frame.
type stream struct {
	inner wire.Stream
	frame *eventstream.Encoder
	sse   bytes.Buffer // what inner wrote
	out   bytes.Buffer
}

func newStream(inner wire.Stream) *stream {
	return &stream{inner: inner, frame: eventstream.NewEncoder()}
}

// Start implements wire.Stream.
func (s *stream) Start(w io.Writer, r *chat.Reply) error {
	return s.write(w, func(w io.Writer) error { return s.inner.Start(w, r) })
}

// Delta implements wire.Stream.
func (s *stream) Delta(w io.Writer, d chat.Delta) error {
	return s.write(w, func(w io.Writer) error { return s.inner.Delta(w, d) })
}

// Finish implements wire.Stream.
func (s *stream) Finish(w io.Writer, r *chat.Reply) error {
	return s.write(w, func(w io.Writer) error { return s.inner.Finish(w, r) })
}

// KeepAlive implements wire.Stream. A frame is an event, so that Start has to
// come first; before it nothing is written.
func (s *stream) KeepAlive(w io.Writer) error { return s.write(w, s.inner.KeepAlive) }

// Error implements wire.Stream.
func (s *stream) Error(w io.Writer, e *wire.Error) error {
	return s.write(w, func(w io.Writer) error { return s.inner.Error(w, e) })
}

var (
	eventPrefix = []byte("event: ")
	dataPrefix  = []byte("data: ")
	failed      = []byte("error")
)

// write frames what f writes: events of one data line each, and comments,
// which go nowhere.
func (s *stream) write(w io.Writer, f func(io.Writer) error) error {
	s.sse.Reset()
	s.out.Reset()
	if err := f(&s.sse); err != nil {
		return err
	}
	var name []byte
	for line := range bytes.Lines(s.sse.Bytes()) {
		line = bytes.TrimRight(line, "\n")
		if rest, ok := bytes.CutPrefix(line, eventPrefix); ok {
			name = rest
			continue
		}
		data, ok := bytes.CutPrefix(line, dataPrefix)
		if !ok {
			continue
		}
		m := chunk(data)
		if bytes.Equal(name, failed) {
			m = failure(data)
		}
		if err := s.frame.Encode(&s.out, m); err != nil {
			return err
		}
	}
	if s.out.Len() == 0 {
		return nil
	}
	_, err := w.Write(s.out.Bytes())
	return err
}

// chunk is the frame of an event.
func chunk(event []byte) eventstream.Message {
	payload := append([]byte(nil), `{"bytes":"`...)
	payload = base64.StdEncoding.AppendEncode(payload, event)
	return frameOf("event", ":event-type", "chunk", append(payload, `"}`...))
}

// failure is the frame of an error in mid-stream.
func failure(inner []byte) eventstream.Message {
	const name = "modelStreamErrorException"
	return frameOf("exception", ":exception-type", name, exception(name, inner))
}

func frameOf(kind, typeHeader, name string, payload []byte) eventstream.Message {
	var h eventstream.Headers
	h.Set(typeHeader, eventstream.StringValue(name))
	h.Set(":content-type", eventstream.StringValue("application/json"))
	h.Set(":message-type", eventstream.StringValue(kind))
	return eventstream.Message{Headers: h, Payload: payload}
}
