package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// parser reads statements from tokens.
type parser struct {
	t      *Template
	tokens []token
	at     int
	loops  int             // open for blocks
	own    map[string]bool // variables that have a value from the template by now
	depth  int
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) take() token {
	t := p.tokens[p.at]
	if t.kind != tokEOF {
		p.at++
	}
	return t
}

func (p *parser) fail(line int, format string, a ...any) error {
	return &Error{p.t.file, line, fmt.Sprintf(format, a...)}
}

// is reports whether an operator or a name comes next.
func (p *parser) is(kind tokenKind, text string) bool {
	t := p.peek()
	return t.kind == kind && t.text == text
}

// skipIf takes what is, where it is.
func (p *parser) skipIf(kind tokenKind, text string) bool {
	if !p.is(kind, text) {
		return false
	}
	p.at++
	return true
}

func (p *parser) want(kind tokenKind, text string) error {
	if t := p.peek(); !p.skipIf(kind, text) {
		return p.fail(t.line, "want %s, got %s", describe(token{kind: kind, text: text}), describe(t))
	}
	return nil
}

func describe(t token) string {
	switch t.kind {
	case tokData:
		return "text"
	case tokVarBegin:
		return "{{"
	case tokVarEnd:
		return "}}"
	case tokBlockBegin:
		return "{%"
	case tokBlockEnd:
		return "%}"
	case tokEOF:
		return "the end of the template"
	case tokString:
		return fmt.Sprintf("the string %q", t.text)
	case tokName:
		if t.text == "" {
			return "a name"
		}
	}
	return fmt.Sprintf("%q", t.text)
}

// parse reads a whole template.
func (p *parser) parse() ([]node, error) {
	body, err := p.body()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != tokEOF {
		return nil, p.fail(t.line, "%s has no block to end", describe(p.tokens[p.at+1]))
	}
	return body, nil
}

// body reads up to the end, or up to a tag named end, whose {% is then next.
func (p *parser) body(end ...string) ([]node, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, p.fail(p.peek().line, "blocks are nested deeper than %d", maxNesting)
	}
	defer func() { p.depth-- }()
	var out []node
	for {
		t := p.peek()
		switch t.kind {
		case tokEOF:
			if len(end) > 0 {
				return nil, p.fail(t.line, "the template ends where %s is due", strings.Join(end, " or "))
			}
			return out, nil
		case tokData:
			p.at++
			out = append(out, nodeData{lit(t.text)})
		case tokVarBegin:
			p.at++
			x, err := p.tuple(true)
			if err != nil {
				return nil, err
			}
			if err := p.want(tokVarEnd, ""); err != nil {
				return nil, err
			}
			out = append(out, nodePrint{t.line, x})
		default:
			name := p.tokens[p.at+1]
			if name.kind == tokName && (slices.Contains(end, name.text) || strings.HasPrefix(name.text, "end") || name.text == "else" || name.text == "elif") {
				if len(end) > 0 && !slices.Contains(end, name.text) {
					return nil, p.fail(name.line, "%s where %s is due", name.text, strings.Join(end, " or "))
				}
				return out, nil
			}
			n, err := p.statement()
			if err != nil {
				return nil, err
			}
			out = append(out, n)
		}
	}
}

// close reads {% name %}.
func (p *parser) close() error {
	p.at += 2
	if p.peek().kind == tokName { // endmacro NAME
		p.at++
	}
	return p.want(tokBlockEnd, "")
}

// block reads a body up to {% end %}.
func (p *parser) block(end string) ([]node, error) {
	if err := p.want(tokBlockEnd, ""); err != nil {
		return nil, err
	}
	body, err := p.body(end)
	if err != nil {
		return nil, err
	}
	return body, p.close()
}

func (p *parser) statement() (node, error) {
	p.at++
	t := p.take()
	if t.kind != tokName {
		return nil, p.fail(t.line, "want the name of a tag, got %s", describe(t))
	}
	switch t.text {
	case "if":
		return p.ifBlock()
	case "for":
		return p.forBlock(t.line)
	case "set":
		return p.set(t.line)
	case "macro":
		return p.macro()
	case "call":
		return p.callBlock(t.line)
	case "filter":
		use, err := p.filterUse()
		if err != nil {
			return nil, err
		}
		uses, err := p.filters([]filterUse{use})
		if err != nil {
			return nil, err
		}
		body, err := p.block("endfilter")
		return nodeFilter{t.line, uses, body}, err
	case "with":
		return p.with()
	case "generation":
		body, err := p.block("endgeneration")
		return nodeGroup{body}, err
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.fail(t.line, "%s outside of a loop", t.text)
		}
		if t.text == "break" {
			return nodeBreak{}, p.want(tokBlockEnd, "")
		}
		return nodeContinue{}, p.want(tokBlockEnd, "")
	case "include", "import", "from", "extends", "block":
		return nil, p.fail(t.line, "a chat template can't use {%% %s %%}", t.text)
	}
	return nil, p.fail(t.line, "there is no tag %q", t.text)
}

