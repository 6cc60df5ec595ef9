// Command serve serves every format that ships with penstock as one plugin.
package main

import (
	_ "github.com/penstock-dev/penstock/plugins/formats"
	"github.com/penstock-dev/penstock/sdk/serve"
)

func main() { serve.Main() }
