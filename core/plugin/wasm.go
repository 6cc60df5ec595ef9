package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
)

const (
	abi           = "penstock_v1" // name of the host module and of the marker export
	maxModule     = 32 << 20      // bytes
	wasmPage      = 64 << 10
	logsPerSecond = 100
	// compileTimeout bounds the compilation of a module, which takes a second
	// or two for one of a few megabytes.
	compileTimeout = 10 * time.Minute
	// grantNow gives a module the real clock; without it every reading of the
	// time of day is the same, so that a call can be repeated.
	grantNow = "now"
)

// modules are what all modules of a registry share: the compiled code, in
// memory and on disk.
type modules struct {
	mu       sync.Mutex
	compiled wazero.CompilationCache
	turns    map[string]*sync.Mutex // by sha256
}

// use returns the shared cache, and the lock under which a module of this
// sha256 is compiled: two compilations of one module at once can lose it.
func (m *modules) use(c cache, sum string) (wazero.CompilationCache, *sync.Mutex, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.compiled == nil {
		dir, err := c.folder("wazero")
		if err != nil {
			return nil, nil, err
		}
		if m.compiled, err = wazero.NewCompilationCacheWithDir(dir); err != nil {
			return nil, nil, fmt.Errorf("open the cache of compiled modules: %w", err)
		}
		m.turns = map[string]*sync.Mutex{}
	}
	if m.turns[sum] == nil {
		m.turns[sum] = &sync.Mutex{}
	}
	return m.compiled, m.turns[sum], nil
}

func (m *modules) close(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.compiled == nil {
		return nil
	}
	err := m.compiled.Close(ctx)
	m.compiled = nil
	return err
}

// wasm is a compiled module. It has a runtime of its own, as the limit of
// memory is the runtime's.
type wasm struct {
	key      string
	sum      string
	limits   Limits
	now      bool
	log      *slog.Logger
	logged   *lineLog // of the log import, bounded for all instances together
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	// instances counts those that were made.
	instances atomic.Int64

	life   context.Context // ends when the module is to be closed
	end    context.CancelFunc
	use    sync.RWMutex // held by what runs in an instance
	closed bool         // under use
}

// loadWasm compiles a module and refuses it if it asks for more than it is
// granted.
func (r *Registry) loadWasm(ctx context.Context, s Source) (program, error) {
	path := s.Wasm
	if s.WasmGo != "" {
		var err error
		if path, err = r.build(ctx, s.WasmGo, goWasm); err != nil {
			return nil, err
		}
	}
	for _, g := range s.Grant {
		if g != grantNow {
			return nil, fmt.Errorf("grant: %q can't be granted, only %q can", g, grantNow)
		}
	}
	code, err := readModule(path)
	if err != nil {
		return nil, err
	}
	w := &wasm{key: s.Key, sum: hashBytes(code), limits: s.Limits.forWasm(), now: slices.Contains(s.Grant, grantNow), log: r.log.With("plugin", s.Key)}
	w.life, w.end = context.WithCancel(context.Background())
	w.logged = newLineLog(w.log)
	w.logged.rate = logsPerSecond
	if err := w.compile(ctx, r, code); err != nil {
		w.end()
		if w.runtime != nil {
			err = errors.Join(err, w.runtime.Close(ctx))
		}
		return nil, err
	}
	return w, nil
}

// readModule reads a module once: the bytes that are hashed are those that are
// compiled, and nothing can change them in between.
func readModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file; a folder of Go sources is wasm: { go: %s }", path, path)
	}
	if info.Size() > maxModule {
		return nil, fmt.Errorf("%s is %d MiB, a module may have %d MiB", path, info.Size()>>20, maxModule>>20)
	}
	code := make([]byte, info.Size())
	_, err = io.ReadFull(f, code)
	return code, err
}

func (w *wasm) compile(ctx context.Context, r *Registry, code []byte) error {
	shared, turn, err := r.modules.use(r.cache, w.sum)
	if err != nil {
		return err
	}
	// A guest that loops can't be preempted and would hold up the whole host at
	// its next garbage collection; closing on done puts checks into its loops.
	w.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCloseOnContextDone(true).
		WithMemoryLimitPages(uint32(max(1, w.limits.Memory/wasmPage))).
		WithCompilationCache(shared))
	if err := provide(ctx, w.runtime, w.now); err != nil {
		return err
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, w.runtime); err != nil {
		return fmt.Errorf("link wasi: %w", err)
	}
	if !bytes.HasPrefix(code, []byte("\x00asm")) {
		return errors.New("it is no WASM module; build one for wasip1, or name a folder of Go sources as wasm: { go: FOLDER }")
	}
	turn.Lock()
	defer turn.Unlock()
	// With two workers the compiler looks at the context between functions.
	bounded, cancel := context.WithTimeoutCause(ctx, compileTimeout, fmt.Errorf("it took longer than %v", compileTimeout))
	defer cancel()
	if w.compiled, err = w.runtime.CompileModule(experimental.WithCompilationWorkers(bounded, 2), code); err != nil {
		if bounded.Err() != nil {
			err = context.Cause(bounded)
		}
		return fmt.Errorf("compile: %w", err)
	}
	return w.inspect()
}

