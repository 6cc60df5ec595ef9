package format

import "strings"

// typescript writes the parameters of a tool as a TypeScript type, as gpt-oss
// is shown them.
func typescript(schema Value) string {
	var b strings.Builder
	writeType(&b, schema, "", 0)
	return b.String()
}

// writeType writes the type of a schema. The members of an object are indented
// by indent, the brace that closes it too, and those of objects in it by four
// spaces more.
func writeType(b *strings.Builder, s Value, indent string, depth int) {
	if depth > 16 {
		b.WriteString("any")
		return
	}
	start := b.Len()
	writeUnion(b, s, indent, depth)
	if s.Get("nullable").Plain() == "true" && !strings.Contains(b.String()[start:], "null") {
		b.WriteString(" | null")
	}
}

func writeUnion(b *strings.Builder, s Value, indent string, depth int) {
	for _, union := range []string{"anyOf", "oneOf"} {
		if members := s.Get(union).items; len(members) > 0 {
			for i, m := range members {
				if i > 0 {
					b.WriteString(" | ")
				}
				writeType(b, m, indent, depth+1)
			}
			return
		}
	}
	of := s.Get("type")
	if !of.IsArray() {
		writeNamed(b, of.text, s, indent, depth)
		return
	}
	for i, t := range of.items {
		if i > 0 {
			b.WriteString(" | ")
		}
		writeNamed(b, t.text, s, indent, depth)
	}
}

func writeNamed(b *strings.Builder, name string, s Value, indent string, depth int) {
	switch name {
	case "string":
		writeString(b, s)
	case "boolean", "null":
		b.WriteString(name)
	case "integer", "number":
		b.WriteString("number")
	case "array":
		if items := s.Get("items"); items.IsObject() {
			writeType(b, items, indent, depth+1)
		} else {
			b.WriteString("any")
		}
		b.WriteString("[]")
	case "object":
		writeObject(b, s, indent, depth)
	default:
		switch {
		case s.Get("properties").IsObject():
			writeObject(b, s, indent, depth)
		case len(s.Get("enum").items) > 0:
			writeString(b, s)
		default:
			b.WriteString("any")
		}
	}
}

// writeString writes the texts that a string may be, where the schema has them.
func writeString(b *strings.Builder, s Value) {
	values := s.Get("enum").items
	if len(values) == 0 {
		b.WriteString("string")
		return
	}
	for i, v := range values {
		if i > 0 {
			b.WriteString(" | ")
		}
		b.WriteString(v.JSON())
	}
}

func writeObject(b *strings.Builder, s Value, indent string, depth int) {
	required := map[string]bool{}
	for _, r := range s.Get("required").items {
		required[r.text] = true
	}
	b.WriteString("{\n")
	for _, m := range s.Get("properties").members {
		if d := m.Value.Get("description"); d.IsString() {
			b.WriteString(indent + "// " + strings.ReplaceAll(d.text, "\n", "\n"+indent+"// ") + "\n")
		}
		b.WriteString(indent + m.Key)
		if !required[m.Key] {
			b.WriteByte('?')
		}
		b.WriteString(": ")
		writeType(b, m.Value, indent+"    ", depth+1)
		b.WriteByte(',')
		if d := m.Value.Get("default"); d.Present() {
			b.WriteString(" // default: ")
			if m.Value.Get("enum").Present() {
				b.WriteString(d.Plain())
			} else {
				b.WriteString(d.JSON())
			}
		}
		b.WriteByte('\n')
	}
	b.WriteString(indent + "}")
}
