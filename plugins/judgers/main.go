// Command judgers serves every judger that ships with penstock as one plugin.
package main

import (
	_ "github.com/penstock-dev/penstock/plugins/judgers/all"
	"github.com/penstock-dev/penstock/sdk/serve"
)

func main() { serve.Main() }
