package rawjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":[1,{"b":null}]}`:  "",
		` "x" `:                 "",
		`"\ud83d"`:              "",
		`{"a":"[[[[[["}`:        "",
		`{"a":"\\\"[[[[[["}`:    "",
		``:                      "empty",
		`{`:                     "unexpected end at byte 1",
		`{"a":1,"b":{"x":1,"x"`: `duplicate object member name at byte 18, in /b/x`,
		`{} x`:                  "more text after the value, at byte 2",
		`[[[[[1]]]]]`:           "nested more than 4 levels deep",
		"\"\xff\"":              "not valid UTF-8",
		`{"a":01}`:              "invalid character '1' after object value (expecting ',' or '}') at byte 6",
		`[1,]`:                  "invalid character ']' at start of value at byte 3, in /1",
		"\"\n\"":                "",
	} {
		err := Check([]byte(in), 4)
		switch {
		case in == "\"\n\"":
			assert.Error(t, err)
		case want == "":
			assert.NoError(t, err, in)
		default:
			assert.EqualError(t, err, want, in)
		}
	}
}

func TestReadsInPlaceAndInOrder(t *testing.T) {
	v, err := Parse([]byte(" { \"z\" : [ 1 , \"a\\\\\" , [ ] ] , \"\\u0061\" : { \"k\":\"}\\\"\" } , \"n\":null,\"t\":true,\"e\":1e3 } \n"), 9)
	require.NoError(t, err)
	var names []string
	for name := range v.Fields() {
		names = append(names, string(name))
	}
	assert.Equal(t, []string{"z", "a", "n", "t", "e"}, names)
	var items []string
	for i, item := range v.Get("z").Items() {
		assert.Equal(t, len(items), i)
		items = append(items, string(item.Raw()))
	}
	assert.Equal(t, []string{`1`, `"a\\"`, `[ ]`}, items)
	assert.Equal(t, `}"`, v.Get("a").Get("k").Text())
	assert.False(t, v.Get("n").Given())
	assert.False(t, v.Get("no").Given())
	n, err := v.Get("e").Int()
	assert.NoError(t, err)
	assert.EqualValues(t, 1000, n)
	assert.Equal(t, "{ \"z\" : 0 , \"\\u0061\" : { \"k\":\"}\\\"\" } , \"n\":null,\"t\":true,\"e\":1e3 }", string(v.Replace(v.Get("z"), "0")))
}

func TestTypedReadsSayWhatIsWrong(t *testing.T) {
	_, err := Of([]byte(`1`)).Str()
	assert.EqualError(t, err, "must be a string, not a number")
	_, err = Of([]byte(`null`)).Bool()
	assert.EqualError(t, err, "must be a boolean, not null")
	_, err = Of([]byte(`{}`)).Float()
	assert.EqualError(t, err, "must be a number, not an object")
	_, err = Of([]byte(`1e999`)).Float()
	assert.EqualError(t, err, "1e999 is out of range")
	_, err = Of([]byte(`1.5`)).Int()
	assert.EqualError(t, err, "must be a whole number, not 1.5")
	_, err = Of([]byte(`true`)).Int()
	assert.EqualError(t, err, "must be a whole number, not a boolean")
	_, err = Of(nil).Strings()
	assert.EqualError(t, err, "must be a list of strings, not absent")
	_, err = Of([]byte(`["a",[]]`)).Strings()
	assert.EqualError(t, In("stop", err), "stop[1]: must be a string, not a list")
	assert.EqualError(t, In("a", In(Index("b", 2), Errorf("x"))), "a.b[2]: x")
}

// FuzzFields: reading in place sees what encoding/json sees, and never leaves
// the value or panics, also on text that wasn't checked.
func FuzzFields(f *testing.F) {
	f.Add([]byte(`{"a":[1,"\\\"",{"b":null}],"c":"}"}`))
	f.Add([]byte(`[{},[],"",-1.5e9,true]`))
	f.Add([]byte(`{"a`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for range Of(b).Fields() {
		}
		for range Of(b).Items() {
		}
		v, err := Parse(b, 100)
		if err != nil {
			return
		}
		require.True(t, json.Valid(b))
		n := 0
		for name, field := range v.Fields() {
			require.True(t, json.Valid(field.Raw()), "%s of %s", name, b)
			n++
		}
		for _, item := range v.Items() {
			require.True(t, json.Valid(item.Raw()), "%s of %s", item.Raw(), b)
			n++
		}
		var object map[string]json.RawMessage
		if v.Kind() == '{' && json.Unmarshal(b, &object) == nil {
			require.Len(t, object, n)
		}
		var list []json.RawMessage
		if v.Kind() == '[' && json.Unmarshal(b, &list) == nil {
			require.Len(t, list, n)
		}
		if v.Kind() == '"' {
			var text string
			require.NoError(t, json.Unmarshal(b, &text))
			require.Equal(t, text, v.Text())
		}
	})
}

func BenchmarkParse(b *testing.B) {
	words := strings.Repeat(`The quick \"brown\" fox jumps over the lazy dog, and on.\n`, 50)
	item := `{"role":"user","content":[{"type":"text","text":"` + words + `"},{"type":"tool_use","id":"a","input":{"path":"/a/b"}}]}`
	for name, n := range map[string]int{"120KB": 40, "20MB": 6700} {
		body := []byte("[" + strings.Repeat(item+",", n-1) + item + "]")
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				v, err := Parse(body, 100)
				require.NoError(b, err)
				for _, item := range v.Items() {
					for _, part := range item.Get("content").Items() {
						part.Get("text").Text()
					}
				}
			}
		})
	}
}
