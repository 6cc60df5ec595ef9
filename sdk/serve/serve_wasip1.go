// Package serve runs the components that a program registers. In a WASM
// module there is nothing to run: the host calls what the kinds export.
package serve

// Main does nothing here.
func Main() {}
