package schema

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type inner struct {
	Command []string `json:"command"`
}

type sample struct {
	Prompt string           `json:"prompt" desc:"what <to> do"`
	Mode   string           `json:"mode,omitempty" enum:"a,b" default:"a"`
	Turns  *int             `json:"turns,omitempty" default:"3"`
	MCP    map[string]inner `json:"mcp,omitempty"`
	Any    json.RawMessage  `json:"any,omitempty"`
	hidden int
}

func TestOf(t *testing.T) {
	_ = sample{}.hidden
	assert.JSONEq(t, `{"type":"object","properties":{
		"prompt":{"type":"string","description":"what <to> do"},
		"mode":{"type":"string","enum":["a","b"],"default":"a"},
		"turns":{"type":["integer","null"],"default":3},
		"mcp":{"type":"object","additionalProperties":{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"}}},"additionalProperties":false,"required":["command"]}},
		"any":{}},"additionalProperties":false,"required":["prompt"]}`, string(Of[sample]()))
}

func TestDecode(t *testing.T) {
	var s sample
	require.NoError(t, Decode([]byte(`{"prompt":"x","turns":null}`), &s))
	assert.EqualError(t, Decode([]byte(`{"promt":"x"}`), &s), "/promt: unknown field")
	assert.EqualError(t, Decode([]byte(`{"turns":"x"}`), &s), "/turns: is string, want integer")
	assert.Error(t, Decode([]byte(`{} {}`), &s))
}
