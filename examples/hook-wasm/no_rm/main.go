// No_rm is a hook in one file, built as a WASM module: it denies shell
// commands that delete whole folders, before the agent gets to see them.
package main

import (
	"context"
	"regexp"

	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/serve"
)

type config struct {
	Tool string `json:"tool" desc:"the tool whose argument command is looked at"`
}

var deletes = regexp.MustCompile(`\brm\s+-[a-z]*r`)

// Apply implements hook.Hook.
func (c config) Apply(_ context.Context, e *hook.Event) (hook.Result, error) {
	call := e.Subject()
	if call.String("name") == c.Tool && deletes.MatchString(call.At("arguments").String("command")) {
		return hook.Result{Action: hook.Deny, Reason: "deleting folders is not allowed here"}, nil
	}
	return hook.Pass(), nil
}

func open(c config) (hook.Hook, error) { return c, nil }
func init()                            { hook.Register("no_rm", open, hook.Changes(hook.ToolCall)) }
func main()                            { serve.Main() }
