package pipeline

import (
	"fmt"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// exprError is a finding at character at of an expression.
type exprError struct {
	at                  int
	code, message, hint string
}

// checker finds the type of an expression, and all that would fail or
// surprise at run time: expr itself lets null through and knows no enums.
type checker struct {
	scope  *scope
	errs   []exprError
	locals []map[string]*Type
	items  []*Type // of `#`, innermost last
	// known are paths that a condition has shown not to be null.
	known map[string]bool
	short []bool // whether a ?. of the chain around may stop it
	reads []string
	// compared are the comparisons of enums with their values.
	compared []comparison
}

// comparison is one of an enum at a path, such as review.output.verdict, with
// one of its values.
type comparison struct {
	path  string
	enum  []string
	value string
}

func (c *checker) fail(n ast.Node, code, hint, format string, args ...any) *Type {
	c.errs = append(c.errs, exprError{n.Location().From, code, fmt.Sprintf(format, args...), hint})
	return anyType
}

// infer is the type of a node. It may be optional: who reads it says whether
// that will do.
func (c *checker) infer(node ast.Node) *Type {
	switch n := node.(type) {
	case nil:
		return anyType
	case *ast.NilNode:
		return nullType
	case *ast.BoolNode:
		return boolType
	case *ast.IntegerNode:
		return integerType
	case *ast.FloatNode:
		return numberType
	case *ast.StringNode:
		return enumOf(n.Value)
	case *ast.IdentifierNode:
		c.read(n)
		return c.identifier(n)
	case *ast.MemberNode:
		c.read(n)
		return c.member(n)
	case *ast.ChainNode:
		return c.chain(n)
	case *ast.SliceNode:
		return c.slice(n)
	case *ast.UnaryNode:
		return c.unary(n)
	case *ast.BinaryNode:
		return c.binary(n)
	case *ast.ConditionalNode:
		return c.conditional(n)
	case *ast.BuiltinNode:
		return c.builtin(n)
	case *ast.CallNode:
		return c.call(n)
	case *ast.VariableDeclaratorNode:
		v := c.value(n.Value)
		c.locals = append(c.locals, map[string]*Type{n.Name: v})
		defer func() { c.locals = c.locals[:len(c.locals)-1] }()
		return c.infer(n.Expr)
	case *ast.SequenceNode:
		t := anyType
		for _, s := range n.Nodes {
			t = c.infer(s)
		}
		return t
	case *ast.ArrayNode:
		return c.array(n)
	case *ast.MapNode:
		return c.object(n)
	case *ast.PointerNode:
		return c.pointer(n)
	}
	return anyType
}

// value is the type of a node that is read as it is: it must not be missing.
func (c *checker) value(n ast.Node) *Type {
	t := c.infer(n)
	if t.optional {
		path := pathOf(n)
		if path != "" && c.known[path] {
			return t.present()
		}
		c.fail(n, "optional", fmt.Sprintf("give a value for that case: (%s ?? ...)", show(n)),
			"%s may be missing%s", show(n), because(t))
		return t.present()
	}
	return t
}

// solid is the type of a node that must not be null either.
func (c *checker) solid(n ast.Node, where string) *Type {
	t := c.infer(n)
	if !t.nullable && !t.optional {
		return t
	}
	if path := pathOf(n); path != "" && c.known[path] {
		return t.present()
	}
	if t.base == tNull {
		c.fail(n, "nullable", "", "nil can't be used %s", where)
		return anyType
	}
	c.fail(n, "nullable", fmt.Sprintf("give a value for that case: (%s ?? ...)", show(n)),
		"%s may be nil%s and is used %s", show(n), because(t), where)
	return t.present()
}

func show(n ast.Node) string {
	s := strings.ReplaceAll(n.String(), `"`, "'")
	if len(s) > 60 {
		return "this"
	}
	return s
}

func (c *checker) identifier(n *ast.IdentifierNode) *Type {
	name := n.Value
	for i := len(c.locals) - 1; i >= 0; i-- {
		if t, ok := c.locals[i][name]; ok {
			return t
		}
	}
	if c.scope.broken[name] {
		return anyType // that of a repeated id may be either's
	}
	if t, ok := c.scope.vars[name]; ok {
		return t
	}
	switch {
	case c.scope.apart[name]:
		return c.fail(n, "scope", "read 'task' or 'run'; the judger itself is shown each rollout with its stages",
			"'%s' differs from one sample to the next, and a stage with 'scope: group' is given its settings once for all of them", name)
	case name == c.scope.self:
		return c.fail(n, "order", "", "stage '%s' can't read its own result", name)
	case c.scope.later[name]:
		return c.fail(n, "order", "move it above this one, or read an earlier stage", "stage '%s' runs later, so it has no result here", name)
	}
	if c.scope.reported(name) {
		return anyType
	}
	hint := suggest("there are: ", name, c.scope.names())
	return c.fail(n, "unknown-name", hint, "unknown name '%s'", name)
}

// member is a.b, a?.b or a[0].
func (c *checker) member(n *ast.MemberNode) *Type {
	of := c.infer(n.Node)
	if (of.nullable || of.optional) && !c.known[pathOf(n.Node)] {
		switch {
		case n.Optional:
			if len(c.short) > 0 {
				c.short[len(c.short)-1] = true
			}
		case of.base == tNull:
			return c.fail(n, "nullable", "", "nil has no fields")
		default:
			c.fail(n.Node, "optional", fmt.Sprintf("read it with ?. (%s?.%s), and give a value for that case where one is needed (%[1]s?.%[2]s ?? ...)", show(n.Node), propertyName(n)),
				"%s may be %s%s", show(n.Node), missing(of), because(of))
		}
	}
	of = of.present()
	name, isName := n.Property.(*ast.StringNode)
	if !isName {
		return c.index(n, of)
	}
	switch of.base {
	case tAny:
		return anyType
	case tObject:
	default:
		return c.fail(n.Property, "unknown-field", "", "%s is %s and has no field '%s'", show(n.Node), of.a(), name.Value)
	}
	t := of.field(name.Value)
	if t == nil {
		t = of.rest
		if t == nil {
			return c.fail(n.Property, "unknown-field", fieldHint(name.Value, of.names()), "%s has no field '%s'", show(n.Node), name.Value)
		}
		t = t.asOptional("the object may not have it")
		if of.rest.base == tAny && len(of.fields) == 0 {
			t = anyType // an object of which nothing is known
		}
	}
	if t.optional && n.Optional {
		return t.orNull(t.why)
	}
	return t
}

// fieldHint names the near one and all that there are.
func fieldHint(got string, names []string) string {
	hint := suggest("", got, names)
	if !strings.HasSuffix(hint, "?") {
		hint = ""
	}
	if len(names) == 0 || len(names) > 24 {
		return hint
	}
	return strings.TrimSpace(hint + " it has: " + strings.Join(names, ", "))
}

func missing(t *Type) string {
	if t.optional {
		return "missing"
	}
	return "nil"
}

func propertyName(n *ast.MemberNode) string {
	if s, ok := n.Property.(*ast.StringNode); ok {
		return s.Value
	}
	return "[" + n.Property.String() + "]"
}

// index is a[i] with an i that is no literal text.
func (c *checker) index(n *ast.MemberNode, of *Type) *Type {
	i := c.solid(n.Property, "as an index")
	switch of.base {
	case tList:
		if i.base != tInteger && i.base != tAny {
			return c.fail(n.Property, "type", "", "a list is indexed by an integer, this is %s", i.a())
		}
		if of.elem == nil {
			return anyType
		}
		return of.elem
	case tObject:
		if i.base != tString && i.base != tAny {
			return c.fail(n.Property, "type", "", "an object is indexed by text, this is %s", i.a())
		}
		return anyType.orNull("the object may not have it")
	case tAny:
		return anyType
	case tString:
		return stringType
	}
	return c.fail(n, "type", "", "%s is %s and has no items", show(n.Node), of.a())
}

func (c *checker) chain(n *ast.ChainNode) *Type {
	c.short = append(c.short, false)
	t := c.infer(n.Node)
	stopped := c.short[len(c.short)-1]
	c.short = c.short[:len(c.short)-1]
	if stopped && !t.optional {
		return t.orNull("")
	}
	if stopped {
		return t.orNull(t.why)
	}
	return t
}

func (c *checker) slice(n *ast.SliceNode) *Type {
	t := c.solid(n.Node, "as a list")
	for _, bound := range []ast.Node{n.From, n.To} {
		if bound != nil {
			c.want(bound, tInteger, "as a bound")
		}
	}
	if t.base != tList && t.base != tString && t.base != tAny {
		return c.fail(n, "type", "", "%s is %s, want a list or a string", show(n.Node), t.a())
	}
	if t.base == tString {
		return stringType
	}
	return t
}

// want checks that a node is of a kind, and not null.
func (c *checker) want(n ast.Node, b base, where string) *Type {
	t := c.solid(n, where)
	if t.base == tAny || t.base == b || b == tNumber && t.base == tInteger {
		return t
	}
	return c.fail(n, "type", "", "%s is %s, want %s %s", show(n), t.a(), (&Type{base: b}).a(), where)
}

func (c *checker) unary(n *ast.UnaryNode) *Type {
	if n.Operator == "not" || n.Operator == "!" {
		c.want(n.Node, tBool, "with "+n.Operator)
		return boolType
	}
	return c.want(n.Node, tNumber, "in arithmetic")
}

func (c *checker) conditional(n *ast.ConditionalNode) *Type {
	c.want(n.Cond, tBool, "as a condition")
	yes, no := facts(n.Cond, true), facts(n.Cond, false)
	a := c.under(yes, func() *Type { return c.value(n.Exp1) })
	b := c.under(no, func() *Type { return c.value(n.Exp2) })
	return union(a, b)
}

// under infers with more paths known not to be null.
func (c *checker) under(paths []string, infer func() *Type) *Type {
	before := c.known
	c.known = make(map[string]bool, len(before)+len(paths))
	for p := range before {
		c.known[p] = true
	}
	for _, p := range paths {
		c.known[p] = true
	}
	defer func() { c.known = before }()
	return infer()
}

// facts are the paths that aren't null when the condition is as said.
func facts(n ast.Node, is bool) []string {
	switch t := n.(type) {
	case *ast.UnaryNode:
		if t.Operator == "not" || t.Operator == "!" {
			return facts(t.Node, !is)
		}
	case *ast.BinaryNode:
		switch t.Operator {
		case "&&", "and":
			if is {
				return append(facts(t.Left, true), facts(t.Right, true)...)
			}
		case "||", "or":
			if !is {
				return append(facts(t.Left, false), facts(t.Right, false)...)
			}
		case "!=", "==":
			if (t.Operator == "!=") == is {
				if isNil(t.Right) {
					return prefixes(pathOf(t.Left))
				}
				if isNil(t.Left) {
					return prefixes(pathOf(t.Right))
				}
			}
		}
	}
	return nil
}

func isNil(n ast.Node) bool {
	_, ok := n.(*ast.NilNode)
	return ok
}

func prefixes(path string) []string {
	if path == "" {
		return nil
	}
	out := []string{path}
	for i := len(path) - 1; i > 0; i-- {
		if path[i] == '.' {
			out = append(out, path[:i])
		}
	}
	return out
}

// pathOf is a.b.c for a chain of names, however it is read; "" for all else.
func pathOf(n ast.Node) string {
	switch t := n.(type) {
	case *ast.IdentifierNode:
		return t.Value
	case *ast.ChainNode:
		return pathOf(t.Node)
	case *ast.MemberNode:
		name, ok := t.Property.(*ast.StringNode)
		before := pathOf(t.Node)
		if ok && before != "" && !t.Method {
			return before + "." + name.Value
		}
	}
	return ""
}

// read notes what is read, the longest path of it.
func (c *checker) read(n ast.Node) {
	path := pathOf(n)
	if path == "" {
		return
	}
	for _, r := range c.reads {
		if r == path || strings.HasPrefix(r, path+".") {
			return
		}
	}
	c.reads = append(c.reads, path)
}

func (c *checker) array(n *ast.ArrayNode) *Type {
	var elem *Type
	for _, item := range n.Nodes {
		t := c.value(item)
		if elem == nil {
			elem = t
		} else {
			elem = union(elem, t)
		}
	}
	return listOf(elem)
}

func (c *checker) object(n *ast.MapNode) *Type {
	var fields []Field
	var rest *Type
	for _, p := range n.Pairs {
		pair, ok := p.(*ast.PairNode)
		if !ok {
			continue
		}
		t := c.value(pair.Value)
		if key, ok := pair.Key.(*ast.StringNode); ok {
			fields = append(fields, Field{key.Value, t})
		} else {
			c.value(pair.Key)
			rest = anyType
		}
	}
	return objectOf(rest, fields...)
}

func (c *checker) pointer(n *ast.PointerNode) *Type {
	switch {
	case n.Name == "index":
		return integerType
	case n.Name != "" || len(c.items) == 0:
		return anyType
	}
	return c.items[len(c.items)-1]
}
