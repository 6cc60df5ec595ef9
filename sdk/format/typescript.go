package format

import "strings"

// typescript writes the parameters of a tool as a TypeScript type, as gpt-oss
// is shown them.
func typescript(schema Value) string {
	var b strings.Builder
	writeType(&b, schema, 0)
	return b.String()
}

func writeType(b *strings.Builder, s Value, depth int) {
	if depth > 16 {
		b.WriteString("any")
		return
	}
	if values := s.Get("enum").items; len(values) > 0 {
		for i, v := range values {
			if i > 0 {
				b.WriteString(" | ")
			}
			b.WriteString(v.JSON())
		}
		return
	}
	for _, union := range []string{"anyOf", "oneOf"} {
		if members := s.Get(union).items; len(members) > 0 {
			for i, m := range members {
				if i > 0 {
					b.WriteString(" | ")
				}
				writeType(b, m, depth+1)
			}
			return
		}
	}
	of := s.Get("type")
	if !of.IsArray() {
		writeNamed(b, of.text, s, depth)
		return
	}
	for i, t := range of.items {
		if i > 0 {
			b.WriteString(" | ")
		}
		writeNamed(b, t.text, s, depth)
	}
}

func writeNamed(b *strings.Builder, name string, s Value, depth int) {
	switch name {
	case "string", "boolean", "null":
		b.WriteString(name)
	case "integer", "number":
		b.WriteString("number")
	case "array":
		if items := s.Get("items"); items.IsObject() {
			writeType(b, items, depth+1)
		} else {
			b.WriteString("any")
		}
		b.WriteString("[]")
	case "object":
		writeObject(b, s, depth)
	default:
		if s.Get("properties").IsObject() {
			writeObject(b, s, depth)
			return
		}
		b.WriteString("any")
	}
}

func writeObject(b *strings.Builder, s Value, depth int) {
	required := map[string]bool{}
	for _, r := range s.Get("required").items {
		required[r.text] = true
	}
	b.WriteString("{\n")
	for _, m := range s.Get("properties").members {
		if d := m.Value.Get("description"); d.IsString() {
			b.WriteString("// " + strings.ReplaceAll(d.text, "\n", "\n// ") + "\n")
		}
		b.WriteString(m.Key)
		if !required[m.Key] {
			b.WriteByte('?')
		}
		b.WriteString(": ")
		writeType(b, m.Value, depth+1)
		b.WriteByte(',')
		if d := m.Value.Get("default"); d.Present() {
			b.WriteString(" // default: " + d.Plain())
		}
		b.WriteByte('\n')
	}
	b.WriteByte('}')
}
