package formats_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/format"
)

// goldenSource is an entry of testdata/golden/sources.json: a model's template,
// and the chats that it was rendered for.
type goldenSource struct {
	Folder, Format string
	Chats          []string
	Untooled       bool
}

func goldenSources(t testing.TB) []goldenSource {
	t.Helper()
	data, err := os.ReadFile("testdata/golden/sources.json")
	require.NoError(t, err)
	var all []goldenSource
	require.NoError(t, json.Unmarshal(data, &all))
	require.NotEmpty(t, all)
	return all
}

// Prompts are, byte for byte, those of the models' own templates, as
// @huggingface/jinja renders them. `make goldens` writes them anew.
func TestPromptsAreThoseOfTheTemplates(t *testing.T) {
	for _, s := range goldenSources(t) {
		f := open(t, s.Format)
		for _, name := range s.Chats {
			t.Run(s.Folder+"/"+name, func(t *testing.T) {
				want, err := os.ReadFile(filepath.Join("testdata", "golden", s.Folder, name+".txt"))
				require.NoError(t, err)
				c := readChat(t, "testdata/golden/chats/"+name+".json")
				if s.Untooled {
					c.Tools = nil
				}
				r, err := f.Render(t.Context(), &format.RenderRequest{Chat: c})
				require.NoError(t, err)
				assert.Equal(t, string(want), format.Text(r.Segments))
			})
		}
	}
}
