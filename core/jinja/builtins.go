package jinja

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode"
)

type test = func(v Value, c *call) (bool, error)

// testTable is the tests by name.
func testTable() map[string]test {
	is := func(f func(v Value) bool) test {
		return func(v Value, _ *call) (bool, error) { return f(v), nil }
	}
	with := func(op string) test {
		return func(v Value, c *call) (bool, error) {
			if len(c.list) == 0 {
				return false, fmt.Errorf("the test needs something to compare with")
			}
			return compare(op, v, c.list[0])
		}
	}
	mod := func(v Value, by, rest int) (bool, error) {
		n, ok := asNumber(v)
		if !ok || by == 0 {
			return false, fmt.Errorf("a %s can't be divided", typeName(v))
		}
		m, err := arithmetic("%", n, integer(by))
		return err == nil && equal(m, integer(rest)), err
	}
	t := map[string]test{
		"defined":   is(func(v Value) bool { _, u := v.(undefined); return !u }),
		"undefined": is(func(v Value) bool { _, u := v.(undefined); return u }),
		"none":      is(func(v Value) bool { return v == nil }),
		"string":    is(func(v Value) bool { _, ok := v.(Text); return ok }),
		"mapping":   is(func(v Value) bool { _, ok := v.(*Dict); return ok }),
		"sequence": is(func(v Value) bool {
			switch v.(type) {
			case Text, *List, *Dict, undefined:
				return true
			}
			return false
		}),
		"boolean":  is(func(v Value) bool { _, ok := v.(bool); return ok }),
		"true":     is(func(v Value) bool { return v == true }),
		"false":    is(func(v Value) bool { return v == false }),
		"number":   is(func(v Value) bool { _, ok := asNumber(v); return ok }),
		"integer":  is(func(v Value) bool { n, ok := v.(Number); return ok && n.isInt() }),
		"float":    is(func(v Value) bool { n, ok := v.(Number); return ok && !n.isInt() }),
		"callable": is(func(v Value) bool { _, ok := v.(function); return ok }),
		"lower":    is(func(v Value) bool { t, ok := v.(Text); return ok && t.s == strings.ToLower(t.s) }),
		"upper":    is(func(v Value) bool { t, ok := v.(Text); return ok && t.s == strings.ToUpper(t.s) }),
		"sameas":   func(v Value, c *call) (bool, error) { return equal(v, at(c.list, 0)), nil },
		"odd":      func(v Value, _ *call) (bool, error) { return mod(v, 2, 1) },
		"even":     func(v Value, _ *call) (bool, error) { return mod(v, 2, 0) },
		"divisibleby": func(v Value, c *call) (bool, error) {
			return mod(v, c.int(0, "num", 0), 0)
		},
		"in": with("in"), "eq": with("=="), "ne": with("!="), "lt": with("<"), "le": with("<="), "gt": with(">"), "ge": with(">="),
	}
	t["iterable"] = t["sequence"]
	for alias, name := range map[string]string{"equalto": "eq", "==": "eq", "!=": "ne", "<": "lt", "lessthan": "lt", "<=": "le", ">": "gt", "greaterthan": "gt", ">=": "ge"} {
		t[alias] = t[name]
	}
	return t
}

type method[T any] func(of T, c *call) (Value, error)

var dictMethods = map[string]method[*Dict]{
	"get": func(d *Dict, c *call) (Value, error) {
		if k, ok := keyOf(c.arg(0, "key", nil)); ok {
			if v, ok := d.get(k.s); ok {
				return v, nil
			}
		}
		return c.arg(1, "default", nil), nil
	},
	"items": dictItems,
	"keys": func(d *Dict, _ *call) (Value, error) {
		items, err := iterate(d)
		return &List{Items: items}, err
	},
	"values": func(d *Dict, _ *call) (Value, error) { return &List{Items: d.values}, nil },
	"copy": func(d *Dict, _ *call) (Value, error) {
		out := NewDict(d.From)
		out.numbers = maps.Clone(d.numbers)
		for i, k := range d.keys {
			out.Set(k, d.values[i])
		}
		return out, nil
	},
}

func dictItems(d *Dict, _ *call) (Value, error) {
	out := &List{}
	for i := range d.keys {
		out.Items = append(out.Items, &List{Items: []Value{d.key(i), d.values[i]}, tuple: true})
	}
	return out, nil
}

