package doc

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGet(t *testing.T) {
	d := Bytes(`{"a":{"b/c":[1,2,{"x":"q\"é"}],"~":true,"":"empty"},"n":null,"big":9007199254740993, "sp" : [ 1 , { } ] ,"\u006b":"\ud83d\ude00\\"}`)
	for pointer, want := range map[string]string{
		"/a/b~1c/0":    "1",
		"/a/b~1c/-1/x": `q"é`,
		"/a/~0":        "true",
		"/a/":          "empty",
		"/big":         "9007199254740993",
		"/a/b~1c":      `[1,2,{"x":"q\"é"}]`,
		"/sp/0":        "1",
		"/sp/-1":       "{ }",
		"/k":           `😀\`,
	} {
		for _, doc := range []Doc{d, NewReader(d)} {
			got, ok := doc.Get(pointer)
			assert.True(t, ok, pointer)
			assert.Equal(t, want, string(got), pointer)
		}
	}
	for _, pointer := range []string{"/n", "/a/x", "/a/b~1c/3", "/a/b~1c/x", "/a/b~1c/-2", "/big/0", "/sp/1/a", "/sp/2"} {
		_, ok := d.Get(pointer)
		assert.False(t, ok, pointer)
	}
	whole, ok := d.Get("")
	assert.True(t, ok)
	assert.Equal(t, string(d), string(whole))
	for text, ok := range map[string]bool{`"x"`: true, `null`: false, ``: false, ` `: false, `[]`: true, " {}\n": true} {
		_, got := Bytes(text).Get("")
		assert.Equal(t, ok, got, text)
	}
	_, ok = Bytes(`[]`).Get("/-1")
	assert.False(t, ok)
}

func TestWhatGetReturnsCanBeAppendedTo(t *testing.T) {
	d := Bytes(`{"a":"x","b":"y"}`)
	a, _ := d.Get("/a")
	_ = append(a, "zzz"...)
	b, _ := d.Get("/b")
	assert.Equal(t, "y", string(b))
}

func TestAReaderReadsArraysInAnyOrder(t *testing.T) {
	var rows []string
	for i := range 20 {
		rows = append(rows, fmt.Sprintf(`{"n":%d,"in":[%d,%d]}`, i, i, i+1))
	}
	r := NewReader([]byte(`{"x":[7,8],"rows":[` + strings.Join(rows, ",") + `]}`))
	for _, i := range []int{0, 1, 2, 19, 3, 3, 10, 0, 18, -1} {
		want := i
		if i < 0 {
			want = 19
		}
		base := "/rows/" + strconv.Itoa(i)
		got, ok := r.Get(base + "/n")
		assert.True(t, ok)
		assert.Equal(t, strconv.Itoa(want), string(got))
		got, _ = r.Get(base + "/in/1")
		assert.Equal(t, strconv.Itoa(want+1), string(got))
		got, _ = r.Get("/x/1")
		assert.Equal(t, "8", string(got))
	}
	_, ok := r.Get("/rows/20")
	assert.False(t, ok)
}

// slow hides that a document is Bytes.
type slow struct{ Doc }

func TestEachGivesTheSameItemsOverAnyDocument(t *testing.T) {
	d := Bytes(`{"a":[{"n":1},[2]," three ",4, {"n":5} ],"none":[],"text":"[1]","cut":[1,null,2]}`)
	for key, want := range map[string][]string{
		"a": {`{"n":1}`, "[2]", " three ", "4", `{"n":5}`}, "none": nil, "text": nil, "absent": nil, "cut": {"1"},
	} {
		for _, doc := range []Doc{d, slow{d}, NewReader(d)} {
			var got, n []string
			At(doc, "").Each(key, func(o Object) bool {
				got, n = append(got, o.String("")), append(n, o.String("n"))
				return true
			})
			assert.Equal(t, want, got, key)
			if key == "a" {
				assert.Equal(t, []string{"1", "", "", "", "5"}, n)
			}
		}
	}
}

func FuzzGet(f *testing.F) {
	f.Add(`{"a":[1,{"b":"\u00e9"}]}`, "/a/1/b")
	f.Add(`[[],{},"",null]`, "/-1")
	f.Add(`{"a"`, "/a")
	f.Fuzz(func(t *testing.T, text, pointer string) {
		if pointer != "" && pointer[0] != '/' {
			return
		}
		got, ok := Bytes(text).Get(pointer)
		again, okAgain := NewReader([]byte(text)).Get(pointer)
		assert.Equal(t, ok, okAgain)
		assert.Equal(t, got, again)
		if ok && pointer == "" && json.Valid([]byte(text)) && !strings.HasPrefix(strings.TrimSpace(text), `"`) {
			assert.True(t, json.Valid(got))
		}
	})
}
