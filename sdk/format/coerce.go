package format

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// types is the set of JSON types that a schema allows.
type types uint8

const (
	typeString types = 1 << iota
	typeInteger
	typeNumber
	typeBoolean
	typeObject
	typeArray
	typeNull
)

// params holds what the schema of a tool says of its parameters.
type params struct {
	known  bool // the tool was offered
	root   Value
	object Value // its properties
}

func paramsOf(tools []chat.Tool, name string) params {
	for _, t := range tools {
		if t.Name != name {
			continue
		}
		p := params{known: true}
		if root, err := ParseValue(t.Parameters); err == nil {
			p.root, p.object = root, root.Get("properties")
		}
		return p
	}
	return params{}
}

func (p params) declared(key string) bool { return p.object.Get(key).Present() }

// types returns what a parameter may be: a string when nothing is known.
func (p params) types(key string) types {
	t := typesOf(p.object.Get(key), p.root, 0)
	if t == 0 {
		return typeString
	}
	return t
}

// typesOf resolves a schema: type, unions, references, and what can be told
// from enum, const, properties and items.
func typesOf(s, root Value, depth int) types {
	if depth > 16 || !s.IsObject() {
		return 0
	}
	var t types
	if of := s.Get("type"); of.IsString() {
		t |= typeNamed(of.text)
	} else {
		for _, item := range of.items {
			t |= typeNamed(item.text)
		}
	}
	for _, union := range []string{"anyOf", "oneOf", "allOf"} {
		for _, item := range s.Get(union).items {
			t |= typesOf(item, root, depth+1)
		}
	}
	if ref := s.Get("$ref"); ref.IsString() && t == 0 {
		t |= typesOf(resolve(ref.text, root), root, depth+1)
	}
	if t == 0 {
		for _, v := range append(s.Get("enum").items, s.Get("const")) {
			t |= typeOf(v)
		}
	}
	if t == 0 && s.Get("properties").IsObject() {
		t |= typeObject
	}
	if t == 0 && s.Get("items").Present() {
		t |= typeArray
	}
	if n := s.Get("nullable"); n.kind == kindBool && n.text == "true" && t != 0 {
		t |= typeNull
	}
	return t
}

// resolve follows a reference inside the document, such as #/$defs/X.
func resolve(ref string, root Value) Value {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return Value{}
	}
	for token := range strings.SplitSeq(path, "/") {
		root = root.Get(strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~"))
	}
	return root
}

// typeNamed takes JSON Schema's names and those that are seen in the wild.
func typeNamed(name string) types {
	n := strings.ToLower(name)
	switch n {
	case "string", "str", "text", "varchar", "char", "enum":
		return typeString
	case "bool", "boolean", "binary":
		return typeBoolean
	case "object", "dict", "map":
		return typeObject
	case "array", "arr", "list", "sequence", "tuple":
		return typeArray
	case "null", "none":
		return typeNull
	case "long", "short":
		return typeInteger
	}
	for prefix, t := range map[string]types{
		"int": typeInteger, "uint": typeInteger, "unsigned": typeInteger,
		"num": typeNumber, "float": typeNumber, "double": typeNumber,
		"dict": typeObject, "list": typeArray,
	} {
		if strings.HasPrefix(n, prefix) {
			return t
		}
	}
	return 0
}

func typeOf(v Value) types {
	switch v.kind {
	case kindString:
		return typeString
	case kindBool:
		return typeBoolean
	case kindNull:
		return typeNull
	case kindArray:
		return typeArray
	case kindObject:
		return typeObject
	case kindNumber:
		if strings.ContainsAny(v.text, ".eE") {
			return typeNumber
		}
		return typeInteger
	}
	return 0
}

// coerce appends the JSON of a text value of the given types. What fits none
// of them stays the text that it is.
func coerce(dst, raw []byte, t types) []byte {
	if t&^typeString != 0 {
		if out, ok := coerceTyped(dst, bytes.TrimSpace(raw), t); ok {
			return out
		}
	}
	dst = append(dst, '"')
	return append(appendQuoted(dst, raw), '"')
}

func coerceTyped(dst, s []byte, t types) ([]byte, bool) {
	if t&typeNull != 0 && (isNull(s) || len(s) == 0 && t&typeString == 0) {
		return append(dst, "null"...), true
	}
	if len(s) == 0 {
		return dst, false
	}
	if t&typeBoolean != 0 {
		switch strings.ToLower(string(s[:min(len(s), 6)])) {
		case "true":
			return append(dst, "true"...), true
		case "false":
			return append(dst, "false"...), true
		}
	}
	if t&(typeInteger|typeNumber) != 0 {
		if out, ok := appendNumber(dst, s, t); ok {
			return out, true
		}
	}
	if t&(typeObject|typeArray) != 0 {
		return coerceContainer(dst, s, t)
	}
	return dst, false
}

func isNull(s []byte) bool {
	return len(s) == 4 && (strings.EqualFold(string(s), "null") || strings.EqualFold(string(s), "none"))
}

// appendNumber takes an integer of any size, exactly, and for a number what
// JSON takes; 5.0 is an integer.
func appendNumber(dst, s []byte, t types) ([]byte, bool) {
	s = bytes.TrimPrefix(s, []byte("+"))
	sign := bytes.HasPrefix(s, []byte("-"))
	digits := bytes.TrimPrefix(s, []byte("-"))
	if t&typeNumber == 0 {
		if whole, fraction, ok := bytes.Cut(digits, []byte(".")); ok && len(fraction) > 0 && len(bytes.Trim(fraction, "0")) == 0 {
			digits = whole
		}
	}
	if len(digits) > 0 && len(bytes.Trim(digits, "0123456789")) == 0 {
		if digits = bytes.TrimLeft(digits, "0"); len(digits) == 0 {
			digits, sign = []byte("0"), false
		}
		if sign {
			dst = append(dst, '-')
		}
		return append(dst, digits...), true
	}
	if t&typeNumber != 0 && len(s) > 0 && numberEnd(s) == len(s) {
		return append(dst, s...), true
	}
	return dst, false
}

// coerceContainer takes JSON, then JSON with Python's liberties, then a JSON
// string that holds either.
func coerceContainer(dst, s []byte, t types) ([]byte, bool) {
	wanted := func(j []byte) bool {
		return j[0] == '{' && t&typeObject != 0 || j[0] == '[' && t&typeArray != 0
	}
	if wanted(s) && json.Valid(s) {
		return append(dst, s...), true
	}
	if out, ok := looseJSON(s); ok && len(out) > 0 && wanted(out) {
		return append(dst, out...), true
	}
	if s[0] != '"' || t&typeString != 0 {
		return dst, false
	}
	inner, err := ParseValue(s)
	if err != nil {
		return dst, false
	}
	text := bytes.TrimSpace([]byte(inner.text))
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return dst, false
	}
	return coerceContainer(dst, text, t)
}
