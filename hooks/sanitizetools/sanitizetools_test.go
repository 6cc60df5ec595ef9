package sanitizetools

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// apply runs the hook on a call with arguments of a tool with parameters.
func apply(t *testing.T, c Config, parameters, call string) hook.Result {
	t.Helper()
	h, err := New(c)
	require.NoError(t, err)
	d := fmt.Sprintf(`{"point":"tool_call","tool_call":%s,"tools":[{"name":"Other"},{"name":"Edit","parameters":%s},{"name":"twin"},{"name":"TWIN"}]}`, call, parameters)
	require.True(t, json.Valid([]byte(d)), d)
	r, err := h.Apply(t.Context(), hook.NewEvent(doc.Bytes(d)))
	require.NoError(t, err)
	require.NoError(t, r.Check())
	return r
}

func findings(t *testing.T, r hook.Result) []string {
	t.Helper()
	var out []string
	if r.Report == nil {
		return nil
	}
	var fs []Finding
	require.NoError(t, json.Unmarshal(r.Report, &fs))
	for _, f := range fs {
		line := f.Rule + " " + f.Pointer
		if f.Before != nil {
			line += " " + string(f.Before)
		}
		if f.Fixed {
			line += " -> " + string(f.After)
		}
		out = append(out, line)
	}
	return out
}

const edit = `{"type":"object","properties":{"path":{"type":"string"},"line":{"type":"integer"},"ratio":{"type":"number"},
	"all":{"type":"boolean"},"tags":{"type":"array","items":{"type":"string"}},"opts":{"type":"object","properties":{"deep":{"type":"boolean"}},"additionalProperties":false},
	"maybe":{"type":["integer","null"]},"free":{}},"required":["path"],"additionalProperties":false}`

