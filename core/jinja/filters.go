package jinja

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
)

// iterate is the items of what can be looped over.
func iterate(v Value) ([]Value, error) {
	switch v := v.(type) {
	case *List:
		return v.Items, nil
	case *Dict:
		out := make([]Value, len(v.keys))
		for i := range v.keys {
			out[i] = v.key(i)
		}
		return out, nil
	case Text:
		var out []Value
		v.Pieces(func(s string, from Source) {
			for _, r := range s {
				out = append(out, String(string(r), from))
			}
		})
		return out, nil
	case undefined:
		return nil, nil
	}
	return nil, fmt.Errorf("a %s can't be looped over", typeName(v))
}

type filter func(v Value, c *call) (Value, error)

// onText is a filter of text; other values are written first.
func onText(f func(t Text, c *call) (Value, error)) filter {
	return func(v Value, c *call) (Value, error) {
		t, err := str(v)
		if err != nil {
			return nil, err
		}
		return f(t, c)
	}
}

// onItems is a filter of what can be looped over.
func onItems(f func(items []Value, c *call) (Value, error)) filter {
	return func(v Value, c *call) (Value, error) {
		items, err := iterate(v)
		if err != nil {
			return nil, err
		}
		return f(items, c)
	}
}

// onSome is onItems of a filter that makes nothing of what is empty, none and
// false among it.
func onSome(f func(items []Value, c *call) (Value, error)) filter {
	return func(v Value, c *call) (Value, error) {
		if !truth(v) {
			return f(nil, c)
		}
		return onItems(f)(v, c)
	}
}

// filterTable is the filters by name.
func filterTable() map[string]filter {
	f := map[string]filter{
		"tojson":    toJSON,
		"from_json": fromJSON,
		"default":   defaultValue,
		"length":    length,
		"string":    onText(func(t Text, _ *call) (Value, error) { return t, nil }),
		"safe":      func(v Value, _ *call) (Value, error) { return v, nil },
		"trim": onText(func(t Text, c *call) (Value, error) {
			return t.trim(c.text(0, "chars", ""), true, true), nil
		}),
		"upper":      onText(func(t Text, c *call) (Value, error) { return upper(t, c) }),
		"lower":      onText(func(t Text, c *call) (Value, error) { return lower(t, c) }),
		"capitalize": onText(func(t Text, c *call) (Value, error) { return capitalize(t, c) }),
		"title":      onText(func(t Text, c *call) (Value, error) { return title(t, c) }),
		"replace":    onText(func(t Text, c *call) (Value, error) { return replaced(t, c) }),
		"indent":     onText(indent),
		"escape":     onText(escapeHTML),
		"format": onText(func(t Text, c *call) (Value, error) {
			return formatPercent(t, &List{Items: c.list, tuple: true})
		}),
		"wordcount":  onText(func(t Text, _ *call) (Value, error) { return integer(len(strings.Fields(t.s))), nil }),
		"first":      onItems(func(items []Value, _ *call) (Value, error) { return at(items, 0), nil }),
		"last":       onItems(func(items []Value, _ *call) (Value, error) { return at(items, len(items)-1), nil }),
		"list":       onItems(func(items []Value, _ *call) (Value, error) { return &List{Items: items}, nil }),
		"reverse":    reverse,
		"join":       onItems(join),
		"unique":     onItems(unique),
		"sort":       onItems(sorted),
		"map":        onSome(mapped),
		"select":     onSome(func(items []Value, c *call) (Value, error) { return selected(items, c, false, true) }),
		"reject":     onSome(func(items []Value, c *call) (Value, error) { return selected(items, c, false, false) }),
		"selectattr": onSome(func(items []Value, c *call) (Value, error) { return selected(items, c, true, true) }),
		"rejectattr": onSome(func(items []Value, c *call) (Value, error) { return selected(items, c, true, false) }),
		"sum":        onItems(sum),
		"min":        onItems(func(items []Value, _ *call) (Value, error) { return extreme(items, -1) }),
		"max":        onItems(func(items []Value, _ *call) (Value, error) { return extreme(items, 1) }),
		"batch":      onItems(batch),
		"items": func(v Value, c *call) (Value, error) {
			if d, ok := v.(*Dict); ok {
				return dictItems(d, c)
			}
			if _, ok := v.(undefined); ok {
				return &List{}, nil
			}
			return nil, fmt.Errorf("a %s has no items", typeName(v))
		},
		"dictsort": dictsort,
		"attr": func(v Value, c *call) (Value, error) {
			return attribute(v, c.text(0, "name", ""))
		},
		"int":   toInt,
		"float": toFloat,
		"round": round,
		"abs": func(v Value, _ *call) (Value, error) {
			n, ok := asNumber(v)
			if !ok {
				return nil, fmt.Errorf("a %s has no absolute value", typeName(v))
			}
			return Number{strings.TrimPrefix(n.Text, "-"), n.From}, nil
		},
	}
	f["d"], f["count"], f["e"] = f["default"], f["length"], f["escape"]
	return f
}

func at(items []Value, i int) Value {
	if i < 0 || i >= len(items) {
		return undefined{"an item of nothing"}
	}
	return items[i]
}

func defaultValue(v Value, c *call) (Value, error) {
	if _, missing := v.(undefined); missing || truth(c.arg(1, "boolean", false)) && !truth(v) {
		return c.arg(0, "default_value", Text{}), nil
	}
	return v, nil
}

