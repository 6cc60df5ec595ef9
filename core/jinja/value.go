package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Value is a value of a template: nil, bool, Number, Text, *List, *Dict, or
// something that only templates make.
type Value any

// undefined is what isn't there; name says what was asked for.
type undefined struct{ name string }

// Number is an integer or a float. Text is how it is written, and is kept.
type Number struct {
	Text string
	From Source
}

// List is a list, or a tuple. From is the source of its punctuation.
type List struct {
	Items []Value
	From  Source
	tuple bool
}

// Dict is an ordered mapping. Its keys are text; those that a template gives as
// numbers are kept beside, under the text that keyOf makes of them.
type Dict struct {
	keys    []Text
	values  []Value
	index   map[string]int
	numbers map[string]Number
	// From is the source of its punctuation.
	From Source
	// open allows assignment to its attributes, as namespaces do.
	open bool
}

// NewDict makes an empty mapping.
func NewDict(from Source) *Dict { return &Dict{index: map[string]int{}, From: from} }

// Set adds or replaces a member.
func (d *Dict) Set(key Text, v Value) {
	if i, ok := d.index[key.s]; ok {
		d.values[i] = v
		return
	}
	d.index[key.s] = len(d.keys)
	d.keys = append(d.keys, key)
	d.values = append(d.values, v)
}

// Put adds a member whose key is the caller's own word.
func (d *Dict) Put(key string, v Value) *Dict {
	d.Set(String(key, d.From), v)
	return d
}

// keyOf is the text that a key is kept under, false for what is no key.
func keyOf(key Value) (Text, bool) {
	switch k := key.(type) {
	case Text:
		return k, true
	case Number:
		return lit("\x00" + k.Text), true
	}
	return Text{}, false
}

// put adds or replaces a member under a key of any kind.
func (d *Dict) put(key, v Value) error {
	if n, ok := key.(Number); ok {
		k, _ := keyOf(n)
		if d.numbers == nil {
			d.numbers = map[string]Number{}
		}
		d.numbers[k.s] = n
		d.Set(k, v)
		return nil
	}
	k, err := str(key)
	if err != nil {
		return err
	}
	d.Set(k, v)
	return nil
}

// key is the i-th key, as the template gave it.
func (d *Dict) key(i int) Value {
	if n, ok := d.numbers[d.keys[i].s]; ok {
		return n
	}
	return d.keys[i]
}

// keyText is the i-th key as JSON spells it.
func (d *Dict) keyText(i int) Text {
	if n, ok := d.numbers[d.keys[i].s]; ok {
		return lit(n.Text)
	}
	return d.keys[i]
}

func (d *Dict) get(key string) (Value, bool) {
	i, ok := d.index[key]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// function is what can be called.
type function func(c *call) (Value, error)

func integer(i int) Number { return Number{Text: strconv.Itoa(i)} }

func float(f float64) Number { return Number{Text: floatText(f)} }

// floatText is a float as Python writes it.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func (n Number) isInt() bool { return !strings.ContainsAny(n.Text, ".eEnf") }

func (n Number) float() float64 {
	f, _ := strconv.ParseFloat(n.Text, 64)
	return f
}

// int is the number as an int, where it is one that fits.
func (n Number) int() (int, bool) {
	i, err := strconv.Atoi(n.Text)
	return i, err == nil
}

func (n Number) big() *big.Int {
	i, ok := new(big.Int).SetString(n.Text, 10)
	if !ok {
		return new(big.Int)
	}
	return i
}

// asNumber takes bools as 0 and 1, as Python does.
func asNumber(v Value) (Number, bool) {
	switch v := v.(type) {
	case Number:
		return v, true
	case bool:
		if v {
			return integer(1), true
		}
		return integer(0), true
	}
	return Number{}, false
}

func truth(v Value) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case Number:
		return v.float() != 0
	case Text:
		return v.s != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return len(v.keys) > 0 || v.open
	}
	return true
}

// typeName is what Python calls the type.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case undefined:
		return "Undefined"
	case bool:
		return "bool"
	case Number:
		if v.isInt() {
			return "int"
		}
		return "float"
	case Text:
		return "str"
	case *List:
		if v.tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	}
	return "function"
}

func equal(a, b Value) bool {
	if x, ok := asNumber(a); ok {
		y, ok := asNumber(b)
		return ok && compareNumbers(x, y) == 0
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case undefined:
		_, ok := b.(undefined)
		return ok
	case Text:
		t, ok := b.(Text)
		return ok && a.s == t.s
	case *List:
		l, ok := b.(*List)
		if !ok || len(a.Items) != len(l.Items) || a.tuple != l.tuple {
			return false
		}
		for i := range a.Items {
			if !equal(a.Items[i], l.Items[i]) {
				return false
			}
		}
		return true
	case *Dict:
		d, ok := b.(*Dict)
		if !ok || len(a.keys) != len(d.keys) {
			return false
		}
		for i, k := range a.keys {
			v, ok := d.get(k.s)
			if !ok || !equal(a.values[i], v) {
				return false
			}
		}
		return true
	}
	return false
}

func compareNumbers(a, b Number) int {
	if a.isInt() && b.isInt() {
		return a.big().Cmp(b.big())
	}
	x, y := a.float(), b.float()
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// order compares what can be ordered.
func order(a, b Value) (int, bool) {
	if x, ok := asNumber(a); ok {
		y, ok := asNumber(b)
		return compareNumbers(x, y), ok
	}
	switch a := a.(type) {
	case Text:
		t, ok := b.(Text)
		return strings.Compare(a.s, t.s), ok
	case *List:
		l, ok := b.(*List)
		if !ok {
			return 0, false
		}
		for i := range min(len(a.Items), len(l.Items)) {
			if equal(a.Items[i], l.Items[i]) {
				continue
			}
			return order(a.Items[i], l.Items[i])
		}
		return len(a.Items) - len(l.Items), true
	}
	return 0, false
}
