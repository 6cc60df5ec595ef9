package bedrock

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream/exchange"
)

// frames is the body of a streamed reply: it reads frames and gives the events
// of the Messages API that are in them, as server-sent events.
type frames struct {
	body    io.ReadCloser
	decoder *eventstream.Decoder
	buf     []byte // of a frame's payload
	out     bytes.Buffer
	err     error
}

// unframed gives a response's stream as package anthropic reads it.
func unframed(r *http.Response) (*http.Response, error) {
	const want = "application/vnd.amazon.eventstream"
	if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, want) {
		return r, nil // its reader says what came instead
	}
	r.Header.Set("Content-Type", "text/event-stream")
	r.Body = &frames{body: r.Body, decoder: eventstream.NewDecoder()}
	r.ContentLength = -1
	return r, nil
}

// Read implements io.Reader. It reads one frame at most once it has something
// to give, so that an event leaves when it has come.
func (f *frames) Read(p []byte) (int, error) {
	for f.out.Len() == 0 {
		if f.err != nil {
			return 0, f.err
		}
		if f.err = f.next(); f.err != nil {
			return 0, f.err
		}
	}
	return f.out.Read(p)
}

// Close implements io.Closer.
func (f *frames) Close() error { return f.body.Close() }

func (f *frames) next() error {
	watched := &reader{r: f.body}
	m, err := f.decoder.Decode(watched, f.buf[:0])
	switch {
	case errors.Is(err, io.EOF) && watched.n == 0:
		return io.EOF
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case err != nil:
		return fmt.Errorf("read a frame of the event stream: %w", err)
	}
	f.buf = m.Payload
	if kind := text(m.Headers, ":message-type"); kind == "exception" || kind == "error" {
		return f.event(failure(m))
	}
	event, err := base64.StdEncoding.DecodeString(gjson.GetBytes(m.Payload, "bytes").String())
	if err != nil {
		return fmt.Errorf("read a frame of the event stream: its bytes: %w", err)
	}
	if len(event) == 0 {
		return nil // what a later version of the stream adds
	}
	return f.event(event)
}

// event writes one server-sent event, named as clients expect it, whose data is
// JSON on one line.
func (f *frames) event(data []byte) error {
	if name := gjson.GetBytes(data, "type").String(); !strings.ContainsAny(name, "\r\n") {
		f.out.WriteString("event: " + name + "\n")
	}
	f.out.WriteString("data: ")
	if err := json.Compact(&f.out, data); err != nil {
		return fmt.Errorf("read a frame of the event stream: its event: %w", err)
	}
	f.out.WriteString("\n\n")
	return nil
}

// kinds are the errors of the Messages API that Bedrock's exceptions are.
var kinds = map[string]string{
	"throttlingException":         "rate_limit_error",
	"serviceUnavailableException": "overloaded_error",
	"modelTimeoutException":       "timeout_error",
	"validationException":         "invalid_request_error",
}

// failure is a frame that is an exception, or an error of the transport, as the
// error event of the Messages API.
func failure(m eventstream.Message) []byte {
	name := text(m.Headers, ":exception-type")
	message := gjson.GetBytes(m.Payload, "message").String()
	if name == "" {
		name, message = text(m.Headers, ":error-code"), text(m.Headers, ":error-message")
	}
	if message == "" {
		message = string(m.Payload)
	}
	kind, ok := kinds[name]
	if !ok {
		kind = "api_error"
	}
	data := exchange.AppendString([]byte(`{"type":"error","error":{"type":`), kind)
	data = exchange.AppendString(append(data, `,"message":`...), strings.TrimSuffix(name+": "+message, ": "))
	return append(data, "}}"...)
}

func text(h eventstream.Headers, name string) string {
	if v := h.Get(name); v != nil {
		return v.String()
	}
	return ""
}

// reader counts what was read, to tell the end of a stream from the end within
// a frame.
type reader struct {
	r io.Reader
	n int
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.n += n
	return n, err
}
