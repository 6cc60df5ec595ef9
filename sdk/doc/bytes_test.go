package doc

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGet(t *testing.T) {
	d := Bytes(`{"a":{"b/c":[1,2,{"x":"q\"é"}],"~":true,"":"empty"},"n":null,"big":9007199254740993}`)
	for pointer, want := range map[string]string{
		"/a/b~1c/0":    "1",
		"/a/b~1c/-1/x": `q"é`,
		"/a/~0":        "true",
		"/a/":          "empty",
		"/big":         "9007199254740993",
		"/a/b~1c":      `[1,2,{"x":"q\"é"}]`,
	} {
		got, ok := d.Get(pointer)
		assert.True(t, ok, pointer)
		assert.Equal(t, want, string(got), pointer)
	}
	for _, pointer := range []string{"/n", "/a/x", "/a/b~1c/3", "/a/b~1c/x", "/big/0"} {
		_, ok := d.Get(pointer)
		assert.False(t, ok, pointer)
	}
	whole, ok := d.Get("")
	assert.True(t, ok)
	assert.Equal(t, string(d), string(whole))
}
