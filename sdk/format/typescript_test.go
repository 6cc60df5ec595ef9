package format

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Types are written as the harmony library (openai/harmony, src/encoding.rs)
// does, save for unions by anyOf, of which it makes any.
func TestTypescript(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"q":{"type":"string","description":"What."},"n":{"type":"integer","default":10},"s":{"type":"string","default":"web"}},"required":["q"]}`:    "{\n// What.\nq: string,\nn?: number, // default: 10\ns?: string, // default: \"web\"\n}",
		`{"type":"object","properties":{"u":{"type":"string","enum":["c","f"],"default":"c"},"k":{"type":"integer","enum":[1,2]}}}`:                                                  "{\nu?: \"c\" | \"f\", // default: c\nk?: number,\n}",
		`{"type":"object","properties":{"o":{"type":"object","properties":{"a":{"type":"boolean","description":"A."},"p":{"type":"object","properties":{"b":{"type":"string"}}}}}}}`: "{\no?: {\n    // A.\n    a?: boolean,\n    p?: {\n        b?: string,\n        },\n    },\n}",
		`{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","properties":{"b":{"type":"number"}}}},"m":{"type":"array"}}}`:                                  "{\nl?: {\n    b?: number,\n    }[],\nm?: any[],\n}",
		`{"type":"object","properties":{"x":{"type":"string","nullable":true},"y":{"type":["integer","null"],"nullable":true},"z":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`:   "{\nx?: string | null,\ny?: number | null,\nz?: string | null,\n}",
		`{"type":"object","properties":{"e":{"enum":["a"]},"d":{"description":"Any."}}}`:                                                                                             "{\ne?: \"a\",\n// Any.\nd?: any,\n}",
	} {
		v, err := ParseValue([]byte(schema))
		require.NoError(t, err)
		assert.Equal(t, want, typescript(v), schema)
	}
}
