// Package openai is what the two dialects of OpenAI share: errors, the list of
// models, images, and how tools are chosen and written. The dialects themselves
// are openaichat and responses.
package openai

import (
	"fmt"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/sse"
)

// kind is the status, type and code of a kind of error. An empty code is null.
type kind struct {
	status int
	name   string
	code   string
}

var kinds = map[wire.ErrorKind]kind{
	wire.Invalid:         {400, "invalid_request_error", ""},
	wire.ContextOverflow: {400, "invalid_request_error", "context_length_exceeded"},
	wire.Unauthorized:    {401, "authentication_error", "invalid_api_key"},
	wire.Forbidden:       {403, "permission_error", ""},
	wire.NotFound:        {404, "invalid_request_error", "model_not_found"},
	wire.NoRoute:         {404, "invalid_request_error", ""},
	wire.WrongMethod:     {405, "invalid_request_error", ""},
	wire.TooLarge:        {413, "invalid_request_error", "request_too_large"},
	wire.RateLimited:     {429, "rate_limit_error", "rate_limit_exceeded"},
	wire.Internal:        {500, "server_error", ""},
	wire.Upstream:        {502, "server_error", "upstream_error"},
	wire.Overloaded:      {503, "server_error", "overloaded"},
}

func kindOf(e *wire.Error) kind {
	if k, ok := kinds[e.Kind]; ok {
		return k
	}
	return kinds[wire.Internal]
}

// Error is the status and body that refuse a request.
func Error(e *wire.Error) (status int, body []byte) {
	return kindOf(e).status, AppendError(nil, e)
}

// Code is the code of an error, empty where its kind has none, and its text.
func Code(e *wire.Error) (code, text string) { return kindOf(e).code, errorText(e) }

// AppendError appends the body of an error.
func AppendError(b []byte, e *wire.Error) []byte {
	k := kindOf(e)
	b = append(b, `{"error":{"message":`...)
	b = sse.AppendString(b, errorText(e))
	b = append(b, `,"type":"`...)
	b = append(b, k.name...)
	b = append(b, `","param":null,"code":`...)
	if k.code == "" {
		b = append(b, `null`...)
	} else {
		b = sse.AppendString(b, k.code)
	}
	b = append(b, '}')
	if e.RequestID != "" {
		b = append(b, `,"request_id":`...)
		b = sse.AppendString(b, e.RequestID)
	}
	return append(b, '}')
}

// errorText says a context overflow in the words that clients look for.
func errorText(e *wire.Error) string {
	if e.Kind == wire.ContextOverflow && e.Tokens > 0 && e.Limit > 0 {
		return fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", e.Limit, e.Tokens)
	}
	return e.Message
}

// Models is the body that lists models.
func Models(ids []string) []byte {
	b := []byte(`{"object":"list","data":[`)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendModel(b, id)
	}
	return append(b, `]}`...)
}

// Model is the body that describes one model.
func Model(id string) []byte { return appendModel(nil, id) }

func appendModel(b []byte, id string) []byte {
	b = append(b, `{"id":`...)
	b = sse.AppendString(b, id)
	return append(b, `,"object":"model","created":0,"owned_by":"penstock"}`...)
}
