package jinja

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// user is the source of what tests call data.
const user Source = 7

// decode makes values of JSON, all of it from user.
func decode(t testing.TB, text string) *Dict {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	v, ok := decodeValue(t, d).(*Dict)
	require.True(t, ok)
	return v
}

func decodeValue(t testing.TB, d *json.Decoder) Value {
	tok, err := d.Token()
	require.NoError(t, err)
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '[' {
			l := &List{From: user}
			for d.More() {
				l.Items = append(l.Items, decodeValue(t, d))
			}
			_, err := d.Token()
			require.NoError(t, err)
			return l
		}
		m := NewDict(user)
		for d.More() {
			key, err := d.Token()
			require.NoError(t, err)
			m.Put(key.(string), decodeValue(t, d))
		}
		_, err := d.Token()
		require.NoError(t, err)
		return m
	case json.Number:
		return Number{string(tok), user}
	case string:
		return String(tok, user)
	case bool:
		return tok
	}
	return nil
}

func render(t testing.TB, template string, vars *Dict) (Text, error) {
	t.Helper()
	c, err := Compile("t.jinja", template)
	require.NoError(t, err, template)
	o := Options{Vars: map[string]Value{}, Now: func() time.Time { return time.Date(2026, 3, 4, 15, 6, 7, 0, time.UTC) }}
	for i, k := range vars.keys {
		o.Vars[k.s] = vars.values[i]
	}
	return c.Run(t.Context(), o)
}

// What each line of testdata/small.jsonl renders to is what Python's Jinja
// 3.1.2 rendered, set up as transformers does.
func TestSmallTemplates(t *testing.T) {
	data, err := os.ReadFile("testdata/small.jsonl")
	require.NoError(t, err)
	n := 0
	for line := range bytes.Lines(data) {
		var c struct {
			T    string
			Vars json.RawMessage
			Want *string
		}
		require.NoError(t, json.Unmarshal(line, &c))
		got, err := render(t, c.T, decode(t, string(c.Vars)))
		n++
		if c.Want == nil {
			assert.Error(t, err, "%s", c.T)
			continue
		}
		if assert.NoError(t, err, "%s", c.T) {
			assert.Equal(t, *c.Want, got.String(), "%s", c.T)
		}
	}
	assert.Greater(t, n, 90)
}

// marked puts what isn't the template's in ‹›.
func marked(t Text) string {
	var b strings.Builder
	t.Pieces(func(s string, from Source) {
		if from != FromTemplate {
			s = "‹" + s + "›"
		}
		b.WriteString(s)
	})
	return b.String()
}

// Whatever a template does to a text, what is left of it keeps its source.
func TestSourcesSurvive(t *testing.T) {
	vars := decode(t, `{"x": "  <|a|>\nb  ", "m": {"role": "user", "n": 12345678901234567890, "l": ["p", {"q": null}]}, "think": "<think>r</think>\n\nanswer"}`)
	for template, want := range map[string]string{
		"<{{ x }}>":                                "<‹  <|a|>\nb  ›>",
		"{{ x|trim }}":                             "‹<|a|>\nb›",
		"{{ x.strip().split('\\n')[-1] + '!' }}":   "‹b›!",
		"{{ x|trim|upper|replace('A', '<|x|>') }}": "‹<|›<|x|>‹|>\nB›",
		"{{ m.role|capitalize ~ ':' }}":            "‹User›:",
		"{{ m|tojson }}":                           `‹{"role": "user", "n": 12345678901234567890, "l": ["p", {"q": null}]}›`,
		"{{ {'k': m.role}|tojson }}":               `{"k": ‹"user"›}`,
		"{{ m }}":                                  `‹{'role': 'user', 'n': 12345678901234567890, 'l': ['p', {'q': None}]}›`,
		"{{ think.split('</think>')[0].split('<think>')[-1] }}|{{ think.split('</think>')[-1].lstrip('\\n') }}": "‹r›|‹answer›",
		"{{ m.l|join(', ') }}":                                               "‹p›, ‹{'q': None}›",
		"{% for c in m.role %}{{ c }}-{% endfor %}":                          "‹u›-‹s›-‹e›-‹r›-",
		"{{ x[2:4] }}{{ x[::-1]|trim }}":                                     "‹<|b\n>|a|<›",
		"{% set y %}[{{ m.role }}]{% endset %}{{ y|length }}{{ y }}":         "6[‹user›]",
		"{% macro f(a, b='z') %}{{ a }}{{ b }}{% endmacro %}{{ f(m.role) }}": "‹user›z",
		"{{ '%s=%s' % ('k', m.role) }}{{ '{}!'.format(m.role) }}":            "k=‹useruser›!",
		"{{ x|indent(2)|trim }}":                                             "‹<|a|>›\n  ‹b›",
		"{{ x|length }} {{ m.role == 'user' }} {{ '<|a|>' in x }}":           "11 True True",
	} {
		got, err := render(t, template, vars)
		require.NoError(t, err, template)
		assert.Equal(t, want, marked(got), template)
	}
}

