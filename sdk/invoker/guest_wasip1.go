package invoker

import (
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/guest"
)

// The functions that a module of this kind exports to its host; see sdk/guest.

//go:wasmexport plan
func exportPlan() int32 { return guest.Call(component.Invoker, "plan") }

//go:wasmexport line
func exportLine() int32 { return guest.Call(component.Invoker, "line") }

//go:wasmexport result
func exportResult() int32 { return guest.Call(component.Invoker, "result") }
