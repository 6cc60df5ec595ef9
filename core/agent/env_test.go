package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBaseEnv(t *testing.T) {
	parent := []string{
		"PATH=/usr/bin:.:relative:/bin:/usr/bin", "LANG=C.UTF-8", "LC_ALL=C", "TZ=UTC", "TERM=xterm", "SSL_CERT_FILE=/certs",
		"HOME=/home/operator", "XDG_CONFIG_HOME=/home/operator/.config", "TMPDIR=/var/tmp",
		"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=http://x", "OPENAI_API_KEY=k", "AWS_SECRET_ACCESS_KEY=k",
		"CLAUDE_CODE_OAUTH_TOKEN=k", "CLAUDECODE=1", "HTTPS_PROXY=http://user:secret@proxy", "LD_PRELOAD=/x.so",
		"NODE_OPTIONS=--require=/x.js", "GIT_DIR=/x", "SSH_AUTH_SOCK=/x", "PENSTOCK_OPERATOR_TOKEN=k",
	}
	got := BaseEnv(EnvOptions{BinDir: "/run/bin", Home: "/h", Extra: map[string]string{"A": "1", "TZ": "CET"}, Parent: parent})
	require.Equal(t, []string{
		"A=1", "HOME=/h", "LANG=C.UTF-8", "LC_ALL=C", "NO_PROXY=127.0.0.1,localhost,::1",
		"PATH=/run/bin:/usr/bin:/bin", "SSL_CERT_FILE=/certs", "TERM=xterm", "TZ=CET",
		"XDG_CACHE_HOME=/h/.cache", "XDG_CONFIG_HOME=/h/.config", "XDG_DATA_HOME=/h/.local/share",
		"XDG_STATE_HOME=/h/.local/state", "no_proxy=127.0.0.1,localhost,::1",
	}, got)

	got = BaseEnv(EnvOptions{Parent: []string{}, Temp: "/t"})
	require.Contains(t, got, "PATH="+defaultPath)
	require.Contains(t, got, "TMPDIR=/t")
}

func TestBinDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	for range 2 {
		require.NoError(t, BinDir(dir, ""))
	}
	s := job(t, "command -v penstock; penstock __tool count")
	s.Env = BaseEnv(EnvOptions{BinDir: dir, Home: t.TempDir()})
	require.Equal(t, dir+"/penstock\n0\n", string(run1(t, runner(""), s).Stdout))

	require.NoError(t, BinDir(dir, "/bin/true"))
	to, err := os.Readlink(filepath.Join(dir, "penstock"))
	require.NoError(t, err)
	require.Equal(t, "/bin/true", to)
}