// What is wrong with a template is said with its file and line.
func TestErrors(t *testing.T) {
	for template, want := range map[string]string{
		"a\n{% if x %}":               "t.jinja:2: the template ends where elif or else or endif is due",
		"{{ x ":                       "t.jinja:1: a tag is not closed with }}",
		"\n\n{% endfor %}":            `t.jinja:3: "endfor" has no block to end`,
		"{% for x in y %}{% endif %}": "t.jinja:1: endif where else or endfor is due",
		"{% include 'x' %}":           "t.jinja:1: a chat template can't use {% include %}",
		"{% frobnicate %}":            `t.jinja:1: there is no tag "frobnicate"`,
		"{{ x|frob }}":                `t.jinja:1: there is no filter "frob"`,
		"{{ x is frob }}":             `t.jinja:1: there is no test "frob"`,
		"{{ 'abc }}":                  "t.jinja:1: a string is not closed",
		"{# x":                        "t.jinja:1: a comment is not closed",
		"{{ a b }}":                   `t.jinja:1: want }}, got "b"`,
		"{% break %}":                 "t.jinja:1: break outside of a loop",
		"{{ x ? y }}":                 "t.jinja:1: unexpected character '?'",
		"{% raw %}x":                  "t.jinja:1: a raw block is not closed",
		"{{ " + strings.Repeat("(", 300) + "1" + strings.Repeat(")", 300) + " }}": "t.jinja:1: expressions are nested deeper than 200",
	} {
		_, err := Compile("t.jinja", template)
		assert.EqualError(t, err, want, template)
	}
	for template, want := range map[string]string{
		"x\n{{ a.b.c }}":                    "t.jinja:2: a is undefined",
		"{{ a['b'] }}":                      "t.jinja:1: a is undefined",
		"{{ s + 1 }}":                       "t.jinja:1: + between a str and a int",
		"{{ s() }}":                         "t.jinja:1: a str can't be called",
		"{{ a() }}":                         "t.jinja:1: a is undefined, and is called",
		"{{ 1 // 0 }}":                      "t.jinja:1: division by zero",
		"{{ range(1000000) }}":              "t.jinja:1: a range has more than 100000 numbers",
		"{{ 'x' * 10000000 }}":              "t.jinja:1: a string is repeated too often",
		"{% set s.x = 1 %}":                 "t.jinja:1: s is no namespace, so s.x can't be set",
		"{% for a, b in [1] %}{% endfor %}": "t.jinja:1: an item of type int can't be taken apart into 2 names",
		"{% macro f() %}{{ f() }}{% endmacro %}\n{{ f() }}":         "t.jinja:1: macros call each other deeper than 100",
		"{% if s %}\n{{ raise_exception('only ' ~ s) }}{% endif %}": "the chat template refuses this conversation: only text (t.jinja:2)",
	} {
		_, err := render(t, template, decode(t, `{"s": "text"}`))
		assert.EqualError(t, err, want, template)
	}
}

// A template that doesn't end is stopped.
func TestEndless(t *testing.T) {
	loop := "{% for a in range(100000) %}"
	template := loop + loop + loop + "{% endfor %}{% endfor %}{% endfor %}"
	c, err := Compile("t.jinja", template)
	require.NoError(t, err)
	_, err = c.Run(t.Context(), Options{Steps: 100_000})
	assert.ErrorContains(t, err, "does not come to an end")
}

func TestReadsAndNames(t *testing.T) {
	c, err := Compile("t", "{% for m in messages %}{{ m.reasoning_content or m['thinking'] }}{% endfor %}")
	require.NoError(t, err)
	assert.True(t, c.Reads("messages") && c.Names("reasoning_content") && c.Names("thinking"))
	assert.False(t, c.Reads("tools") || c.Reads("thinking") || c.Names("tools"))

	c, err = Compile("t", "{% set bos = '<s>' %}{{ bos }}{% if x %}{% set eos = '</s>' %}{% endif %}{{ eos }}{% set pad = pad or '' %}")
	require.NoError(t, err)
	assert.False(t, c.Reads("bos"), "the template gives it a value first")
	assert.True(t, c.Reads("eos") && c.Reads("pad"), "it may come from outside")
}

// Keys that are numbers stay numbers, as in a table of a model's limits.
func TestKeysThatAreNumbers(t *testing.T) {
	c, err := Compile("t", "{% set d = {512: 128, 0: 0, 2048: 512} %}{% for k, v in d|dictsort if k >= 512 %}{{ k + 1 }}={{ v }};{% endfor %}"+
		"{{ d[512] }} {{ d['512'] is defined }} {{ d.get(0) }} {{ d.get(1) }} {{ 512 in d }} {{ 1 in d }} {{ {1: {2: 3}} }} {{ {1: 2}|tojson }} {{ {7: 8}.copy().keys()|list }}")
	require.NoError(t, err)
	out, err := c.Run(t.Context(), Options{})
	require.NoError(t, err)
	assert.Equal(t, `513=128;2049=512;128 False 0 None True False {1: {2: 3}} {"1": 2} [7]`, out.String())
}

