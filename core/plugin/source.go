package plugin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/sdk/component"
)

// The transports.
const (
	Builtin = "builtin"
	Process = "process"
	Wasm    = "wasm"
	Exec    = "exec"
)

// Source is an entry of `plugins:`. Exactly one of Process, ProcessGo, Wasm,
// WasmGo and Exec is set. Paths are absolute; the first word of an argv may
// also be a name that is looked up in PATH.
type Source struct {
	Key       string   // what the pipeline uses: "judger/exact42"
	Process   []string // argv of a go-plugin program
	ProcessGo string   // folder of a Go program to build as a process
	Wasm      string   // a module's file
	WasmGo    string   // folder of a Go program to build as a module
	Exec      []string // argv of a program that speaks JSON-RPC

	// Env are names to pass on from the host's environment, or NAME=value.
	// Besides them a process gets PATH, HOME, TMPDIR and the locale.
	Env         []string
	Limits      Limits
	Grant       []string // what a module may import beyond the contract
	MaxInFlight int      // calls at once in a process; 0 means 2 x cores
	Files       []string // more files that belong to the plugin and are hashed
	Override    bool     // the key may be that of a built-in
	Name        string   // the component's own name, where the key's differs
	Origin      string   // the file that offers it in a plugin folder; "" is the pipeline
}

// Limits bound one plugin. Zero fields have the defaults of the transport: a
// WASM module has 64 MiB of memory, 2 s a call and 16 MiB in and out; a
// process has 64 MB out and no limit of time of its own; what is large goes in
// as a file.
type Limits struct {
	Memory  int64         // bytes; WASM alone
	Timeout time.Duration // of one call
	In, Out int64         // bytes of a request and of a reply
}

const (
	wasmMemory  = 64 << 20
	wasmTimeout = 2 * time.Second
	wasmMessage = 16 << 20
)

// forWasm fills in the defaults of a module.
func (l Limits) forWasm() Limits {
	if l.Memory <= 0 {
		l.Memory = wasmMemory
	}
	if l.Timeout <= 0 {
		l.Timeout = wasmTimeout
	}
	if l.In <= 0 {
		l.In = wasmMessage
	}
	if l.Out <= 0 {
		l.Out = wasmMessage
	}
	return l
}

// transport says how the source is loaded.
func (s Source) transport() (string, error) {
	var found []string
	add := func(set bool, name string) {
		if set {
			found = append(found, name)
		}
	}
	add(len(s.Process) > 0, Process)
	add(s.ProcessGo != "", Process)
	add(s.Wasm != "", Wasm)
	add(s.WasmGo != "", Wasm)
	add(len(s.Exec) > 0, Exec)
	if len(found) != 1 {
		return "", fmt.Errorf("plugin %s needs exactly one of process, wasm and exec, has %d", s.Key, len(found))
	}
	return found[0], nil
}

// split returns the kind and the component's name that the key stands for.
func (s Source) split() (kind, name string, err error) {
	kind, name, ok := strings.Cut(s.Key, "/")
	if !ok || name == "" || !slices.Contains(component.Kinds, kind) {
		return "", "", fmt.Errorf("plugin key %q is not KIND/NAME with one of the kinds %s", s.Key, strings.Join(component.Kinds, ", "))
	}
	return kind, name, nil
}

// check returns what the key stands for and how the source is loaded, or why
// it can't be.
func (s Source) check() (kind, name, transport string, err error) {
	if kind, name, err = s.split(); err != nil {
		return "", "", "", err
	}
	if transport, err = s.transport(); err != nil {
		return "", "", "", err
	}
	return kind, name, transport, allow(s.Key, kind, transport)
}

// allowed lists the kinds of each transport.
var allowed = map[string][]string{
	Builtin: component.Kinds,
	Process: component.Kinds,
	Wasm:    {component.Invoker, component.Judger, component.Format, component.Hook},
	Exec:    {component.Judger, component.Hook},
}

// allow reports why a kind can't be loaded over a transport.
func allow(key, kind, transport string) error {
	if slices.Contains(allowed[transport], kind) {
		return nil
	}
	var ways []string
	for _, t := range []string{Process, Wasm, Exec} {
		if slices.Contains(allowed[t], kind) {
			ways = append(ways, t)
		}
	}
	return fmt.Errorf("plugin %s: a %s can't be a %s plugin; load it with %s", key, kind, transport, strings.Join(ways, " or "))
}
