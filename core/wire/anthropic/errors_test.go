package anthropic

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire"
)

// Cases 5 of 10a and 6 of 10b.
func TestErrorsHaveTheDialectsShape(t *testing.T) {
	for _, c := range []struct {
		err    *wire.Error
		status int
		body   string
	}{
		{wire.Errorf(wire.Invalid, "bad <x>"), 400, `{"type":"error","error":{"type":"invalid_request_error","message":"bad <x>"}}`},
		{&wire.Error{Kind: wire.ContextOverflow, Tokens: 200001, Limit: 200000}, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 200001 tokens > 200000 maximum"}}`},
		{wire.Errorf(wire.ContextOverflow, "it fills the window"), 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: it fills the window"}}`},
		{wire.Errorf(wire.ContextOverflow, "prompt is too long: 5 tokens > 4 maximum"), 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 5 tokens > 4 maximum"}}`},
		{wire.Errorf(wire.Unauthorized, "no"), 401, `{"type":"error","error":{"type":"authentication_error","message":"no"}}`},
		{wire.Errorf(wire.Forbidden, "no"), 403, `{"type":"error","error":{"type":"permission_error","message":"no"}}`},
		{wire.Errorf(wire.NotFound, "no"), 404, `{"type":"error","error":{"type":"not_found_error","message":"no"}}`},
		{wire.Errorf(wire.TooLarge, "no"), 413, `{"type":"error","error":{"type":"request_too_large","message":"no"}}`},
		{wire.Errorf(wire.RateLimited, "no"), 429, `{"type":"error","error":{"type":"rate_limit_error","message":"no"}}`},
		{wire.Errorf(wire.Internal, "no"), 500, `{"type":"error","error":{"type":"api_error","message":"no"}}`},
		{wire.Errorf(wire.Upstream, "no"), 502, `{"type":"error","error":{"type":"api_error","message":"no"}}`},
		{wire.Errorf(wire.Overloaded, "no"), 529, `{"type":"error","error":{"type":"overloaded_error","message":"no"}}`},
		{wire.Errorf("strange", "no"), 500, `{"type":"error","error":{"type":"api_error","message":"no"}}`},
		{&wire.Error{Kind: wire.Internal, Message: "no", RequestID: "req_1"}, 500, `{"type":"error","error":{"type":"api_error","message":"no"},"request_id":"req_1"}`},
		{&wire.Error{Kind: wire.Invalid, Message: "no", Details: json.RawMessage(`{"a":1}`), RequestID: "req_1"}, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"no","details":{"a":1}},"request_id":"req_1"}`},
	} {
		status, body := New().Error(c.err)
		assert.Equal(t, c.status, status)
		assert.Equal(t, c.body, string(body))
	}
}

func TestModelsAreOnePage(t *testing.T) {
	assert.Equal(t, `{"data":[],"has_more":false,"first_id":null,"last_id":null}`, string(New().Models(nil)))
	var page struct {
		Data []struct {
			Type, ID    string
			DisplayName string `json:"display_name"`
			CreatedAt   string `json:"created_at"`
		}
		FirstID string `json:"first_id"`
		LastID  string `json:"last_id"`
	}
	require.NoError(t, json.Unmarshal(New().Models([]string{"policy", "small"}), &page))
	assert.Len(t, page.Data, 2)
	assert.Equal(t, "model", page.Data[0].Type)
	assert.Equal(t, "policy", page.FirstID)
	assert.Equal(t, "small", page.LastID)
}
