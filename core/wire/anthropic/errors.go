package anthropic

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/sse"
)

// overflowWords begin the message of a context overflow. Clients compact when
// they read them.
const overflowWords = "prompt is too long"

// kinds are the status and type of each kind of error.
var kinds = map[wire.ErrorKind]struct {
	status int
	name   string
}{
	wire.Invalid:         {400, "invalid_request_error"},
	wire.ContextOverflow: {400, "invalid_request_error"},
	wire.Unauthorized:    {401, "authentication_error"},
	wire.Forbidden:       {403, "permission_error"},
	wire.NotFound:        {404, "not_found_error"},
	wire.NoRoute:         {404, "not_found_error"},
	wire.WrongMethod:     {405, "invalid_request_error"},
	wire.TooLarge:        {413, "request_too_large"},
	wire.RateLimited:     {429, "rate_limit_error"},
	wire.Internal:        {500, "api_error"},
	wire.Upstream:        {502, "api_error"},
	wire.Overloaded:      {529, "overloaded_error"},
}

// Error implements wire.Dialect.
func (dialect) Error(e *wire.Error) (status int, body []byte) {
	k, ok := kinds[e.Kind]
	if !ok {
		k = kinds[wire.Internal]
	}
	return k.status, appendError(nil, e)
}

func appendError(b []byte, e *wire.Error) []byte {
	k, ok := kinds[e.Kind]
	if !ok {
		k = kinds[wire.Internal]
	}
	b = append(b, `{"type":"error","error":{"type":"`...)
	b = append(b, k.name...)
	b = append(b, `","message":`...)
	b = sse.AppendString(b, errorText(e))
	if len(e.Details) > 0 {
		b = append(append(b, `,"details":`...), e.Details...)
	}
	b = append(b, '}')
	if e.RequestID != "" {
		b = append(b, `,"request_id":`...)
		b = sse.AppendString(b, e.RequestID)
	}
	return append(b, '}')
}

func errorText(e *wire.Error) string {
	switch {
	case e.Kind != wire.ContextOverflow:
		return e.Message
	case e.Tokens > 0 && e.Limit > 0:
		return fmt.Sprintf("%s: %d tokens > %d maximum", overflowWords, e.Tokens, e.Limit)
	case strings.Contains(e.Message, overflowWords):
		return e.Message
	case e.Message == "":
		return overflowWords
	}
	return overflowWords + ": " + e.Message
}

// Models implements wire.Dialect. The list is one whole page.
func (dialect) Models(ids []string) []byte {
	b := []byte(`{"data":[`)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendModel(b, id)
	}
	b = append(b, `],"has_more":false,"first_id":`...)
	if len(ids) == 0 {
		return append(b, `null,"last_id":null}`...)
	}
	b = sse.AppendString(b, ids[0])
	b = append(b, `,"last_id":`...)
	b = sse.AppendString(b, ids[len(ids)-1])
	return append(b, '}')
}

// Model implements wire.Dialect.
func (dialect) Model(id string) []byte { return appendModel(nil, id) }

func appendModel(b []byte, id string) []byte {
	b = append(b, `{"type":"model","id":`...)
	b = sse.AppendString(b, id)
	b = append(b, `,"display_name":`...)
	b = sse.AppendString(b, id)
	return append(b, `,"created_at":"1970-01-01T00:00:00Z"}`...)
}

// Count implements wire.TokenCounter.
func (dialect) Count(n int) []byte {
	b := append([]byte(nil), `{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, '}')
}
