package jinja

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// exec is one run of a template.
type exec struct {
	ctx   context.Context
	t     *Template
	now   func() time.Time
	steps int // that are left
	depth int // of macros
}

// scope holds variables. What a loop or a macro sets stays in it.
type scope struct {
	vars   []variable
	parent *scope
}

type variable struct {
	name  string
	value Value
}

func (s *scope) get(name string) (Value, bool) {
	for ; s != nil; s = s.parent {
		for i := range s.vars {
			if s.vars[i].name == name {
				return s.vars[i].value, true
			}
		}
	}
	return nil, false
}

func (s *scope) set(name string, v Value) {
	for i := range s.vars {
		if s.vars[i].name == name {
			s.vars[i].value = v
			return
		}
	}
	s.vars = append(s.vars, variable{name, v})
}

func (s *scope) child() *scope { return &scope{parent: s} }

func (e *exec) fail(line int, format string, a ...any) error {
	return &Error{e.t.file, line, fmt.Sprintf(format, a...)}
}

// at gives an error a place, where it has none.
func (e *exec) at(line int, err error) error {
	var placed *Error
	var raised *RaisedError
	switch {
	case err == nil || errors.As(err, &placed):
		return err
	case errors.As(err, &raised):
		if raised.File == "" {
			raised.File, raised.Line = e.t.file, line
		}
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return e.fail(line, "%s", err)
}

// control is what a statement does to the loop around it.
type control uint8

const (
	goOn control = iota
	breakLoop
	nextItem
)

// The bounds of a run.
const (
	maxMacros = 100
	maxOutput = 256 << 20
)

func (e *exec) step() error {
	if e.steps--; e.steps < 0 {
		return errors.New("the template does not come to an end")
	}
	if e.steps%1024 == 0 {
		return e.ctx.Err()
	}
	return nil
}

func (e *exec) run(body []node, s *scope, out *builder) (control, error) {
	for _, n := range body {
		if err := e.step(); err != nil {
			return goOn, err
		}
		c, err := e.statement(n, s, out)
		if c != goOn || err != nil {
			return c, err
		}
	}
	if len(out.b) > maxOutput {
		return goOn, errors.New("the template writes too much")
	}
	return goOn, nil
}

func (e *exec) statement(n node, s *scope, out *builder) (control, error) {
	switch n := n.(type) {
	case nodeData:
		out.add(n.text)
	case nodePrint:
		v, err := n.expr.eval(e, s)
		if err == nil {
			err = out.print(v)
		}
		return goOn, e.at(n.line, err)
	case nodeIf:
		v, err := n.cond.eval(e, s)
		if err != nil {
			return goOn, err
		}
		if truth(v) {
			return e.run(n.then, s, out)
		}
		return e.run(n.els, s, out)
	case nodeFor:
		return e.forLoop(n, s, out)
	case nodeSet:
		return goOn, e.at(n.line, e.set(n, s))
	case nodeMacro:
		s.set(n.name, e.macro(n.params, n.body, s))
	case nodeCall:
		return goOn, e.at(n.line, e.callBlock(n, s, out))
	case nodeFilter:
		v, err := e.capture(n.body, s, n.filters)
		if err == nil {
			err = out.print(v)
		}
		return goOn, e.at(n.line, err)
	case nodeWith:
		in := s.child()
		for i, x := range n.values {
			v, err := x.eval(e, s)
			if err != nil {
				return goOn, err
			}
			in.set(n.names[i], v)
		}
		return e.run(n.body, in, out)
	case nodeGroup:
		return e.run(n.body, s, out)
	case nodeBreak:
		return breakLoop, nil
	case nodeContinue:
		return nextItem, nil
	}
	return goOn, nil
}

// capture runs a body into a value, through filters.
func (e *exec) capture(body []node, s *scope, uses []filterUse) (Value, error) {
	var b builder
	if _, err := e.run(body, s.child(), &b); err != nil {
		return nil, err
	}
	var v Value = b.text()
	for _, use := range uses {
		var err error
		if v, err = (exprFilter{exprConst{v}, use}).eval(e, s); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (e *exec) set(n nodeSet, s *scope) error {
	var v Value
	var err error
	if n.body != nil {
		v, err = e.capture(n.body, s, n.filters)
	} else {
		v, err = n.value.eval(e, s)
	}
	if err != nil {
		return err
	}
	if len(n.targets) == 1 {
		return assign(n.targets[0], v, s)
	}
	items, err := iterate(v)
	if err != nil {
		return err
	}
	if len(items) != len(n.targets) {
		return fmt.Errorf("%d values for %d names", len(items), len(n.targets))
	}
	for i, to := range n.targets {
		if err := assign(to, items[i], s); err != nil {
			return err
		}
	}
	return nil
}

func assign(to target, v Value, s *scope) error {
	if to.attr == "" {
		s.set(to.name, v)
		return nil
	}
	of, _ := s.get(to.name)
	d, ok := of.(*Dict)
	if !ok || !d.open {
		return fmt.Errorf("%s is no namespace, so %s.%s can't be set", to.name, to.name, to.attr)
	}
	d.Set(lit(to.attr), v)
	return nil
}

// loop is the variable of that name.
type loop struct {
	items   []Value
	i       int
	depth   int
	changed Value
	again   function // of a recursive one
}

func (e *exec) forLoop(n nodeFor, s *scope, out *builder) (control, error) {
	v, err := n.list.eval(e, s)
	if err != nil {
		return goOn, err
	}
	return goOn, e.loopOver(n, v, s, out, 1)
}

func (e *exec) loopOver(n nodeFor, list Value, s *scope, out *builder, depth int) error {
	if depth > maxNesting {
		return e.fail(n.line, "a loop calls itself deeper than %d", maxNesting)
	}
	items, err := iterate(list)
	if err != nil {
		return e.at(n.line, err)
	}
	if n.cond != nil {
		var kept []Value
		for _, item := range items {
			in := s.child()
			if err := bind(n.targets, item, in); err != nil {
				return e.at(n.line, err)
			}
			ok, err := n.cond.eval(e, in)
			if err != nil {
				return err
			}
			if truth(ok) {
				kept = append(kept, item)
			}
		}
		items = kept
	}
	if len(items) == 0 {
		_, err := e.run(n.els, s.child(), out)
		return err
	}
	l := &loop{items: items, depth: depth, changed: undefined{}}
	if n.nested {
		l.again = func(c *call) (Value, error) {
			var b builder
			err := e.loopOver(n, c.arg(0, "", nil), s, &b, depth+1)
			return b.text(), err
		}
	}
	for i, item := range items {
		if err := e.step(); err != nil {
			return e.at(n.line, err)
		}
		in := s.child()
		l.i = i
		in.set("loop", l)
		if err := bind(n.targets, item, in); err != nil {
			return e.at(n.line, err)
		}
		c, err := e.run(n.body, in, out)
		if err != nil {
			return err
		}
		if c == breakLoop {
			break
		}
	}
	return nil
}

// bind gives an item, or the parts of one, their names.
func bind(names []string, item Value, s *scope) error {
	if len(names) == 1 {
		s.set(names[0], item)
		return nil
	}
	parts, err := iterate(item)
	if err != nil || len(parts) != len(names) {
		return fmt.Errorf("an item of type %s can't be taken apart into %d names", typeName(item), len(names))
	}
	for i, name := range names {
		s.set(name, parts[i])
	}
	return nil
}

// attr is what a loop says of itself.
func (l *loop) attr(name string) Value {
	n := len(l.items)
	switch name {
	case "index":
		return integer(l.i + 1)
	case "index0":
		return integer(l.i)
	case "revindex":
		return integer(n - l.i)
	case "revindex0":
		return integer(n - l.i - 1)
	case "first":
		return l.i == 0
	case "last":
		return l.i == n-1
	case "length":
		return integer(n)
	case "depth":
		return integer(l.depth)
	case "depth0":
		return integer(l.depth - 1)
	case "previtem":
		if l.i > 0 {
			return l.items[l.i-1]
		}
	case "nextitem":
		if l.i+1 < n {
			return l.items[l.i+1]
		}
	case "cycle":
		return function(func(c *call) (Value, error) {
			if len(c.list) == 0 {
				return nil, errors.New("cycle needs values")
			}
			return c.list[l.i%len(c.list)], nil
		})
	case "changed":
		return function(func(c *call) (Value, error) {
			v := &List{Items: c.list}
			same := equal(l.changed, v)
			l.changed = v
			return !same, nil
		})
	}
	return undefined{"loop." + name}
}

// macro makes a callable of a body, which sees what is around it.
func (e *exec) macro(params []param, body []node, around *scope) function {
	return func(c *call) (Value, error) {
		if e.depth++; e.depth > maxMacros {
			return nil, fmt.Errorf("macros call each other deeper than %d", maxMacros)
		}
		defer func() { e.depth-- }()
		in := around.child()
		if c.caller != nil {
			in.set("caller", c.caller)
		}
		for i, p := range params {
			v, ok := c.given(i, p.name)
			if !ok {
				v = undefined{p.name}
				if p.def != nil {
					var err error
					if v, err = p.def.eval(e, in); err != nil {
						return nil, err
					}
				}
			}
			in.set(p.name, v)
		}
		var rest []Value
		if len(c.list) > len(params) {
			rest = c.list[len(params):]
		}
		in.set("varargs", &List{Items: rest, tuple: true})
		named := NewDict(FromTemplate)
		for i, name := range c.names {
			if !slices.ContainsFunc(params, func(p param) bool { return p.name == name }) {
				named.Put(name, c.named[i])
			}
		}
		in.set("kwargs", named)
		var b builder
		_, err := e.run(body, in, &b)
		return b.text(), err
	}
}

func (e *exec) callBlock(n nodeCall, s *scope, out *builder) error {
	x := n.call.(exprCall)
	f, c, err := x.prepare(e, s)
	if err != nil {
		return err
	}
	c.caller = e.macro(n.params, n.body, s)
	v, err := f(c)
	if err != nil {
		return err
	}
	return out.print(v)
}
