package format

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/format"
)

type registry map[string]error

func (r registry) Names(string) []string {
	var out []string
	for name := range r {
		out = append(out, name)
	}
	return out
}

func (r registry) Format(_ context.Context, name string, _ json.RawMessage) (format.Format, error) {
	if err := r[name]; err != nil {
		return nil, err
	}
	return named{name: name}, nil
}

type named struct {
	format.Format
	name string
}

func TestResolveByName(t *testing.T) {
	r := registry{"hermes": nil, "qwen3_coder": nil, "sick": errors.New("does not start")}
	for _, spec := range []string{"hermes", "format/hermes"} {
		f, name, hash, err := Resolve(t.Context(), spec, ".", r)
		require.NoError(t, err)
		assert.Equal(t, "hermes", name)
		assert.Equal(t, "hermes", f.(named).name)
		assert.Empty(t, hash)
	}
	_, _, _, err := Resolve(t.Context(), "qwen3-coder", ".", r)
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
	assert.Equal(t, "qwen3_coder", unknown.Near)
	assert.EqualError(t, err, `there is no format "qwen3-coder"; did you mean "qwen3_coder"? (known: hermes, qwen3_coder, sick; a file's path has a / or ends in .yaml)`)
	_, _, _, err = Resolve(t.Context(), "sick", ".", r)
	assert.EqualError(t, err, "open format sick: does not start")
}

const file = `name: mine
calls: { open: "<c>", close: "</c>", json: { name: [name], arguments: [args] } }
render: { user: "U {{.Text}}\n", assistant: "A {{.Text}}", generate: "A " }
`

func TestResolveFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(file), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub", "mine"), []byte(file), 0o644))
	for _, spec := range []string{"mine.yaml", "./mine.yaml", "sub/mine", filepath.Join(dir, "mine.yaml")} {
		f, name, hash, err := Resolve(t.Context(), spec, dir, registry{})
		require.NoError(t, err, spec)
		assert.Equal(t, "mine", name)
		assert.NotNil(t, f)
		assert.Len(t, hash, 64)
	}
	_, _, _, err := Resolve(t.Context(), "none.yaml", dir, registry{})
	assert.ErrorIs(t, err, os.ErrNotExist)

	bad := filepath.Join(dir, "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("name: x\nrendr: {}\n"), 0o644))
	_, _, _, err = Resolve(t.Context(), "bad.yaml", dir, registry{})
	assert.EqualError(t, err, bad+`:2:1: format has no key "rendr" (did you mean "render"?)`)
	require.NoError(t, os.WriteFile(bad, []byte("name: x\nrender: {user: '{{', assistant: a, generate: b}\n"), 0o644))
	_, _, _, err = Resolve(t.Context(), "bad.yaml", dir, registry{})
	assert.ErrorContains(t, err, bad+":2:16: the template of user can't be used: unclosed action")
}

func TestIsFile(t *testing.T) {
	for spec, want := range map[string]bool{
		"hermes": false, "format/hermes": false, "format/x.yaml": true, "a.yml": true, "dir/x": true, "format/a/b": true,
	} {
		assert.Equal(t, want, IsFile(spec), spec)
	}
}
