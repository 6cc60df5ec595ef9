package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/penstock-dev/penstock/sdk/doc"
)

// invocation is what the imports of a module act on during one call.
type invocation struct {
	in     *doc.Reader
	out    []byte
	err    []byte
	limit  int64 // of out
	logged *lineLog
	// The instance and its call, for what it logs.
	instance, call int64

	// A guest whose buffer was too small asks again for the same field.
	path  string
	value []byte
}

type invocationKey struct{}

func invoked(ctx context.Context) *invocation {
	i, _ := ctx.Value(invocationKey{}).(*invocation)
	if i == nil { // a start function that calls an import
		panic(fmt.Errorf("the module called the host outside of a call"))
	}
	return i
}

// tooLarge ends a guest that writes more than it may.
type tooLarge struct{ limit int64 }

func (t *tooLarge) Error() string {
	return fmt.Sprintf("its reply is over the limit of %d bytes", t.limit)
}

// hostFunc is one import of penstock_v1.
type hostFunc struct {
	params, results []api.ValueType
	run             api.GoModuleFunc
}

func (h hostFunc) signature() string { return spell(h.params, h.results) }

func i32s(n int) []api.ValueType {
	types := make([]api.ValueType, n)
	for i := range types {
		types[i] = api.ValueTypeI32
	}
	return types
}

// imports are the functions of penstock_v1. Pointers belong to the guest and
// hold during the call alone; the host owns no memory in it.
var imports = map[string]hostFunc{
	"input_len":    {nil, i32s(1), inputLen},
	"input_read":   {i32s(3), i32s(1), inputRead},
	"field_read":   {i32s(4), i32s(1), fieldRead},
	"output_write": {i32s(2), nil, outputWrite},
	"error_write":  {i32s(2), nil, errorWrite},
	"log":          {i32s(3), nil, logWrite},
	grantNow:       {nil, []api.ValueType{api.ValueTypeI64}, now},
}

// provide makes the host module. now is there only where it is granted.
func provide(ctx context.Context, r wazero.Runtime, withNow bool) error {
	b := r.NewHostModuleBuilder(abi)
	for name, f := range imports {
		if name == grantNow && !withNow {
			continue
		}
		b = b.NewFunctionBuilder().WithGoModuleFunction(f.run, f.params, f.results).Export(name)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("link %s: %w", abi, err)
	}
	return nil
}

func inputLen(ctx context.Context, _ api.Module, stack []uint64) {
	stack[0] = uint64(uint32(len(invoked(ctx).in.Bytes())))
}

// inputRead(ptr, offset, n) copies from the request.
func inputRead(ctx context.Context, m api.Module, stack []uint64) {
	in := invoked(ctx).in.Bytes()
	offset, n := min(int(uint32(stack[1])), len(in)), int(uint32(stack[2]))
	part := in[offset:min(offset+n, len(in))]
	if !m.Memory().Write(uint32(stack[0]), part) {
		panic(fmt.Errorf("input_read writes outside of the module's memory"))
	}
	stack[0] = uint64(uint32(len(part)))
}

// fieldRead(path, path_len, buf, limit) reads a field of the request by JSON
// Pointer and returns its length, -1 when it is absent. A value that is over
// the limit isn't written.
func fieldRead(ctx context.Context, m api.Module, stack []uint64) {
	i := invoked(ctx)
	path := view(m, stack[0], stack[1], "field_read")
	value := i.value
	if i.value == nil || i.path != string(path) {
		var ok bool
		if value, ok = i.in.Get(string(path)); !ok {
			stack[0] = uint64(^uint32(0))
			return
		}
	}
	if len(value) > int(uint32(stack[3])) {
		i.path, i.value = string(path), value
	} else if !m.Memory().Write(uint32(stack[2]), value) {
		panic(fmt.Errorf("field_read writes outside of the module's memory"))
	}
	stack[0] = uint64(uint32(len(value)))
}

// outputWrite(ptr, n) appends to the reply.
func outputWrite(ctx context.Context, m api.Module, stack []uint64) {
	i := invoked(ctx)
	p := view(m, stack[0], stack[1], "output_write")
	if int64(len(i.out)+len(p)) > i.limit {
		panic(&tooLarge{i.limit})
	}
	i.out = append(i.out, p...)
}

// errorWrite(ptr, n) appends to the error: text or {code, message, retryable}.
func errorWrite(ctx context.Context, m api.Module, stack []uint64) {
	i := invoked(ctx)
	p := view(m, stack[0], stack[1], "error_write")
	if len(i.err)+len(p) > maxLine {
		panic(&tooLarge{maxLine})
	}
	i.err = append(i.err, p...)
}

// logWrite(level, ptr, n) logs a line at a level of slog: -4, 0, 4 or 8.
func logWrite(ctx context.Context, m api.Module, stack []uint64) {
	p := view(m, stack[1], stack[2], "log")
	i := invoked(ctx)
	i.logged.at(slog.Level(int32(stack[0])), p[:min(len(p), maxLine)], slog.Int64("instance", i.instance), slog.Int64("call", i.call))
}

// now() is the time in milliseconds since 1970.
func now(_ context.Context, _ api.Module, stack []uint64) {
	stack[0] = uint64(time.Now().UnixMilli())
}

func view(m api.Module, ptr, n uint64, what string) []byte {
	p, ok := m.Memory().Read(uint32(ptr), uint32(n))
	if !ok {
		panic(fmt.Errorf("%s reads outside of the module's memory", what))
	}
	return p
}
