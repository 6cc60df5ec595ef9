package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"go.yaml.in/yaml/v3"
)

// span is a piece of a text: plain, or the inside of ${{ }} with the
// character at which it begins.
type span struct {
	text  string
	expr  bool
	start int
}

const (
	opening = "${{"
	closing = "}}"
)

// spans cuts a text at its ${{ }}. The error is about character at.
func spans(s string) (out []span, at int, err error) {
	done := 0 // bytes of s
	for {
		i := strings.Index(s[done:], opening)
		if i < 0 {
			if done < len(s) || len(out) == 0 {
				out = append(out, span{text: s[done:]})
			}
			return out, 0, nil
		}
		if i > 0 {
			out = append(out, span{text: s[done : done+i]})
		}
		from := done + i + len(opening)
		n := closed(s[from:])
		if n < 0 {
			return nil, utf8.RuneCountInString(s[:done+i]), errors.New("this ${{ has no }}")
		}
		out = append(out, span{text: s[from : from+n], expr: true, start: utf8.RuneCountInString(s[:from])})
		done = from + n + len(closing)
		if done == len(s) {
			return out, 0, nil
		}
	}
}

// closed finds the }} that ends an expression: one that is neither in quotes
// nor closes the expression's own braces.
func closed(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\'', '`':
			n := quoteEnd(s[i+1:], c)
			if n < 0 {
				return strings.Index(s, closing) // the parser says what is wrong with it
			}
			i += n + 1
		case '{':
			depth++
		case '}':
			if depth == 0 {
				if strings.HasPrefix(s[i:], closing) {
					return i
				}
				continue
			}
			depth--
		}
	}
	return -1
}

func quoteEnd(s string, quote byte) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote != '`':
			i++
		case s[i] == quote:
			return i
		}
	}
	return -1
}

// maxExpr bounds an expression, in bytes.
const maxExpr = 16 << 10

// compile checks and compiles the expression in s, a piece of n. It returns
// nil after an error, which it reports. reader says who reads, for the graph.
func (c *check) compile(n *yaml.Node, s span, sc *scope, reader reader) (*Expr, *Type) {
	f := c.f
	fail := func(at int, code, hint, format string, args ...any) {
		f.errorf(f.within(n, s.start+at), code, hint, format, args...)
	}
	lead := utf8.RuneCountInString(s.text) - utf8.RuneCountInString(strings.TrimLeft(s.text, " \t\r\n"))
	switch {
	case strings.TrimSpace(s.text) == "":
		fail(0, "expression", "", "the expression is empty")
		return nil, nil
	case len(s.text) > maxExpr:
		fail(lead, "expression", "", "the expression is longer than %d bytes", maxExpr)
		return nil, nil
	case reference.MatchString(s.text):
		fail(lead, "expression", "write it outside of ${{ }}", "${env:} and ${file:} can't be read inside an expression")
		return nil, nil
	}
	tree, err := parser.Parse(s.text)
	if err != nil && sc.misnamed(s.text) {
		return nil, nil // an id that is a word of the language was reported
	}
	if err != nil {
		at, message := exprProblem(err)
		fail(at, "expression", exprHint(s.text), "%s", message)
		return nil, nil
	}
	ck := &checker{scope: sc}
	t := ck.value(tree.Node)
	for _, e := range ck.errs {
		fail(max(e.at, lead), e.code, e.hint, "%s", e.message)
	}
	c.note(reader, ck.reads, sc)
	c.compared = append(c.compared, ck.compared...)
	if len(ck.errs) > 0 {
		return nil, nil
	}
	program, err := expr.Compile(s.text, expr.AllowUndefinedVariables(), expr.DisableBuiltin("now"), fenceFunction)
	if err != nil && sc.misnamed(s.text) {
		return nil, nil // an id that is a word of the language was reported
	}
	if err != nil {
		at, message := exprProblem(err)
		fail(max(at, lead), "expression", "", "%s", message)
		return nil, nil
	}
	p := f.within(n, s.start+lead)
	out := &Expr{source: strings.TrimSpace(s.text), where: where(p), program: program, names: identifiers(tree.Node, sc)}
	out.path = pathSteps(tree.Node, sc)
	return out, t
}

func where(p pos) string {
	if p.src.set {
		return p.src.name
	}
	return fmt.Sprintf("%s:%d:%d", p.src.name, p.line, p.col)
}

