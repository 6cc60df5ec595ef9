// Trap is a judger and hooks that panic, for tests of what becomes of that.
package main

import (
	"context"

	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/serve"
)

type trap struct{}

// Judge implements judger.Judger.
func (trap) Judge(context.Context, *judger.Request) (judger.Verdict, error) {
	panic("the judge has left the building")
}

// Apply implements hook.Hook.
func (trap) Apply(context.Context, *hook.Event) (hook.Result, error) {
	panic("the hook is off")
}

func init() {
	judger.Register("trap", func(struct{}) (judger.Judger, error) { return trap{}, nil })
	for name, point := range map[string]hook.Point{"trap": hook.Request, "trapcall": hook.ToolCall, "trapreply": hook.Reply} {
		hook.Register(name, func(struct{}) (hook.Hook, error) { return trap{}, nil }, hook.Changes(point))
	}
}

func main() { serve.Main() }
