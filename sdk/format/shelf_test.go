package format

import (
	"context"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
)

const rest = `
render:
  user: "<u>{{.Text}}</u>"
  assistant: "<a>{{.Text}}</a>"
`

// The title is read without the rest, however it is written.
func TestTitles(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want title
	}{
		"plain":                {"# a comment\nname: x\nsummary: A, b <c> & {d}\naliases: [y, z]\n" + rest, title{"x", "A, b <c> & {d}", []string{"y", "z"}}},
		"among others":         {rest + "summary: S\nname: x\n", title{Name: "x", Summary: "S"}},
		"quoted, in lines":     {"name: \"x\"\nsummary: >-\n  two\n  lines\naliases:\n  - y\n" + rest, title{"x", "two lines", []string{"y"}}},
		"a list at the margin": {"aliases:\n- y\n- z\nname: x\n" + rest, title{"x", "", []string{"y", "z"}}},
		"nested names":         {"calls:\n  name: no\nname: x\n", title{Name: "x"}},
		"one line":             {`{name: x, render: {user: "{{.Text}}", assistant: "{{.Text}}"}}`, title{Name: "x"}},
		"broken rest":          {"name: x\nrender: [\n", title{Name: "x"}},
	} {
		s, err := newShelved("x.yaml", []byte(c.data))
		require.NoError(t, err, name)
		assert.Equal(t, c.want, s.title, name)
	}
	_, err := newShelved("y.yaml", []byte("name: x\n"))
	assert.EqualError(t, err, "the format in y.yaml is named x")
	_, err = newShelved("x.yaml", []byte("summary: x\n"))
	assert.ErrorContains(t, err, "x.yaml:1:1: ")
	s, err := newShelved("x.yaml", []byte("name: x\nvars: {who: me}\nsummary: by ${who}\n"+rest))
	require.NoError(t, err)
	_, err = s.spec()
	assert.ErrorContains(t, err, "x.yaml: name, summary and aliases can't be told")
}

// A registered file is read when it is opened, and says what is wrong then.
func TestRegisteredFilesAreReadWhenOpened(t *testing.T) {
	RegisterYAML(fstest.MapFS{
		"shelf_good.yaml": {Data: []byte("name: shelf_good\naliases: [shelf_better]\n" + rest)},
		"shelf_bad.yaml":  {Data: []byte("name: shelf_bad\nrender: { user: 1, colour: red }\n")},
	})
	open := func(name string) error {
		for _, c := range component.Registered() {
			if c.Name == name {
				_, err := c.Open(context.Background(), nil)
				return err
			}
		}
		return assert.AnError
	}
	assert.NoError(t, open("shelf_good"))
	assert.NoError(t, open("shelf_better"))
	assert.ErrorContains(t, open("shelf_bad"), "shelf_bad.yaml:2:20: ")
	delete(shelf.byName, "shelf_bad") // Shipped would meet it
	_, ok := source("shelf_better")
	assert.True(t, ok)
	assert.Contains(t, shippedNames(), "shelf_good")
}