func exprProblem(err error) (at int, message string) {
	var e *file.Error
	if !errors.As(err, &e) {
		return 0, firstLine(err.Error())
	}
	message = e.Message
	if i := strings.LastIndex(message, "unexpected token EOF"); i >= 0 {
		message = "the expression ends too early"
	}
	return e.From, firstLine(message)
}

func exprHint(s string) string {
	plain := strings.NewReplacer("==", "", "!=", "", "<=", "", ">=", "").Replace(s)
	if strings.Contains(plain, "=") && !strings.Contains(plain, "let ") {
		return "to compare, write =="
	}
	return ""
}

// identifiers are the names of the scope that an expression uses.
func identifiers(n ast.Node, sc *scope) []string {
	v := &identVisitor{scope: sc, seen: map[string]bool{}}
	ast.Walk(&n, v)
	return v.names
}

type identVisitor struct {
	scope *scope
	seen  map[string]bool
	names []string
}

// Visit implements ast.Visitor.
func (v *identVisitor) Visit(n *ast.Node) {
	id, ok := (*n).(*ast.IdentifierNode)
	if ok && v.scope.vars[id.Value] != nil && !v.seen[id.Value] {
		v.seen[id.Value] = true
		v.names = append(v.names, id.Value)
	}
}

// pathSteps is set for an expression that only walks into a value.
func pathSteps(n ast.Node, sc *scope) []step {
	switch t := n.(type) {
	case *ast.IdentifierNode:
		if sc.vars[t.Value] != nil {
			return []step{}
		}
	case *ast.ChainNode:
		return pathSteps(t.Node, sc)
	case *ast.MemberNode:
		before := pathSteps(t.Node, sc)
		if before == nil || t.Method {
			return nil
		}
		switch p := t.Property.(type) {
		case *ast.StringNode:
			return append(before, step{key: p.Value, optional: t.Optional})
		case *ast.IntegerNode:
			return append(before, step{index: p.Value, isIndex: true, optional: t.Optional})
		}
	}
	return nil
}

// reader is who reads a value, and where.
type reader struct {
	stage string // "" for the pipeline itself
	where string // with.prompt, if, reward
}

// Read is one value that an expression reads.
type Read struct {
	Stage string `json:"stage,omitempty"` // who reads; "" is the pipeline
	Where string `json:"where"`           // with.prompt, if, reward
	From  string `json:"from"`            // the stage that wrote it, or task, rollout, run
	Value string `json:"value"`           // answer.output.reward
}

func (c *check) note(r reader, paths []string, sc *scope) {
	for _, p := range paths {
		from, _, _ := strings.Cut(p, ".")
		if sc.vars[from] != nil {
			c.reads = append(c.reads, Read{Stage: r.stage, Where: r.where, From: from, Value: p})
		}
	}
}

// expression compiles the value of a key that is one expression as a whole.
func (c *check) expression(n *yaml.Node, sc *scope, r reader, want *Type) *Expr {
	parts, at, err := spans(n.Value)
	if err != nil {
		c.f.errorf(c.f.within(n, at), "expression", "", "%s", err)
		return nil
	}
	if len(parts) != 1 || !parts[0].expr {
		c.f.errorf(c.f.at(n), "expression", `write one: "${{ ... }}"`, "'%s' is one expression, without text around it", r.where)
		return nil
	}
	e, t := c.compile(n, parts[0], sc, r)
	if e == nil {
		return nil
	}
	if m := misfit(t, want); m != "" {
		c.f.errorf(c.exprStart(n, parts[0]), "type", c.fitHint(t, want, e), "'%s': %s", r.where, m)
		return nil
	}
	return e
}

func (c *check) exprStart(n *yaml.Node, s span) pos {
	lead := utf8.RuneCountInString(s.text) - utf8.RuneCountInString(strings.TrimLeft(s.text, " \t\r\n"))
	return c.f.within(n, s.start+lead)
}

func (c *check) fitHint(from, to *Type, e *Expr) string {
	switch {
	case from.nullable && !to.nullable:
		return fmt.Sprintf("give a value for that case: (%s ?? ...)", e.source)
	case to.base == tBool:
		return "compare it with something, such as == or != nil"
	case to.base == tString && (numeric(from) || from.base == tBool):
		return "turn it into text: string(...)"
	case numeric(to) && from.base == tString:
		return "turn it into a number: int(...) or float(...)"
	}
	return ""
}
