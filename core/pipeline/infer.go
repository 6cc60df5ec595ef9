package pipeline

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// stat counts what kinds of value were seen in one place of the tasks, from
// which their type follows.
type stat struct {
	seen                                     int
	null, boolean, integer, number, str, arr int
	object                                   int
	fields                                   map[string]*stat
	order                                    []string
	elem                                     *stat
	wide                                     bool // too many names to be a record
}

const (
	maxFields   = 512
	maxJSONDeep = 1000
)

// observe reads one value.
func (s *stat) observe(d *jsontext.Decoder, depth int) error {
	if depth > maxJSONDeep {
		return fmt.Errorf("the JSON is nested deeper than %d", maxJSONDeep)
	}
	t, err := d.ReadToken()
	if err != nil {
		return err
	}
	s.seen++
	switch t.Kind() {
	case 'n':
		s.null++
	case 't', 'f':
		s.boolean++
	case '"':
		s.str++
	case '0':
		if bytes.ContainsAny([]byte(t.String()), ".eE") {
			s.number++
		} else {
			s.integer++
		}
	case '[':
		s.arr++
		if s.elem == nil {
			s.elem = &stat{}
		}
		for d.PeekKind() != ']' {
			if err := s.elem.observe(d, depth+1); err != nil {
				return err
			}
		}
		_, err = d.ReadToken()
		return err
	case '{':
		s.object++
		return s.members(d, depth)
	}
	return nil
}

func (s *stat) members(d *jsontext.Decoder, depth int) error {
	for d.PeekKind() != '}' {
		t, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := s.at(t.String()).observe(d, depth+1); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

func (s *stat) at(name string) *stat {
	if f := s.fields[name]; f != nil {
		return f
	}
	f := &stat{}
	if len(s.order) >= maxFields {
		s.wide = true
		return f
	}
	if s.fields == nil {
		s.fields = map[string]*stat{}
	}
	s.fields[name] = f
	s.order = append(s.order, name)
	return f
}

// objectType is the type of `task`: id is always there.
func (s *stat) objectType() *Type {
	if s.object == 0 {
		return objectOf(anyType, Field{"id", stringType})
	}
	t := s.typ()
	if i, ok := t.index["id"]; ok {
		t.fields[i].Type = stringType
		return t
	}
	return objectOf(t.rest, append([]Field{{"id", stringType}}, t.fields...)...)
}

func (s *stat) typ() *Type {
	var t *Type
	kinds := 0
	add := func(n int, k *Type) {
		if n > 0 {
			kinds++
			t = k
		}
	}
	add(s.boolean, boolType)
	add(s.str, stringType)
	switch {
	case s.number > 0:
		add(1, numberType)
	case s.integer > 0:
		add(1, integerType)
	}
	if s.arr > 0 {
		elem := anyType
		if s.elem.seen > 0 {
			elem = s.elem.typ()
		}
		add(1, listOf(elem))
	}
	if s.object > 0 {
		add(1, s.record())
	}
	switch {
	case kinds == 0:
		return nullType
	case kinds > 1:
		t = anyType
	}
	if s.null > 0 && t.base != tAny {
		t = t.orNull(fmt.Sprintf("it is null in %d of %d", s.null, s.seen))
	}
	return t
}

func (s *stat) record() *Type {
	fields := make([]Field, 0, len(s.order))
	for _, name := range s.order {
		f := s.fields[name]
		t := f.typ()
		if f.seen < s.object {
			t = t.asOptional(fmt.Sprintf("only %d of %d tasks have it", f.seen, s.object))
		}
		fields = append(fields, Field{name, t})
	}
	var rest *Type
	if s.wide {
		rest = anyType
	}
	return objectOf(rest, fields...)
}
