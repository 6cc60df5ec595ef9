package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
)

func (x exprCompare) eval(e *exec, s *scope) (Value, error) {
	a, err := x.first.eval(e, s)
	if err != nil {
		return nil, err
	}
	for i, op := range x.ops {
		b, err := x.rest[i].eval(e, s)
		if err != nil {
			return nil, err
		}
		ok, err := compare(op, a, b)
		if err != nil {
			return nil, e.at(x.line, err)
		}
		if !ok {
			return false, nil
		}
		a = b
	}
	return true, nil
}

func compare(op string, a, b Value) (bool, error) {
	switch op {
	case "==":
		return equal(a, b), nil
	case "!=":
		return !equal(a, b), nil
	case "in":
		return contains(b, a)
	case "not in":
		in, err := contains(b, a)
		return !in, err
	}
	n, ok := order(a, b)
	if !ok {
		return false, fmt.Errorf("%s between a %s and a %s", op, typeName(a), typeName(b))
	}
	switch op {
	case "<":
		return n < 0, nil
	case "<=":
		return n <= 0, nil
	case ">":
		return n > 0, nil
	}
	return n >= 0, nil
}

// contains is `v in list`.
func contains(list, v Value) (bool, error) {
	switch l := list.(type) {
	case Text:
		t, ok := v.(Text)
		if !ok {
			return false, fmt.Errorf("a %s is looked for in a string", typeName(v))
		}
		return strings.Contains(l.s, t.s), nil
	case *List:
		for _, item := range l.Items {
			if equal(item, v) {
				return true, nil
			}
		}
		return false, nil
	case *Dict:
		k, ok := keyOf(v)
		if !ok {
			return false, nil
		}
		_, in := l.get(k.s)
		return in, nil
	case undefined:
		return false, nil
	}
	return false, fmt.Errorf("something is looked for in a %s", typeName(list))
}

func (x exprBinary) eval(e *exec, s *scope) (Value, error) {
	a, err := x.a.eval(e, s)
	if err != nil {
		return nil, err
	}
	b, err := x.b.eval(e, s)
	if err != nil {
		return nil, err
	}
	v, err := binary(x.op, a, b)
	return v, e.at(x.line, err)
}

func binary(op string, a, b Value) (Value, error) {
	if op == "~" {
		x, err := str(a)
		if err != nil {
			return nil, err
		}
		y, err := str(b)
		return Concat(x, y), err
	}
	x, ok := asNumber(a)
	y, ok2 := asNumber(b)
	if ok && ok2 {
		return arithmetic(op, x, y)
	}
	switch l := a.(type) {
	case Text:
		if r, ok := b.(Text); ok && op == "+" {
			return Concat(l, r), nil
		}
		if op == "*" && ok2 {
			return repeat(l, int(y.float()))
		}
		if op == "%" {
			return formatPercent(l, b)
		}
	case *List:
		if r, ok := b.(*List); ok && op == "+" && l.tuple == r.tuple {
			return &List{Items: append(append([]Value{}, l.Items...), r.Items...), From: l.From, tuple: l.tuple}, nil
		}
	}
	return nil, fmt.Errorf("%s between a %s and a %s", op, typeName(a), typeName(b))
}

func repeat(t Text, n int) (Value, error) {
	if n > 0 && len(t.s)*n > 1<<20 {
		return nil, errors.New("a string is repeated too often")
	}
	var b builder
	for range n {
		b.add(t)
	}
	return b.text(), nil
}

func arithmetic(op string, a, b Number) (Value, error) {
	if a.isInt() && b.isInt() && op != "/" {
		x, y := a.big(), b.big()
		z := new(big.Int)
		switch op {
		case "+":
			z.Add(x, y)
		case "-":
			z.Sub(x, y)
		case "*":
			z.Mul(x, y)
		case "//", "%":
			if y.Sign() == 0 {
				return nil, errors.New("division by zero")
			}
			m := new(big.Int)
			z.DivMod(x, y, m)
			if y.Sign() < 0 && m.Sign() != 0 { // Python rounds down
				z.Sub(z, big.NewInt(1))
				m.Add(m, y)
			}
			if op == "%" {
				z = m
			}
		case "**":
			if y.Sign() < 0 || y.BitLen() > 12 {
				return float(math.Pow(a.float(), b.float())), nil
			}
			z.Exp(x, y, nil)
		}
		return Number{Text: z.String()}, nil
	}
	x, y := a.float(), b.float()
	switch op {
	case "+":
		return float(x + y), nil
	case "-":
		return float(x - y), nil
	case "*":
		return float(x * y), nil
	case "**":
		return float(math.Pow(x, y)), nil
	}
	if y == 0 {
		return nil, errors.New("division by zero")
	}
	switch op {
	case "/":
		return float(x / y), nil
	case "//":
		return float(math.Floor(x / y)), nil
	}
	return float(x - y*math.Floor(x/y)), nil
}
