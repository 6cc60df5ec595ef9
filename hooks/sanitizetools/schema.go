package sanitizetools

import (
	"encoding/json"
	"maps"
	"regexp"
	"strings"
)

// kinds is a set of JSON types. The empty set allows anything.
type kinds uint8

const (
	text kinds = 1 << iota
	integer
	number // integers too
	boolean
	null
	dict
	list
)

var kindNames = map[string]kinds{
	"string": text, "integer": integer, "number": number | integer, "boolean": boolean,
	"null": null, "object": dict, "array": list,
}

// node is a schema, as far as it is looked at.
type node struct {
	never bool // the schema false

	Ref         string            `json:"$ref"`
	Type        typeNames         `json:"type"`
	Nullable    bool              `json:"nullable"`
	Properties  map[string]*node  `json:"properties"`
	Required    []string          `json:"required"`
	Additional  *node             `json:"additionalProperties"`
	Pattern     map[string]*node  `json:"patternProperties"`
	Items       *node             `json:"items"`
	AnyOf       []*node           `json:"anyOf"`
	OneOf       []*node           `json:"oneOf"`
	AllOf       []*node           `json:"allOf"`
	Enum        []json.RawMessage `json:"enum"`
	Const       json.RawMessage   `json:"const"`
	Default     json.RawMessage   `json:"default"`
	Defs        map[string]*node  `json:"$defs"`
	Definitions map[string]*node  `json:"definitions"`
}

// UnmarshalJSON takes true, false and objects. What it can't read allows
// anything, so that a strange schema never harms a call.
func (n *node) UnmarshalJSON(data []byte) error {
	type plain node
	if string(data) == "false" {
		n.never = true
		return nil
	}
	var p plain
	if json.Unmarshal(data, &p) == nil {
		*n = node(p)
	}
	return nil
}

// typeNames is one name or a list of them.
type typeNames kinds

func (t *typeNames) UnmarshalJSON(data []byte) error {
	var one string
	var many []string
	if json.Unmarshal(data, &one) == nil {
		many = []string{one}
	} else if json.Unmarshal(data, &many) != nil {
		return nil
	}
	for _, name := range many {
		k, known := kindNames[name]
		if !known {
			*t = 0
			return nil
		}
		*t |= typeNames(k)
	}
	return nil
}

const maxDepth = 64 // of values, and of references to references

// schema is a root with the definitions that its references name. Schemas may
// be circular, so that what is computed of a node is kept.
type schema struct {
	root  *node
	types map[*node]kinds
}

func parse(raw []byte) (*schema, bool) {
	n := &node{}
	if err := json.Unmarshal(raw, n); err != nil {
		return nil, false
	}
	return &schema{n, map[*node]kinds{}}, true
}

var anything = &node{}

// resolve follows references within the schema. One that leads nowhere, or in
// a circle, allows anything.
func (s *schema) resolve(n *node) *node {
	for range maxDepth {
		if n == nil {
			return anything
		}
		if n.Ref == "" {
			return n
		}
		name, ok := strings.CutPrefix(n.Ref, "#/$defs/")
		defs := s.root.Defs
		if !ok {
			name, ok = strings.CutPrefix(n.Ref, "#/definitions/")
			defs = s.root.Definitions
		}
		switch {
		case n.Ref == "#":
			return s.root
		case !ok:
			return anything
		}
		n = defs[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	}
	return anything
}

// kinds returns the types that n allows. A schema that is defined by itself
// allows anything.
func (s *schema) kinds(n *node) kinds {
	n = s.resolve(n)
	if k, known := s.types[n]; known {
		return k
	}
	s.types[n] = 0
	k := kinds(n.Type)
	if k == 0 {
		k = implied(n)
	}
	for _, branches := range [][]*node{n.AnyOf, n.OneOf} {
		k = intersect(k, s.union(branches))
	}
	for _, part := range n.AllOf {
		k = intersect(k, s.kinds(part))
	}
	if k != 0 && n.Nullable {
		k |= null
	}
	s.types[n] = k
	return k
}

func (s *schema) union(branches []*node) (k kinds) {
	for _, b := range branches {
		one := s.kinds(b)
		if one == 0 {
			return 0
		}
		k |= one
	}
	return k
}

func intersect(a, b kinds) kinds {
	switch {
	case a == 0:
		return b
	case b == 0 || a&b == 0:
		return a
	}
	return a & b
}

// implied are the types of a schema that does not name them.
func implied(n *node) (k kinds) {
	switch {
	case n.Properties != nil:
		return dict
	case n.Items != nil:
		return list
	case n.Const != nil:
		return kindOf(n.Const)
	}
	for _, v := range n.Enum {
		k |= kindOf(v)
	}
	return k
}

// kindOf is the type of a value.
func kindOf(raw []byte) kinds {
	switch raw[0] {
	case '"':
		return text
	case '{':
		return dict
	case '[':
		return list
	case 't', 'f':
		return boolean
	case 'n':
		return null
	}
	if wholeNumber.Match(raw) {
		return integer | number
	}
	return number
}

var wholeNumber = regexp.MustCompile(`^-?\d+(?:\.0+)?$`)

// shape is what a schema says of an object.
type shape struct {
	properties map[string]*node
	required   map[string]bool
	order      []string // required, as listed
	pattern    map[string]*node
	additional *node // nil: not said
	closed     bool
}

// shape gathers what n and the parts of its allOf say of an object. Of anyOf
// and oneOf it takes the only branch that the object can be; nil if there is
// no telling.
func (s *schema) shape(n *node, members []member) *shape {
	out := &shape{properties: map[string]*node{}, required: map[string]bool{}, pattern: map[string]*node{}}
	if !s.gather(out, n, members, map[*node]bool{}) {
		return nil
	}
	return out
}

func (s *schema) gather(out *shape, n *node, members []member, seen map[*node]bool) bool {
	n = s.resolve(n)
	if seen[n] {
		return true
	}
	seen[n] = true
	out.add(n)
	for _, part := range n.AllOf {
		if !s.gather(out, part, members, seen) {
			return false
		}
	}
	for _, branches := range [][]*node{n.AnyOf, n.OneOf} {
		if len(branches) == 0 {
			continue
		}
		b := s.branch(branches, members)
		if b == nil || !s.gather(out, b, members, seen) {
			return false
		}
	}
	return true
}

func (sh *shape) add(n *node) {
	maps.Copy(sh.properties, n.Properties)
	maps.Copy(sh.pattern, n.Pattern)
	for _, name := range n.Required {
		if !sh.required[name] {
			sh.required[name] = true
			sh.order = append(sh.order, name)
		}
	}
	if a := n.Additional; a != nil {
		sh.additional = a
		sh.closed = sh.closed || a.never
	}
}

// branch returns the only branch that an object with these members can be.
func (s *schema) branch(branches []*node, members []member) (only *node) {
	for _, b := range branches {
		r := s.resolve(b)
		if k := s.kinds(r); k != 0 && k&dict == 0 || !s.fits(r, members) {
			continue
		}
		if only != nil {
			return nil
		}
		only = r
	}
	return only
}

// fits reports whether the members have the keys that n requires and the
// constants that it fixes.
func (s *schema) fits(n *node, members []member) bool {
	for _, name := range n.Required {
		v := value(members, name)
		if v == nil {
			return false
		}
		if c := s.resolve(n.Properties[name]).Const; c != nil && string(c) != string(v) {
			return false
		}
	}
	return true
}
