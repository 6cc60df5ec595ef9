package jinja

import (
	"slices"
	"strings"
)

// expr reads an expression with its condition: a if b else c.
func (p *parser) expr() (expr, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, p.fail(p.peek().line, "expressions are nested deeper than %d", maxNesting)
	}
	defer func() { p.depth-- }()
	x, err := p.or()
	if err != nil {
		return nil, err
	}
	for p.skipIf(tokName, "if") {
		cond, err := p.or()
		if err != nil {
			return nil, err
		}
		n := exprIf{then: x, cond: cond, els: exprConst{undefined{"the value of an if without else"}}}
		if p.skipIf(tokName, "else") {
			if n.els, err = p.expr(); err != nil {
				return nil, err
			}
		}
		x = n
	}
	return x, nil
}

// tuple reads one expression, or several with commas between. Without cond, an
// if ends it.
func (p *parser) tuple(cond bool) (expr, error) {
	read := p.or
	if cond {
		read = p.expr
	}
	x, err := read()
	if err != nil || !p.is(tokOp, ",") {
		return x, err
	}
	items := []expr{x}
	for p.skipIf(tokOp, ",") {
		if t := p.peek(); t.kind == tokVarEnd || t.kind == tokBlockEnd || p.is(tokOp, ")") {
			break
		}
		if x, err = read(); err != nil {
			return nil, err
		}
		items = append(items, x)
	}
	return exprList{items: items, tuple: true}, nil
}

func (p *parser) or() (expr, error) {
	a, err := p.and()
	for err == nil && p.skipIf(tokName, "or") {
		var b expr
		b, err = p.and()
		a = exprLogic{true, a, b}
	}
	return a, err
}

func (p *parser) and() (expr, error) {
	a, err := p.not()
	for err == nil && p.skipIf(tokName, "and") {
		var b expr
		b, err = p.not()
		a = exprLogic{false, a, b}
	}
	return a, err
}

func (p *parser) not() (expr, error) {
	if p.skipIf(tokName, "not") {
		x, err := p.not()
		return exprNot{x}, err
	}
	return p.compare()
}

func (p *parser) compare() (expr, error) {
	line := p.peek().line
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	n := exprCompare{first: first, line: line}
	for {
		t := p.peek()
		op := t.text
		switch {
		case t.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
			p.at++
		case p.is(tokName, "in"):
			p.at++
		case p.is(tokName, "not") && p.tokens[p.at+1].kind == tokName && p.tokens[p.at+1].text == "in":
			p.at += 2
			op = "not in"
		default:
			if len(n.ops) == 0 {
				return first, nil
			}
			return n, nil
		}
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		n.ops, n.rest = append(n.ops, op), append(n.rest, x)
	}
}

// binary reads operands of next with one of ops between.
func (p *parser) binary(next func() (expr, error), ops ...string) (expr, error) {
	a, err := next()
	for err == nil {
		t := p.peek()
		if t.kind != tokOp || !slices.Contains(ops, t.text) {
			break
		}
		p.at++
		var b expr
		b, err = next()
		a = exprBinary{t.text, a, b, t.line}
	}
	return a, err
}

func (p *parser) sum() (expr, error)     { return p.binary(p.joined, "+", "-") }
func (p *parser) joined() (expr, error)  { return p.binary(p.product, "~") }
func (p *parser) product() (expr, error) { return p.binary(p.power, "*", "/", "//", "%") }
func (p *parser) power() (expr, error) {
	return p.binary(func() (expr, error) { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) (expr, error) {
	t := p.peek()
	if t.kind == tokOp && (t.text == "-" || t.text == "+") {
		p.at++
		x, err := p.unary(false)
		if err != nil {
			return nil, err
		}
		x = exprNeg{x, t.text == "+", t.line}
		if filters {
			return p.filtered(x)
		}
		return x, nil
	}
	x, err := p.primary()
	if err != nil {
		return nil, err
	}
	if x, err = p.postfix(x); err != nil || !filters {
		return x, err
	}
	return p.filtered(x)
}

func (p *parser) primary() (expr, error) {
	t := p.take()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return exprConst{true}, nil
		case "false", "False":
			return exprConst{false}, nil
		case "none", "None":
			return exprConst{nil}, nil
		}
		p.t.names[t.text] = true
		if !p.own[t.text] {
			p.t.vars[t.text] = true
		}
		return exprName{t.text}, nil
	case tokString:
		s := t.text
		for p.peek().kind == tokString {
			s += p.take().text
		}
		p.t.names[s] = true
		return exprConst{lit(s)}, nil
	case tokInt:
		text := strings.TrimLeft(t.text, "0")
		if text == "" {
			text = "0"
		}
		return exprConst{Number{Text: text}}, nil
	case tokFloat:
		return exprConst{float(Number{Text: t.text}.float())}, nil
	case tokOp:
		switch t.text {
		case "(":
			if p.skipIf(tokOp, ")") {
				return exprList{tuple: true}, nil
			}
			x, err := p.tuple(true)
			if err != nil {
				return nil, err
			}
			return x, p.want(tokOp, ")")
		case "[":
			items, err := p.items("]")
			return exprList{items: items}, err
		case "{":
			return p.dict()
		}
	}
	return nil, p.fail(t.line, "want a value, got %s", describe(t))
}

