// Package rows is converter/rows: every row as it is, one JSON object a line.
// What never enters: the form of any trainer.
package rows

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/penstock-dev/penstock/plugins/converters/lines"
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

// Convert writes rows.jsonl. Rows with fatal findings are left out, and said
// in rows.refused.jsonl.
func (rows) Convert(_ context.Context, in iter.Seq2[*converter.Row, error], out converter.Output) (err error) {
	w := lines.New(out)
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.Open("jsonl"); err != nil {
		return err
	}
	for row, err := range in {
		if err != nil {
			return err
		}
		if len(row.Integrity.Fatal) > 0 {
			err = w.Refuse(row, row.Integrity.Fatal...)
		} else {
			err = w.Write("jsonl", row)
		}
		if err != nil {
			return fmt.Errorf("write row %s: %w", row.Row, err)
		}
	}
	return nil
}
