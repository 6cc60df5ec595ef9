package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/plugin/testdata/precompile"
	_ "github.com/penstock-dev/penstock/core/plugin/testdata/zoo"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// The zoo is built once, as a process and as a module, into a cache that all
// tests share: compiled modules are found there too.
var zooBuilt struct {
	cache, process, wasm string
}

// hostVariable makes the test binary a host of plugins that is to be killed.
const hostVariable = "PENSTOCK_TEST_HOST"

func TestMain(m *testing.M) {
	if path := os.Getenv(hostVariable); path != "" {
		os.Exit(beHost(path))
	}
	if path := os.Getenv(execHost); path != "" {
		os.Exit(beExecHost(path))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "penstock-plugin-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	r := New(Options{CacheDir: dir})
	zoo, err := filepath.Abs("testdata/zoo/cmd")
	if err == nil {
		zooBuilt.cache = dir
		var failed [2]error
		zooBuilt.process, failed[0] = r.build(context.Background(), zoo, goProcess)
		zooBuilt.wasm, failed[1] = r.build(context.Background(), zoo, goWasm)
		err = errors.Join(failed[:]...)
	}
	if err == nil {
		err = precompile.Modules(context.Background(), dir, precompile.Module{Key: "judger/tame", Wasm: zooBuilt.wasm},
			precompile.Module{Key: "judger/exact42", WasmGo: calculator("exact42")}, precompile.Module{Key: "hook/mask", WasmGo: calculator("mask")})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// records keeps log entries.
type records struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// at are the lines of a level.
func (r *records) at(level string) []string {
	var out []string
	for line := range strings.Lines(r.String()) {
		if strings.Contains(line, " level="+level+" ") {
			out = append(out, line)
		}
	}
	return out
}

// newRegistry is a registry that ends with the test.
func newRegistry(t testing.TB, builtin ...component.Component) (*Registry, *records) {
	t.Helper()
	logged := &records{}
	log := slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r := New(Options{CacheDir: zooBuilt.cache, Log: log, Builtin: builtin})
	t.Cleanup(func() {
		require.NoError(t, r.Close(context.Background()))
		if t.Failed() {
			t.Log(logged)
		}
	})
	return r, logged
}

// transports are the ways to load a component of the zoo.
func transports(kind, name string) map[string]func(t testing.TB) *Registry {
	key := kind + "/" + name
	add := func(s Source) func(t testing.TB) *Registry {
		return func(t testing.TB) *Registry {
			r, _ := newRegistry(t)
			s.Key = key
			require.NoError(t, r.Add(context.Background(), s))
			return r
		}
	}
	return map[string]func(t testing.TB) *Registry{
		Builtin: func(t testing.TB) *Registry { r, _ := newRegistry(t, component.Registered()...); return r },
		Process: add(Source{Process: []string{zooBuilt.process}}),
		Wasm:    add(Source{Wasm: zooBuilt.wasm}),
	}
}

// load makes a registry with one plugin.
func load(t testing.TB, s Source) (*Registry, *records) {
	t.Helper()
	r, logged := newRegistry(t)
	require.NoError(t, r.Add(t.Context(), s))
	return r, logged
}

func open(t testing.TB, r *Registry, name string) judger.Judger {
	t.Helper()
	j, err := r.Judger(t.Context(), name, nil)
	require.NoError(t, err)
	return j
}

// ask makes a wild judger do something.
func ask(j judger.Judger, act string) (judger.Verdict, error) {
	in, _ := json.Marshal(map[string]any{"input": map[string]string{"act": act}, "rollout": map[string]string{"id": "t1~0"}})
	return j.Judge(context.Background(), judger.NewRequest(doc.Bytes(in)))
}

// fails asserts that a call failed for a reason, as an error that names the
// plugin.
func fails(t testing.TB, err error, reason Reason) *Error {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, reason, e.Reason, e.Error())
	require.Contains(t, e.Error(), e.Plugin)
	return e
}
