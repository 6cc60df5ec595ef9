// Command invokers serves every invoker that ships with penstock as one plugin.
package main

import (
	_ "github.com/penstock-dev/penstock/plugins/invokers/all"
	"github.com/penstock-dev/penstock/sdk/serve"
)

func main() { serve.Main() }
