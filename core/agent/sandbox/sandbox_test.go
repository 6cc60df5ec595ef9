package sandbox

import (
	"os"
	"path/filepath"
	"strings"
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
	_, err := New(t.Context(), "jail", "")
	require.ErrorContains(t, err, "auto, none, landlock, bwrap, docker, podman")
	s, err := New(t.Context(), "", "")
	require.NoError(t, err)
	require.Equal(t, None, s.Name())
	c, err := s.Command(Policy{}, "/", "/bin/x", []string{"x", "-y"})
	require.NoError(t, err)
	require.Equal(t, Command{Path: "/bin/x", Argv: []string{"x", "-y"}}, c)
}

func TestOutermost(t *testing.T) {
	require.Equal(t, []string{"/a/b", "/ab", "/c"}, outermost([]string{"/a/b", "/a/b/c", "/ab", "/c", "/a/b", "/c/d/e"}))
}

func TestContainerCommand(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "a,b")
	for _, name := range []string{odd, filepath.Join(dir, "w"), filepath.Join(dir, "w/in"), filepath.Join(dir, "r")} {
		require.NoError(t, os.Mkdir(name, 0o700))
	}
	w, r := filepath.Join(dir, "w"), filepath.Join(dir, "r")
	c := &container{engine: Podman, client: "/usr/bin/podman", image: "i", id: "sha256:12", user: "7:8"}
	got, err := c.Command(Policy{Read: []string{r, filepath.Join(w, "in")}, Write: []string{w}}, w, "/bin/sh", []string{"sh", "-c", "x"})
	require.NoError(t, err)
	require.Equal(t, "/usr/bin/podman", got.Path)
	require.Equal(t, []string{"podman", "run"}, got.Argv[:2])
	require.Equal(t, []string{"sha256:12", "-c", "x"}, got.Argv[len(got.Argv)-3:])
	for _, flag := range []string{
		"--rm", "--user=7:8", "--network=none", "--cap-drop=ALL", "--entrypoint=/bin/sh",
		"--mount=type=bind,source=" + r + ",target=" + r + ",readonly", "--mount=type=bind,source=" + w + ",target=" + w,
	} {
		require.Contains(t, got.Argv, flag)
	}
	require.NotContains(t, strings.Join(got.Argv, " "), w+"/in,", "it may be written with the rest")
	got, err = c.Command(Policy{Network: true}, w, "/bin/sh", []string{"sh"})
	require.NoError(t, err)
	require.Contains(t, got.Argv, "--network=host")
	_, err = c.Command(Policy{Read: []string{odd}}, w, "/bin/sh", []string{"sh"})
	require.ErrorContains(t, err, "a path with a comma")
	require.Equal(t, []string{"PATH=/bin", "DOCKER_HOST=x", "XDG_RUNTIME_DIR=/run/user/7"},
		ClientEnv([]string{"PATH=/bin", "UPSTREAM_KEY=k", "DOCKER_HOST=x", "HTTPS_PROXY=p", "XDG_RUNTIME_DIR=/run/user/7"}))
}
