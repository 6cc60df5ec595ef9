package agentcli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/invoker"
)

const small = `penstock: recipe/v1
name: mine
program: mine
api: chat
apis: { chat: { dialect: openaichat } }
env: { KEY: "{{.Token}}", URL: "{{.BaseURL}}/v1" }
argv: [run]
stdin: "{{.Prompt}}"
`

// TestRecipeErrors holds that each mistake is told with its place.
func TestRecipeErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "r.yaml:1:1: the file is empty"},
		"no yaml":          {"penstock: [", "r.yaml:1:1: did not find expected node content"},
		"version":          {strings.Replace(small, "recipe/v1", "recipe/v2", 1), "r.yaml:1:11: a recipe begins with penstock: recipe/v1"},
		"unknown key":      {small + "arvg: [x]\n", `r.yaml:9:1: a recipe has no key "arvg" (did you mean "argv"?)`},
		"key of an object": {small + "install: { nmp: x }\n", `r.yaml:9:12: install has no key "nmp" (did you mean "npm"?)`},
		"twice":            {small + "name: other\n", `r.yaml:9:1: "name" is given twice, first in line 2`},
		"a list":           {small + "files: [x]\n", "r.yaml:9:8: files must be a mapping"},
		"not text":         {strings.Replace(small, "program: mine", "program: [mine]", 1), "r.yaml:3:10: program must be text"},
		"empty value":      {small + "idle:\n", "r.yaml:9:6: idle is empty"},
		"no argv":          {strings.Replace(small, "argv: [run]", "", 1), "a recipe needs argv"},
		"api":              {strings.Replace(small, "api: chat", "api: chatty", 1), `r.yaml:4:6: api is "chatty", want one of apis: chat`},
		"dialect":          {strings.Replace(small, "openaichat", "openai", 1), `r.yaml:5:26: apis/chat/dialect is "openai", want anthropic, bedrock,`},
		"no field":         {strings.Replace(small, "{{.Token}}", "{{.Tokn}}", 1), "r.yaml:6:13: env/KEY: there is no .Tokn (there are .Prompt"},
		"template":         {strings.Replace(small, "{{.Token}}", "{{.Token", 1), "r.yaml:6:13: env/KEY: unclosed action"},
		"in a block": {small + "files:\n  \"~/a.txt\": |\n    one\n    two {{.Three}}\n",
			"r.yaml:12:1: files/~/a.txt: there is no .Three"},
		"bad JSON":      {small + "files:\n  \"~/a.json\": |\n    { \"a\": {{.Model}} }\n", "r.yaml:10:15: ~/a.json: it makes no valid JSON: invalid character 'm'"},
		"bad YAML":      {small + "files: { a.yaml: \"a: [\" }\n", "r.yaml:9:18: a.yaml: it makes no valid YAML"},
		"missing var":   {small + "files: { a: \"{{.Var.x}}\" }\n", `r.yaml:9:13: files/a: <.Var.x>: map has no entry for key "x"`},
		"prompt":        {strings.Replace(small, "[run]", `[run, "{{.Prompt}}"]`, 1), "r.yaml:7:13: an argument that begins with {{.Prompt}} could be taken for a flag (give it on stdin,"},
		"condition":     {strings.Replace(small, "[run]", `[run, { when: .Nix, args: [x] }]`, 1), "r.yaml:7:21: argv/1/when: there is no .Nix"},
		"output":        {small + "output: xml\n", `r.yaml:9:9: output is "xml", want text, json, jsonl`},
		"no text":       {small + "output: json\n", "result.text says where in the JSON the answer is"},
		"text of text":  {small + "result: { text: [{ at: /a }] }\n", "r.yaml:9:9: text output is the answer"},
		"pointer":       {small + "output: json\nresult: { text: [{ at: a }] }\n", `r.yaml:10:18: "a" is no JSON Pointer`},
		"reader":        {small + "output: json\nresult: { reader: stream-json }\n", "the reader stream-json wants output: jsonl"},
		"status":        {small + "output: json\nresult: { text: [{ at: /a }], status: [{ where: { /b: c }, set: fine }] }\n", `result/status/0/set is "fine", want ok, agent_error,`},
		"exit code":     {small + "result: { exit_codes: { x: ok } }\n", "r.yaml:9:28: an exit code is a number up to 255"},
		"idle":          {small + "idle: { limit: 300 }\n", "r.yaml:9:16: idle.limit is a duration, such as 300s"},
		"date":          {small + "validated: { version: 1, date: today }\n", "validated has a version and a date"},
		"two installs":  {small + "install: { npm: x, command: y }\n", "install has npm or command, not both"},
		"name":          {strings.Replace(small, "name: mine", "name: My Own", 1), "r.yaml:2:7: a recipe needs a name of small letters"},
		"name of a var": {strings.Replace(small, "openaichat }", "openaichat, vars: { a-b: x } }", 1), "r.yaml:5:51: a name in vars has letters"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Parse("r.yaml", []byte(c.text))
			if err == nil {
				_, err = open(r, Config{Recipe: "r.yaml"})
			}
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestAllThatIsWrongIsTold(t *testing.T) {
	_, err := Parse("r.yaml", []byte("penstock: x\nname: A B\nargv: [a]\n"))
	lines := strings.Split(err.Error(), "\n")
	require.GreaterOrEqual(t, len(lines), 3)
	assert.Contains(t, lines[0], "r.yaml:1:1: a recipe needs")
}

// A recipe of one's own is a file.
func TestOwnRecipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(path, []byte(small), 0o600))
	p := plan(t, Config{Recipe: path})
	assert.Equal(t, []string{"mine", "run"}, p.Argv)
	assert.Equal(t, map[string]string{"KEY": "tok", "URL": "http://127.0.0.1:1/v1"}, p.Env)
}

