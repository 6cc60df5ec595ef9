package format

import (
	"slices"
	"strings"
)

// kimiTools declares tools to Kimi K2.5 and newer: a TypeScript namespace, with
// required fields first and fields in the order of their names. A schema that
// it can't say makes all declarations compact JSON instead, as the models' own
// tokenizer does.
func kimiTools(tools []toolView) string {
	var all []string
	for _, t := range tools {
		text, ok := kimiTool(t)
		if !ok {
			v := Value{kind: kindArray}
			for _, t := range tools {
				v.items = append(v.items, t.Definition)
			}
			return v.Sorted().Compact()
		}
		all = append(all, text)
	}
	return "# Tools\n\n## functions\nnamespace functions {\n" + strings.Join(all, "\n") + "\n}\n"
}

// kimiWriter writes the types of one tool.
type kimiWriter struct {
	defs    Value
	toSelf  bool
	invalid bool
}

func kimiTool(t toolView) (string, bool) {
	w := &kimiWriter{defs: t.Parameters.Get("$defs")}
	root := w.object(t.Parameters, "")
	var parts []string
	if w.toSelf {
		fields := strings.Join(w.fields(t.Parameters, "  ", sorted(t.Parameters.Get("properties").members)), ",\n")
		parts = append(parts, "interface parameters {\n"+fields+"\n}")
		root = "parameters"
	}
	for _, d := range sorted(w.defs.members) {
		def := "interface " + d.Key + " " + w.schema(d.Value, "")
		if text := d.Value.Get("description").text; text != "" {
			def = kimiComment(text, "") + "\n" + def
		}
		parts = append(parts, def)
	}
	if t.Description != "" {
		parts = append(parts, kimiComment(t.Description, ""))
	}
	parts = append(parts, "type "+t.Name+" = (_: "+root+") => any;")
	return strings.Join(parts, "\n"), !w.invalid
}

func kimiComment(text, indent string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = indent + "// " + line
		}
	}
	return strings.Join(lines, "\n")
}

// object writes an object's type.
func (w *kimiWriter) object(s Value, indent string) string {
	inner := indent + "  "
	required := s.Get("required").items
	isRequired := func(m Member) bool {
		return slices.ContainsFunc(required, func(r Value) bool { return r.IsString() && r.text == m.Key })
	}
	var first, last []Member
	for _, m := range sorted(s.Get("properties").members) {
		if isRequired(m) {
			first = append(first, m)
		} else {
			last = append(last, m)
		}
	}
	fields := w.fields(s, inner, slices.Concat(first, last))
	if more := s.Get("additionalProperties"); more.Present() && !more.IsNull() {
		of := "any"
		switch {
		case more.kind == kindBool && more.text == "false":
			of = "never"
		case more.IsObject():
			of = w.schema(more, inner)
		case more.kind != kindBool:
			w.invalid = true
		}
		fields = append(fields, inner+"[k: string]: "+of)
	}
	if len(fields) == 0 {
		return "{}"
	}
	return "{\n" + strings.Join(fields, ",\n") + "\n" + indent + "}"
}

// fields writes the members of an object, each with its comments.
func (w *kimiWriter) fields(s Value, indent string, members []Member) []string {
	required := s.Get("required").items
	var out []string
	for _, m := range members {
		text := w.comments(m.Value, indent)
		if d := m.Value.Get("default"); d.Present() && !d.IsNull() {
			shown := d.Sorted().JSON()
			if d.kind == kindBool {
				shown = d.Text()
			}
			text += indent + "// Default: " + shown + "\n"
		}
		mark := "?"
		if slices.ContainsFunc(required, func(r Value) bool { return r.IsString() && r.text == m.Key }) {
			mark = ""
		}
		out = append(out, text+indent+m.Key+mark+": "+w.schema(m.Value, indent))
	}
	return out
}

