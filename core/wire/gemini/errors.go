package gemini

import (
	"fmt"
	"strconv"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/sse"
)

// kind is the status of a kind of error, as a number and as a name.
type kind struct {
	status int
	name   string
}

var kinds = map[wire.ErrorKind]kind{
	wire.Invalid:         {400, "INVALID_ARGUMENT"},
	wire.ContextOverflow: {400, "INVALID_ARGUMENT"},
	wire.Unauthorized:    {401, "UNAUTHENTICATED"},
	wire.Forbidden:       {403, "PERMISSION_DENIED"},
	wire.NotFound:        {404, "NOT_FOUND"},
	wire.NoRoute:         {404, "NOT_FOUND"},
	wire.WrongMethod:     {405, "INVALID_ARGUMENT"},
	wire.TooLarge:        {413, "INVALID_ARGUMENT"},
	wire.RateLimited:     {429, "RESOURCE_EXHAUSTED"},
	wire.Internal:        {500, "INTERNAL"},
	wire.Upstream:        {502, "UNAVAILABLE"},
	wire.Overloaded:      {503, "UNAVAILABLE"},
}

func kindOf(e *wire.Error) kind {
	if k, ok := kinds[e.Kind]; ok {
		return k
	}
	return kinds[wire.Internal]
}

// Error implements wire.Dialect.
func (dialect) Error(e *wire.Error) (status int, body []byte) {
	return kindOf(e).status, appendError(nil, e)
}

func appendError(b []byte, e *wire.Error) []byte {
	k := kindOf(e)
	text := e.Message
	if e.Kind == wire.ContextOverflow && e.Tokens > 0 && e.Limit > 0 {
		text = fmt.Sprintf("The input token count (%d) exceeds the maximum number of tokens allowed (%d).", e.Tokens, e.Limit)
	}
	b = append(b, `{"error":{"code":`...)
	b = strconv.AppendInt(b, int64(k.status), 10)
	b = append(b, `,"message":`...)
	b = sse.AppendString(b, text)
	b = append(b, `,"status":"`...)
	b = append(b, k.name...)
	b = append(b, '"')
	if e.RetryAfter > 0 {
		b = append(b, `,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"`...)
		b = strconv.AppendInt(b, int64(e.RetryAfter), 10)
		b = append(b, `s"}]`...)
	}
	return append(b, `}}`...)
}

// Models implements wire.Dialect.
func (dialect) Models(ids []string) []byte {
	b := []byte(`{"models":[`)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendModel(b, id)
	}
	return append(b, `]}`...)
}

// Model implements wire.Dialect.
func (dialect) Model(id string) []byte { return appendModel(nil, id) }

func appendModel(b []byte, id string) []byte {
	b = append(b, `{"name":`...)
	b = sse.AppendString(b, "models/"+id)
	b = append(b, `,"displayName":`...)
	b = sse.AppendString(b, id)
	return append(b, `,"supportedGenerationMethods":["generateContent","countTokens"]}`...)
}

// Count implements wire.TokenCounter.
func (dialect) Count(n int) []byte {
	b := append([]byte(nil), `{"totalTokens":`...)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, '}')
}
