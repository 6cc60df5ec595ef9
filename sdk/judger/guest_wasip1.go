package judger

import (
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/guest"
)

// The functions that a module of this kind exports to its host; see sdk/guest.

//go:wasmexport judge
func exportJudge() int32 { return guest.Call(component.Judger, "judge") }

//go:wasmexport judge_group
func exportJudgeGroup() int32 { return guest.Call(component.Judger, "judge_group") }
