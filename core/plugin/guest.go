package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// initTimeout bounds the making of an instance, which the limit of a call
// does not count. A large module on a busy machine takes seconds.
const initTimeout = 30 * time.Second

// guest is one instance of a module. It takes one call at a time.
type guest struct {
	wasm      *wasm
	module    api.Module
	memory    *guestMemory
	life      context.Context // ends when the guest is to be closed
	end       context.CancelFunc
	busy      sync.Mutex // held during a call
	closed    bool       // under busy
	functions map[string]api.Function
	number    int64    // of the instance, from 1, for logs
	calls     int64    // that it had
	lines     *lineLog // its standard output and error
}

// instantiate makes an instance and runs its start function.
func (w *wasm) instantiate(ctx context.Context) (_ *guest, err error) {
	w.use.RLock()
	defer w.use.RUnlock()
	if w.closed {
		return nil, w.gone("start")
	}
	g := &guest{wasm: w, functions: map[string]api.Function{}, number: w.instances.Add(1)}
	g.life, g.end = context.WithCancel(w.life)
	defer func() {
		if err != nil {
			g.end()
			if g.memory != nil { // the runtime keeps it where a start section failed
				g.memory.Free()
			}
		}
	}()
	g.lines = newLineLog(w.log.With("instance", g.number))
	g.lines.rate, g.lines.told = logsPerSecond, true
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions(exportInitialize).
		WithStdout(g.lines).WithStderr(g.lines)
	if w.now {
		config = config.WithSysWalltime().WithSysNanotime()
	} else {
		config = config.WithWalltime(func() (int64, int32) { return 0, 0 }, sys.ClockResolution(1))
	}
	ctx, cancel := g.bounded(ctx, initTimeout)
	defer cancel()
	ctx = context.WithValue(ctx, invocationKey{}, g.invocation(nil, 0))
	ctx = experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(func(_, max uint64) experimental.LinearMemory {
		g.memory = newGuestMemory(max)
		_ = g.memory.enter() // nobody else has it yet
		return g.memory
	}))
	defer func() {
		if g.memory != nil {
			g.memory.leave()
		}
	}()
	g.module, err = w.runtime.InstantiateModule(ctx, w.compiled, config)
	if err == nil && g.module.IsClosed() { // its start function ended it without a fault
		err = sys.NewExitError(0)
	}
	if err != nil {
		return nil, g.failure("start", err)
	}
	for _, name := range guestExports {
		if f := g.module.ExportedFunction(name); f != nil {
			g.functions[name] = f
		}
	}
	return g, nil
}

// invocation is what the imports act on in a call.
func (g *guest) invocation(in []byte, limit int64) *invocation {
	return &invocation{in: doc.NewReader(in), limit: limit, logged: g.wasm.logged, instance: g.number, call: g.calls}
}

// bounded is a context for what runs in the guest: it ends after the time given
// or with the guest, never with the caller's.
func (g *guest) bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(g.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// close ends the call that is at work, if there is one, and gives the instance
// back: the runtime's own close takes away what a call still uses.
func (g *guest) close() {
	g.end()
	g.busy.Lock()
	defer g.busy.Unlock()
	g.closed = true
	_ = g.module.Close(context.Background())
	g.memory.Free() // a module that ran out of time as its call ended keeps it
}

// gone is the error of a call that came too late.
func (w *wasm) gone(method string) error {
	return &Error{Plugin: w.key, Method: method, Reason: Unavailable, Retryable: true, Message: errMemoryGone.Error(), Cause: errMemoryGone}
}

// run calls an export. What ends a guest is its plugin's limit of time, never
// the caller's: another caller's stream may live in the same instance.
func (g *guest) run(ctx context.Context, method string, in []byte) ([]byte, error) {
	f := g.functions[method]
	if f == nil {
		return nil, &Error{Plugin: g.wasm.key, Method: method, Reason: Failed, Message: "the module doesn't export " + method}
	}
	if int64(len(in)) > g.wasm.limits.In {
		return nil, overIn(g.wasm.key, method, len(in), g.wasm.limits.In)
	}
	g.wasm.use.RLock()
	defer g.wasm.use.RUnlock()
	g.busy.Lock()
	defer g.busy.Unlock()
	if g.closed || g.wasm.closed || g.memory.enter() != nil {
		return nil, g.wasm.gone(method)
	}
	defer g.memory.leave()
	g.calls++
	i := g.invocation(in, g.wasm.limits.Out)
	ctx, cancel := g.bounded(ctx, g.wasm.limits.Timeout)
	defer cancel()
	var stack [1]uint64
	err := f.CallWithStack(context.WithValue(ctx, invocationKey{}, i), stack[:])
	if err != nil {
		return nil, g.failure(method, err)
	}
	if int32(stack[0]) != 0 {
		return nil, g.answered(method, i.err)
	}
	return i.out, nil
}

// fatal reports whether an instance can't be used after this error.
func fatal(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Reason {
	case Trapped, Exited, Timeout:
		return true
	case TooLarge:
		return e.Cause != nil // it was cut off in the middle of its reply
	}
	return false
}

// worn reports whether an instance has so much memory, which it never gives
// back, that its next call may fail for it.
func (g *guest) worn() bool {
	return int64(g.module.Memory().Size()) > g.wasm.limits.Memory/4*3
}

// failure makes an Error of what ended a guest, and logs it in one line; the
// guest's stack is for debugging.
func (g *guest) failure(method string, err error) error {
	if g.life.Err() != nil {
		return g.wasm.gone(method)
	}
	e := &Error{Plugin: g.wasm.key, Method: method, Tail: g.lines.tail(), Cause: err}
	var exit *sys.ExitError
	var large *tooLarge
	switch {
	case errors.As(err, &large):
		e.Reason, e.Message, e.Tail = TooLarge, large.Error(), ""
	case errors.As(err, &exit) && exit.ExitCode() == sys.ExitCodeDeadlineExceeded:
		e.Reason, e.Tail = Timeout, ""
		e.Message = fmt.Sprintf("the module took longer than %v and was ended", g.wasm.limits.Timeout)
		if method == "start" {
			e.Message = fmt.Sprintf("the module did not start within %v", initTimeout)
		}
	case errors.As(err, &exit):
		e.Reason, e.Message = Exited, fmt.Sprintf("the module ended itself with exit code %d", exit.ExitCode())
	default:
		text, _, _ := strings.Cut(err.Error(), "\n")
		text = strings.TrimSuffix(strings.TrimPrefix(text, "wasm error: "), " (recovered by wazero)")
		e.Reason, e.Message = Trapped, "the module trapped: "+text
	}
	cause := e.Message
	if e.Reason == Trapped || e.Reason == Exited {
		if said := g.lines.reason(); said != "" {
			cause += ": " + said
		}
	}
	g.wasm.log.Error("plugin module failed", "method", method, "cause", cause)
	g.wasm.log.Debug("plugin module failed", "method", method, "stack", err)
	return e
}

// answered makes an error of one that the component gave: its text, or the
// JSON of it.
func (g *guest) answered(method string, text []byte) error {
	given := struct {
		component.Error
		Pointer string `json:"pointer"`
	}{}
	if json.Unmarshal(text, &given) != nil || given.Message == "" {
		given.Message = strings.TrimSpace(string(text))
	}
	if given.Message == "" {
		given.Message = "it failed without a reason"
	}
	if given.Pointer != "" {
		return &schema.Error{Pointer: given.Pointer, Message: given.Message}
	}
	return &Error{Plugin: g.wasm.key, Method: method, Reason: Failed, Message: given.Message, Retryable: given.Retryable, Cause: &given.Error}
}