// comments are a schema's description and its bounds.
func (w *kimiWriter) comments(s Value, indent string) string {
	out := ""
	if d := s.Get("description").text; d != "" {
		out = kimiComment(d, indent) + "\n"
	}
	var keys, bounds []string
	if !s.Get("anyOf").Present() && !s.Get("enum").Present() && !s.Get("$ref").Present() {
		switch s.Get("type").text {
		case "string":
			keys = []string{"maxLength", "minLength", "pattern"}
		case "number", "integer":
			keys = []string{"maximum", "minimum"}
		case "array":
			keys = []string{"maxItems", "minItems"}
		}
	}
	for _, k := range keys {
		if v := s.Get(k); v.Present() {
			bounds = append(bounds, k+": "+v.Repr())
		}
	}
	if len(bounds) > 0 {
		out += indent + "// " + strings.Join(bounds, ", ") + "\n"
	}
	return out
}

// schema writes the type that a schema is of.
func (w *kimiWriter) schema(s Value, indent string) string {
	if len(indent) > 2*maxDepth {
		w.invalid = true
		return "any"
	}
	of := s.Get("type")
	switch {
	case s.kind == kindBool && s.text == "true":
		return "any"
	case s.kind == kindBool:
		return "null"
	case s.Get("$ref").Present():
		return w.reference(s.Get("$ref").text)
	case s.Get("anyOf").Present():
		var all []string
		for _, one := range s.Get("anyOf").items {
			all = append(all, w.schema(one, indent))
		}
		return strings.Join(all, " | ")
	case s.Get("enum").Present():
		return w.enum(s)
	case of.IsArray():
		return w.union(of.items)
	case of.text == "object":
		return w.object(s, indent)
	case of.text == "array":
		return w.array(s.Get("items"), indent)
	case of.text == "integer":
		return "number"
	case of.IsString():
		return of.text
	case s.IsObject() && len(s.members) == 0:
		return "any"
	}
	w.invalid = true
	return "any"
}

func (w *kimiWriter) reference(ref string) string {
	if ref == "#" {
		w.toSelf = true
		return "parameters"
	}
	name, ok := strings.CutPrefix(ref, "#/$defs/")
	if !ok || !w.defs.Get(name).Present() {
		w.invalid = true
	}
	return name
}

// enum writes values. One that isn't of the declared type makes the schema one
// that can't be said.
func (w *kimiWriter) enum(s Value) string {
	want := s.Get("type").text
	if list := s.Get("type").items; len(list) > 0 {
		for _, t := range list {
			if t.text != "null" {
				want = t.text
			}
		}
		w.invalid = w.invalid || len(list) > 2
	}
	var all []string
	for _, v := range s.Get("enum").items {
		is := v.Type()
		if want == "integer" {
			is = strings.Replace(is, "number", "integer", 1)
		}
		if want != "" && !v.IsNull() && is != want {
			w.invalid = true
		}
		if v.IsString() {
			all = append(all, `"`+v.text+`"`)
		} else {
			all = append(all, v.Text())
		}
	}
	return strings.Join(all, " | ")
}

func (w *kimiWriter) union(of []Value) string {
	names := map[string]string{
		"string": "string", "number": "number", "integer": "number", "boolean": "boolean",
		"null": "null", "object": "{}", "array": "Array<any>",
	}
	var all []string
	for _, t := range of {
		name, ok := names[t.text]
		w.invalid = w.invalid || !ok
		all = append(all, name)
	}
	return strings.Join(all, " | ")
}

func (w *kimiWriter) array(items Value, indent string) string {
	if !items.Present() || items.IsNull() || items.IsObject() && len(items.members) == 0 {
		return "Array<any>"
	}
	inner := indent + "  "
	if text := w.comments(items, inner); text != "" {
		return "Array<\n" + text + inner + w.schema(items, inner) + "\n" + indent + ">"
	}
	return "Array<" + w.schema(items, indent) + ">"
}
