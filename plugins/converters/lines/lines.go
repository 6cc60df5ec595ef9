// Package lines is what converters to JSON lines share: files that are made
// when the first line comes, and the refusal of rows. What never enters: what
// a line holds.
package lines

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/converter"
)

// refusals is the ending of the file that says which rows were left out.
const refusals = "refused.jsonl"

// Writer writes values as lines of JSON. It is not for concurrent use.
type Writer struct {
	out   converter.Output
	files map[string]*file
}

type file struct {
	*bufio.Writer
	under io.Closer
}

// New returns a writer to the files of out. The caller closes it.
func New(out converter.Output) *Writer { return &Writer{out: out, files: map[string]*file{}} }

// Open makes the file with an ending, if there is none yet, so that it is
// there even without lines.
func (w *Writer) Open(ending string) error {
	if w.files[ending] != nil {
		return nil
	}
	f, err := w.out.Create(ending)
	if err != nil {
		return err
	}
	w.files[ending] = &file{bufio.NewWriterSize(f, 64<<10), f}
	return nil
}

// Write writes v as a line of the file with an ending.
func (w *Writer) Write(ending string, v any) error {
	b, err := chat.Marshal(v)
	if err != nil {
		return err
	}
	if err := w.Open(ending); err != nil {
		return err
	}
	_, err = w.files[ending].Write(append(b, '\n'))
	return err
}

// Refused is a line of the file that says which rows were left out.
type Refused struct {
	Row string   `json:"row"`
	Why []string `json:"why"`
}

// Refuse leaves row out: the host is told, and refused.jsonl, made only when
// there is such a row, gets a line.
func (w *Writer) Refuse(row *converter.Row, why ...string) error {
	converter.Refuse(w.out, row, why)
	if err := w.Write(refusals, Refused{row.Row, why}); err != nil {
		return fmt.Errorf("note that row %s is refused: %w", row.Row, err)
	}
	return nil
}

// Close writes what is left and closes the files.
func (w *Writer) Close() error {
	var errs []error
	for _, f := range w.files {
		errs = append(errs, f.Flush(), f.under.Close())
	}
	clear(w.files)
	return errors.Join(errs...)
}
