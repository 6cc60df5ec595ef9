package formats_test

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/penstock-dev/penstock/plugins/formats"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

// open opens a registered format, as core does.
func open(t testing.TB, name string) format.Format {
	t.Helper()
	f := lookup(t, name)
	require.NotNil(t, f, "there is no format %s", name)
	return f
}

func lookup(t testing.TB, name string) format.Format {
	for _, c := range component.Registered() {
		if c.Kind == component.Format && c.Name == name {
			v, err := c.Open(context.Background(), nil)
			require.NoError(t, err)
			return v.(format.Format)
		}
	}
	return nil
}

func readCases(t testing.TB) []cases.Case {
	t.Helper()
	var all []cases.Case
	for _, name := range []string{"toolcalls.jsonl", "own.jsonl"} {
		data, err := os.ReadFile("testdata/" + name)
		require.NoError(t, err)
		read, err := cases.Read(name, bytes.NewReader(data))
		require.NoError(t, err)
		all = append(all, read...)
	}
	return all
}

// Every case of the formats that ship passes, whole and under every kind of
// split.
func TestCases(t *testing.T) {
	for _, c := range readCases(t) {
		f := open(t, c.Format)
		t.Run(c.ID, func(t *testing.T) {
			if err := cases.Run(t.Context(), f, c, 100); err != nil {
				assert.Fail(t, "case fails", "%s\ntext: %q\n%s", c.Note, c.Text, err)
			}
		})
	}
}