// items reads expressions up to a closing bracket.
func (p *parser) items(end string) ([]expr, error) {
	var out []expr
	for !p.skipIf(tokOp, end) {
		x, err := p.expr()
		if err != nil {
			return nil, err
		}
		out = append(out, x)
		if !p.is(tokOp, end) {
			if err := p.want(tokOp, ","); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (p *parser) dict() (expr, error) {
	var n exprDict
	for !p.skipIf(tokOp, "}") {
		k, err := p.expr()
		if err != nil {
			return nil, err
		}
		if err := p.want(tokOp, ":"); err != nil {
			return nil, err
		}
		v, err := p.expr()
		if err != nil {
			return nil, err
		}
		n.keys, n.values = append(n.keys, k), append(n.values, v)
		if !p.is(tokOp, "}") {
			if err := p.want(tokOp, ","); err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

// postfix reads attributes, items and calls.
func (p *parser) postfix(x expr) (expr, error) {
	for {
		t := p.peek()
		if t.kind != tokOp {
			return x, nil
		}
		switch t.text {
		case ".":
			p.at++
			name := p.take()
			switch name.kind {
			case tokName:
				p.t.names[name.text] = true
				x = exprAttr{x, name.text, t.line}
			case tokInt:
				x = exprItem{x, exprConst{Number{Text: name.text}}, t.line}
			default:
				return nil, p.fail(name.line, "want a name after the dot, got %s", describe(name))
			}
		case "[":
			p.at++
			var err error
			if x, err = p.subscript(x, t.line); err != nil {
				return nil, err
			}
		case "(":
			a, err := p.args()
			if err != nil {
				return nil, err
			}
			x = exprCall{x, a, t.line}
		default:
			return x, nil
		}
	}
}

// subscript reads an item or a slice whose bracket is open.
func (p *parser) subscript(of expr, line int) (expr, error) {
	var parts [3]expr
	n := 0
	for !p.skipIf(tokOp, "]") {
		if p.skipIf(tokOp, ":") {
			if n++; n > 2 {
				return nil, p.fail(line, "a slice has three parts at most")
			}
			continue
		}
		if parts[n] != nil {
			return nil, p.fail(line, "want ], got %s", describe(p.peek()))
		}
		x, err := p.expr()
		if err != nil {
			return nil, err
		}
		parts[n] = x
	}
	if n == 0 {
		if parts[0] == nil {
			return nil, p.fail(line, "nothing between [ and ]")
		}
		return exprItem{of, parts[0], line}, nil
	}
	return exprSlice{of, parts[0], parts[1], parts[2], line}, nil
}

// args reads the arguments of a call.
func (p *parser) args() (args, error) {
	var a args
	if err := p.want(tokOp, "("); err != nil {
		return a, err
	}
	for !p.skipIf(tokOp, ")") {
		if t := p.peek(); t.kind == tokName && p.tokens[p.at+1].kind == tokOp && p.tokens[p.at+1].text == "=" {
			p.at += 2
			x, err := p.expr()
			if err != nil {
				return a, err
			}
			a.names, a.named = append(a.names, t.text), append(a.named, x)
		} else {
			x, err := p.expr()
			if err != nil {
				return a, err
			}
			a.list = append(a.list, x)
		}
		if !p.is(tokOp, ")") {
			if err := p.want(tokOp, ","); err != nil {
				return a, err
			}
		}
	}
	return a, nil
}

// filtered reads filters, tests and calls behind an expression.
func (p *parser) filtered(x expr) (expr, error) {
	for {
		switch {
		case p.skipIf(tokOp, "|"):
			use, err := p.filterUse()
			if err != nil {
				return nil, err
			}
			x = exprFilter{x, use}
		case p.is(tokName, "is"):
			var err error
			if x, err = p.test(x); err != nil {
				return nil, err
			}
		case p.is(tokOp, "("):
			line := p.peek().line
			a, err := p.args()
			if err != nil {
				return nil, err
			}
			x = exprCall{x, a, line}
		default:
			return x, nil
		}
	}
}

// filterUse reads a filter's name and arguments, the | behind.
func (p *parser) filterUse() (filterUse, error) {
	t := p.take()
	use := filterUse{name: t.text, line: t.line}
	if t.kind != tokName || p.t.filters[t.text] == nil {
		return use, p.fail(t.line, "there is no filter %s", describe(t))
	}
	if !p.is(tokOp, "(") {
		return use, nil
	}
	var err error
	use.args, err = p.args()
	return use, err
}

func (p *parser) filters(uses []filterUse) ([]filterUse, error) {
	for p.skipIf(tokOp, "|") {
		use, err := p.filterUse()
		if err != nil {
			return nil, err
		}
		uses = append(uses, use)
	}
	return uses, nil
}

// test reads `is [not] NAME [ARGS]`.
func (p *parser) test(of expr) (expr, error) {
	p.at++
	n := exprTest{of: of, not: p.skipIf(tokName, "not")}
	t := p.take()
	n.name, n.line = t.text, t.line
	if t.kind != tokName || p.t.tests[t.text] == nil {
		return nil, p.fail(t.line, "there is no test %s", describe(t))
	}
	next := p.peek()
	var err error
	switch {
	case p.is(tokOp, "("):
		n.args, err = p.args()
	case next.kind == tokString, next.kind == tokInt, next.kind == tokFloat, p.is(tokOp, "["), p.is(tokOp, "{"),
		next.kind == tokName && !slices.Contains([]string{"else", "or", "and", "is", "if", "not", "in", "recursive"}, next.text):
		var x expr
		if x, err = p.primary(); err == nil {
			x, err = p.postfix(x)
		}
		n.args.list = []expr{x}
	}
	return n, err
}
