package settings

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type place struct{ dir, config, cache string }

func newPlace(t *testing.T, user, local string) place {
	t.Helper()
	p := place{t.TempDir(), t.TempDir(), t.TempDir()}
	require.NoError(t, os.Mkdir(filepath.Join(p.config, "penstock"), 0o755))
	if user != "" {
		require.NoError(t, os.WriteFile(filepath.Join(p.config, "penstock", "settings.yaml"), []byte(user), 0o644))
	}
	if local != "" {
		require.NoError(t, os.WriteFile(filepath.Join(p.dir, "penstock.settings.yaml"), []byte(local), 0o644))
	}
	return p
}

func (p place) load(flags map[string]string, environ ...string) (*Settings, error) {
	return Load(Options{Dir: p.dir, ConfigDir: p.config, CacheDir: p.cache, Environ: func() []string { return environ }, Flags: flags})
}

func TestDefaults(t *testing.T) {
	p := newPlace(t, "", "")
	s, err := p.load(nil)
	require.NoError(t, err)
	assert.Equal(t, &Settings{
		Runs: filepath.Join(p.dir, "runs"), Cache: filepath.Join(p.cache, "penstock"),
		Gateway: Gateway{Addr: "127.0.0.1:0", KeepAlive: 15 * time.Second, SessionTTL: 24 * time.Hour},
		Limits:  Limits{Body: 32 << 20, Calls: 128, Messages: 20000, Tools: 2000, Sessions: 10000, SessionBytes: 2 << 30},
		Trace:   Trace{"normal"}, Log: Log{"info", "auto"}, Redact: Redact{true}, Telemetry: Telemetry{Semconv: "v1.41"}, From: map[string]string{},
	}, s)
}

func TestEachLayerWinsOverThoseBefore(t *testing.T) {
	p := newPlace(t, "log: { level: debug, format: json }\nruns: ./mine\nlimits: { calls: 3 }\nplugins: { dirs: [a, /b] }\n", "log: { level: warn }\nlimits: { tools: 7 }\n")
	s, err := p.load(map[string]string{"limits.tools": "9"}, "PENSTOCK_LIMITS_CALLS=5", "PENSTOCK_LIMITS_TOOLS=8", "PENSTOCK_GATEWAY_KEEP_ALIVE=2s",
		"PENSTOCK_OPERATOR_TOKEN=x", "PENSTOCK_LOG_LEVLE=debug", "HOME=/h")
	require.NoError(t, err)
	assert.Equal(t, Log{"warn", "json"}, s.Log)
	assert.Equal(t, filepath.Join(p.config, "penstock", "mine"), s.Runs, "a relative path starts at the file that holds it")
	assert.Equal(t, []string{filepath.Join(p.config, "penstock", "a"), "/b"}, s.Plugins.Dirs)
	assert.Equal(t, 5, s.Limits.Calls)
	assert.Equal(t, 9, s.Limits.Tools)
	assert.Equal(t, 2*time.Second, s.Gateway.KeepAlive)
	assert.Equal(t, []string{"PENSTOCK_LOG_LEVLE"}, s.Unknown)
	assert.Equal(t, "--limits-tools", s.From["limits.tools"])
	assert.Equal(t, filepath.Join(p.dir, "penstock.settings.yaml")+":1", s.From["log.level"])
}

func TestEverythingWrongIsSaid(t *testing.T) {
	p := newPlace(t, "log:\n  levle: debug\ngateway: { addr: 127.0.0.1, keep_alive: 30 }\ntelemetry: { otlp: x, prometheus: maybe }\n", "limits: { body: 5, calls: 0 }\n")
	_, err := p.load(map[string]string{"nope": "1"}, "PENSTOCK_LOG_FORMAT=xml")
	require.Error(t, err)
	user, local := filepath.Join(p.config, "penstock", "settings.yaml"), filepath.Join(p.dir, "penstock.settings.yaml")
	for _, want := range []string{
		user + ":2: unknown setting 'log.levle'; there are: log.level, log.format",
		user + ":3: gateway.addr: want host:port, got 127.0.0.1",
		user + ":3: gateway.keep_alive: the duration 30 has no unit",
		user + ":4: telemetry.otlp: want a URL such as http://localhost:4318, got x",
		user + ":4: telemetry.prometheus: want true or false, got maybe",
		local + ":1: limits.body: the size 5 has no unit",
		local + ":1: limits.calls: want a whole number of at least 1, got 0",
		"PENSTOCK_LOG_FORMAT: log.format: want one of auto, text, json, got xml",
		"flag for 'nope': there is no such setting",
	} {
		assert.Contains(t, err.Error(), want)
	}
}

func TestBrokenFile(t *testing.T) {
	p := newPlace(t, "a: [", "")
	_, err := p.load(nil)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "settings.yaml: ")
}

// A service may have no home, or one that is no folder. Only what is in the
// home needs it.
func TestWithoutHome(t *testing.T) {
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	load := func(environ ...string) (*Settings, error) {
		return Load(Options{Dir: dir, Environ: func() []string { return environ }})
	}
	// The working directory is no place of the user's settings.
	require.NoError(t, os.Mkdir(filepath.Join(dir, "penstock"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "penstock", "settings.yaml"), []byte("log: { level: error }"), 0o644))
	t.Chdir(dir)

	s, err := load()
	require.NoError(t, err)
	assert.True(t, s.SharedCache)
	assert.Equal(t, os.TempDir(), filepath.Dir(s.Cache))
	assert.Contains(t, filepath.Base(s.Cache), strconv.Itoa(os.Getuid()), "users don't share it")
	assert.Equal(t, "info", s.Log.Level)

	s, err = load("PENSTOCK_CACHE=" + dir)
	require.NoError(t, err)
	assert.False(t, s.SharedCache)
	assert.Equal(t, dir, s.Cache)

	_, err = load("PENSTOCK_RUNS=~/runs")
	assert.ErrorContains(t, err, "~/runs is in a home folder")
	assert.ErrorContains(t, err, "set HOME")

	t.Setenv("HOME", "/dev/null")
	s, err = load()
	require.NoError(t, err)
	assert.False(t, s.SharedCache)
}
