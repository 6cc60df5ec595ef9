package jinja

import (
	"errors"
	"slices"
)

// listMethods are those of lists. Some change the list itself, which templates
// keep queues in: a list that is looped over, or that others share items with,
// is never changed under them, as each change makes new items.
var listMethods = map[string]method[*List]{
	"index": func(l *List, c *call) (Value, error) {
		for i, item := range l.Items {
			if equal(item, at(c.list, 0)) {
				return integer(i), nil
			}
		}
		return nil, errors.New("the value is not in the list")
	},
	"count": func(l *List, c *call) (Value, error) {
		n := 0
		for _, item := range l.Items {
			if equal(item, at(c.list, 0)) {
				n++
			}
		}
		return integer(n), nil
	},
	"append": changing(func(l *List, c *call) (Value, error) {
		if len(c.list) != 1 {
			return nil, errors.New("append needs one value")
		}
		l.Items = append(slices.Clip(l.Items), c.list[0])
		return nil, nil
	}),
	"extend": changing(func(l *List, c *call) (Value, error) {
		items, err := iterate(c.arg(0, "iterable", nil))
		if err != nil {
			return nil, err
		}
		l.Items = append(slices.Clip(l.Items), items...)
		return nil, nil
	}),
	"insert": changing(func(l *List, c *call) (Value, error) {
		if len(c.list) != 2 {
			return nil, errors.New("insert needs a place and a value")
		}
		i := c.int(0, "index", 0)
		if i < 0 {
			i += len(l.Items)
		}
		i = max(0, min(i, len(l.Items)))
		l.Items = slices.Concat(l.Items[:i], []Value{c.list[1]}, l.Items[i:])
		return nil, nil
	}),
	"pop": changing(func(l *List, c *call) (Value, error) {
		i := c.int(0, "index", -1)
		if i < 0 {
			i += len(l.Items)
		}
		if i < 0 || i >= len(l.Items) {
			return nil, errors.New("the list has no item there to pop")
		}
		v := l.Items[i]
		l.Items = slices.Concat(l.Items[:i], l.Items[i+1:])
		return v, nil
	}),
}

// changing is a method that tuples don't have.
func changing(m method[*List]) method[*List] {
	return func(l *List, c *call) (Value, error) {
		if l.tuple {
			return nil, errors.New("a tuple can't be changed")
		}
		return m(l, c)
	}
}
