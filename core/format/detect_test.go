package format

import (
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
