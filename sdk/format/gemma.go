package format

import (
	"slices"
	"strings"
)

// sorted is the members of an object in the order of their keys, which is how
// Gemma's templates write them.
func sorted(members []Member) []Member {
	out := slices.Clone(members)
	slices.SortStableFunc(out, func(a, b Member) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// appendGemma writes v as Gemma writes arguments: bare keys in order, strings
// between marks, no spaces.
func (v Value) appendGemma(dst []byte, mark string) []byte {
	switch v.kind {
	case kindString:
		return append(append(append(dst, mark...), v.text...), mark...)
	case kindArray:
		dst = append(dst, '[')
		for i, item := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendGemma(dst, mark)
		}
		return append(dst, ']')
	case kindObject:
		dst = append(dst, '{')
		for i, m := range sorted(v.members) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(dst, m.Key...), ':')
			dst = m.Value.appendGemma(dst, mark)
		}
		return append(dst, '}')
	case 0:
		return append(dst, "null"...)
	}
	return append(dst, v.text...)
}

// gemmaTool writes the declaration of a tool for Gemma.
func gemmaTool(mark string, t toolView) string {
	var b strings.Builder
	b.WriteString("declaration:" + t.Name + "{description:" + mark + t.Description + mark)
	if t.Parameters.IsObject() {
		b.WriteString(",parameters:{")
		gemmaFields(&b, mark, t.Parameters, "", 0)
		b.WriteByte('}')
	}
	b.WriteByte('}')
	return b.String()
}

// gemmaFields writes what a schema says, without the braces around it. before
// precedes the first field.
func gemmaFields(b *strings.Builder, mark string, s Value, before string, depth int) {
	field := func(text string) {
		b.WriteString(before + text)
		before = ","
	}
	if d := s.Get("description"); d.IsString() {
		field("description:" + mark + d.text + mark)
	}
	if e := s.Get("enum"); len(e.items) > 0 {
		field("enum:" + string(e.appendGemma(nil, mark)))
	}
	if items := s.Get("items"); items.IsObject() && depth < maxDepth {
		field("items:{")
		gemmaFields(b, mark, items, "", depth+1)
		b.WriteByte('}')
	}
	if p := s.Get("properties"); p.IsObject() && depth < maxDepth {
		field("properties:{")
		for i, m := range sorted(p.members) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(m.Key + ":{")
			gemmaFields(b, mark, m.Value, "", depth+1)
			b.WriteByte('}')
		}
		b.WriteByte('}')
	}
	if r := s.Get("required"); len(r.items) > 0 {
		field("required:" + string(r.appendGemma(nil, mark)))
	}
	if t := s.Get("type"); t.IsString() {
		field("type:" + mark + strings.ToUpper(t.text) + mark)
	} else if len(t.items) > 0 {
		field("type:" + strings.ToUpper(string(t.appendGemma(nil, mark))))
	}
}
