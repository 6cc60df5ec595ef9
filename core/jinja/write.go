package jinja

import (
	"fmt"
	"sort"
	"strings"
	"unicode"
)

// print appends a value as {{ }} writes it.
func (b *builder) print(v Value) error {
	switch v := v.(type) {
	case undefined:
		return nil
	case Text:
		b.add(v)
		return nil
	}
	return b.repr(v, FromTemplate, 0)
}

// str is a value as text.
func str(v Value) (Text, error) {
	if t, ok := v.(Text); ok {
		return t, nil
	}
	var b builder
	err := b.print(v)
	return b.text(), err
}

// maxNesting bounds how deep values may be written.
const maxNesting = 200

// repr appends a value as Python's repr does. What has no source of its own has
// that of what it is in.
func (b *builder) repr(v Value, in Source, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("values are nested deeper than %d", maxNesting)
	}
	switch v := v.(type) {
	case nil:
		b.str("None", in)
	case undefined:
		b.str("Undefined", in)
	case bool:
		b.str(pyBool(v), in)
	case Number:
		b.str(v.Text, v.From)
	case Text:
		b.quotePython(v, in)
	case *List:
		open, end := "[", "]"
		if v.tuple {
			open, end = "(", ")"
			if len(v.Items) == 1 {
				end = ",)"
			}
		}
		b.str(open, v.From)
		for i, item := range v.Items {
			if i > 0 {
				b.str(", ", v.From)
			}
			if err := b.repr(item, v.From, depth+1); err != nil {
				return err
			}
		}
		b.str(end, v.From)
	case *Dict:
		b.str("{", v.From)
		for i := range v.keys {
			if i > 0 {
				b.str(", ", v.From)
			}
			if err := b.repr(v.key(i), v.From, depth+1); err != nil {
				return err
			}
			b.str(": ", v.From)
			if err := b.repr(v.values[i], v.From, depth+1); err != nil {
				return err
			}
		}
		b.str("}", v.From)
	default:
		return fmt.Errorf("a %s can't be written", typeName(v))
	}
	return nil
}

func pyBool(v bool) string {
	if v {
		return "True"
	}
	return "False"
}

// first is the source of the first piece, which quotes around a text get.
func (t Text) first(in Source) Source {
	if len(t.runs) == 0 {
		return in
	}
	return t.runs[0].from
}

func (b *builder) quotePython(t Text, in Source) {
	quote := byte('\'')
	if strings.Contains(t.s, "'") && !strings.Contains(t.s, `"`) {
		quote = '"'
	}
	b.str(string(quote), t.first(in))
	t.Pieces(func(s string, from Source) {
		for _, r := range s {
			switch {
			case r == rune(quote) || r == '\\':
				b.b = append(b.b, '\\', byte(r))
			case r == '\n':
				b.b = append(b.b, `\n`...)
			case r == '\r':
				b.b = append(b.b, `\r`...)
			case r == '\t':
				b.b = append(b.b, `\t`...)
			case r == ' ' || unicode.IsPrint(r):
				b.b = append(b.b, string(r)...)
			case r < 0x100:
				b.b = fmt.Appendf(b.b, `\x%02x`, r)
			case r < 0x10000:
				b.b = fmt.Appendf(b.b, `\u%04x`, r)
			default:
				b.b = fmt.Appendf(b.b, `\U%08x`, r)
			}
		}
		b.mark(from)
	})
	b.str(string(quote), t.first(in))
}

// jsonStyle is how JSON is laid out. indent < 0 is one line.
type jsonStyle struct {
	item, key string
	indent    int
	sort      bool
	ascii     bool
}

// json appends a value as Python's json.dumps does.
func (b *builder) json(v Value, s jsonStyle, in Source, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("values are nested deeper than %d", maxNesting)
	}
	switch v := v.(type) {
	case nil:
		b.str("null", in)
	case bool:
		b.str(strings.ToLower(pyBool(v)), in)
	case Number:
		b.str(v.Text, v.From)
	case Text:
		b.quoteJSON(v, in, s.ascii)
	case *List:
		return b.jsonItems("[", "]", v.From, len(v.Items), s, depth, func(i int) error {
			return b.json(v.Items[i], s, v.From, depth+1)
		})
	case *Dict:
		at := make([]int, len(v.keys))
		for i := range at {
			at[i] = i
		}
		if s.sort {
			sort.SliceStable(at, func(i, j int) bool { return v.keys[at[i]].s < v.keys[at[j]].s })
		}
		return b.jsonItems("{", "}", v.From, len(v.keys), s, depth, func(i int) error {
			b.quoteJSON(v.keyText(at[i]), v.From, s.ascii)
			b.str(s.key, v.From)
			return b.json(v.values[at[i]], s, v.From, depth+1)
		})
	default:
		return fmt.Errorf("a %s is no JSON", typeName(v))
	}
	return nil
}

func (b *builder) jsonItems(open, end string, from Source, n int, s jsonStyle, depth int, item func(i int) error) error {
	b.str(open, from)
	for i := range n {
		if i > 0 {
			b.str(s.item, from)
		}
		b.newline(s, depth+1, from)
		if err := item(i); err != nil {
			return err
		}
	}
	if n > 0 {
		b.newline(s, depth, from)
	}
	b.str(end, from)
	return nil
}

func (b *builder) newline(s jsonStyle, depth int, from Source) {
	if s.indent >= 0 {
		b.str("\n"+strings.Repeat(" ", s.indent*depth), from)
	}
}

func (b *builder) quoteJSON(t Text, in Source, ascii bool) {
	b.str(`"`, t.first(in))
	t.Pieces(func(s string, from Source) {
		for _, r := range s {
			switch {
			case r == '"' || r == '\\':
				b.b = append(b.b, '\\', byte(r))
			case r == '\n':
				b.b = append(b.b, `\n`...)
			case r == '\r':
				b.b = append(b.b, `\r`...)
			case r == '\t':
				b.b = append(b.b, `\t`...)
			case r == '\b':
				b.b = append(b.b, `\b`...)
			case r == '\f':
				b.b = append(b.b, `\f`...)
			case r < 0x20 || ascii && r > 0x7e && r < 0x10000:
				b.b = fmt.Appendf(b.b, `\u%04x`, r)
			case ascii && r >= 0x10000:
				b.b = fmt.Appendf(b.b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
			default:
				b.b = append(b.b, string(r)...)
			}
		}
		b.mark(from)
	})
	b.str(`"`, t.first(in))
}
