package openaichat

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-dev/penstock/core/wire"
)

// Case 6 of 10b.
func TestErrorsHaveTheDialectsShape(t *testing.T) {
	for _, c := range []struct {
		err    *wire.Error
		status int
		body   string
	}{
		{wire.Errorf(wire.Invalid, "bad <x>"), 400, `{"error":{"message":"bad <x>","type":"invalid_request_error","param":null,"code":null}}`},
		{&wire.Error{Kind: wire.ContextOverflow, Tokens: 9, Limit: 8}, 400, `{"error":{"message":"This model's maximum context length is 8 tokens. However, your messages resulted in 9 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}`},
		{wire.Errorf(wire.Unauthorized, "no"), 401, `{"error":{"message":"no","type":"authentication_error","param":null,"code":"invalid_api_key"}}`},
		{wire.Errorf(wire.Forbidden, "no"), 403, `{"error":{"message":"no","type":"permission_error","param":null,"code":null}}`},
		{wire.Errorf(wire.NotFound, "no"), 404, `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"model_not_found"}}`},
		{wire.Errorf(wire.TooLarge, "no"), 413, `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"request_too_large"}}`},
		{wire.Errorf(wire.RateLimited, "no"), 429, `{"error":{"message":"no","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`},
		{wire.Errorf(wire.Internal, "no"), 500, `{"error":{"message":"no","type":"server_error","param":null,"code":null}}`},
		{wire.Errorf(wire.Upstream, "no"), 502, `{"error":{"message":"no","type":"server_error","param":null,"code":"upstream_error"}}`},
		{wire.Errorf(wire.Overloaded, "no"), 503, `{"error":{"message":"no","type":"server_error","param":null,"code":"overloaded"}}`},
		{&wire.Error{Kind: "strange", Message: "no", RequestID: "req_1"}, 500, `{"error":{"message":"no","type":"server_error","param":null,"code":null},"request_id":"req_1"}`},
	} {
		status, body := New().Error(c.err)
		assert.Equal(t, c.status, status)
		assert.Equal(t, c.body, string(body))
	}
}

func TestModels(t *testing.T) {
	assert.Equal(t, `{"object":"list","data":[]}`, string(New().Models(nil)))
	assert.Equal(t, `{"object":"list","data":[{"id":"a","object":"model","created":0,"owned_by":"penstock"},{"id":"b","object":"model","created":0,"owned_by":"penstock"}]}`, string(New().Models([]string{"a", "b"})))
}