// inspect checks what the module imports and exports against the contract.
func (w *wasm) inspect() error {
	for _, f := range w.compiled.ImportedFunctions() {
		from, name, _ := f.Import()
		switch from {
		case wasi_snapshot_preview1.ModuleName:
			continue
		case abi:
			want, ok := imports[name]
			if name == grantNow && !w.now {
				return fmt.Errorf("it imports %q, which it isn't granted; write grant: [%s]", name, name)
			}
			if !ok {
				return fmt.Errorf("it imports %q, which isn't granted to plugins", name)
			}
			if got := signature(f); got != want.signature() {
				return fmt.Errorf("it imports %s as %s, want %s", name, got, want.signature())
			}
		default:
			return fmt.Errorf("it imports %s.%s; a plugin may import from %s and %s alone", from, name, abi, wasi_snapshot_preview1.ModuleName)
		}
	}
	if len(w.compiled.ExportedMemories()) == 0 {
		return errors.New("it exports no memory")
	}
	exports := w.compiled.ExportedFunctions()
	if exports[abi] == nil {
		return fmt.Errorf("it doesn't export %s, the mark of a plugin", abi)
	}
	for _, name := range guestExports {
		if f := exports[name]; f != nil && signature(f) != "() -> i32" {
			return fmt.Errorf("it exports %s as %s, want () -> i32", name, signature(f))
		}
	}
	return nil
}

// signature spells a function's type: (i32, i32) -> i32.
func signature(f api.FunctionDefinition) string {
	return spell(f.ParamTypes(), f.ResultTypes())
}

func spell(params, results []api.ValueType) string {
	names := func(types []api.ValueType) string {
		var out []string
		for _, t := range types {
			out = append(out, api.ValueTypeName(t))
		}
		return strings.Join(out, ", ")
	}
	return strings.TrimSuffix("("+names(params)+") -> "+names(results), " -> ")
}

const (
	exportDescribe   = "describe"
	exportConfigure  = "configure"
	exportInitialize = "_initialize"
)

// guestExports are the exports that the host calls.
var guestExports = []string{
	abi, exportDescribe, exportConfigure,
	judger.MethodJudge, judger.MethodJudgeGroup, hook.Method,
	invoker.MethodPlan, invoker.MethodLine, invoker.MethodResult,
	format.MethodMarkers, format.MethodRender, format.MethodTail, format.MethodOpen,
	format.MethodFeed, format.MethodFinish, format.MethodClose,
}

// kindExports are, by kind, the methods that a module without describe may
// have; one of the first is needed.
var kindExports = map[string][]string{
	component.Judger:  {judger.MethodJudge, judger.MethodJudgeGroup},
	component.Hook:    {hook.Method},
	component.Invoker: {invoker.MethodPlan, invoker.MethodLine, invoker.MethodResult},
	component.Format: {format.MethodRender, format.MethodTail, format.MethodOpen,
		format.MethodFeed, format.MethodFinish, format.MethodClose, format.MethodMarkers},
}

func (w *wasm) digest() string { return w.sum }

func (w *wasm) exports(name string) bool { return w.compiled.ExportedFunctions()[name] != nil }

// undescribed makes the descriptor of a module without describe from its
// exports. A hook of that sort is called at every point.
func (w *wasm) undescribed(kind, name string) (component.Descriptor, error) {
	d := component.Descriptor{Kind: kind, Name: name, Protocol: component.Protocol}
	for _, m := range kindExports[kind] {
		if w.exports(m) {
			d.Methods = append(d.Methods, m)
		}
	}
	if len(d.Methods) == 0 {
		return d, fmt.Errorf("the module is no %s: it doesn't export %s", kind, kindExports[kind][0])
	}
	if kind == component.Hook {
		d.Changes = everyPoint()
	}
	return d, nil
}

// everyPoint lists the points at which a hook that doesn't describe itself is
// called.
func everyPoint() []string {
	var names []string
	for _, p := range []hook.Point{hook.Request, hook.Reply, hook.ToolCall, hook.StageBefore, hook.StageAfter, hook.Row} {
		names = append(names, string(p))
	}
	return names
}

func (w *wasm) describe(ctx context.Context) ([]component.Descriptor, error) {
	if !w.exports(exportDescribe) {
		return nil, nil
	}
	g, err := w.instantiate(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	out, err := g.run(ctx, exportDescribe, nil)
	if err != nil {
		return nil, err
	}
	return parseDescription(out)
}

func (w *wasm) open(ctx context.Context, d component.Descriptor, config json.RawMessage) (instance, error) {
	input, err := json.Marshal(struct {
		Component string          `json:"component"`
		Config    json.RawMessage `json:"config"`
	}{d.ID(), config})
	if err != nil {
		return nil, err
	}
	p := newPool(w, input)
	// One instance is made at once, so that a config which the module refuses
	// is refused here.
	g, err := p.acquire(ctx, exportConfigure)
	if err != nil {
		return nil, err
	}
	p.release(g)
	return p, nil
}

// close ends what runs in any instance and gives all of them back.
func (w *wasm) close(ctx context.Context) error {
	w.end()
	w.use.Lock()
	defer w.use.Unlock()
	w.closed = true
	return w.runtime.Close(ctx)
}
