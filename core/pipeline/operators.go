package pipeline

import (
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
)

func (c *checker) binary(n *ast.BinaryNode) *Type {
	switch n.Operator {
	case "??":
		left := c.infer(n.Left)
		right := c.value(n.Right)
		if left.base == tNull {
			return right
		}
		return union(left.present(), right)
	case "&&", "and", "||", "or":
		c.want(n.Left, tBool, "with "+n.Operator)
		is := n.Operator == "&&" || n.Operator == "and"
		c.under(facts(n.Left, is), func() *Type { return c.want(n.Right, tBool, "with "+n.Operator) })
		return boolType
	case "==", "!=":
		return c.equality(n)
	case "<", "<=", ">", ">=":
		return c.order(n)
	case "in":
		return c.in(n)
	case "contains", "startsWith", "endsWith", "matches":
		c.want(n.Left, tString, "with "+n.Operator)
		c.want(n.Right, tString, "with "+n.Operator)
		return boolType
	case "..":
		c.want(n.Left, tInteger, "as a bound")
		c.want(n.Right, tInteger, "as a bound")
		return listOf(integerType)
	case "%":
		c.want(n.Left, tInteger, "with %")
		c.want(n.Right, tInteger, "with %")
		return integerType
	case "+":
		return c.plus(n)
	}
	l, r := c.want(n.Left, tNumber, "in arithmetic"), c.want(n.Right, tNumber, "in arithmetic")
	if l.base == tInteger && r.base == tInteger && (n.Operator == "-" || n.Operator == "*") {
		return integerType
	}
	return numberType
}

func (c *checker) plus(n *ast.BinaryNode) *Type {
	l, r := c.solid(n.Left, "in arithmetic"), c.solid(n.Right, "in arithmetic")
	switch {
	case l.base == tAny || r.base == tAny:
		return anyType
	case l.base == tString && r.base == tString:
		return stringType
	case l.base == tInteger && r.base == tInteger:
		return integerType
	case numeric(l) && numeric(r):
		return numberType
	}
	hint := ""
	if l.base == tString || r.base == tString {
		hint = "turn the other one into text: string(...)"
	}
	return c.fail(n, "type", hint, "%s and %s can't be added", l.a(), r.a())
}

func numeric(t *Type) bool { return t.base == tInteger || t.base == tNumber }

// equality is == and !=: with nil anything goes, else both sides must have a
// value, kinds that can be equal, and literals that can occur.
func (c *checker) equality(n *ast.BinaryNode) *Type {
	if isNil(n.Left) || isNil(n.Right) {
		c.infer(n.Left)
		c.infer(n.Right)
		return boolType
	}
	l, r := c.solid(n.Left, "in a comparison"), c.solid(n.Right, "in a comparison")
	if l.base != tAny && r.base != tAny && l.base != r.base && !(numeric(l) && numeric(r)) {
		c.fail(n, "type", "", "%s is %s and %s is %s: they are never equal", show(n.Left), l.a(), show(n.Right), r.a())
		return boolType
	}
	c.literal(l, n.Left, n.Right)
	c.literal(r, n.Right, n.Left)
	return boolType
}

// literal checks that a literal that value, of a type, is compared with is one
// of the values of its enum.
func (c *checker) literal(t *Type, value, n ast.Node) {
	lit, ok := n.(*ast.StringNode)
	if !ok || t.base != tString || !t.isEnum {
		return
	}
	if path := pathOf(value); path != "" {
		c.compared = append(c.compared, comparison{path, t.enum, lit.Value})
	}
	if contains(t.enum, lit.Value) {
		return
	}
	hint := ""
	if near := nearest(lit.Value, t.enum); near != "" {
		hint = "did you mean '" + near + "'?"
	}
	c.fail(n, "enum", hint, "'%s' is never the value: want one of %s", lit.Value, quoteAll(t.enum, ", "))
}

func (c *checker) order(n *ast.BinaryNode) *Type {
	l, r := c.solid(n.Left, "in a comparison"), c.solid(n.Right, "in a comparison")
	ok := func(t *Type) bool { return t.base == tAny || t.base == tString || numeric(t) }
	if !ok(l) || !ok(r) || l.base != tAny && r.base != tAny && numeric(l) != numeric(r) {
		c.fail(n, "type", "", "%s and %s have no order", l.a(), r.a())
	}
	return boolType
}

func (c *checker) in(n *ast.BinaryNode) *Type {
	l, r := c.solid(n.Left, "in a comparison"), c.solid(n.Right, "in a comparison")
	switch r.base {
	case tAny, tObject:
		return boolType
	case tList:
	default:
		c.fail(n, "type", "use contains for text in text", "%s is %s, want a list", show(n.Right), r.a())
		return boolType
	}
	if a, ok := n.Right.(*ast.ArrayNode); ok {
		for _, item := range a.Nodes {
			c.literal(l, n.Left, item)
		}
	} else if r.elem != nil {
		c.literal(r.elem, n.Right, n.Left)
	}
	if e := r.elem; e != nil && l.base != tAny && e.base != tAny && e.base != tNull && l.base != e.base && !(numeric(l) && numeric(e)) {
		c.fail(n, "type", "", "%s is %s and the list holds %s: it is never in it", show(n.Left), l.a(), e.a())
	}
	return boolType
}

