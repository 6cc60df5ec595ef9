// Command converters serves every converter that ships with penstock as one
// plugin.
package main

import (
	_ "github.com/penstock-dev/penstock/plugins/converters/all"
	"github.com/penstock-dev/penstock/sdk/serve"
)

func main() { serve.Main() }
