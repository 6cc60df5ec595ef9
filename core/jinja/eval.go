package jinja

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// call is the arguments of a function, a method, a filter or a test.
type call struct {
	e      *exec
	list   []Value
	names  []string
	named  []Value
	caller function
}

// given is the argument at place i, or of a name.
func (c *call) given(i int, name string) (Value, bool) {
	if i < len(c.list) {
		return c.list[i], true
	}
	for k, n := range c.names {
		if n == name {
			return c.named[k], true
		}
	}
	return nil, false
}

func (c *call) arg(i int, name string, def Value) Value {
	if v, ok := c.given(i, name); ok {
		return v
	}
	return def
}

func (c *call) text(i int, name, def string) string {
	switch v := c.arg(i, name, nil).(type) {
	case Text:
		return v.s
	default:
		return def
	}
}

func (c *call) int(i int, name string, def int) int {
	if n, ok := asNumber(c.arg(i, name, nil)); ok {
		return int(n.float())
	}
	return def
}

func (a args) eval(e *exec, s *scope) (*call, error) {
	c := &call{e: e, names: a.names}
	for _, x := range a.list {
		v, err := x.eval(e, s)
		if err != nil {
			return nil, err
		}
		c.list = append(c.list, v)
	}
	for _, x := range a.named {
		v, err := x.eval(e, s)
		if err != nil {
			return nil, err
		}
		c.named = append(c.named, v)
	}
	return c, nil
}

func (x exprConst) eval(*exec, *scope) (Value, error) { return x.value, nil }

func (x exprName) eval(e *exec, s *scope) (Value, error) {
	if v, ok := s.get(x.name); ok {
		return v, nil
	}
	return undefined(x), nil
}

func (x exprList) eval(e *exec, s *scope) (Value, error) {
	l := &List{tuple: x.tuple}
	for _, item := range x.items {
		v, err := item.eval(e, s)
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, v)
	}
	return l, nil
}

