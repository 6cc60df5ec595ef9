//go:build wasip1

// Package guest is the plugin's side of penstock_v1, the functions by which a
// WASM module and its host talk: it reads the request by JSON Pointer without
// decoding it, calls the registered component and writes the reply. Authors
// need nothing of it but Log; the packages of the kinds export the functions
// that call it.
package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unsafe"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/schema"
)

//go:wasmimport penstock_v1 input_len
func inputLen() uint32

//go:wasmimport penstock_v1 input_read
func inputRead(ptr unsafe.Pointer, offset, n uint32) uint32

//go:wasmimport penstock_v1 field_read
func fieldRead(path unsafe.Pointer, pathLen uint32, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport penstock_v1 output_write
func outputWrite(ptr unsafe.Pointer, n uint32)

//go:wasmimport penstock_v1 error_write
func errorWrite(ptr unsafe.Pointer, n uint32)

//go:wasmimport penstock_v1 log
func logWrite(level int32, ptr unsafe.Pointer, n uint32)

// request is the document of the call.
type request struct{}

// buffer receives fields; a longer one is asked for again with room for it.
var buffer [4096]byte

// Get implements doc.Doc.
func (request) Get(pointer string) ([]byte, bool) {
	if pointer == "" {
		return input(), true
	}
	path := unsafe.Pointer(unsafe.StringData(pointer))
	n := fieldRead(path, uint32(len(pointer)), unsafe.Pointer(&buffer), uint32(len(buffer)))
	if n < 0 {
		return nil, false
	}
	value := make([]byte, n)
	if int(n) <= len(buffer) {
		copy(value, buffer[:n])
		return value, true
	}
	fieldRead(path, uint32(len(pointer)), unsafe.Pointer(unsafe.SliceData(value)), uint32(n))
	return value, true
}

func input() []byte {
	in := make([]byte, inputLen())
	if len(in) > 0 {
		inputRead(unsafe.Pointer(unsafe.SliceData(in)), 0, uint32(len(in)))
	}
	return in
}

var _ doc.Doc = request{}

// instance is what configure opened.
var instance struct {
	component component.Component
	value     any
}

// Call calls a method of the component that was configured. It is what the
// exported functions of the kinds do.
func Call(kind, method string) int32 {
	if instance.value == nil {
		return fail(errors.New("the module was not configured"))
	}
	if instance.component.Kind != kind {
		return fail(fmt.Errorf("the module was configured as %s", instance.component.ID()))
	}
	out, err := instance.component.Call(context.Background(), instance.value, method, request{})
	if err != nil {
		return fail(err)
	}
	write(out)
	return 0
}

//go:wasmexport penstock_v1
func minor() int32 { return 0 }

//go:wasmexport describe
func describe() int32 {
	all := component.Registered()
	list := make([]component.Descriptor, 0, len(all))
	for _, c := range all {
		list = append(list, c.Descriptor)
	}
	out, err := json.Marshal(struct {
		Components []component.Descriptor `json:"components"`
	}{list})
	if err != nil {
		return fail(err)
	}
	write(out)
	return 0
}

//go:wasmexport configure
func configure() int32 {
	var q struct {
		Component string          `json:"component"`
		Config    json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal(input(), &q); err != nil {
		return fail(err)
	}
	for _, c := range component.Registered() {
		if c.ID() != q.Component {
			continue
		}
		value, err := c.Open(context.Background(), q.Config)
		if err != nil {
			return fail(err)
		}
		instance.component, instance.value = c, value
		return 0
	}
	return fail(fmt.Errorf("the module has no %s", q.Component))
}

func write(out []byte) {
	if len(out) > 0 {
		outputWrite(unsafe.Pointer(unsafe.SliceData(out)), uint32(len(out)))
	}
}

// fail writes an error as {code, message, retryable, pointer}.
func fail(err error) int32 {
	e := struct {
		component.Error
		Pointer string `json:"pointer,omitempty"`
	}{component.Error{Message: err.Error()}, ""}
	var field *schema.Error
	var given *component.Error
	switch {
	case errors.As(err, &field):
		e.Code, e.Pointer, e.Message = "config", field.Pointer, field.Message
	case errors.As(err, &given):
		e.Code, e.Retryable = given.Code, given.Retryable
	}
	out, marshalErr := json.Marshal(e)
	if marshalErr != nil {
		out = []byte(err.Error())
	}
	errorWrite(unsafe.Pointer(unsafe.SliceData(out)), uint32(len(out)))
	return 1
}