func TestRead(t *testing.T) {
	lines := &Recipe{Output: "jsonl", Result: Result{
		Text:      []Pick{{Where: map[string]string{"/type": "done", "/item/kind": "say"}, At: "/item/text"}, {Where: map[string]string{"/type": "list"}, At: "/items/-1/text"}},
		Error:     []Pick{{Where: map[string]string{"/type": "failed"}, At: "/error"}},
		Status:    []Pick{{Where: map[string]string{"/type": "limit"}, Set: invoker.MaxTurns}},
		ExitCodes: map[string]string{"53": invoker.MaxTurns},
	}}
	object := &Recipe{Output: "json", Result: Result{Text: []Pick{{At: "/response"}}, Error: []Pick{{At: "/error/message"}}}}
	text := &Recipe{}
	last := &Recipe{Result: Result{Part: "last_paragraph"}}
	for name, c := range map[string]struct {
		recipe *Recipe
		in     invoker.ResultRequest
		want   invoker.Result
	}{
		"the last answer": {lines, invoker.ResultRequest{Stdout: "warning\n{\"type\":\"done\",\"item\":{\"kind\":\"say\",\"text\":\"a\"}}\n{\"type\":\"done\",\"item\":{\"kind\":\"run\",\"text\":\"b\"}}\n{\"type\":\"done\",\"item\":{\"kind\":\"say\",\"text\":\"42\"}}\n{bad\n"},
			invoker.Result{Text: "42", ExitStatus: "ok"}},
		"the end of a list": {lines, invoker.ResultRequest{Stdout: `{"type":"list","items":[{"text":"a"},{"text":"b"}]}`},
			invoker.Result{Text: "b", ExitStatus: "ok"}},
		"an empty answer": {lines, invoker.ResultRequest{Stdout: `{"type":"done","item":{"kind":"say","text":""}}`},
			invoker.Result{ExitStatus: "ok"}},
		"no answer": {lines, invoker.ResultRequest{Stdout: "{}\n"},
			invoker.Result{ExitStatus: "agent_error", Error: "the program ended without an answer in its output"}},
		"an error": {lines, invoker.ResultRequest{Exit: 1, Stdout: `{"type":"failed","error":"no key"}`, Stderr: "noise"},
			invoker.Result{ExitStatus: "agent_error", Error: "no key"}},
		"an error with exit code 0": {lines, invoker.ResultRequest{Stdout: `{"type":"failed","error":{"code":7}}`},
			invoker.Result{ExitStatus: "agent_error", Error: `{"code":7}`}},
		"an error that was got over": {lines, invoker.ResultRequest{Stdout: "{\"type\":\"failed\",\"error\":\"cut\"}\n{\"type\":\"done\",\"item\":{\"kind\":\"say\",\"text\":\"42\"}}\n"},
			invoker.Result{Text: "42", ExitStatus: "ok"}},
		"an error after an answer": {lines, invoker.ResultRequest{Stdout: "{\"type\":\"done\",\"item\":{\"kind\":\"say\",\"text\":\"a\"}}\n{\"type\":\"failed\",\"error\":\"cut\"}\n"},
			invoker.Result{Text: "a", ExitStatus: "agent_error", Error: "cut"}},
		"a status": {lines, invoker.ResultRequest{Exit: 1, Stdout: `{"type":"limit"}`},
			invoker.Result{ExitStatus: "max_turns", Error: "the program ended with exit code 1"}},
		"an exit code": {lines, invoker.ResultRequest{Exit: 53, Stdout: "{}"},
			invoker.Result{ExitStatus: "max_turns", Error: "the program ended with exit code 53"}},
		"a signal": {lines, invoker.ResultRequest{Exit: -1, Signal: "SIGKILL", Stderr: "boom\n"},
			invoker.Result{ExitStatus: "agent_error", Error: "the program ended with signal SIGKILL; its stderr ends: boom"}},
		"a document after noise": {object, invoker.ResultRequest{Stdout: "Loaded.\n{\"half\n{\n  \"response\": \"42\"\n}\n"},
			invoker.Result{Text: "42", ExitStatus: "ok"}},
		"a document with an error": {object, invoker.ResultRequest{Exit: 41, Stdout: `{"error":{"message":"auth"}}`},
			invoker.Result{ExitStatus: "agent_error", Error: "auth"}},
		"null is nothing": {object, invoker.ResultRequest{Stdout: `{"response":null}`},
			invoker.Result{ExitStatus: "agent_error", Error: "the program ended without an answer in its output"}},
		"text":           {text, invoker.ResultRequest{Stdout: "\n a\n\nb \n"}, invoker.Result{Text: "a\n\nb", ExitStatus: "ok"}},
		"last paragraph": {last, invoker.ResultRequest{Stdout: "a\n\nb \n\n"}, invoker.Result{Text: "b", ExitStatus: "ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, &c.want, c.recipe.read(&c.in))
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(small)
	for _, name := range Names() {
		b, err := builtin.ReadFile("recipes/" + name + ".yaml")
		require.NoError(f, err)
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse("r.yaml", []byte(text))
		if err != nil {
			return
		}
		if i, err := open(r, Config{Recipe: "r.yaml"}); err == nil {
			_, _ = i.Plan(t.Context(), &invoker.PlanRequest{Input: []byte(`{"prompt":"x"}`), Session: session})
		}
	})
}

func FuzzRead(f *testing.F) {
	r := &Recipe{Output: "jsonl", Result: Result{Text: []Pick{{Where: map[string]string{"/a/0": "1"}, At: "/b/-1"}}}}
	f.Add("{\"a\":[1],\"b\":[\"x\"]}\n")
	f.Fuzz(func(t *testing.T, text string) {
		assert.NotEmpty(t, r.read(&invoker.ResultRequest{Stdout: text}).ExitStatus)
	})
}