func TestArguments(t *testing.T) {
	for name, c := range map[string]struct {
		config     Config
		parameters string // edit if empty
		in         string
		out        string // as in if empty
		want       []string
	}{
		"right":          {in: `{"path":"a","line":3,"ratio":0.5,"all":true,"tags":["x"],"opts":{"deep":false},"maybe":null,"free":"1"}`},
		"bytes are kept": {in: `{ "line" : 12345678901234567890,  "path":"\u00e9<>&\/" , "ratio":1.50}`},

		"unknown key":         {in: `{"path":"a","x":1}`, out: `{"path":"a"}`, want: []string{`unknown_keys /arguments/x 1 -> `}},
		"unknown key, nested": {in: `{"path":"a","opts":{"deep":true,"y":2}}`, out: `{"path":"a","opts":{"deep":true}}`, want: []string{`unknown_keys /arguments/opts/y 2 -> `}},
		"unknown key, report": {config: Config{UnknownKeys: Report}, in: `{"path":"a","x":1}`, want: []string{`unknown_keys /arguments/x 1`}},
		"unknown key, off":    {config: Config{UnknownKeys: Off}, in: `{"path":"a","x":1}`},
		"order and rest kept": {in: `{"line":1,"x":{"y":[1,2]},"path":"\u00e9"}`, out: `{"line":1,"path":"\u00e9"}`, want: []string{`unknown_keys /arguments/x {"y":[1,2]} -> `}},
		"open schema reports": {parameters: `{"type":"object","properties":{"a":{"type":"string"}}}`, in: `{"a":"1","b":2}`, want: []string{`unknown_keys /arguments/b 2`}},
		"open schema, closed": {config: Config{Closed: true}, parameters: `{"type":"object","properties":{"a":{"type":"string"}}}`, in: `{"a":"1","b":2}`, out: `{"a":"1"}`, want: []string{`unknown_keys /arguments/b 2 -> `}},
		"additional allowed":  {config: Config{Closed: true}, parameters: `{"type":"object","properties":{},"additionalProperties":true}`, in: `{"b":2}`},
		"additional typed":    {parameters: `{"type":"object","properties":{},"additionalProperties":{"type":"integer"}}`, in: `{"b":"2"}`, out: `{"b":2}`, want: []string{`wrong_types /arguments/b "2" -> 2`}},
		"empty properties":    {parameters: `{"type":"object","properties":{}}`, in: `{"b":2}`},
		"empty and closed":    {config: Config{Closed: true}, parameters: `{"type":"object","properties":{}}`, in: `{"b":2}`},
		"empty, forbidden":    {parameters: `{"type":"object","properties":{},"additionalProperties":false}`, in: `{"b":2}`, out: `{}`, want: []string{`unknown_keys /arguments/b 2 -> `}},
		"no schema":           {parameters: `{}`, in: `{"b":2}`},
		"pattern properties":  {parameters: `{"patternProperties":{"^x_":{"type":"integer"}},"additionalProperties":false}`, in: `{"x_a":"1","y":1}`, out: `{"x_a":1}`, want: []string{`wrong_types /arguments/x_a "1" -> 1`, `unknown_keys /arguments/y 1 -> `}},

		"missing":              {in: `{"line":1}`, want: []string{`missing_required /arguments/path`}},
		"missing, no default":  {config: Config{MissingRequired: Fix}, in: `{"line":1}`, want: []string{`missing_required /arguments/path`}},
		"missing with default": {config: Config{MissingRequired: Fix}, parameters: `{"properties":{"n":{"type":"integer","default":5}},"required":["n"]}`, in: `{}`, out: `{"n":5}`, want: []string{`missing_required /arguments/n -> 5`}},

		"number in string":     {in: `{"path":"a","line":" 12 ","ratio":"1e3"}`, out: `{"path":"a","line":12,"ratio":1e3}`, want: []string{`wrong_types /arguments/line " 12 " -> 12`, `wrong_types /arguments/ratio "1e3" -> 1e3`}},
		"big number in string": {in: `{"path":"a","line":"12345678901234567890"}`, out: `{"path":"a","line":12345678901234567890}`, want: []string{`wrong_types /arguments/line "12345678901234567890" -> 12345678901234567890`}},
		"no integer":           {in: `{"path":"a","line":"1.5"}`, want: []string{`wrong_types /arguments/line "1.5"`}},
		"a float, not integer": {in: `{"path":"a","line":1.5}`, want: []string{`wrong_types /arguments/line 1.5`}},
		"a whole float":        {in: `{"path":"a","line":3.0}`},
		"leading zero":         {in: `{"path":"a","line":"007"}`, want: []string{`wrong_types /arguments/line "007"`}},
		"boolean in string":    {in: `{"path":"a","all":"True"}`, out: `{"path":"a","all":true}`, want: []string{`wrong_types /arguments/all "True" -> true`}},
		"string wanted":        {in: `{"path":12345678901234567890}`, out: `{"path":"12345678901234567890"}`, want: []string{`wrong_types /arguments/path 12345678901234567890 -> "12345678901234567890"`}},
		"string stays":         {in: `{"path":"123","free":"{\"a\":1}"}`},
		"null optional":        {in: `{"path":"a","line":null}`, out: `{"path":"a"}`, want: []string{`wrong_types /arguments/line null -> `}},
		"null required":        {in: `{"path":null}`, want: []string{`wrong_types /arguments/path null`}},
		"null in string":       {in: `{"path":"null","maybe":"null"}`, out: `{"path":"null","maybe":null}`, want: []string{`wrong_types /arguments/maybe "null" -> null`}},
		"one for a list":       {in: `{"path":"a","tags":"x"}`, out: `{"path":"a","tags":["x"]}`, want: []string{`wrong_types /arguments/tags "x" -> ["x"]`}},
		"items":                {in: `{"path":"a","tags":["x",1]}`, out: `{"path":"a","tags":["x","1"]}`, want: []string{`wrong_types /arguments/tags/1 1 -> "1"`}},
		"object for a string":  {in: `{"path":{"a":1}}`, want: []string{`wrong_types /arguments/path {"a":1}`}},

		"list in string":   {in: `{"path":"a","tags":"[\"x\", \"y\"]"}`, out: `{"path":"a","tags":["x", "y"]}`, want: []string{`json_in_strings /arguments/tags "[\"x\", \"y\"]" -> ["x","y"]`}},
		"object in string": {in: `{"path":"a","opts":"{\"deep\":\"true\",\"z\":0}"}`, out: `{"path":"a","opts":{"deep":true}}`, want: []string{`json_in_strings /arguments/opts "{\"deep\":\"true\",\"z\":0}" -> {"deep":"true","z":0}`, `wrong_types /arguments/opts/deep "true" -> true`, `unknown_keys /arguments/opts/z 0 -> `}},
		"in a code block":  {in: "{\"path\":\"a\",\"opts\":\"```json\\n{}\\n```\"}", out: `{"path":"a","opts":{}}`, want: []string{"json_in_strings /arguments/opts \"```json\\n{}\\n```\" -> {}"}},
		"broken json":      {in: `{"path":"a","opts":"{\"deep\":"}`, want: []string{`wrong_types /arguments/opts "{\"deep\":"`}},
		"json, off":        {config: Config{JSONInStrings: Off}, in: `{"path":"a","opts":"{}"}`},

		"arguments in string":  {in: `"{\"path\":\"a\"}"`, out: `{"path":"a"}`, want: []string{`json_in_strings /arguments "{\"path\":\"a\"}" -> {"path":"a"}`}},
		"arguments null":       {in: `null`, out: `{}`, want: []string{`raw_arguments /arguments null -> {}`, `missing_required /arguments/path`}},
		"arguments empty text": {in: `""`, out: `{}`, want: []string{`raw_arguments /arguments "" -> {}`, `missing_required /arguments/path`}},
		"arguments bare text":  {in: `"a.txt"`, out: `{"path":"a.txt"}`, want: []string{`raw_arguments /arguments "a.txt" -> {"path":"a.txt"}`}},
		"bare text, no place":  {parameters: `{"properties":{"n":{"type":"integer"},"m":{"type":"string"}}}`, in: `"a.txt"`, want: []string{`raw_arguments /arguments "a.txt"`}},
		"a list, no place":     {in: `[1]`, want: []string{`raw_arguments /arguments [1]`}},
		"raw, report":          {config: Config{RawArguments: Report}, in: `"a.txt"`, want: []string{`raw_arguments /arguments "a.txt"`}},

		"key case":             {in: `{"Path":"a","LINE":"3"}`, out: `{"path":"a","line":3}`, want: []string{`name_case /arguments/Path "Path" -> "path"`, `name_case /arguments/LINE "LINE" -> "line"`, `wrong_types /arguments/line "3" -> 3`}},
		"key case, both there": {in: `{"Path":"a","path":"b"}`, out: `{"path":"b"}`, want: []string{`unknown_keys /arguments/Path "a" -> `}},

		"reference":           {parameters: `{"$defs":{"p":{"type":"object","properties":{"x":{"type":"integer"}},"additionalProperties":false}},"properties":{"at":{"$ref":"#/$defs/p"}}}`, in: `{"at":{"x":"1","z":2}}`, out: `{"at":{"x":1}}`, want: []string{`wrong_types /arguments/at/x "1" -> 1`, `unknown_keys /arguments/at/z 2 -> `}},
		"circular reference":  {parameters: `{"$defs":{"p":{"$ref":"#/$defs/p"}},"properties":{"at":{"$ref":"#/$defs/p"}}}`, in: `{"at":"1"}`},
		"recursive schema":    {parameters: `{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"n":{"type":"integer"},"sub":{"$ref":"#/$defs/t"}}}}}`, in: `{"n":"1","sub":{"n":"2"}}`, out: `{"n":1,"sub":{"n":2}}`, want: []string{`wrong_types /arguments/n "1" -> 1`, `wrong_types /arguments/sub/n "2" -> 2`}},
		"any of, string too":  {parameters: `{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"array"}]}}}`, in: `{"a":"[1]"}`},
		"any of, nullable":    {parameters: `{"properties":{"a":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}`, in: `{"a":"7"}`, out: `{"a":7}`, want: []string{`wrong_types /arguments/a "7" -> 7`}},
		"one of, by constant": {parameters: `{"properties":{"a":{"oneOf":[{"type":"object","properties":{"k":{"const":"x"},"n":{"type":"integer"}},"required":["k"],"additionalProperties":false},{"type":"object","properties":{"k":{"const":"y"}},"required":["k"]}]}}}`, in: `{"a":{"k":"x","n":"1","z":0}}`, out: `{"a":{"k":"x","n":1}}`, want: []string{`wrong_types /arguments/a/n "1" -> 1`, `unknown_keys /arguments/a/z 0 -> `}},
		"one of, no telling":  {parameters: `{"properties":{"a":{"oneOf":[{"type":"object","properties":{"n":{"type":"integer"}}},{"type":"object","properties":{"n":{"type":"string"}}}]}}}`, in: `{"a":{"n":"1"}}`},
		"all of":              {parameters: `{"allOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"b":{"type":"string"}},"required":["b"]}],"additionalProperties":false}`, in: `{"a":"1","c":0}`, out: `{"a":1}`, want: []string{`wrong_types /arguments/a "1" -> 1`, `unknown_keys /arguments/c 0 -> `, `missing_required /arguments/b`}},
		"enum without a type": {parameters: `{"properties":{"a":{"enum":[1,2]}}}`, in: `{"a":"1"}`, out: `{"a":1}`, want: []string{`wrong_types /arguments/a "1" -> 1`}},
		"strange schema":      {parameters: `{"properties":{"a":{"type":"varchar"},"b":{"type":7},"c":5}}`, in: `{"a":1,"b":"x","c":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			if c.parameters == "" {
				c.parameters = edit
			}
			r := apply(t, c.config, c.parameters, `{"id":"c1","name":"Edit","arguments":`+c.in+`}`)
			assert.Equal(t, c.want, findings(t, r))
			if c.out == "" {
				assert.Equal(t, hook.Continue, r.Action)
				return
			}
			assert.Equal(t, hook.Replace, r.Action)
			assert.Equal(t, `{"id":"c1","name":"Edit","arguments":`+c.out+`}`, string(r.Value))
		})
	}
}

// A text that isn't JSON at all comes with arguments_raw, which goes away
// with the repair.
func TestRawArguments(t *testing.T) {
	r := apply(t, Config{}, edit, `{"id":"c1","name":"Edit","arguments":"it's \"raw\"","arguments_raw":true,"extra":1}`)
	assert.Equal(t, `{"id":"c1","name":"Edit","arguments":{"path":"it's \"raw\""},"extra":1}`, string(r.Value))

	r = apply(t, Config{RawArguments: Report}, edit, `{"id":"c1","name":"Edit","arguments":"x","arguments_raw":true}`)
	assert.Equal(t, hook.Continue, r.Action)
}

func TestToolName(t *testing.T) {
	r := apply(t, Config{}, edit, `{"id":"c1","name":"edit","arguments":{"path":"a"}}`)
	assert.Equal(t, `{"id":"c1","name":"Edit","arguments":{"path":"a"}}`, string(r.Value))
	assert.Equal(t, []string{`name_case /name "edit" -> "Edit"`}, findings(t, r))

	for _, name := range []string{"nothing", "Twin"} { // unknown, and one that could be two
		r := apply(t, Config{}, edit, `{"id":"c1","name":"`+name+`","arguments":{"z":1}}`)
		assert.Equal(t, hook.Pass(), r, name)
	}

	// The schema is that of the right tool even if the name is only reported.
	r = apply(t, Config{NameCase: Report}, edit, `{"id":"c1","name":"EDIT","arguments":{"path":"a","z":1}}`)
	assert.Equal(t, `{"id":"c1","name":"EDIT","arguments":{"path":"a"}}`, string(r.Value))
}

func TestNoArguments(t *testing.T) {
	r := apply(t, Config{}, edit, `{"id":"c1","name":"Edit"}`)
	assert.Equal(t, hook.Continue, r.Action)
	assert.Equal(t, []string{"missing_required /arguments/path"}, findings(t, r))

	assert.Equal(t, hook.Pass(), apply(t, Config{}, `{}`, `{"id":"c1","name":"Edit"}`))
}

// A schema that is made of itself twice over must not cost twice as much at
// each step.
func TestCircularSchema(t *testing.T) {
	for _, parameters := range []string{
		`{"anyOf":[{"$ref":"#"},{"$ref":"#"}],"properties":{"a":{"$ref":"#"}}}`,
		`{"allOf":[{"$ref":"#"},{"$ref":"#/$defs/x"}],"$defs":{"x":{"oneOf":[{"$ref":"#"},{"$ref":"#/$defs/x"}]}}}`,
	} {
		assert.Equal(t, hook.Pass(), apply(t, Config{}, parameters, `{"name":"Edit","arguments":{"a":{"a":{}}}}`))
	}
}

func TestOtherPoints(t *testing.T) {
	h, err := New(Config{})
	require.NoError(t, err)
	r, err := h.Apply(t.Context(), hook.NewEvent(doc.Bytes(`{"point":"request","request":{}}`)))
	require.NoError(t, err)
	assert.Equal(t, hook.Pass(), r)
}

func TestBadMode(t *testing.T) {
	_, err := New(Config{WrongTypes: "maybe"})
	assert.EqualError(t, err, `wrong_types is "maybe", want off, report, fix or reject`)
}

// Whatever the arguments and the schema are, the result is JSON.
func FuzzApply(f *testing.F) {
	f.Add(edit, `{"path":1,"tags":"[1]","OPTS":{"x":[]},"line":"2"}`)
	f.Add(`{"anyOf":[{"$ref":"#"}],"properties":{"a":{"allOf":[{"$ref":"#"}]}}}`, `{"a":{"a":"1"}}`)
	f.Fuzz(func(t *testing.T, parameters, arguments string) {
		if !json.Valid([]byte(parameters)) || !json.Valid([]byte(arguments)) {
			t.Skip()
		}
		apply(t, Config{MissingRequired: Fix, Closed: true}, parameters, `{"name":"Edit","arguments":`+arguments+`}`)
	})
}

func BenchmarkApply(b *testing.B) {
	h, _ := New(Config{})
	e := hook.NewEvent(doc.Bytes(`{"point":"tool_call","tool_call":{"id":"1","name":"Edit","arguments":{"path":"a","line":"3","x":1}},"tools":[{"name":"Edit","parameters":` + edit + `}]}`))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Apply(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
}

func TestARuleMayRejectTheWholeCall(t *testing.T) {
	c := Config{UnknownKeys: Reject, MissingRequired: Reject}
	const parameters = `{"type":"object","properties":{"path":{"type":"string"},"line":{"type":"integer"}},"required":["path"],"additionalProperties":false}`
	r := apply(t, c, parameters, `{"id":"1","name":"Edit","arguments":{"line":"5","colour":"red"}}`)
	assert.Equal(t, hook.Deny, r.Action)
	assert.Equal(t, "the call of Edit does not fit the tool: missing_required at /arguments/path, unknown_keys at /arguments/colour", sortedReason(r.Reason))
	assert.Empty(t, r.Value)
	assert.Len(t, findings(t, r), 3, "what else was found is told, too")

	r = apply(t, c, parameters, `{"id":"1","name":"Edit","arguments":{"path":"a","line":"5"}}`)
	assert.Equal(t, hook.Replace, r.Action, "a rule that says fix still does")
}

// sortedReason puts the faults of a reason in order of their names.
func sortedReason(reason string) string {
	head, list, _ := strings.Cut(reason, ": ")
	faults := strings.Split(list, ", ")
	slices.Sort(faults)
	return head + ": " + strings.Join(faults, ", ")
}
