package exchange

import (
	"bytes"
	"fmt"

	"github.com/tidwall/gjson"
)

// Field is a top-level field of a request that is to be Value; nil takes it
// out.
type Field struct {
	Name  string
	Value []byte
}

// Splice returns body, a JSON object, with the fields set. All else keeps its
// bytes and its order; a field that wasn't there comes last.
func Splice(body []byte, fields []Field) ([]byte, error) {
	body = bytes.TrimSpace(body)
	if len(body) < 2 || body[0] != '{' || !gjson.ValidBytes(body) {
		return nil, fmt.Errorf("the request's body is no JSON object")
	}
	if len(fields) == 0 {
		return body, nil
	}
	size := len(body)
	for _, f := range fields {
		size += len(f.Name) + len(f.Value) + 8
	}
	s := splice{fields: fields, done: make([]bool, len(fields)), out: make([]byte, 0, size)}
	gjson.ParseBytes(body).ForEach(func(name, value gjson.Result) bool {
		s.member(body, name, value)
		return true
	})
	for i, f := range fields {
		if !s.done[i] && f.Value != nil {
			s.separate(nil)
			s.out = append(append(append(s.out, AppendString(nil, f.Name)...), ':'), f.Value...)
		}
	}
	if s.n == 0 {
		return []byte("{}"), nil
	}
	s.end = max(s.end, 1) // of an empty object the brace
	return append(s.out, body[s.end:]...), nil
}

// splice is a body that is copied member by member.
type splice struct {
	fields []Field
	done   []bool
	out    []byte
	n      int // members written
	end    int // of the last member read
}

func (s *splice) member(body []byte, name, value gjson.Result) {
	start, from := name.Index, value.Index
	before := body[s.end:start] // what stands between two members
	s.end = from + len(value.Raw)
	for i, f := range s.fields {
		if f.Name != name.Str {
			continue
		}
		s.done[i] = true
		if f.Value != nil {
			s.separate(before)
			s.out = append(append(s.out, body[start:from]...), f.Value...)
		}
		return
	}
	s.separate(before)
	s.out = append(s.out, body[start:s.end]...)
}

// separate writes what stands before a member: as it was, where that fits.
func (s *splice) separate(before []byte) {
	s.n++
	switch comma := bytes.IndexByte(before, ','); {
	case s.n == 1 && bytes.IndexByte(before, '{') >= 0:
		s.out = append(s.out, before...)
	case s.n == 1:
		s.out = append(s.out, '{')
	case comma >= 0:
		s.out = append(s.out, before...)
	default:
		s.out = append(s.out, ',')
	}
}
