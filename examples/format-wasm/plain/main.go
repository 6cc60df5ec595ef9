// Plain is a format as a plugin, built as a WASM module; plain.yaml says how it
// writes and what it reads.
package main

import (
	"embed"

	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/serve"
)

//go:embed plain.yaml
var files embed.FS

func init() { format.RegisterYAML(files) }

func main() { serve.Main() }
