package format

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const minimal = `name: mine
calls:
  open: "<call>"
  close: "</call>"
  json: { name: [name], arguments: [arguments] }
render:
  user: "{{.Text}}\n"
  assistant: "{{.Text}}"
  generate: "> "
`

func TestParseSpec(t *testing.T) {
	s, err := ParseSpec("mine.yaml", []byte(minimal))
	require.NoError(t, err)
	assert.Equal(t, []string{"<call>"}, s.Calls.Open, "one text is a list of one")
	_, err = New(s)
	require.NoError(t, err)
}

// What is wrong with a format file is said with its place, and a way out.
func TestSpecErrors(t *testing.T) {
	for file, want := range map[string]string{
		"":          "f.yaml:1:1: the file is empty",
		"name: [x]": "f.yaml:1:7: name must be text",
		"naem: x\n": `f.yaml:1:1: format has no key "naem" (did you mean "name"?)`,
		"name: x\nname: y\nrender: {user: a, assistant: b, generate: c}":          `f.yaml:2:1: "name" is given twice, first in line 1`,
		"name: x\ncalls:\n\topen: a\n":                                            "this line starts with a tab",
		"name: x\nrender: {user: a, assistant: b, generate: c, keep: al}":         `f.yaml:2:52: render.keep is "al", want one of`,
		"name: x\nrender: {user: a}":                                              "f.yaml:2:9: render needs user and assistant",
		"name: x":                                                                 "a format needs render",
		"name: x\ncalls: {open: a}\nrender: {user: a, assistant: b, generate: c}": "f.yaml:2:8: calls need a grammar",
		"name: x\ncalls: {json: {name: n, arguments: a}}\nrender: {user: a, assistant: b, generate: c}":                                 "calls need open, or bare",
		"name: x\ncalls: {open: a, tagged: {open: b, param: '<{name}>', param_close: c}}\nrender: {user: a, assistant: b, generate: c}": "f.yaml:2:33: tagged.open needs {name}",
		"name: x\nreasoning: {open: a, ended_by_call: maybe}\nrender: {user: a, assistant: b, generate: c}":                             "f.yaml:2:37: ended_by_call must be true or false",
		"name: x\nstops: 5\nrender: {user: a, assistant: b}":                                                                            `f.yaml:2:8: stops[0] must be text (put it in quotes: "5")`,
		"name: x\ncalls: {open: a, tagged: {open: 'b{name}', param: '{name}>', param_close: c}}\nrender: {user: a, assistant: b}":       "tagged.param needs {name}, and text before it",
	} {
		_, err := ParseSpec("f.yaml", []byte(file))
		assert.ErrorContains(t, err, want, file)
	}
}

// Templates are tried when the file is read: what can't be rendered is an error
// at its line, before anything runs.
func TestTemplateErrors(t *testing.T) {
	const head = "name: x\nrender:\n  assistant: b\n"
	for file, want := range map[string]string{
		"  user: '{{.Text'":                                                     "f.yaml:4:9: the template of user can't be used: unclosed action",
		"  user: '{{.Txt}}'":                                                    "f.yaml:4:9: the template of user can't be used: there is no .Txt (did you mean .Text? it has ",
		"  user: |-\n    a\n    {{.System.X}}":                                  "f.yaml:6:1: the template of user can't be used",
		"  user: '{{index .Nope 3}}'":                                           "there is no .Nope",
		"  user: a\n  tool: '{{.Result}}'":                                      "f.yaml:5:9: the template of tool can't be used: there is no .Result",
		"  user: a\n  head: '{{range .Tools}}{{.Nam}}{{end}}'":                  "did you mean .Name? it has Definition, Description, Function, Name, Parameters",
		"  user: a\n  define: {c: '{{.Nope}}'}\n  head: '{{template \"c\" .}}'": "f.yaml:5:15: the template of c can't be used: there is no .Nope",
		"  user: '{{template \"gone\"}}'":                                       "f.yaml:4:9: the template of user can't be used",
	} {
		_, err := ParseSpec("f.yaml", []byte(head+file))
		assert.ErrorContains(t, err, want, file)
	}
}

// An empty text among markers would be found everywhere.
func TestEmptyMarkersAreRefused(t *testing.T) {
	for file, want := range map[string]string{
		`calls: {open: "", json: {name: n, arguments: a}}`:             "f.yaml:3:15: open is empty",
		`calls: {open: [a, ""], json: {name: n, arguments: a}}`:        "f.yaml:3:19: open is empty",
		`calls: {open: a, close: "", json: {name: n, arguments: a}}`:   "f.yaml:3:25: close is empty",
		`calls: {open: a, noise: [""], json: {name: n, arguments: a}}`: "f.yaml:3:26: noise is empty",
		`calls: {open: , json: {name: n, arguments: a}}`:               "f.yaml:3:15: open is empty",
		`stops: ""`:                             "f.yaml:3:8: stops is empty",
		`tokens: [""]`:                          "f.yaml:3:10: tokens is empty",
		`calls: {open: a, header: {sep: [""]}}`: "f.yaml:3:33: sep is empty",
	} {
		_, err := ParseSpec("f.yaml", []byte("name: x\nrender: {user: a, assistant: b}\n"+file))
		assert.ErrorContains(t, err, want, file)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"hermes", "qwen3_coder", "qwen3p5"}
	assert.Equal(t, "hermes", Nearest("hermse", names))
	assert.Equal(t, "qwen3_coder", Nearest("Qwen3-coder", names))
	assert.Empty(t, Nearest("llama", names))
}
