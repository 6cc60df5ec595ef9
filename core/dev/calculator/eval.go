package calculator

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxLength = 1000 // bytes of an expression
	maxDepth  = 100  // open parentheses and signs
	digits    = 12   // kept of a value whose decimals don't end
)

// Eval computes an expression of numbers, + - * /, signs and parentheses,
// exactly.
func Eval(expression string) (*big.Rat, error) {
	if len(expression) > maxLength {
		return nil, fmt.Errorf("the expression is longer than %d characters", maxLength)
	}
	p := parser{text: expression}
	if p.peek() == 0 {
		return nil, errors.New("the expression is empty")
	}
	v, err := p.sum()
	if err != nil {
		return nil, err
	}
	if r := p.peek(); r != 0 {
		return nil, fmt.Errorf("unexpected %q at character %d", r, p.at+1)
	}
	return v, nil
}

// Format writes a value plainly: an integer without a point, a decimal
// without zeros at its end, rounded only where its decimals don't end.
func Format(v *big.Rat) string {
	if v.IsInt() {
		return v.Num().String()
	}
	n, exact := v.FloatPrec()
	if !exact || n > maxLength {
		f, _, _ := big.ParseFloat(v.FloatString(40), 10, 200, big.ToNearestEven)
		return f.Text('g', digits)
	}
	return strings.TrimRight(v.FloatString(n), "0")
}

type parser struct {
	text  string
	at    int
	depth int
}

// peek skips spaces and returns the next character, 0 at the end.
func (p *parser) peek() rune {
	for p.at < len(p.text) {
		r, n := utf8.DecodeRuneInString(p.text[p.at:])
		if !unicode.IsSpace(r) {
			return plain(r)
		}
		p.at += n
	}
	return 0
}

// plain maps the signs of print to those of the keyboard.
func plain(r rune) rune {
	switch r {
	case '×', '·':
		return '*'
	case '÷':
		return '/'
	case '−':
		return '-'
	}
	return r
}

func (p *parser) next() {
	_, n := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += n
}

func (p *parser) sum() (*big.Rat, error) {
	v, err := p.product()
	for err == nil {
		op := p.peek()
		if op != '+' && op != '-' {
			return v, nil
		}
		p.next()
		var w *big.Rat
		if w, err = p.product(); err != nil {
			break
		}
		if op == '+' {
			v = new(big.Rat).Add(v, w)
		} else {
			v = new(big.Rat).Sub(v, w)
		}
	}
	return nil, err
}

func (p *parser) product() (*big.Rat, error) {
	v, err := p.factor()
	for err == nil {
		op := p.peek()
		if op != '*' && op != '/' {
			return v, nil
		}
		p.next()
		var w *big.Rat
		if w, err = p.factor(); err != nil {
			break
		}
		switch {
		case op == '*':
			v = new(big.Rat).Mul(v, w)
		case w.Sign() == 0:
			return nil, errors.New("division by zero")
		default:
			v = new(big.Rat).Quo(v, w)
		}
	}
	return nil, err
}

func (p *parser) factor() (*big.Rat, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, fmt.Errorf("the expression is nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	switch r := p.peek(); {
	case r == '-' || r == '+':
		p.next()
		v, err := p.factor()
		if err == nil && r == '-' {
			v = new(big.Rat).Neg(v)
		}
		return v, err
	case r == '(':
		p.next()
		v, err := p.sum()
		if err != nil {
			return nil, err
		}
		if p.peek() != ')' {
			return nil, fmt.Errorf("a parenthesis is not closed before character %d", p.at+1)
		}
		p.next()
		return v, nil
	case r >= '0' && r <= '9' || r == '.':
		return p.number()
	case r == 0:
		return nil, errors.New("the expression ends where a number is wanted")
	default:
		return nil, fmt.Errorf("unexpected %q at character %d", r, p.at+1)
	}
}

func (p *parser) number() (*big.Rat, error) {
	from := p.at
	for p.at < len(p.text) && (p.text[p.at] >= '0' && p.text[p.at] <= '9' || p.text[p.at] == '.') {
		p.at++
	}
	text := p.text[from:p.at]
	v, ok := new(big.Rat).SetString(text)
	if !ok || text == "." {
		return nil, fmt.Errorf("%q is not a number", text)
	}
	return v, nil
}
