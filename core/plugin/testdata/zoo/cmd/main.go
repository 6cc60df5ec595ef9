// The zoo as a program: a process, or a WASM module.
package main

import (
	_ "github.com/penstock-dev/penstock/core/plugin/testdata/zoo"
	"github.com/penstock-dev/penstock/sdk/serve"
)

func main() { serve.Main() }
