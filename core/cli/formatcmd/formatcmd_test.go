package formatcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	core "github.com/penstock-dev/penstock/core/format"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/format"
)

const spec = `name: mine
summary: calls in <c>
calls: { open: "<c>", close: "</c>", json: { name: [name], arguments: [args] } }
render: { user: "U {{.Text}}\n", assistant: "A {{.Text}}", generate: "A " }
`

type one struct{ f format.Format }

func (o one) Names(string) []string { return []string{"mine"} }

func (o one) Format(context.Context, string, json.RawMessage) (format.Format, error) { return o.f, nil }

// penstock runs `penstock format ARGS`.
func penstock(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	s, err := format.ParseSpec("mine.yaml", []byte(spec))
	require.NoError(t, err)
	f, err := format.New(s)
	require.NoError(t, err)
	cmd := Command(func(ctx context.Context, spec, template string) (format.Format, error) {
		f, _, _, err := core.ResolveFor(ctx, spec, template, ".", one{f})
		return f, err
	}, func(path string) (Resolve, func() error) {
		return func(context.Context, string) (format.Format, error) { return nil, errors.New("no plugin " + path) }, func() error { return nil }
	}, func() []component.Descriptor {
		return []component.Descriptor{{Kind: component.Format, Name: "mine", Summary: "calls in <c>"}}
	})
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

func TestLs(t *testing.T) {
	out, err := penstock(t, "", "ls")
	require.NoError(t, err)
	assert.Equal(t, "NAME  VERSION  SUMMARY\nmine  -        calls in <c>\n", out)
	out, err = penstock(t, "", "ls", "--json")
	require.NoError(t, err)
	assert.Contains(t, out, `"name": "mine"`)
}

func TestParse(t *testing.T) {
	const text = `Hi <c>{"name": "f", "args": {"a": "<b>"}}</c>`
	out, err := penstock(t, text, "parse", "-f", "mine")
	require.NoError(t, err)
	var r format.Result
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	assert.Equal(t, "Hi", r.Content)
	require.Len(t, r.Calls, 1)
	assert.Equal(t, `{"a": "<b>"}`, r.Calls[0].Arguments)

	whole, err := penstock(t, text, "parse", "-f", "mine", "--events", "-")
	require.NoError(t, err)
	split, err := penstock(t, "", "parse", "-f", "mine", "--events", "--chunk", "3", write(t, "in", text))
	require.NoError(t, err)
	without := func(s string) []string {
		var kinds []string
		for line := range strings.Lines(s) {
			var e format.Event
			require.NoError(t, json.Unmarshal([]byte(line), &e))
			kinds = append(kinds, e.Kind.String()+" "+e.Name+e.Text)
		}
		return kinds
	}
	assert.Equal(t, without(whole), without(split))

	tools := write(t, "tools.json", `[{"type":"function","function":{"name":"f","parameters":{}}},{"name":"g","input_schema":{}}]`)
	out, err = penstock(t, text, "parse", "-f", "mine", "--tools", tools)
	require.NoError(t, err)
	assert.NotContains(t, out, "unknown_tool")
	_, err = penstock(t, text, "parse", "-f", "mine", "--tools", write(t, "bad.json", `{`))
	assert.ErrorContains(t, err, "read tools")
	_, err = penstock(t, text, "parse", "-f", "mime")
	assert.ErrorContains(t, err, `did you mean "mine"?`)
}

func TestRender(t *testing.T) {
	const chat = `{"messages":[{"role":"user","parts":[{"type":"text","text":"hey"}]}]}`
	out, err := penstock(t, chat, "render", "-f", "mine")
	require.NoError(t, err)
	assert.Equal(t, "U hey\nA ", out)
	out, err = penstock(t, chat, "render", "-f", "mine", "--segments", write(t, "c.json", chat))
	require.NoError(t, err)
	var r format.Rendered
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	assert.Equal(t, format.Segment{Text: "hey", Kind: format.Data, Message: 0}, r.Segments[1])
	template := write(t, "t.jinja", "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}")
	out, err = penstock(t, chat, "render", "-f", "mine", "--template", template)
	require.NoError(t, err)
	assert.Equal(t, "[user] hey\n", out)
	_, err = penstock(t, chat, "render", "-f", "mine", "--template", write(t, "bad.jinja", "x\n{% fro %}"))
	assert.ErrorContains(t, err, `bad.jinja:2: there is no tag "fro"`)
	for _, said := range []string{
		`{"messages":[{"role":"user","content":"hey"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"hey"}]}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]}`,
	} {
		out, err = penstock(t, said, "render", "-f", "mine")
		require.NoError(t, err)
		assert.Equal(t, "U hey\nA ", out)
	}
	for said, want := range map[string]string{
		`{"messages":[{"role":"user","text":"hey"}]}`:                                 `unknown field "text"`,
		`{"messages":[{"role":"user","content":"a","parts":[]}]}`:                     "messages[0]: it has both content and parts",
		`{"messages":[{"role":"user"}]}`:                                              "messages[0]: it has no content",
		`{"messages":[{"role":"user","content":7}]}`:                                  "messages[0]: ",
		`{"messages":[{"role":"user","content":[{"type":"text","value":"a"}]}]}`:      `unknown field "value"`,
		`{"messages":[{"role":"user","content":[{"type":"input_text","text":"a"}]}]}`: `no part of type "input_text"`,
		`{"messages":[{"role":"human","content":"a"}]}`:                               `no role "human"`,
		`{"messages":[{"content":"a"}]}`:                                              "it has no role",
		`{"message":[]}`:                                                              `unknown field "message"`,
		`[]`:                                                                          "read conversation",
		`{}`:                                                                          "it has no messages",
		`{"messages":[{"role":"user","content":"a"}]} x`:                              "something follows it",
	} {
		_, err = penstock(t, said, "render", "-f", "mine")
		assert.ErrorContains(t, err, want, said)
		assert.ErrorContains(t, err, `{"messages": [{"role": `, said)
	}
	out, err = penstock(t, "", "render", "--help")
	require.NoError(t, err)
	assert.Contains(t, out, shape)
	_, err = penstock(t, "{", "render", "-f", "mine")
	assert.ErrorContains(t, err, "read conversation")
}

func TestTest(t *testing.T) {
	pass := `{"id":"a","format":"mine","tools":[{"name":"f"}],"text":"<c>{\"name\": \"f\", \"args\": {\"n\": 9007199254740993}}</c>","want":{"reasoning":null,"content":"","calls":[{"name":"f","arguments":{"n":9007199254740993}}]}}`
	fail := strings.Replace(strings.Replace(pass, `"a"`, `"b"`, 1), `"n":9007199254740993}}]`, `"n":9007199254740992}}]`, 1)
	other := strings.Replace(strings.Replace(pass, `"a"`, `"c"`, 1), `"mine"`, `"other"`, 1)

	out, err := penstock(t, "", "test", write(t, "ok.jsonl", pass+"\n"))
	require.NoError(t, err)
	assert.Equal(t, "1 passed, 0 failed\n", out)

	out, err = penstock(t, "", "test", "--splits", "5", write(t, "all.jsonl", pass+"\n"+fail+"\n\n"+other))
	assert.ErrorIs(t, err, ErrFailed)
	assert.Contains(t, out, "FAIL b (mine)")
	assert.Contains(t, out, "- want {\"n\":9007199254740992}\n  + got  {\"n\": 9007199254740993}")
	assert.True(t, strings.HasSuffix(out, "1 skipped, as there is no such format: other (1)\n1 passed, 1 failed\n"), out)

	out, err = penstock(t, "", "test", "-f", "mine", "-v", write(t, "other.jsonl", other))
	require.NoError(t, err)
	assert.Equal(t, "ok   c (mine)\n1 passed, 0 failed\n", out)

	// What ran nothing is no success.
	out, err = penstock(t, "", "test", write(t, "other.jsonl", other))
	assert.ErrorIs(t, err, ErrNothing)
	assert.ErrorContains(t, err, "-f FORMAT")
	assert.Equal(t, "1 skipped, as there is no such format: other (1)\n0 passed, 0 failed\n", out)
	out, err = penstock(t, "", "test", write(t, "none.jsonl", "\n"))
	assert.ErrorIs(t, err, ErrNothing)
	assert.ErrorContains(t, err, "none.jsonl holds none")
	assert.Equal(t, "0 passed, 0 failed\n", out)

	// A format file is looked up beside the cases.
	file := write(t, "own.jsonl", strings.ReplaceAll(pass, `"mine"`, `"./own.yaml"`))
	_, err = penstock(t, "", "test", file)
	assert.ErrorContains(t, err, filepath.Join(filepath.Dir(file), "own.yaml"))
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(file), "own.yaml"), []byte(strings.Replace(spec, "name: mine", "name: own", 1)), 0o644))
	out, err = penstock(t, "", "test", file)
	require.NoError(t, err)
	assert.Equal(t, "1 passed, 0 failed\n", out)
	out, err = penstock(t, "", "test", "--help")
	require.NoError(t, err)
	assert.Contains(t, out, "--plugin string")

	_, err = penstock(t, "", "test", "--plugin", "far.wasm", write(t, "far.jsonl", pass))
	assert.ErrorContains(t, err, "no plugin far.wasm")

	_, err = penstock(t, "", "test", write(t, "bad.jsonl", pass+"\n{\"id\":1}\n"+pass))
	assert.ErrorContains(t, err, "bad.jsonl:2: ")
	assert.ErrorContains(t, err, `bad.jsonl:3: case "a" is there already, in line 1`)
}

func TestFuzz(t *testing.T) {
	out, err := penstock(t, "", "fuzz", "-f", "mine", "--time", "50ms", "--seed", "7")
	require.NoError(t, err)
	assert.Regexp(t, `^[1-9][0-9]* texts, no fault\n$`, out)
	_, err = penstock(t, "", "fuzz", "-f", "mine", "--cases", "none.jsonl")
	assert.ErrorIs(t, err, os.ErrNotExist)
}
