package format

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/format"
)

func init() {
	spec := func(name, detect string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("name: " + name + "\naliases: [" + name + "_too]\ndetect: " + detect + "\n" +
			"calls: { open: <c>, close: </c>, json: { name: [name], arguments: [args] } }\nrender: { user: u, assistant: a, generate: g }\n")}
	}
	format.RegisterYAML(fstest.MapFS{
		"tea.yaml": spec("tea", `["<tea>", "!<milk>"]`), "milktea.yaml": spec("milktea", `["<tea>", "<milk>"]`),
		"cup.yaml": spec("cup", `["<cup>"]`), "any.yaml": spec("any", `[]`),
	})
}

func TestDetect(t *testing.T) {
	for template, want := range map[string]string{"a <tea>": "tea", "<tea> <milk>": "milktea", "<cup>": "cup"} {
		name, err := Detect(template)
		require.NoError(t, err)
		assert.Equal(t, want, name)
	}
	_, err := Detect("<cup> of <tea>")
	assert.EqualError(t, err, "the chat template may be of cup, tea; name one with format")
	_, err = Detect("water")
	assert.EqualError(t, err, "the chat template is of no format that is known; name one with format, or write a format file")
}

func TestContradicts(t *testing.T) {
	assert.NoError(t, Contradicts("tea", "f", "<tea>"))
	assert.NoError(t, Contradicts("tea_too", "f", "<tea>"))
	assert.NoError(t, Contradicts("any", "f", "<tea>"))
	assert.NoError(t, Contradicts("cup", "f", "water"))
	assert.NoError(t, Contradicts("elsewhere", "f", "<tea>"))
	assert.EqualError(t, Contradicts("cup_too", "f", "<tea>"), "format is cup_too, but the chat template in f is that of tea")
}

func TestResolveFor(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	r := registry{"tea": nil, "cup": nil}
	for _, file := range []string{
		write("t.jinja", "<tea>"), write("one.json", `{"chat_template": "<tea>"}`),
		write("many.json", `{"chat_template": [{"name": "default", "template": "x"}, {"name": "tool_use", "template": "<tea>"}]}`),
	} {
		_, name, _, err := ResolveFor(t.Context(), Auto, file, dir, r)
		require.NoError(t, err)
		assert.Equal(t, "tea", name)
	}
	write("tokenizer_config.json", `{"chat_template": "<cup>"}`)
	_, name, _, err := ResolveFor(t.Context(), Auto, dir, dir, r)
	require.NoError(t, err)
	assert.Equal(t, "cup", name)

	_, _, _, err = ResolveFor(t.Context(), Auto, "", dir, r)
	assert.ErrorContains(t, err, "format auto needs the model's chat template")
	_, _, _, err = ResolveFor(t.Context(), Auto, write("w.jinja", "water"), dir, r)
	assert.ErrorContains(t, err, "w.jinja is of no format")
	_, _, _, err = ResolveFor(t.Context(), "cup", filepath.Join(dir, "t.jinja"), dir, r)
	assert.ErrorContains(t, err, "format is cup, but")
	_, _, _, err = ResolveFor(t.Context(), "tea", write("no.json", `{}`), dir, r)
	assert.ErrorContains(t, err, "has no chat_template")
	_, name, _, err = ResolveFor(t.Context(), "tea", "", dir, r)
	require.NoError(t, err)
	assert.Equal(t, "tea", name)
}