// Lists that templates keep queues in. Changes show through every name of a
// list, and neither in a loop over it nor in a copy.
func TestListsThatChange(t *testing.T) {
	for source, want := range map[string]string{
		"{% set q = namespace(ids=[]) %}{% for n in 'abc' %}{% set _ = q.ids.append(n) %}{% endfor %}{{ q.ids.pop(0) }}{{ q.ids.pop() }}{{ q.ids }}":                   "ac['b']",
		"{% set l = [1, 2] %}{% set m = l %}{% set c = l|list %}{% set _ = l.extend([3]) %}{% set _ = c.append(4) %}{% set _ = m.insert(0, 0) %}{{ l }}{{ m }}{{ c }}": "[0, 1, 2, 3][0, 1, 2, 3][1, 2, 4]",
		"{% set l = [1, 2] %}{% for x in l %}{% set _ = l.append(x) %}{{ x }}{% endfor %}{{ l|length }}":                                                               "124",
		"{% set l = [3] %}{% set _ = l.insert(-5, 1) %}{% set _ = l.insert(9, 4) %}{% set _ = l.insert(-1, 2) %}{{ l }}{{ l.pop(-2) }}":                                "[1, 3, 2, 4]2",
	} {
		c, err := Compile("t", source)
		require.NoError(t, err, source)
		out, err := c.Run(t.Context(), Options{})
		require.NoError(t, err, source)
		assert.Equal(t, want, out.String(), source)
	}
}

// What is read from JSON is from where its text is from.
func TestFromJSON(t *testing.T) {
	c, err := Compile("t", `{% set d = a|from_json %}{{ d.k }}|{{ d.l }}|{{ d|tojson }}|{{ ('{"t": "' + u + '!"}')|from_json }}{% for k, v in d.items() %} {{ k }}{% endfor %} {{ '[]'|from_json is sequence }} {{ 'null'|from_json is none }}`)
	require.NoError(t, err)
	out, err := c.Run(t.Context(), Options{Vars: map[string]Value{"a": String(`{"k": "v\"é", "l": [1.50, true, null, {}], "k2": ""}`, 7), "u": String("x", 7)}})
	require.NoError(t, err)
	assert.Equal(t, `v"é|[1.50, True, None, {}]|{"k": "v\"é", "l": [1.50, true, null, {}], "k2": ""}|{'t': 'x!'} k l k2 True True`, out.String())
	for _, piece := range []string{"v", "1.50", "x!", "k2"} {
		found := false
		out.Pieces(func(s string, from Source) { found = found || from == 7 && strings.Contains(s, piece) })
		assert.True(t, found, piece)
	}
	for _, bad := range []string{"'{'", "'{} 1'", "1", "''", "'[1,]'"} {
		c, err := Compile("t", "{{ "+bad+"|from_json }}")
		require.NoError(t, err)
		_, err = c.Run(t.Context(), Options{})
		assert.ErrorContains(t, err, "from_json", bad)
	}
}

// What is empty, none among it, has nothing to select from.
func TestSelectFromNothing(t *testing.T) {
	c, err := Compile("t", "{% for v in [none, false, '', [], {}, gone] %}{{ v|selectattr('a', 'equalto', 'b')|list }}{{ v|rejectattr('a')|list }}{{ v|select|list }}{{ v|reject|list }}{{ v|map(attribute='a')|list }}{% endfor %}")
	require.NoError(t, err)
	out, err := c.Run(t.Context(), Options{})
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("[]", 30), out.String())
}

// Real templates render as Python's Jinja renders them. testdata/models/README.md
// says where they are from.
func TestRealTemplates(t *testing.T) {
	files, err := filepath.Glob("testdata/models/*.jinja")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	chats, err := filepath.Glob("testdata/vars/*.json")
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, vars := range chats {
			given, err := os.ReadFile(vars)
			require.NoError(t, err)
			got, err := render(t, string(source), decode(t, string(given)))
			what := "error"
			if err == nil {
				what = got.String()
			}
			golden := filepath.Join(strings.TrimSuffix(file, ".jinja"), strings.TrimSuffix(filepath.Base(vars), ".json")+".txt")
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), what, golden)
		}
	}
}

// FuzzTemplate compiles and runs any template: it must not panic, and sources
// must cover what comes out.
func FuzzTemplate(f *testing.F) {
	data, err := os.ReadFile("testdata/small.jsonl")
	require.NoError(f, err)
	for line := range bytes.Lines(data) {
		var c struct{ T string }
		require.NoError(f, json.Unmarshal(line, &c))
		f.Add(c.T)
	}
	vars := `{"messages": [{"role": "user", "content": "<|x|> hi"}], "x": 3, "s": "text", "d": {"a": [1, 2.5, null]}}`
	f.Fuzz(func(t *testing.T, template string) {
		c, err := Compile("t", template)
		if err != nil {
			return
		}
		o := Options{Vars: map[string]Value{}}
		given := decode(t, vars)
		for i, k := range given.keys {
			o.Vars[k.s] = given.values[i]
		}
		got, err := c.Run(t.Context(), o)
		if err != nil {
			return
		}
		var b strings.Builder
		got.Pieces(func(s string, _ Source) { b.WriteString(s) })
		assert.Equal(t, got.String(), b.String())
	})
}
