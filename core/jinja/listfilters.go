package jinja

import (
	"errors"
	"fmt"
	"sort"
	"strings"
)

func reverse(v Value, _ *call) (Value, error) {
	items, err := iterate(v)
	if err != nil {
		return nil, err
	}
	out := make([]Value, len(items))
	for i, item := range items {
		out[len(items)-1-i] = item
	}
	if _, ok := v.(Text); ok {
		return join(out, &call{})
	}
	return &List{Items: out}, nil
}

func join(items []Value, c *call) (Value, error) {
	sep, err := str(c.arg(0, "d", Text{}))
	if err != nil {
		return nil, err
	}
	attr := c.arg(1, "attribute", nil)
	var b builder
	for i, item := range items {
		if i > 0 {
			b.add(sep)
		}
		if attr != nil {
			item = member(item, attr)
		}
		if err := b.print(item); err != nil {
			return nil, err
		}
	}
	return b.text(), nil
}

func unique(items []Value, c *call) (Value, error) {
	out := &List{}
	for _, item := range items {
		seen := false
		for _, o := range out.Items {
			seen = seen || equal(fold(o, c), fold(item, c))
		}
		if !seen {
			out.Items = append(out.Items, item)
		}
	}
	return out, nil
}

// fold makes text compare without case, as sort and unique do.
func fold(v Value, c *call) Value {
	if t, ok := v.(Text); ok && !truth(c.arg(1, "case_sensitive", false)) {
		return lit(strings.ToLower(t.s))
	}
	return v
}

func sorted(items []Value, c *call) (Value, error) {
	attr := c.text(2, "attribute", "")
	down := truth(c.arg(0, "reverse", false))
	key := func(v Value) Value {
		if attr != "" {
			v = path(v, attr)
		}
		return fold(v, c)
	}
	out := append([]Value{}, items...)
	var failed error
	sort.SliceStable(out, func(i, j int) bool {
		a, b := key(out[i]), key(out[j])
		if down {
			a, b = b, a
		}
		n, ok := order(a, b)
		if !ok {
			failed = fmt.Errorf("a %s and a %s have no order", typeName(a), typeName(b))
		}
		return n < 0
	})
	return &List{Items: out}, failed
}

// path is a member of a member, by names with dots.
func path(v Value, names string) Value {
	for name := range strings.SplitSeq(names, ".") {
		if n := (Number{Text: name}); name != "" && strings.Trim(name, "0123456789") == "" {
			v = member(v, n)
			continue
		}
		v = member(v, lit(name))
	}
	return v
}

func mapped(items []Value, c *call) (Value, error) {
	out := &List{}
	attr, byAttr := c.given(len(c.list), "attribute")
	for _, item := range items {
		if byAttr {
			name, err := str(attr)
			if err != nil {
				return nil, err
			}
			v := path(item, name.s)
			if _, missing := v.(undefined); missing {
				v = c.arg(len(c.list), "default", v)
			}
			out.Items = append(out.Items, v)
			continue
		}
		if len(c.list) == 0 {
			return nil, errors.New("map needs a filter or attribute=")
		}
		name, _ := c.list[0].(Text)
		f := c.e.t.filters[name.s]
		if f == nil {
			return nil, fmt.Errorf("there is no filter %q to map with", name.s)
		}
		v, err := f(item, &call{e: c.e, list: c.list[1:], names: c.names, named: c.named})
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, v)
	}
	return out, nil
}

// selected keeps the items of which a test is want; byAttr tests an attribute.
func selected(items []Value, c *call, byAttr, want bool) (Value, error) {
	rest := c.list
	attr := ""
	if byAttr {
		if len(rest) == 0 {
			return nil, errors.New("selectattr needs the name of an attribute")
		}
		t, _ := rest[0].(Text)
		attr, rest = t.s, rest[1:]
	}
	is := func(v Value, _ *call) (bool, error) { return truth(v), nil }
	if len(rest) > 0 {
		name, _ := rest[0].(Text)
		if is = c.e.t.tests[name.s]; is == nil {
			return nil, fmt.Errorf("there is no test %q to select by", name.s)
		}
		rest = rest[1:]
	}
	out := &List{}
	for _, item := range items {
		v := item
		if byAttr {
			v = path(item, attr)
		}
		ok, err := is(v, &call{e: c.e, list: rest, names: c.names, named: c.named})
		if err != nil {
			return nil, err
		}
		if ok == want {
			out.Items = append(out.Items, item)
		}
	}
	return out, nil
}

func sum(items []Value, c *call) (Value, error) {
	attr := c.text(0, "attribute", "")
	total := c.arg(1, "start", integer(0))
	for _, item := range items {
		if attr != "" {
			item = path(item, attr)
		}
		var err error
		if total, err = binary("+", total, item); err != nil {
			return nil, err
		}
	}
	return total, nil
}

func extreme(items []Value, sign int) (Value, error) {
	best := at(items, 0)
	for _, item := range items[min(1, len(items)):] {
		n, ok := order(item, best)
		if !ok {
			return nil, fmt.Errorf("a %s and a %s have no order", typeName(item), typeName(best))
		}
		if n*sign > 0 {
			best = item
		}
	}
	return best, nil
}

func batch(items []Value, c *call) (Value, error) {
	n := c.int(0, "linecount", 1)
	if n < 1 {
		return nil, errors.New("batch needs a count of 1 or more")
	}
	out := &List{}
	for ; len(items) > 0; items = items[min(n, len(items)):] {
		part := &List{Items: append([]Value{}, items[:min(n, len(items))]...)}
		if fill, ok := c.given(1, "fill_with"); ok && fill != nil {
			for len(part.Items) < n {
				part.Items = append(part.Items, fill)
			}
		}
		out.Items = append(out.Items, part)
	}
	return out, nil
}

func dictsort(v Value, c *call) (Value, error) {
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("a %s has no keys to sort by", typeName(v))
	}
	all, _ := dictItems(d, nil)
	items := all.(*List).Items
	by := 0
	if c.text(1, "by", "key") == "value" {
		by = 1
	}
	sensitive := truth(c.arg(0, "case_sensitive", false))
	key := func(i int) Value {
		k := items[i].(*List).Items[by]
		if t, ok := k.(Text); ok && !sensitive {
			return lit(strings.ToLower(t.s))
		}
		return k
	}
	var failed error
	down := truth(c.arg(2, "reverse", false))
	sort.SliceStable(items, func(i, j int) bool {
		if down {
			i, j = j, i
		}
		n, ok := order(key(i), key(j))
		if !ok {
			failed = errors.New("values of a mapping have no order")
		}
		return n < 0
	})
	return &List{Items: items}, failed
}
