package formats_test

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

// Whatever text of a format file is left blank, the file is refused or makes a
// format that reads any text to its end.
func TestBlankTextsOfAFormatFile(t *testing.T) {
	files, err := fs.Glob(os.DirFS("."), "*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var doc yaml.Node
		require.NoError(t, yaml.Unmarshal(data, &doc))
		text := markersOf(t, file, data)
		texts(&doc, func(n *yaml.Node) {
			was := n.Value
			n.Value = ""
			defer func() { n.Value = was }()
			blank, err := yaml.Marshal(&doc)
			require.NoError(t, err)
			s, err := format.ParseSpec(file, blank)
			if err != nil {
				return
			}
			f, err := format.New(s)
			if err != nil {
				return
			}
			events, err := cases.Parse(t.Context(), f, format.ParseOptions{}, []string{text})
			require.NoError(t, err)
			assert.NotEmpty(t, events, "%s without %q", file, was)
		})
	}
}

// texts calls f for each text under a node.
func texts(n *yaml.Node, f func(*yaml.Node)) {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			continue
		}
		if c.Kind == yaml.ScalarNode && c.Tag == "!!str" {
			f(c)
		}
		texts(c, f)
	}
}

// markersOf is a text with all markers of a format in it, twice over.
func markersOf(t *testing.T, file string, data []byte) string {
	s, err := format.ParseSpec(file, data)
	require.NoError(t, err)
	f, err := format.New(s)
	require.NoError(t, err)
	text := "hello "
	for range 2 {
		for _, m := range f.Markers() {
			text += m + `{"name": "look", "arguments": {"a": "b"}} `
		}
	}
	return text
}
