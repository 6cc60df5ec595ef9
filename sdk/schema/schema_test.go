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

// What a host can check by the schema alone is refused before anything runs.
func TestLeast(t *testing.T) {
	type item struct {
		Name   string   `json:"name" min:"1"`
		Weight *float64 `json:"weight,omitempty" min:"0"`
	}
	type config struct {
		Items []item `json:"items" min:"2" format:"names-differ"`
	}
	assert.JSONEq(t, `{"type":"object","properties":{"items":{"type":"array","minItems":2,"format":"names-differ","items":{"type":"object","properties":{
		"name":{"type":"string","minLength":1},"weight":{"type":["number","null"],"minimum":0}},
		"additionalProperties":false,"required":["name"]}}},"additionalProperties":false,"required":["items"]}`, string(Of[config]()))
}

func TestDecode(t *testing.T) {
	var s sample
	require.NoError(t, Decode([]byte(`{"prompt":"x","turns":null}`), &s))
	assert.EqualError(t, Decode([]byte(`{"promt":"x"}`), &s), "/promt: unknown field")
	assert.EqualError(t, Decode([]byte(`{"turns":"x"}`), &s), "/turns: is string, want integer")
	assert.Error(t, Decode([]byte(`{} {}`), &s))
}

// A command line may be given as a list, or as the program alone.
func TestArgv(t *testing.T) {
	type config struct {
		Command Argv `json:"command,omitempty" default:"[\"claude\"]" desc:"the program"`
	}
	assert.JSONEq(t, `{"type":"object","properties":{"command":{"type":["array","string"],"items":{"type":"string"},
		"minItems":1,"minLength":1,"format":"program","description":"the program","default":["claude"]}},"additionalProperties":false}`, string(Of[config]()))
	for text, want := range map[string]Argv{
		`{"command":["a","b c"]}`: {"a", "b c"},
		`{"command":"a b"}`:       {"a b"},
		`{"command":null}`:        nil,
		`{}`:                      nil,
	} {
		var c config
		require.NoError(t, Decode([]byte(text), &c), text)
		assert.Equal(t, want, c.Command, text)
	}
	var c config
	assert.ErrorContains(t, Decode([]byte(`{"command":7}`), &c), "is number, want array")
	assert.ErrorContains(t, Decode([]byte(`{"command":["a",7]}`), &c), "is number, want string")
}
