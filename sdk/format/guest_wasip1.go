package format

import (
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/guest"
)

// The functions that a module of this kind exports to its host; see sdk/guest.

//go:wasmexport format_markers
func exportFormatMarkers() int32 { return guest.Call(component.Format, "format_markers") }

//go:wasmexport format_render
func exportFormatRender() int32 { return guest.Call(component.Format, "format_render") }

//go:wasmexport format_tail
func exportFormatTail() int32 { return guest.Call(component.Format, "format_tail") }

//go:wasmexport format_open
func exportFormatOpen() int32 { return guest.Call(component.Format, "format_open") }

//go:wasmexport format_feed
func exportFormatFeed() int32 { return guest.Call(component.Format, "format_feed") }

//go:wasmexport format_finish
func exportFormatFinish() int32 { return guest.Call(component.Format, "format_finish") }

//go:wasmexport format_close
func exportFormatClose() int32 { return guest.Call(component.Format, "format_close") }
