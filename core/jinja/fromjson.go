package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// fromJSON reads JSON. A value is from where its text is from; of a string that
// has several sources it is one that isn't the template.
func fromJSON(v Value, _ *call) (Value, error) {
	t, ok := v.(Text)
	if !ok {
		return nil, fmt.Errorf("from_json needs text, not a %s", typeName(v))
	}
	r := &jsonReader{t: t, d: json.NewDecoder(strings.NewReader(t.s))}
	r.d.UseNumber()
	out, err := r.value()
	if err != nil {
		return nil, fmt.Errorf("from_json: %w", err)
	}
	if _, err := r.d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("from_json: text after the value")
	}
	return out, nil
}

type jsonReader struct {
	t Text
	d *json.Decoder
	// run is the run of the text that holds the byte start.
	run, start int
}

// next is the next token and where it is from.
func (r *jsonReader) next() (json.Token, Source, error) {
	token, err := r.d.Token()
	if err != nil {
		return nil, FromTemplate, err
	}
	end := int(r.d.InputOffset())
	start := r.start
	r.start = end
	for r.run < len(r.t.runs)-1 && r.t.runs[r.run].end <= start {
		r.run++
	}
	from := FromTemplate
	for i := r.run; i < len(r.t.runs) && from == FromTemplate; i++ {
		from = r.t.runs[i].from
		if r.t.runs[i].end >= end {
			break
		}
	}
	return token, from, nil
}

func (r *jsonReader) value() (Value, error) {
	token, from, err := r.next()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		if v == '[' {
			return r.list(from)
		}
		return r.dict(from)
	case string:
		return String(v, from), nil
	case json.Number:
		return Number{Text: v.String(), From: from}, nil
	}
	return token, nil // true, false or nil
}

func (r *jsonReader) list(from Source) (Value, error) {
	out := &List{From: from}
	for r.d.More() {
		v, err := r.value()
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, v)
	}
	_, _, err := r.next()
	return out, err
}

func (r *jsonReader) dict(from Source) (Value, error) {
	out := NewDict(from)
	for r.d.More() {
		token, from, err := r.next()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string) // the decoder takes nothing else for a key
		v, err := r.value()
		if err != nil {
			return nil, err
		}
		out.Set(String(key, from), v)
	}
	_, _, err := r.next()
	return out, err
}