func (p *parser) ifBlock() (node, error) {
	cond, err := p.tuple(true)
	if err != nil {
		return nil, err
	}
	if err := p.want(tokBlockEnd, ""); err != nil {
		return nil, err
	}
	n := nodeIf{cond: cond}
	if n.then, err = p.body("elif", "else", "endif"); err != nil {
		return nil, err
	}
	switch p.tokens[p.at+1].text {
	case "elif":
		p.at += 2
		inner, err := p.ifBlock()
		n.els = []node{inner}
		return n, err
	case "else":
		p.at += 2
		n.els, err = p.block("endif")
		return n, err
	}
	return n, p.close()
}

// nameList reads names, in parentheses or not.
func (p *parser) nameList() ([]string, error) {
	paren := p.skipIf(tokOp, "(")
	var out []string
	for {
		t := p.take()
		if t.kind != tokName {
			return nil, p.fail(t.line, "want a name, got %s", describe(t))
		}
		out = append(out, t.text)
		if !p.skipIf(tokOp, ",") {
			break
		}
	}
	if paren {
		return out, p.want(tokOp, ")")
	}
	return out, nil
}

func (p *parser) forBlock(line int) (node, error) {
	n := nodeFor{line: line}
	var err error
	if n.targets, err = p.nameList(); err != nil {
		return nil, err
	}
	if err := p.want(tokName, "in"); err != nil {
		return nil, err
	}
	if n.list, err = p.tuple(false); err != nil {
		return nil, err
	}
	if p.skipIf(tokName, "if") {
		if n.cond, err = p.expr(); err != nil {
			return nil, err
		}
	}
	n.nested = p.skipIf(tokName, "recursive")
	if err := p.want(tokBlockEnd, ""); err != nil {
		return nil, err
	}
	p.loops++
	n.body, err = p.body("else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	if p.tokens[p.at+1].text == "else" {
		p.at += 2
		n.els, err = p.block("endfor")
		return n, err
	}
	return n, p.close()
}

func (p *parser) set(line int) (node, error) {
	n := nodeSet{line: line}
	for {
		t := p.take()
		if t.kind != tokName {
			return nil, p.fail(t.line, "set wants a name, got %s", describe(t))
		}
		to := target{name: t.text}
		if p.skipIf(tokOp, ".") {
			to.attr = p.take().text
		}
		n.targets = append(n.targets, to)
		if !p.skipIf(tokOp, ",") {
			break
		}
	}
	var err error
	if p.skipIf(tokOp, "=") {
		if n.value, err = p.tuple(true); err != nil {
			return nil, err
		}
		p.written(n.targets)
		return n, p.want(tokBlockEnd, "")
	}
	if n.filters, err = p.filters(nil); err != nil {
		return nil, err
	}
	n.body, err = p.block("endset")
	if n.body == nil {
		n.body = []node{}
	}
	return n, err
}

// written notes what the template itself says whatever it is given: what it
// reads of these from here on isn't read from outside.
func (p *parser) written(targets []target) {
	if p.depth > 1 {
		return
	}
	for _, t := range targets {
		if t.attr == "" {
			p.own[t.name] = true
		}
	}
}

// params reads the parameters of a macro.
func (p *parser) params() ([]param, error) {
	if err := p.want(tokOp, "("); err != nil {
		return nil, err
	}
	var out []param
	for !p.skipIf(tokOp, ")") {
		t := p.take()
		if t.kind != tokName {
			return nil, p.fail(t.line, "want a parameter, got %s", describe(t))
		}
		q := param{name: t.text}
		if p.skipIf(tokOp, "=") {
			def, err := p.expr()
			if err != nil {
				return nil, err
			}
			q.def = def
		}
		out = append(out, q)
		if !p.is(tokOp, ")") {
			if err := p.want(tokOp, ","); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (p *parser) macro() (node, error) {
	t := p.take()
	if t.kind != tokName {
		return nil, p.fail(t.line, "macro wants a name, got %s", describe(t))
	}
	params, err := p.params()
	if err != nil {
		return nil, err
	}
	loops := p.loops
	p.loops = 0
	body, err := p.block("endmacro")
	p.loops = loops
	return nodeMacro{t.text, params, body}, err
}

func (p *parser) callBlock(line int) (node, error) {
	n := nodeCall{line: line}
	var err error
	if p.is(tokOp, "(") {
		if n.params, err = p.params(); err != nil {
			return nil, err
		}
	}
	if n.call, err = p.expr(); err != nil {
		return nil, err
	}
	if _, ok := n.call.(exprCall); !ok {
		return nil, p.fail(line, "call wants a macro's call")
	}
	n.body, err = p.block("endcall")
	return n, err
}

func (p *parser) with() (node, error) {
	var n nodeWith
	for !p.is(tokBlockEnd, "") {
		t := p.take()
		if t.kind != tokName {
			return nil, p.fail(t.line, "with wants a name, got %s", describe(t))
		}
		if err := p.want(tokOp, "="); err != nil {
			return nil, err
		}
		v, err := p.expr()
		if err != nil {
			return nil, err
		}
		n.names, n.values = append(n.names, t.text), append(n.values, v)
		if !p.skipIf(tokOp, ",") {
			break
		}
	}
	var err error
	n.body, err = p.block("endwith")
	return n, err
}
