// Command hooks serves every hook that ships with penstock as one plugin.
package main

import (
	_ "github.com/penstock-dev/penstock/hooks/all"
	"github.com/penstock-dev/penstock/sdk/serve"
)

func main() { serve.Main() }