func length(v Value, _ *call) (Value, error) {
	switch v := v.(type) {
	case Text:
		return integer(v.runes()), nil
	case *List:
		return integer(len(v.Items)), nil
	case *Dict:
		return integer(len(v.keys)), nil
	case undefined:
		return integer(0), nil
	}
	return nil, fmt.Errorf("a %s has no length", typeName(v))
}

// toJSON is json.dumps as transformers sets it up: no HTML escapes, and text
// that isn't ASCII as it is.
func toJSON(v Value, c *call) (Value, error) {
	s := jsonStyle{item: ", ", key: ": ", indent: -1}
	switch n := c.arg(1, "indent", nil).(type) {
	case Number:
		s.indent, s.item = c.int(1, "indent", 0), ","
	case nil:
	default:
		return nil, fmt.Errorf("tojson can't indent by a %s", typeName(n))
	}
	if len(c.list) == 1 { // Jinja's own tojson has the indent first
		if n, ok := c.list[0].(Number); ok {
			s.indent, s.item = int(n.float()), ","
		}
	}
	s.ascii = truth(c.arg(0, "ensure_ascii", false)) && len(c.list) != 1
	s.sort = truth(c.arg(3, "sort_keys", false))
	if l, ok := c.arg(2, "separators", nil).(*List); ok && len(l.Items) == 2 {
		item, _ := l.Items[0].(Text)
		key, _ := l.Items[1].(Text)
		s.item, s.key = item.s, key.s
	}
	if u, ok := v.(undefined); ok {
		return nil, fmt.Errorf("%s is undefined, and no JSON", orSomething(u.name))
	}
	var b builder
	err := b.json(v, s, FromTemplate, 0)
	return b.text(), err
}

func indent(t Text, c *call) (Value, error) {
	pad := String(strings.Repeat(" ", max(0, min(c.int(0, "width", 4), 1000))), FromTemplate)
	if w, ok := c.arg(0, "width", nil).(Text); ok {
		pad = w
	}
	first, blank := truth(c.arg(1, "first", false)), truth(c.arg(2, "blank", false))
	var b builder
	for i, line := range t.split("\n", -1, false) {
		if i > 0 {
			b.str("\n", FromTemplate)
		}
		if (i > 0 || first) && (blank || line.s != "") {
			b.add(pad)
		}
		b.add(line)
	}
	return b.text(), nil
}

func escapeHTML(t Text, _ *call) (Value, error) {
	out := map[rune]string{'&': "&amp;", '<': "&lt;", '>': "&gt;", '\'': "&#39;", '"': "&#34;"}
	return t.mapRunes(func(r, _ rune) string {
		if s, ok := out[r]; ok {
			return s
		}
		return string(r)
	}), nil
}

func toInt(v Value, c *call) (Value, error) {
	def := c.arg(0, "default", integer(0))
	switch v := v.(type) {
	case Text:
		s := strings.TrimSpace(v.s)
		if n := (Number{Text: strings.TrimPrefix(s, "+")}); s != "" && strings.Trim(strings.TrimLeft(s, "+-"), "0123456789") == "" {
			return Number{Text: n.big().String()}, nil
		}
		if f := (Number{Text: s}).float(); f != 0 {
			return integer(int(f)), nil
		}
		return def, nil
	default:
		n, ok := asNumber(v)
		if !ok {
			return def, nil
		}
		if n.isInt() {
			return n, nil
		}
		return integer(int(math.Trunc(n.float()))), nil
	}
}

func toFloat(v Value, c *call) (Value, error) {
	if t, ok := v.(Text); ok {
		if f := (Number{Text: strings.TrimSpace(t.s)}).float(); f != 0 || strings.ContainsAny(t.s, "0") {
			return float(f), nil
		}
		return c.arg(0, "default", float(0)), nil
	}
	n, ok := asNumber(v)
	if !ok {
		return c.arg(0, "default", float(0)), nil
	}
	return float(n.float()), nil
}

func round(v Value, c *call) (Value, error) {
	n, ok := asNumber(v)
	if !ok {
		return nil, fmt.Errorf("a %s can't be rounded", typeName(v))
	}
	f, scale := n.float(), math.Pow(10, float64(c.int(0, "precision", 0)))
	switch c.text(1, "method", "common") {
	case "ceil":
		return float(math.Ceil(f*scale) / scale), nil
	case "floor":
		return float(math.Floor(f*scale) / scale), nil
	}
	return float(math.RoundToEven(f*scale) / scale), nil
}

func upper(t Text, _ *call) (Value, error) {
	return t.mapRunes(func(r, _ rune) string { return strings.ToUpper(string(r)) }), nil
}

func lower(t Text, _ *call) (Value, error) {
	return t.mapRunes(func(r, _ rune) string { return strings.ToLower(string(r)) }), nil
}

func capitalize(t Text, _ *call) (Value, error) {
	return t.mapRunes(func(r, prev rune) string {
		if prev == 0 {
			return strings.ToUpper(string(r))
		}
		return strings.ToLower(string(r))
	}), nil
}

func title(t Text, _ *call) (Value, error) {
	return t.mapRunes(func(r, prev rune) string {
		if !unicode.IsLetter(prev) && prev != '\'' {
			return strings.ToUpper(string(r))
		}
		return strings.ToLower(string(r))
	}), nil
}

func replaced(t Text, c *call) (Value, error) {
	if len(c.list) < 2 {
		return nil, errors.New("replace needs what to put in for what")
	}
	with, err := str(c.list[1])
	if err != nil {
		return nil, err
	}
	old, err := str(c.list[0])
	if err != nil {
		return nil, err
	}
	return t.replace(old.s, with, c.int(2, "count", -1)), nil
}
