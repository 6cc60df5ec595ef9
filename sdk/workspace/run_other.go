//go:build !linux

package workspace

import (
	"context"
	"errors"
)

const nonblock = 0

// Run runs a command in the workspace, which is there on Linux alone, and not in a
// WASM module.
func (w *Workspace) Run(context.Context, Command) (*Result, error) {
	return nil, errors.New("run in the workspace: it is there on Linux alone, and not in a WASM module")
}
