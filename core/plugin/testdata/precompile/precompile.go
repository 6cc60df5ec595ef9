// Package precompile fills a cache with compiled modules for tests that run
// under the race detector. It makes the compiler ten times as slow, and finds
// nothing there: the compiler is not ours.
package precompile

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// variable holds what the test in this package is to compile.
const variable = "PENSTOCK_PRECOMPILE"

// Module is a plugin that is, or is to be built as, a WASM module.
type Module struct {
	Key          string
	Wasm, WasmGo string // a file, or a folder of Go
}

type order struct {
	Cache   string
	Modules []Module
}

// needed is set where the race detector is on.
var needed bool

// Modules compiles modules into a cache folder of plugins, by a test binary
// without the race detector: the runtime keeps what a test compiled apart from
// what a program did. Without the race detector there is nothing to do.
func Modules(ctx context.Context, cache string, modules ...Module) error {
	if !needed {
		return nil
	}
	text, err := json.Marshal(order{cache, modules})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "github.com/penstock-dev/penstock/core/plugin/testdata/precompile")
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("precompile modules: %w: %s", err, out)
	}
	return nil
}
