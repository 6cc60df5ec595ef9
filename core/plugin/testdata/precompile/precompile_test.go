package precompile

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/plugin"
)

// TestCompile does what the environment orders.
func TestCompile(t *testing.T) {
	var o order
	if text := os.Getenv(variable); text != "" {
		require.NoError(t, json.Unmarshal([]byte(text), &o))
	}
	r := plugin.New(plugin.Options{CacheDir: o.Cache})
	for _, m := range o.Modules {
		require.NoError(t, r.Add(t.Context(), plugin.Source{Key: m.Key, Wasm: m.Wasm, WasmGo: m.WasmGo}))
	}
	require.NoError(t, r.Close(t.Context()))
}
