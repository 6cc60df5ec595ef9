package exchange

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSplice(t *testing.T) {
	for _, c := range []struct {
		name, body string
		fields     []Field
		want       string
	}{
		{"nothing", `{"a" : 1 ,"b":{"model":"x"}}`, nil, `{"a" : 1 ,"b":{"model":"x"}}`},
		{"replaced in place", `{ "model": "a",  "x": [1, "model"], "z":null }`, []Field{{"model", []byte(`"b"`)}}, `{ "model": "b",  "x": [1, "model"], "z":null }`},
		{"added last", `{"a":"\u003c\"}","n":1e2}` + "\n", []Field{{"top_p", []byte(`0.5`)}}, `{"a":"\u003c\"}","n":1e2,"top_p":0.5}`},
		{"to an empty one", `{}`, []Field{{"a", []byte(`1`)}}, `{"a":1}`},
		{"first taken out", `{ "a":1, "b":2, "c":3}`, []Field{{"a", nil}}, `{"b":2, "c":3}`},
		{"middle taken out", `{"a":1, "b":2, "c":3}`, []Field{{"b", nil}}, `{"a":1, "c":3}`},
		{"last taken out", `{"a":1, "b":2}`, []Field{{"b", nil}}, `{"a":1}`},
		{"all taken out", `{"a":1}`, []Field{{"a", nil}, {"b", nil}}, `{}`},
		{"one for another", `{"a":1,"b":2}`, []Field{{"a", nil}, {"c", []byte(`[3]`)}}, `{"b":2,"c":[3]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Splice([]byte(c.body), c.fields)
			require.NoError(t, err)
			assert.Equal(t, c.want, string(got))
		})
	}
	for _, bad := range []string{``, `[]`, `"x"`, `{"a":`, `{"a":1}}`} {
		_, err := Splice([]byte(bad), nil)
		assert.Error(t, err, bad)
	}
}

func FuzzSplice(f *testing.F) {
	f.Add(`{"a":1, "model" : "x","b":[{"model":2}]}`)
	f.Add(`{"model":null}`)
	f.Fuzz(func(t *testing.T, body string) {
		var before map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &before) != nil || before == nil {
			return
		}
		out, err := Splice([]byte(body), []Field{{"model", []byte(`"new"`)}, {"gone", nil}})
		if err != nil {
			return
		}
		var after map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(out, &after), string(out))
		assert.Equal(t, `"new"`, string(after["model"]))
		delete(before, "gone")
		for name, v := range before {
			if name != "model" {
				assert.Equal(t, string(v), string(after[name]))
			}
		}
	})
}
