// Package rows is converter/rows: every row as it is, one JSON object a line.
// What never enters: the form of any trainer.
package rows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/converter"
)

// Config has nothing to set.
type Config struct{}

// New opens the converter.
func New(Config) (converter.Converter, error) { return rows{}, nil }

func init() {
	converter.Register("rows", New, converter.Summary("every row as it is, one JSON object a line"))
}

type rows struct{}

// Refused is a line of the file that says which rows were left out.
type Refused struct {
	Row   string   `json:"row"`
	Fatal []string `json:"fatal"`
}

// Convert writes rows.jsonl. Rows with fatal findings are left out: the host
// is told of each, and refused.jsonl, made only when there are some, has a
// line for each.
func (rows) Convert(_ context.Context, in iter.Seq2[*converter.Row, error], out converter.Output) (err error) {
	w := writer{out: out}
	defer func() { err = errors.Join(err, w.close()) }()
	// The file is there even when there are no rows.
	if err := w.open("jsonl"); err != nil {
		return err
	}
	for row, err := range in {
		if err != nil {
			return err
		}
		if len(row.Integrity.Fatal) == 0 {
			err = w.line("jsonl", row)
		} else {
			converter.Refuse(out, row, row.Integrity.Fatal)
			err = w.line("refused.jsonl", Refused{row.Row, row.Integrity.Fatal})
		}
		if err != nil {
			return fmt.Errorf("write row %s: %w", row.Row, err)
		}
	}
	return nil
}

// writer writes lines to files that it makes when they are needed.
type writer struct {
	out   converter.Output
	files map[string]io.WriteCloser
}

func (w *writer) open(ending string) error {
	if w.files[ending] != nil {
		return nil
	}
	f, err := w.out.Create(ending)
	if err != nil {
		return err
	}
	if w.files == nil {
		w.files = map[string]io.WriteCloser{}
	}
	w.files[ending] = f
	return nil
}

func (w *writer) line(ending string, v any) error {
	b, err := chat.Marshal(v)
	if err != nil {
		return err
	}
	if err := w.open(ending); err != nil {
		return err
	}
	_, err = w.files[ending].Write(append(b, '\n'))
	return err
}

func (w *writer) close() error {
	var errs []error
	for _, f := range w.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
