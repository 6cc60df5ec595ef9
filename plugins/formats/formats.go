// Package formats holds the formats that ship with penstock, a YAML file each.
// Importing it registers them. What never enters: Go code, save for what data
// can't say.
package formats

import (
	"embed"

	"github.com/penstock-dev/penstock/sdk/format"
)

//go:embed *.yaml
var files embed.FS

func init() { format.RegisterYAML(files) }
