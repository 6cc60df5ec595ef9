package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// Expr is a compiled expression. It may be evaluated from several goroutines.
type Expr struct {
	source  string
	where   string   // file:line:col
	names   []string // the names of Env that it reads
	program *vm.Program
	// path is set when the expression only walks into a value: then the
	// value's own bytes are the result, so that big integers and the order of
	// keys survive.
	path []step
}

// step is one member access of a path.
type step struct {
	key      string
	index    int
	isIndex  bool
	optional bool // ?.
}

// String is the expression without ${{ }}.
func (e *Expr) String() string { return e.source }

func (e *Expr) fail(err error) error {
	return fmt.Errorf("evaluate ${{ %s }} of %s: %w", e.source, e.where, err)
}

// Bool evaluates an expression of type boolean.
func (e *Expr) Bool(env Env) (bool, error) {
	v, err := e.value(env)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	if !ok {
		return false, e.fail(fmt.Errorf("the value is %s, want true or false", kindOf(v)))
	}
	return b, nil
}

// Number evaluates an expression of a nullable number; nil is null.
func (e *Expr) Number(env Env) (*float64, error) {
	v, err := e.value(env)
	if err != nil {
		return nil, err
	}
	var f float64
	switch n := v.(type) {
	case nil:
		return nil, nil
	case int:
		f = float64(n)
	case float64:
		f = n
	default:
		return nil, e.fail(fmt.Errorf("the value is %s, want a number or null", kindOf(v)))
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, e.fail(fmt.Errorf("the value is %v, want a finite number", f))
	}
	return &f, nil
}

// JSON evaluates the expression to a JSON value.
func (e *Expr) JSON(env Env) (json.RawMessage, error) {
	if e.path != nil {
		raw, err := walk(env.raw(e.names[0]), e.names[0], e.path)
		if err != nil {
			return nil, e.fail(err)
		}
		return raw, nil
	}
	v, err := e.value(env)
	if err != nil {
		return nil, err
	}
	b, err := chat.Marshal(v)
	if err != nil {
		return nil, e.fail(fmt.Errorf("the value has no JSON form: %w", err))
	}
	return bytes.TrimSpace(b), nil
}

func (e *Expr) value(env Env) (out any, err error) {
	if e.path != nil {
		raw, err := e.JSON(env)
		if err != nil {
			return nil, err
		}
		return decode(raw)
	}
	vars := make(map[string]any, len(e.names))
	for _, name := range e.names {
		v, err := decode(env.raw(name))
		if err != nil {
			return nil, e.fail(fmt.Errorf("read %s: %w", name, err))
		}
		vars[name] = v
	}
	out, err = expr.Run(e.program, vars)
	if err != nil {
		return nil, e.fail(errors.New(firstLine(err.Error())))
	}
	return out, nil
}

// raw is the JSON of one name, nil when there is no such value.
func (env Env) raw(name string) json.RawMessage {
	switch name {
	case "task":
		return env.Task
	case "rollout":
		b, _ := chat.Marshal(map[string]any{"id": env.Rollout.ID, "sample": env.Rollout.Sample, "status": env.Rollout.Status})
		return b
	case "run":
		b, _ := chat.Marshal(map[string]any{"id": env.Run.ID, "dir": env.Run.Dir})
		return b
	}
	s, ok := env.Stages[name]
	if !ok {
		s.Status = "skipped" // the rollout never got there
	}
	v := map[string]any{"status": s.Status, "output": nil}
	if s.ExitStatus != "" {
		v["exit_status"] = s.ExitStatus
	}
	if s.Error != "" {
		v["error"] = s.Error
	}
	if len(s.Output) > 0 {
		v["output"] = s.Output
	}
	b, err := chat.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}

// walk follows a path into raw JSON.
func walk(raw json.RawMessage, name string, path []step) (json.RawMessage, error) {
	at := name
	for _, s := range path {
		if absent(raw) {
			if s.optional {
				return json.RawMessage("null"), nil
			}
			return nil, fmt.Errorf("%s is null, so .%s can't be read", at, s.key)
		}
		var err error
		if s.isIndex {
			raw, err = item(raw, s.index)
			at += "[" + strconv.Itoa(s.index) + "]"
		} else {
			raw, err = member(raw, s.key)
			at += "." + s.key
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", at, err)
		}
	}
	if absent(raw) {
		return json.RawMessage("null"), nil
	}
	return raw, nil
}

func absent(raw json.RawMessage) bool {
	t := bytes.TrimSpace(raw)
	return len(t) == 0 || bytes.Equal(t, []byte("null"))
}

func member(raw json.RawMessage, key string) (json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, errors.New("the value around it is no object")
	}
	return m[key], nil
}

func item(raw json.RawMessage, i int) (json.RawMessage, error) {
	var l []json.RawMessage
	if err := json.Unmarshal(raw, &l); err != nil {
		return nil, errors.New("the value around it is no list")
	}
	if i < 0 {
		i += len(l)
	}
	if i < 0 || i >= len(l) {
		return nil, fmt.Errorf("the list has %d items", len(l))
	}
	return l[i], nil
}

// decode turns JSON into what expressions work on: whole numbers are int,
// others float64.
func decode(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return numbers(v), nil
}

func numbers(v any) any {
	switch t := v.(type) {
	case json.Number:
		if i, err := strconv.Atoi(t.String()); err == nil {
			return i
		}
		f, _ := t.Float64() // a JSON number is one; too large is an infinity
		return f
	case map[string]any:
		for k, e := range t {
			t[k] = numbers(e)
		}
	case []any:
		for i, e := range t {
			t[i] = numbers(e)
		}
	}
	return v
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case int:
		return "an integer"
	case float64:
		return "a number"
	case map[string]any:
		return "an object"
	}
	return "a list"
}

func firstLine(s string) string {
	if i := bytes.IndexByte([]byte(s), '\n'); i >= 0 {
		return s[:i]
	}
	return s
}
