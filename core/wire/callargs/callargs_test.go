package callargs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
)

func TestText(t *testing.T) {
	for args, want := range map[string]string{
		``:                       `{}`,
		` null `:                 `{}`,
		`{"b":1, "a":null}`:      `{"b":1, "a":null}`,
		` [1] `:                  `[1] `,
		`"{\"a\": \ud83d\ude00"`: `{"a": 😀`,
		`"cut`:                   `"cut`,
		`nope`:                   `nope`,
		`7`:                      `7`,
		"{\"a\":\"\xff\"}":       "{\"a\":\"\ufffd\"}",
	} {
		assert.Equal(t, want, Text([]byte(args)), args)
		var s Stream
		for _, step := range []int{1, 3, 100} {
			got := ""
			for i := 0; i < len(args); i += step {
				got += s.Next(args[i:min(i+step, len(args))])
			}
			assert.Equal(t, want, got+s.Rest(), "%q in steps of %d", args, step)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		args string
		raw  bool
	}{
		``:              {``, false},
		" {\"a\" : 1} ": {" {\"a\" : 1} ", false},
		`{"a":1,"a":2}`: {`{"a":1,"a":2}`, false},
		`{"a": `:        {`"{\"a\": "`, true},
		`"x"`:           {`"x"`, false},
	} {
		args, raw := Parse(text)
		assert.Equal(t, want.args, string(args))
		assert.Equal(t, want.raw, raw)
	}
}

// FuzzStream: pieces joined are the whole, and raw text comes back as itself.
func FuzzStream(f *testing.F) {
	f.Add(`{"a":"é"}`, uint8(1))
	f.Add(`"{\"a"`, uint8(2))
	f.Add(` null`, uint8(1))
	f.Fuzz(func(t *testing.T, args string, size uint8) {
		var s Stream
		step, got := int(size%7)+1, ""
		for i := 0; i < len(args); i += step {
			got += s.Next(args[i:min(i+step, len(args))])
		}
		require.Equal(t, Text([]byte(args)), got+s.Rest())
		if parsed, raw := Parse(args); raw {
			require.True(t, rawjson.Valid(parsed, maxDepth))
		}
	})
}
