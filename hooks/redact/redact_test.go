package redact

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
)

func apply(t *testing.T, c Config, request string) hook.Result {
	t.Helper()
	h, err := New(c)
	require.NoError(t, err)
	r, err := h.Apply(t.Context(), hook.NewEvent(doc.Bytes(`{"point":"request","request":`+request+`}`)))
	require.NoError(t, err)
	require.NoError(t, r.Check())
	return r
}

const request = `{"messages":[{"role":"system","parts":[{"type":"text","text":"kiwi"}]},{"role":"user","parts":[{"type":"text","text":"a kiwi, two kiwis"}]},` +
	`{"role":"assistant","parts":[{"type":"text","text":"kiwi"},{"type":"tool_call","id":"c","name":"kiwi","arguments":{"kiwi":"kiwi"}}]},` +
	`{"role":"tool","parts":[{"type":"tool_result","id":"c","content":[{"type":"text","text":"kiwi 7"}]}]}],"tools":[{"name":"kiwi"}],"sampling":{}}`

func TestWords(t *testing.T) {
	r := apply(t, Config{Words: []string{"kiwi"}}, request)
	assert.Equal(t, hook.Replace, r.Action)
	assert.Equal(t, `{"messages":[{"role":"system","parts":[{"type":"text","text":"[redacted]"}]},{"role":"user","parts":[{"type":"text","text":"a [redacted], two [redacted]s"}]},`+
		`{"role":"assistant","parts":[{"type":"text","text":"kiwi"},{"type":"tool_call","id":"c","name":"kiwi","arguments":{"kiwi":"kiwi"}}]},`+
		`{"role":"tool","parts":[{"type":"tool_result","id":"c","content":[{"type":"text","text":"[redacted] 7"}]}]}],"tools":[{"name":"kiwi"}],"sampling":{}}`, string(r.Value))
	assert.JSONEq(t, `{"texts":3}`, string(r.Report))

	r = apply(t, Config{Words: []string{"kiwi"}, Roles: []string{"tool"}}, request)
	assert.JSONEq(t, `{"texts":1}`, string(r.Report))

	assert.Equal(t, hook.Pass(), apply(t, Config{Words: []string{"mango"}}, request))
}

func TestPatterns(t *testing.T) {
	for text, c := range map[string]Config{
		"at [redacted] now":      {Kinds: []string{"email"}},
		"at a.b@*, now":          {Patterns: []string{`@example\.org`}, Replacement: "@*,"},
		"at <a.b> now":           {Patterns: []string{`([a-z.]+)@example\.org`}, Replacement: "<$1>"},
		"at a.b@example.org now": {Patterns: []string{`nothing`}},
	} {
		h, err := New(c)
		require.NoError(t, err)
		assert.Equal(t, text, h.(*redact).edit("at a.b@example.org now"))
	}
}

func TestKinds(t *testing.T) {
	for text, kind := range map[string]string{
		"x_1%y+z@mail.example.co.uk": "email",
		"192.168.0.255":              "ipv4",
		"4111 1111 1111 1111":        "card",
		"4111-1111-1111-1111":        "card",
		"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----": "private_key",
		"Bearer abcdefghijklmnop.qrst==":                                      "bearer",
	} {
		h, err := New(Config{Kinds: []string{kind}})
		require.NoError(t, err)
		assert.Equal(t, "> [redacted] <", h.(*redact).edit("> "+text+" <"), text)
		for _, plain := range []string{"version 1.2.3", "bearer of news", "user@host", "2024-01-01 12:30:00"} {
			assert.Equal(t, plain, h.(*redact).edit(plain), kind)
		}
	}
}

func TestConfig(t *testing.T) {
	for want, c := range map[string]Config{
		"nothing to redact":       {},
		"an empty word":           {Words: []string{""}},
		`there is no "phone"`:     {Kinds: []string{"phone"}},
		"patterns: error parsing": {Patterns: []string{"("}},
		"matches the empty text":  {Patterns: []string{"a*"}},
		`"assistant" is none of`:  {Words: []string{"x"}, Roles: []string{"assistant"}},
	} {
		_, err := New(c)
		assert.ErrorContains(t, err, want)
	}
}
