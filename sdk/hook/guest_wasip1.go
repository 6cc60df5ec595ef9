package hook

import (
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/guest"
)

// The functions that a module of this kind exports to its host; see sdk/guest.

//go:wasmexport hook_apply
func exportHookApply() int32 { return guest.Call(component.Hook, "hook_apply") }
