// Package bedrock is the Messages dialect as Amazon Bedrock and Google's Vertex
// AI serve it: requests that name their model in the path, and for Bedrock
// replies in the binary event stream of AWS and errors in its own shape. What
// is inside is package anthropic's.
//
// What never enters: signatures of requests. A session's token is in the path
// or a bearer token.
package bedrock

import (
	"encoding/json"
	"strings"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/anthropic"
	"github.com/penstock-dev/penstock/core/wire/sse"
)

type dialect struct {
	wire.Dialect
	wire.TokenCounter
	name string
}

// NewVertex returns the dialect of Vertex AI, which differs in its path alone.
func NewVertex() wire.Dialect { return inside("vertex") }

func inside(name string) dialect {
	d := anthropic.New()
	return dialect{Dialect: d, TokenCounter: d.(wire.TokenCounter), name: name}
}

// Name implements wire.Dialect.
func (d dialect) Name() string { return d.name }

type bedrock struct{ dialect }

// New returns the dialect of Bedrock. It is a wire.StreamTyper too.
func New() wire.Dialect { return bedrock{inside("bedrock")} }

// Stream implements wire.Dialect.
func (d bedrock) Stream() wire.Stream { return newStream(d.Dialect.Stream()) }

// StreamType implements wire.StreamTyper.
func (bedrock) StreamType() string { return "application/vnd.amazon.eventstream" }

// exceptions are the status and the name of each kind of error.
var exceptions = map[wire.ErrorKind]struct {
	status int
	name   string
}{
	wire.Invalid:         {400, "ValidationException"},
	wire.ContextOverflow: {400, "ValidationException"},
	wire.Unauthorized:    {403, "UnrecognizedClientException"},
	wire.Forbidden:       {403, "AccessDeniedException"},
	wire.NotFound:        {404, "ResourceNotFoundException"},
	wire.NoRoute:         {404, "ResourceNotFoundException"},
	wire.WrongMethod:     {405, "ValidationException"},
	wire.TooLarge:        {413, "ValidationException"},
	wire.RateLimited:     {429, "ThrottlingException"},
	wire.Internal:        {500, "InternalServerException"},
	wire.Upstream:        {502, "InternalServerException"},
	wire.Overloaded:      {503, "ServiceUnavailableException"},
}

// Error implements wire.Dialect. The words are those of package anthropic,
// which clients look into.
func (d bedrock) Error(e *wire.Error) (status int, body []byte) {
	x, ok := exceptions[e.Kind]
	if !ok {
		x = exceptions[wire.Internal]
	}
	_, inner := d.Dialect.Error(e)
	return x.status, exception(x.name, inner)
}

// exception writes an error of package anthropic as one of Bedrock.
func exception(name string, inner []byte) []byte {
	b := sse.AppendString([]byte(`{"__type":`), name)
	b = sse.AppendString(append(b, `,"message":`...), message(inner))
	return append(b, '}')
}

func message(inner []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(inner, &e) // it is our own
	return e.Error.Message
}

// Match reads /model/ID/invoke and /model/ID/invoke-with-response-stream.
func Match(path string) (model string, stream, ok bool) {
	rest, ok := strings.CutPrefix(path, "/model/")
	if !ok {
		return "", false, false
	}
	i := strings.LastIndexByte(rest, '/')
	if i < 1 {
		return "", false, false
	}
	switch rest[i+1:] {
	case "invoke":
		return rest[:i], false, true
	case "invoke-with-response-stream":
		return rest[:i], true, true
	}
	return "", false, false
}

// MatchVertex reads .../publishers/anthropic/models/ID:rawPredict and
// :streamRawPredict below /v1/projects/. The model count-tokens counts: its
// body says of which model.
func MatchVertex(path string) (model string, stream, count, ok bool) {
	if !strings.HasPrefix(path, "/v1/projects/") {
		return "", false, false, false
	}
	_, rest, ok := strings.Cut(path, "/publishers/anthropic/models/")
	i := strings.LastIndexByte(rest, ':')
	if !ok || i < 1 {
		return "", false, false, false
	}
	model = rest[:i]
	switch method := rest[i+1:]; {
	case method == "rawPredict" && model == "count-tokens":
		return "", false, true, true
	case method == "rawPredict":
		return model, false, false, true
	case method == "streamRawPredict":
		return model, true, false, true
	}
	return "", false, false, false
}
