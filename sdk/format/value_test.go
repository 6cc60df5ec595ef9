package format

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Values are spelled as Python's json.dumps(v, ensure_ascii=False) spells
// them: order kept, numbers as they were.
func TestPythonJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1,"a":[true,null,{}],"c":[]}`:      `{"b": 1, "a": [true, null, {}], "c": []}`,
		`"caf\u00e9 \ud83d\ude80 \/ <&> \u007f"`: "\"café 🚀 / <&> \x7f\"",
		`"\u0001\b\f\n\r\t\"\\"`:                 `"\u0001\b\f\n\r\t\"\\"`,
		`-1001234567890123457`:                   `-1001234567890123457`,
		` [ 1.50 , 1e-3 , 9007199254740993 ] `:   `[1.50, 1e-3, 9007199254740993]`,
		`{"a":{"a":1},"a":2}`:                    `{"a": {"a": 1}, "a": 2}`,
		"\"\u2028\"":                             "\"\u2028\"",
	} {
		v, err := ParseValue([]byte(in))
		require.NoError(t, err, in)
		assert.Equal(t, want, v.JSON(), in)
	}
	v, err := ParseValue([]byte(`{"a":[1,{"b":"it's"}],"t":true,"n":null,"e":{}}`))
	require.NoError(t, err)
	assert.Equal(t, `{'a': [1, {'b': "it's"}], 't': True, 'n': None, 'e': {}}`, v.Repr())
	assert.Equal(t, `{"a":[1,{"b":"it's"}],"t":true,"n":null,"e":{}}`, v.Compact())
	assert.Equal(t, "{\n    \"a\": [\n        1,\n        {\n            \"b\": \"it's\"\n        }\n    ],\n    \"t\": true,\n    \"n\": null,\n    \"e\": {}\n}", v.Indent())
}

func TestParseValueIsStrict(t *testing.T) {
	for _, in := range []string{
		"", "{", "[1,]", `{"a":}`, `{"a" 1}`, `{a:1}`, "'x'", "tru", "01", "1.", "+1", "\"\n\"", `"\x"`, `"\u12"`, "1 2", `"`,
		strings.Repeat("[", maxDepth+2) + strings.Repeat("]", maxDepth+2),
	} {
		_, err := ParseValue([]byte(in))
		assert.Error(t, err, in)
	}
}

func TestLooseJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{'a': (1, 'x'), "b": None,}`: `{"a": [1, "x"], "b": null}`,
		`'it\'s "x" \n \\'`:           `"it's \"x\" \n \\"`,
		`"""a"b"""`:                   `"a\"b"`,
		`[True,False,+1,-2.5]`:        `[true, false, 1, -2.5]`,
		`'\x41'`:                      `"\u0041"`,
	} {
		got, ok := looseJSON([]byte(in))
		assert.True(t, ok, in)
		assert.Equal(t, want, string(got), in)
	}
	for _, in := range []string{"", "{", "[1 2]", "x", "'", "{1: 2}", `f(1)`} {
		_, ok := looseJSON([]byte(in))
		assert.False(t, ok, in)
	}
}

func TestTypesOfSchemas(t *testing.T) {
	root := `{"$defs":{"Obj":{"type":"object"},"Loop":{"$ref":"#/$defs/Loop"},"a/b":{"enum":[1,"x"]}}}`
	r, err := ParseValue([]byte(root))
	require.NoError(t, err)
	for in, want := range map[string]types{
		`{"type":"string"}`:                             typeString,
		`{"type":["integer","null"]}`:                   typeInteger | typeNull,
		`{"anyOf":[{"type":"string"},{"type":"null"}]}`: typeString | typeNull,
		`{"$ref":"#/$defs/Obj"}`:                        typeObject,
		`{"$ref":"#/$defs/Loop"}`:                       0,
		`{"$ref":"#/$defs/a~1b"}`:                       typeInteger | typeString,
		`{"allOf":[{"$ref":"#/$defs/Obj"}]}`:            typeObject,
		`{"const":true}`:                                typeBoolean,
		`{"properties":{}}`:                             typeObject,
		`{"items":{}}`:                                  typeArray,
		`{"type":"number","nullable":true}`:             typeNumber | typeNull,
		`{"type":"float32"}`:                            typeNumber,
		`{"type":"uint64"}`:                             typeInteger,
		`{"type":"list"}`:                               typeArray,
		`{}`:                                            0,
		`true`:                                          0,
	} {
		v, err := ParseValue([]byte(in))
		require.NoError(t, err)
		assert.Equal(t, want, typesOf(v, r, 0), in)
	}
}

func TestCoerce(t *testing.T) {
	for _, c := range []struct {
		raw  string
		as   types
		want string
	}{
		{"0091", typeString, `"0091"`}, {"0091", typeInteger, "91"}, {"-0", typeInteger, "0"}, {"+7", typeNumber, "7"},
		{"3", typeNumber, "3"}, {"1e400", typeNumber, "1e400"}, {"0x1f", typeInteger, `"0x1f"`}, {"1_000", typeInteger, `"1_000"`},
		{"NONE", typeNull | typeInteger, "null"}, {"", typeInteger | typeNull, "null"}, {"", typeString | typeNull, `""`}, {"", typeInteger, `""`},
		{" [1] ", typeArray, "[1]"}, {"{}", typeArray, `"{}"`}, {`"{\"a\": 1}"`, typeObject, `{"a": 1}`},
		{"{\"a\": \"x\ny\"}", typeObject, `{"a": "x\ny"}`}, {"yes", typeBoolean, `"yes"`}, {"1", typeBoolean, `"1"`},
		{"true", typeString | typeBoolean, "true"}, {"12", typeString | typeInteger, "12"}, {"a12", typeString | typeInteger, `"a12"`},
		{`[{"a": false, "b": null}]`, typeArray, `[{"a": false, "b": null}]`},
	} {
		assert.Equal(t, c.want, string(coerce(nil, []byte(c.raw), c.as)), "%q", c.raw)
	}
}