func (x exprDict) eval(e *exec, s *scope) (Value, error) {
	d := NewDict(FromTemplate)
	for i := range x.keys {
		k, err := x.keys[i].eval(e, s)
		if err != nil {
			return nil, err
		}
		v, err := x.values[i].eval(e, s)
		if err != nil {
			return nil, err
		}
		if err := d.put(k, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (x exprAttr) eval(e *exec, s *scope) (Value, error) {
	of, err := x.of.eval(e, s)
	if err != nil {
		return nil, err
	}
	v, err := attribute(of, x.name)
	return v, e.at(x.line, err)
}

// attribute is of.name: a method, else a member.
func attribute(of Value, name string) (Value, error) {
	switch v := of.(type) {
	case undefined:
		return nil, fmt.Errorf("%s is undefined", orSomething(v.name))
	case *loop:
		return v.attr(name), nil
	case *Dict:
		if v.open {
			break
		}
		if m := dictMethods[name]; m != nil {
			return bound(v, m), nil
		}
	case Text:
		if m := textMethods[name]; m != nil {
			return bound(v, m), nil
		}
	case *List:
		if m := listMethods[name]; m != nil {
			return bound(v, m), nil
		}
	}
	return member(of, lit(name)), nil
}

func orSomething(name string) string {
	if name == "" {
		return "a value"
	}
	return name
}

func bound[T any](of T, m func(of T, c *call) (Value, error)) function {
	return func(c *call) (Value, error) { return m(of, c) }
}

// member is of[key], undefined where there is none.
func member(of, key Value) Value {
	switch v := of.(type) {
	case *Dict:
		if k, ok := keyOf(key); ok {
			if m, ok := v.get(k.s); ok {
				return m
			}
		}
	case *List:
		if n, ok := asNumber(key); ok {
			if i, ok := n.int(); ok {
				if i < 0 {
					i += len(v.Items)
				}
				if i >= 0 && i < len(v.Items) {
					return v.Items[i]
				}
			}
		}
	case Text:
		if n, ok := asNumber(key); ok {
			if i, ok := n.int(); ok {
				size := v.runes()
				if i < 0 {
					i += size
				}
				if i >= 0 && i < size {
					at := v.offset(i)
					_, n := utf8.DecodeRuneInString(v.s[at:])
					return v.slice(at, at+n)
				}
			}
		}
	}
	name := ""
	if t, ok := key.(Text); ok {
		name = fmt.Sprintf("%s of a %s", t.s, typeName(of))
	}
	return undefined{name}
}

func (x exprItem) eval(e *exec, s *scope) (Value, error) {
	of, err := x.of.eval(e, s)
	if err != nil {
		return nil, err
	}
	key, err := x.key.eval(e, s)
	if err != nil {
		return nil, err
	}
	if u, ok := of.(undefined); ok {
		return nil, e.fail(x.line, "%s is undefined", orSomething(u.name))
	}
	v := member(of, key)
	if _, missing := v.(undefined); missing {
		if k, ok := key.(Text); ok {
			if d, isDict := of.(*Dict); !isDict || !d.open {
				v, err = attribute(of, k.s)
			}
		}
	}
	return v, err
}

func (x exprSlice) eval(e *exec, s *scope) (Value, error) {
	of, err := x.of.eval(e, s)
	if err != nil {
		return nil, err
	}
	n := 0
	switch v := of.(type) {
	case *List:
		n = len(v.Items)
	case Text:
		n = v.runes()
	case undefined:
		return nil, e.fail(x.line, "%s is undefined", orSomething(v.name))
	default:
		return nil, e.fail(x.line, "a %s can't be sliced", typeName(of))
	}
	at, err := x.indices(e, s, n)
	if err != nil {
		return nil, err
	}
	if l, ok := of.(*List); ok {
		out := &List{From: l.From, tuple: l.tuple}
		for _, i := range at {
			out.Items = append(out.Items, l.Items[i])
		}
		return out, nil
	}
	t := of.(Text)
	if x.step == nil {
		if len(at) == 0 {
			return Text{}, nil
		}
		return t.slice(t.offset(at[0]), t.offset(at[len(at)-1]+1)), nil
	}
	var b builder
	for _, i := range at {
		b.add(t.slice(t.offset(i), t.offset(i+1)))
	}
	return b.text(), nil
}

// indices are the places of a slice of n items.
func (x exprSlice) indices(e *exec, s *scope, n int) ([]int, error) {
	bound := func(of expr, def int) (int, error) {
		if of == nil {
			return def, nil
		}
		v, err := of.eval(e, s)
		if err != nil || v == nil {
			return def, err
		}
		num, ok := asNumber(v)
		i, fits := num.int()
		if !ok || !fits {
			return 0, e.fail(x.line, "a slice needs integers, not a %s", typeName(v))
		}
		return i, nil
	}
	step, err := bound(x.step, 1)
	if err != nil {
		return nil, err
	}
	if step == 0 {
		return nil, e.fail(x.line, "the step of a slice is 0")
	}
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	clamp := func(i int) int {
		if i < 0 {
			i += n
		}
		return max(low, min(i, high))
	}
	from, to := low, high
	if step < 0 {
		from, to = high, low
	}
	if i, err := bound(x.from, math.MinInt); err != nil {
		return nil, err
	} else if i != math.MinInt {
		from = clamp(i)
	}
	if i, err := bound(x.to, math.MinInt); err != nil {
		return nil, err
	} else if i != math.MinInt {
		to = clamp(i)
	}
	var out []int
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		out = append(out, i)
	}
	return out, nil
}

// prepare evaluates what is called, and its arguments.
func (x exprCall) prepare(e *exec, s *scope) (function, *call, error) {
	of, err := x.of.eval(e, s)
	if err != nil {
		return nil, nil, err
	}
	if l, ok := of.(*loop); ok && l.again != nil {
		of = l.again
	}
	f, ok := of.(function)
	if !ok {
		if u, missing := of.(undefined); missing {
			return nil, nil, e.fail(x.line, "%s is undefined, and is called", orSomething(u.name))
		}
		return nil, nil, e.fail(x.line, "a %s can't be called", typeName(of))
	}
	c, err := x.args.eval(e, s)
	return f, c, err
}

func (x exprCall) eval(e *exec, s *scope) (Value, error) {
	if err := e.step(); err != nil {
		return nil, err
	}
	f, c, err := x.prepare(e, s)
	if err != nil {
		return nil, err
	}
	v, err := f(c)
	return v, e.at(x.line, err)
}

func (x exprFilter) eval(e *exec, s *scope) (Value, error) {
	of, err := x.of.eval(e, s)
	if err != nil {
		return nil, err
	}
	c, err := x.use.args.eval(e, s)
	if err != nil {
		return nil, err
	}
	v, err := e.t.filters[x.use.name](of, c)
	return v, e.at(x.use.line, err)
}

func (x exprTest) eval(e *exec, s *scope) (Value, error) {
	of, err := x.of.eval(e, s)
	if err != nil {
		return nil, err
	}
	c, err := x.args.eval(e, s)
	if err != nil {
		return nil, err
	}
	ok, err := e.t.tests[x.name](of, c)
	return ok != x.not, e.at(x.line, err)
}

func (x exprNot) eval(e *exec, s *scope) (Value, error) {
	v, err := x.of.eval(e, s)
	return !truth(v), err
}

func (x exprNeg) eval(e *exec, s *scope) (Value, error) {
	v, err := x.of.eval(e, s)
	if err != nil {
		return nil, err
	}
	n, ok := asNumber(v)
	if !ok {
		return nil, e.fail(x.line, "a %s has no sign", typeName(v))
	}
	if x.plus {
		return n, nil
	}
	if neg, ok := strings.CutPrefix(n.Text, "-"); ok {
		return Number{neg, n.From}, nil
	}
	return Number{"-" + n.Text, n.From}, nil
}

func (x exprLogic) eval(e *exec, s *scope) (Value, error) {
	a, err := x.a.eval(e, s)
	if err != nil || truth(a) == x.or {
		return a, err
	}
	return x.b.eval(e, s)
}

func (x exprIf) eval(e *exec, s *scope) (Value, error) {
	c, err := x.cond.eval(e, s)
	if err != nil {
		return nil, err
	}
	if truth(c) {
		return x.then.eval(e, s)
	}
	return x.els.eval(e, s)
}