var textMethods = map[string]method[Text]{
	"strip":  func(t Text, c *call) (Value, error) { return t.trim(c.text(0, "chars", ""), true, true), nil },
	"lstrip": func(t Text, c *call) (Value, error) { return t.trim(c.text(0, "chars", ""), true, false), nil },
	"rstrip": func(t Text, c *call) (Value, error) { return t.trim(c.text(0, "chars", ""), false, true), nil },
	"split": func(t Text, c *call) (Value, error) {
		return texts(t.split(c.text(0, "sep", ""), c.int(1, "maxsplit", -1), false)), nil
	},
	"rsplit": func(t Text, c *call) (Value, error) {
		return texts(t.split(c.text(0, "sep", ""), c.int(1, "maxsplit", -1), true)), nil
	},
	"splitlines": func(t Text, _ *call) (Value, error) {
		return texts(t.lines()), nil
	},
	"partition":  func(t Text, c *call) (Value, error) { return partition(t, c.text(0, "sep", ""), false) },
	"rpartition": func(t Text, c *call) (Value, error) { return partition(t, c.text(0, "sep", ""), true) },
	"startswith": func(t Text, c *call) (Value, error) {
		return anyOf(c, func(s string) bool { return strings.HasPrefix(t.s, s) })
	},
	"endswith": func(t Text, c *call) (Value, error) {
		return anyOf(c, func(s string) bool { return strings.HasSuffix(t.s, s) })
	},
	"upper": upper, "lower": lower, "title": title, "capitalize": capitalize, "replace": replaced,
	"removeprefix": func(t Text, c *call) (Value, error) {
		return t.slice(len(t.s)-len(strings.TrimPrefix(t.s, c.text(0, "prefix", ""))), len(t.s)), nil
	},
	"removesuffix": func(t Text, c *call) (Value, error) {
		return t.slice(0, len(strings.TrimSuffix(t.s, c.text(0, "suffix", "")))), nil
	},
	"find": func(t Text, c *call) (Value, error) { return find(t, strings.Index(t.s, c.text(0, "sub", ""))), nil },
	"rfind": func(t Text, c *call) (Value, error) {
		return find(t, strings.LastIndex(t.s, c.text(0, "sub", ""))), nil
	},
	"index": func(t Text, c *call) (Value, error) {
		k := strings.Index(t.s, c.text(0, "sub", ""))
		if k < 0 {
			return nil, errors.New("the text has no such part")
		}
		return find(t, k), nil
	},
	"count":   func(t Text, c *call) (Value, error) { return integer(strings.Count(t.s, c.text(0, "sub", ""))), nil },
	"isdigit": func(t Text, _ *call) (Value, error) { return all(t, unicode.IsDigit), nil },
	"isalpha": func(t Text, _ *call) (Value, error) { return all(t, unicode.IsLetter), nil },
	"isalnum": func(t Text, _ *call) (Value, error) {
		return all(t, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }), nil
	},
	"isspace": func(t Text, _ *call) (Value, error) { return all(t, unicode.IsSpace), nil },
	"isupper": func(t Text, _ *call) (Value, error) {
		return t.s != strings.ToLower(t.s) && t.s == strings.ToUpper(t.s), nil
	},
	"islower": func(t Text, _ *call) (Value, error) {
		return t.s != strings.ToUpper(t.s) && t.s == strings.ToLower(t.s), nil
	},
	"join": func(t Text, c *call) (Value, error) {
		items, err := iterate(at(c.list, 0))
		if err != nil {
			return nil, err
		}
		return join(items, &call{list: []Value{t}})
	},
	"format": formatBraces,
}

func texts(list []Text) Value {
	out := &List{}
	for _, t := range list {
		out.Items = append(out.Items, t)
	}
	return out
}

func partition(t Text, sep string, right bool) (Value, error) {
	k := strings.Index(t.s, sep)
	if right {
		k = strings.LastIndex(t.s, sep)
	}
	parts := []Value{t, Text{}, Text{}}
	switch {
	case k < 0 && right:
		parts = []Value{Text{}, Text{}, t}
	case k >= 0:
		parts = []Value{t.slice(0, k), t.slice(k, k+len(sep)), t.slice(k+len(sep), len(t.s))}
	}
	return &List{Items: parts, tuple: true}, nil
}

// anyOf tests one text, or each of a tuple.
func anyOf(c *call, f func(s string) bool) (Value, error) {
	switch v := at(c.list, 0).(type) {
	case Text:
		return f(v.s), nil
	case *List:
		for _, item := range v.Items {
			if t, ok := item.(Text); ok && f(t.s) {
				return true, nil
			}
		}
		return false, nil
	default:
		return nil, fmt.Errorf("want text, not a %s", typeName(v))
	}
}

// find turns an index in bytes into one in characters.
func find(t Text, k int) Value {
	if k < 0 {
		return integer(-1)
	}
	return integer(t.slice(0, k).runes())
}

func all(t Text, f func(r rune) bool) Value {
	for _, r := range t.s {
		if !f(r) {
			return false
		}
	}
	return t.s != ""
}

