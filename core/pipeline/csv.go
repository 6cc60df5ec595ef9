package pipeline

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
)

// csv reads tasks from a table whose first row names the fields. Every value
// is text; an empty one is left out.
func (l *taskLoader) csv(b []byte) {
	r := csv.NewReader(bytes.NewReader(b))
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return
	}
	if err != nil {
		l.csvError(err)
		return
	}
	seen := map[string]bool{}
	for i, name := range head {
		if name == "" || seen[name] {
			_, col := r.FieldPos(i)
			l.fail(1, col-1, "tasks", "the first row names the fields, each once", "the name of column %d is %s", i+1, emptyOrTwice(name))
			return
		}
		seen[name] = true
	}
	for l.errors < maxTaskErrors {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			l.csvError(err)
			return
		}
		line, _ := r.FieldPos(0)
		l.add(record(head, row), line)
	}
}

func emptyOrTwice(name string) string {
	if name == "" {
		return "empty"
	}
	return "given twice: " + name
}

func record(head, row []string) []byte {
	b := []byte{'{'}
	for i, v := range row {
		if v == "" {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, quoted(head[i])...), ':'), quoted(v)...)
	}
	return append(b, '}')
}

func (l *taskLoader) csvError(err error) {
	var e *csv.ParseError
	if errors.As(err, &e) {
		l.fail(e.Line, e.Column-1, "tasks", "", "not valid CSV: %s", e.Err)
		return
	}
	l.fail(1, 0, "tasks", "", "not valid CSV: %s", err)
}
