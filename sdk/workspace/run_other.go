//go:build !linux

package workspace

import (
	"context"
	"errors"
)

const nonblock = 0

// run is there on Linux alone, and not in a WASM module.
func (w *Workspace) run(context.Context, Command) (*Result, error) {
	return nil, errors.New("it is there on Linux alone, and not in a WASM module")
}
