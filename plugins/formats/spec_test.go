package formats_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/format"
)

// The schema of format files takes every file that ships, and no typo.
func TestSchemaTakesWhatShips(t *testing.T) {
	raw, err := format.SchemaJSON()
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("format.json", doc))
	schema, err := c.Compile("format.json")
	require.NoError(t, err)
	read := func(data []byte) any {
		var v any
		require.NoError(t, yaml.Unmarshal(data, &v))
		j, err := json.Marshal(v)
		require.NoError(t, err)
		v, err = jsonschema.UnmarshalJSON(bytes.NewReader(j))
		require.NoError(t, err)
		return v
	}
	for _, name := range names(t) {
		data, err := os.ReadFile(name + ".yaml")
		require.NoError(t, err)
		assert.NoError(t, schema.Validate(read(data)), name)
	}
	assert.Error(t, schema.Validate(read([]byte("name: x\nrendr: {}\n"))))
	assert.Error(t, schema.Validate(read([]byte("name: x\nids: rondom\n"))))
}

// A file that extends another is checked as a whole, and errors in it have a
// place.
func TestExtend(t *testing.T) {
	s, err := format.ParseSpec("mine.yaml", []byte("name: mine\nextends: qwen3_xml\nreasoning: null\ncalls: { open: <mine>, json: null }\n"))
	require.NoError(t, err)
	assert.Nil(t, s.Reasoning)
	assert.Nil(t, s.Calls.JSON)
	assert.Equal(t, []string{"<mine>"}, s.Calls.Open)
	assert.Equal(t, "<function={name}>", s.Calls.Tagged.Open)
	assert.Empty(t, s.Aliases)
	_, err = format.ParseSpec("mine.yaml", []byte("name: mine\nextends: herms\n"))
	assert.EqualError(t, err, `mine.yaml:2:10: there is no format "herms" to extend (did you mean "hermes"?)`)
	s, err = format.ParseSpec("hy.yaml", []byte("name: hy\nextends: hy_v3\nvars: { suffix: \":6124c78e\" }\n"))
	require.NoError(t, err)
	assert.Contains(t, s.Calls.Open, "<tool_call:6124c78e>")
}
