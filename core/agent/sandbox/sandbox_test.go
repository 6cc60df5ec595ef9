package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProgramPaths(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"node/bin", "node/lib/node_modules/x", "home/.local/bin", "home/.local/lib", "project/runs", "bin"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	at := func(name string) string { return filepath.Join(root, name) }
	require.NoError(t, os.WriteFile(at("node/lib/node_modules/x/cli.js"), nil, 0o755))
	require.NoError(t, os.Symlink(at("node/lib/node_modules/x/cli.js"), at("bin/x")))
	require.NoError(t, os.WriteFile(at("project/agent"), nil, 0o755))

	require.ElementsMatch(t, []string{
		at("node/bin"), at("node"), at("home/.local/bin"), at("bin/x"), at("node/lib/node_modules/x/cli.js"), at("node/lib/node_modules"),
	}, ProgramPaths(at("bin/x"), at("node/bin")+":relative:"+at("home/.local/bin")+":"+at("gone")+":/"))
	require.Equal(t, []string{at("project/agent")}, ProgramPaths(at("project/agent"), ""), "not the project that it lies in")
}

func TestNames(t *testing.T) {
	_, err := New("jail")
	require.ErrorContains(t, err, "auto, none, landlock, bwrap")
	s, err := New("")
	require.NoError(t, err)
	require.Equal(t, None, s.Name())
	c, err := s.Command(Policy{}, "/", "/bin/x", []string{"x", "-y"})
	require.NoError(t, err)
	require.Equal(t, Command{Path: "/bin/x", Argv: []string{"x", "-y"}}, c)
}

func TestOutermost(t *testing.T) {
	require.Equal(t, []string{"/a/b", "/ab", "/c"}, outermost([]string{"/a/b", "/a/b/c", "/ab", "/c", "/a/b", "/c/d/e"}))
}