// call is f(x) of a function that isn't expr's own: there is only fence.
func (c *checker) call(n *ast.CallNode) *Type {
	if callee, ok := n.Callee.(*ast.IdentifierNode); ok && callee.Value == fenceName {
		if len(n.Arguments) != 1 {
			return c.fail(n, "type", "", "fence() takes one text, this gives it %d values", len(n.Arguments))
		}
		c.want(n.Arguments[0], tString, "by fence()")
		return stringType
	}
	for _, a := range n.Arguments {
		c.infer(a)
	}
	switch callee := n.Callee.(type) {
	case *ast.IdentifierNode:
		return c.fail(n, "unknown-name", suggest("", callee.Value, functionNames()), "there is no function '%s'", callee.Value)
	case *ast.MemberNode:
		return c.fail(n, "unknown-name", "", "values have no methods")
	}
	return c.fail(n, "type", "", "this can't be called")
}

func functionNames() []string {
	out := []string{fenceName}
	for _, b := range builtin.Builtins {
		if b.Name != "now" {
			out = append(out, b.Name)
		}
	}
	return out
}

// signature is what is known of a function: the kind of its first argument
// and its result. A result of tAny means that it is not known.
type signature struct{ first, result base }

var signatures = map[string]signature{
	"trim": {tString, tString}, "trimPrefix": {tString, tString}, "trimSuffix": {tString, tString},
	"upper": {tString, tString}, "lower": {tString, tString}, "replace": {tString, tString}, "repeat": {tString, tString},
	"hasPrefix": {tString, tBool}, "hasSuffix": {tString, tBool}, "indexOf": {tString, tInteger}, "lastIndexOf": {tString, tInteger},
	"toBase64": {tString, tString}, "fromBase64": {tString, tString}, "fromJSON": {tString, tAny}, "toJSON": {tAny, tString},
	"abs": {tNumber, tNumber}, "ceil": {tNumber, tNumber}, "floor": {tNumber, tNumber}, "round": {tNumber, tNumber},
	"int": {tAny, tInteger}, "float": {tAny, tNumber}, "string": {tAny, tString}, "type": {tAny, tString},
	"len": {tAny, tInteger}, "join": {tList, tString}, "sum": {tList, tNumber}, "mean": {tAny, tNumber}, "median": {tAny, tNumber},
	"max": {tAny, tNumber}, "min": {tAny, tNumber}, "count": {tList, tInteger},
	"all": {tList, tBool}, "any": {tList, tBool}, "none": {tList, tBool}, "one": {tList, tBool},
	"keys": {tObject, tAny}, "values": {tObject, tAny}, "findIndex": {tList, tAny}, "findLastIndex": {tList, tAny},
	"groupBy": {tList, tAny}, "reduce": {tList, tAny}, "toPairs": {tObject, tAny}, "fromPairs": {tList, tAny}, "flatten": {tList, tAny},
}

func (c *checker) builtin(n *ast.BuiltinNode) *Type {
	if n.Name == "now" {
		return c.fail(n, "unknown-name", "", "there is no function 'now': what is read must be the same when a run is resumed")
	}
	where := "by " + n.Name + "()"
	sig, known := signatures[n.Name]
	var first, pred *Type
	for i, a := range n.Arguments {
		if p, ok := a.(*ast.PredicateNode); ok {
			pred = c.predicate(n.Name, p, first)
			continue
		}
		switch {
		case i == 0 && n.Name == "get":
			first = c.infer(a)
		case i == 0 && known && sig.first != tAny:
			first = c.want(a, sig.first, where)
		default:
			t := c.solid(a, where)
			if i == 0 {
				first = t
			}
		}
	}
	return c.result(n, sig, known, first, pred)
}

func (c *checker) predicate(name string, p *ast.PredicateNode, of *Type) *Type {
	elem := anyType
	if of != nil && of.base == tList && of.elem != nil {
		elem = of.elem
	}
	c.items = append(c.items, elem)
	defer func() { c.items = c.items[:len(c.items)-1] }()
	switch name {
	case "all", "any", "none", "one", "filter", "find", "findIndex", "findLast", "findLastIndex", "count":
		return c.want(p.Node, tBool, "as a condition")
	}
	return c.value(p.Node)
}

func (c *checker) result(n *ast.BuiltinNode, sig signature, known bool, first, pred *Type) *Type {
	switch n.Name {
	case "filter", "sortBy", "sort", "reverse", "uniq", "take":
		if first != nil {
			return first
		}
	case "map":
		return listOf(pred)
	case "split", "splitAfter":
		return listOf(stringType)
	case "find", "findLast", "first", "last":
		if first != nil && first.base == tList && first.elem != nil {
			return first.elem.orNull("there may be none")
		}
		return anyType.orNull("there may be none")
	case "get":
		return anyType.orNull("there may be none")
	case "len":
		if first != nil && first.base != tAny && first.base != tString && first.base != tList && first.base != tObject {
			return c.fail(n, "type", "", "%s has no length", first.a())
		}
	case "keys":
		return listOf(stringType)
	}
	if !known || sig.result == tAny {
		return anyType
	}
	if sig.result == tNumber && strings.Contains("abs max min sum", n.Name) && first != nil && first.base == tInteger {
		return integerType
	}
	return &Type{base: sig.result}
}
