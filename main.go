// Command penstock runs agent programs against models behind one gateway,
// records every model call, judges what came out, and makes training rows of
// it. See README.md.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/cli"

	_ "github.com/penstock-dev/penstock/hooks/all"
	_ "github.com/penstock-dev/penstock/plugins/converters/all"
	_ "github.com/penstock-dev/penstock/plugins/formats"
	_ "github.com/penstock-dev/penstock/plugins/invokers/all"
	_ "github.com/penstock-dev/penstock/plugins/judgers/all"
)

func main() {
	// The shim that holds agent processes is this binary, too.
	if len(os.Args) > 1 && os.Args[1] == "__shim" {
		os.Exit(agent.ShimMain(os.Args[2:]))
	}
	// Upstream keys are in this process; other processes of the user, agents
	// among them, are not to read them from its memory.
	if err := agent.Conceal(); err != nil {
		fmt.Fprintln(os.Stderr, "penstock:", err)
		os.Exit(4)
	}
	app := &cli.App{Version: cli.BuildVersion(), Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(app.Main(context.Background(), os.Args[1:]))
}