// formatPercent is Python's %, with %s, %d and %%.
func formatPercent(t Text, v Value) (Value, error) {
	values := []Value{v}
	if l, ok := v.(*List); ok && l.tuple {
		values = l.Items
	}
	var b builder
	for {
		k := strings.IndexByte(t.s, '%')
		if k < 0 || k+1 == len(t.s) {
			b.add(t)
			return b.text(), nil
		}
		b.add(t.slice(0, k))
		switch t.s[k+1] {
		case '%':
			b.add(t.slice(k, k+1))
		case 's', 'd', 'i':
			if len(values) == 0 {
				return nil, errors.New("there are too few values for the text to format")
			}
			if err := b.print(values[0]); err != nil {
				return nil, err
			}
			values = values[1:]
		default:
			return nil, fmt.Errorf("%%%c is not known", t.s[k+1])
		}
		t = t.slice(k+2, len(t.s))
	}
}

// formatBraces is str.format with {}, {0} and {name}.
func formatBraces(t Text, c *call) (Value, error) {
	var b builder
	next := 0
	for {
		k := strings.IndexAny(t.s, "{}")
		if k < 0 {
			b.add(t)
			return b.text(), nil
		}
		b.add(t.slice(0, k))
		if k+1 < len(t.s) && t.s[k+1] == t.s[k] {
			b.add(t.slice(k, k+1))
			t = t.slice(k+2, len(t.s))
			continue
		}
		end := strings.IndexByte(t.s[k:], '}')
		if t.s[k] == '}' || end < 0 {
			return nil, errors.New("a brace in the text to format stands alone")
		}
		name := t.s[k+1 : k+end]
		i, err := strconv.Atoi(name)
		if name == "" {
			i, err = next, nil
			next++
		}
		if err != nil {
			i = len(c.list)
		}
		v, ok := c.given(i, name)
		if !ok {
			return nil, fmt.Errorf("there is no value for {%s}", name)
		}
		if err := b.print(v); err != nil {
			return nil, err
		}
		t = t.slice(k+end+1, len(t.s))
	}
}

// maxRange is as much as Jinja's sandbox allows.
const maxRange = 100_000

func globals() map[string]Value {
	return map[string]Value{
		"range": function(rangeOf),
		"dict": function(func(c *call) (Value, error) {
			d := NewDict(FromTemplate)
			for i, name := range c.names {
				d.Put(name, c.named[i])
			}
			return d, nil
		}),
		"namespace": function(func(c *call) (Value, error) {
			d := NewDict(FromTemplate)
			if from, ok := at(c.list, 0).(*Dict); ok {
				for i, k := range from.keys {
					d.Set(k, from.values[i])
				}
			}
			for i, name := range c.names {
				d.Put(name, c.named[i])
			}
			d.open = true
			return d, nil
		}),
		"joiner": function(func(c *call) (Value, error) {
			sep, used := c.arg(0, "sep", lit(", ")), false
			return function(func(*call) (Value, error) {
				if !used {
					used = true
					return Text{}, nil
				}
				return sep, nil
			}), nil
		}),
		"cycler": function(func(c *call) (Value, error) {
			i := -1
			d := NewDict(FromTemplate)
			d.Put("next", function(func(*call) (Value, error) {
				i++
				d.Put("current", at(c.list, (i+1)%max(1, len(c.list))))
				return at(c.list, i%max(1, len(c.list))), nil
			}))
			d.Put("current", at(c.list, 0))
			d.open = true
			return d, nil
		}),
		"raise_exception": function(func(c *call) (Value, error) {
			message, err := str(c.arg(0, "message", Text{}))
			if err != nil {
				return nil, err
			}
			return nil, &RaisedError{Message: message.s}
		}),
		"strftime_now": function(func(c *call) (Value, error) {
			return lit(strftime(c.e.now(), c.text(0, "format", "%Y-%m-%d"))), nil
		}),
	}
}

func rangeOf(c *call) (Value, error) {
	from, to, step := 0, c.int(0, "", 0), c.int(2, "", 1)
	if len(c.list) > 1 {
		from, to = to, c.int(1, "", 0)
	}
	if step == 0 {
		return nil, errors.New("the step of a range is 0")
	}
	out := &List{}
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		if len(out.Items) == maxRange {
			return nil, fmt.Errorf("a range has more than %d numbers", maxRange)
		}
		out.Items = append(out.Items, integer(i))
	}
	return out, nil
}

// strftime writes a time with Python's directives.
func strftime(t time.Time, layout string) string {
	goLayout := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05",
		'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon", 'p': "PM", 'Z': "MST", 'z': "-0700",
		'j': "002", 'e': "_2", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06",
	}
	var b strings.Builder
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' || i+1 == len(layout) {
			b.WriteByte(layout[i])
			continue
		}
		i++
		plain := layout[i] == '-' && i+1 < len(layout)
		if plain {
			i++
		}
		switch l, ok := goLayout[layout[i]]; {
		case ok && plain:
			b.WriteString(strings.TrimLeft(t.Format(l), "0"))
		case ok:
			b.WriteString(t.Format(l))
		default:
			b.WriteByte(layout[i])
		}
	}
	return b.String()
}
