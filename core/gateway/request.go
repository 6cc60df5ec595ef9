package gateway

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/wire"
)

// bodyTimeout bounds the reading of one request.
const bodyTimeout = time.Minute

// decode reads the request.
func (c *call) decode() *failure {
	body, e := c.read()
	if e != nil {
		c.rec.Body = body
		return &failure{trace.CallInvalid, e}
	}
	req, err := c.parse(body)
	if err != nil {
		c.rec.Body = body
		var refused *wire.Error
		if !errors.As(err, &refused) {
			refused = wire.Errorf(wire.Invalid, "%v", err)
		}
		return &failure{trace.CallInvalid, refused}
	}
	if t := c.in.target; t.Model != "" {
		req.Model, req.Stream = t.Model, t.Stream
	}
	c.req, c.conv, c.body = req, &req.Chat, body
	c.own = c.s.info.Dialect != "" && c.s.info.Dialect == c.in.dialect.Name()
	c.out.early = c.out.early && !c.own // the opening comes from the upstream
	c.rec.Stream, c.rec.ModelAsked, c.rec.Unknown = req.Stream, req.Model, req.Unknown
	c.rec.Envelope, c.rec.Messages = req.Envelope, req.Messages
	c.rec.Requested = req.Chat.Sampling
	return c.check()
}

// check holds a request against what the model and the gateway take.
func (c *call) check() *failure {
	ok, note := c.m.accept(c.req.Model)
	if !ok {
		return fail(trace.CallInvalid, wire.NotFound, "model: %s (this session serves %s)", c.req.Model, c.m.served())
	}
	if note != "" {
		c.rec.Warnings = append(c.rec.Warnings, trace.Warning{Kind: note})
	}
	most := c.g.o.Limits
	if n := len(c.req.Messages); n > most.Messages {
		return fail(trace.CallInvalid, wire.TooLarge, "the request has %d messages, more than the limit of %d", n, most.Messages)
	}
	if n := len(c.req.Chat.Tools); n > most.Tools {
		return fail(trace.CallInvalid, wire.TooLarge, "the request has %d tools, more than the limit of %d", n, most.Tools)
	}
	if err := checkImages(c.req.Chat.Messages); err != nil {
		return fail(trace.CallInvalid, wire.Invalid, "%v", err)
	}
	if refused := c.req.Refusal(); refused != nil && !c.own {
		return &failure{trace.CallInvalid, refused}
	}
	return c.allowed()
}

// parse decodes the body, of which only a generation needs all.
func (c *call) parse(body []byte) (*wire.Request, error) {
	if c.counting {
		return c.in.dialect.Dialect.(wire.TokenCounter).DecodeCount(body)
	}
	return c.in.dialect.Decode(body)
}

// read reads the body. What could be read comes with an error too.
func (c *call) read() ([]byte, *wire.Error) {
	r := c.in.r
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, wire.Errorf(wire.Invalid, "content type is %q, want application/json", r.Header.Get("Content-Type"))
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, wire.Errorf(wire.Invalid, "content encoding %q is not supported", enc)
	}
	limit := c.g.o.BodyLimit
	if r.ContentLength > limit {
		return nil, wire.Errorf(wire.TooLarge, "the request is %d bytes, more than the limit of %d", r.ContentLength, limit)
	}
	// A writer without deadlines is a test's recorder, which never blocks.
	_ = c.out.control.SetReadDeadline(time.Now().Add(bodyTimeout))
	from := http.MaxBytesReader(c.in.w, c.in.sent, limit)
	// A body of a known length is one piece; another grows by pieces, so that it
	// is copied once.
	var pieces [][]byte
	piece := make([]byte, 0, max(r.ContentLength+1, 512))
	for {
		n, err := from.Read(piece[len(piece):cap(piece)])
		piece = piece[:len(piece)+n]
		var large *http.MaxBytesError
		switch {
		case err == io.EOF:
			// A deadline left behind would look like a client that went away.
			_ = c.out.control.SetReadDeadline(time.Time{})
			return joined(pieces, piece), nil
		case errors.As(err, &large):
			return nil, wire.Errorf(wire.TooLarge, "the request is more than the limit of %d bytes", limit)
		case err != nil:
			return joined(pieces, piece), wire.Errorf(wire.Invalid, "the request could not be read: %v", err)
		}
		if len(piece) == cap(piece) {
			pieces = append(pieces, piece)
			piece = make([]byte, 0, min(2*cap(piece), 1<<20))
		}
	}
}

func joined(pieces [][]byte, last []byte) []byte {
	if len(pieces) == 0 {
		return last
	}
	return slices.Concat(append(pieces, last)...)
}

// headersToKeep are the headers that a record has: none that may hold a
// credential, and none that only concern the connection.
func headersToKeep(h http.Header, tokens []string) map[string]string {
	out := make(map[string]string, len(h))
	for name, values := range h {
		lower, value := strings.ToLower(name), strings.Join(values, ", ")
		switch {
		case lower == "accept", lower == "accept-encoding", lower == "accept-language", lower == "connection", lower == "content-length", strings.HasPrefix(lower, "sec-fetch-"):
		case secretName(lower):
		case holdsToken(value, tokens):
		default:
			out[lower] = value
		}
	}
	return out
}

func holdsToken(value string, tokens []string) bool {
	return slices.ContainsFunc(tokens, func(t string) bool { return t != "" && strings.Contains(value, t) })
}

// queryToKeep is the query without what may be a credential.
func queryToKeep(q url.Values, tokens []string) string {
	for name, values := range q {
		if secretName(strings.ToLower(name)) || holdsToken(strings.Join(values, ", "), tokens) {
			q.Del(name)
		}
	}
	return q.Encode()
}

func secretName(name string) bool {
	for _, word := range []string{"auth", "key", "token", "secret", "cookie", "password", "credential", "signature"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
