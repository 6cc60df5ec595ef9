package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/penstock-dev/penstock/core/rows"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/converter"
)

// counts are of rows, by converter stage.
type counts struct{ written, denied, lost map[string]int }

// convert writes the files of every converter stage, and rollouts.jsonl. Each
// is written anew as a whole, from the store.
func (e *Engine) convert(ctx context.Context) (counts, error) {
	n := counts{map[string]int{}, map[string]int{}, map[string]int{}}
	for _, s := range e.Pipeline.Stages {
		if s.Kind != "converter" {
			continue
		}
		c := Conversion{Folder: e.Folder, Store: e.Store, Stage: s.ID, Name: s.Name, Converter: e.converters[s.ID], hooks: e.rowHooks(s.ID)}
		w, err := Convert(ctx, c)
		if err != nil {
			return n, fmt.Errorf("stage %s: write rows: %w", s.ID, err)
		}
		n.written[s.ID] = w.Rows
		if w.Denied > 0 {
			n.denied[s.ID] = w.Denied
		}
		if c.hooks.lost > 0 {
			n.lost[s.ID] = c.hooks.lost
		}
		c.hooks.complain()
		note := ""
		if w.TextOnly > 0 {
			note = fmt.Sprintf("%d rows have no token ids, as their model has capture text: for SFT and evaluation only", w.TextOnly)
		}
		for _, path := range w.Files {
			e.Events.Emit(run.Event{Type: run.RowsWritten, Stage: s.ID, Kind: "convert", Count: w.Rows, Refused: w.Refused, Denied: w.Denied, Path: path, Message: joined(note, c.hooks.said())})
		}
	}
	return n, e.writeRollouts(ctx)
}

// Conversion is one converter's work on a run.
type Conversion struct {
	Folder    *run.Folder
	Store     *trace.Store
	Stage     string // the stage whose selection is converted
	Name      string // of the converter
	Converter converter.Converter
	// Prefix is the path of the files up to their ending; by default they go
	// into the run folder, as rows or rows.<name>.
	Prefix string
	// hooks see the rows; nil writes what the run's hooks made of them.
	hooks *rowHooks
}

// Written is what a conversion wrote.
type Written struct {
	Rows    int
	Refused int // left out for fatal findings, or for what the trainer needs
	Denied  int // left out by hooks
	// TextOnly counts rows without token ids, from models with capture text.
	TextOnly int
	Files    []string
}

// Convert writes the rows that a stage selected.
func Convert(ctx context.Context, c Conversion) (*Written, error) {
	if c.Prefix == "" {
		c.Prefix = c.Folder.Path("rows")
		if c.Name != "rows" {
			c.Prefix += "." + run.Escape(c.Name)
		}
	}
	w := &Written{}
	source := rows.Selected(ctx, c.Store, c.Folder.ID, c.Stage)
	switch seen, err := c.Store.RowEditsEnded(ctx, c.Stage); {
	case err != nil:
		return nil, err
	case c.hooks == nil && seen:
		source = edited(ctx, c.Store, c.Stage, source, &w.Denied)
	case c.hooks != nil && len(c.hooks.hooks) > 0:
		source = c.hooks.through(ctx, source)
	}
	counted := func(yield func(*converter.Row, error) bool) {
		for row, err := range source {
			if err == nil {
				w.Rows++
				if row.InputIDs == nil && len(row.Integrity.Fatal) == 0 {
					w.TextOnly++
				}
			}
			if !yield(row, err) {
				return
			}
		}
	}
	out := &files{prefix: c.Prefix}
	err := c.Converter.Convert(ctx, iter.Seq2[*converter.Row, error](counted), out)
	if err := out.finish(err); err != nil {
		return nil, err
	}
	w.Rows, w.Refused, w.Files = w.Rows-out.refused, out.refused, out.done
	if c.hooks != nil {
		w.Denied = c.hooks.denied
	}
	return w, nil
}

// writeRollouts writes rollouts.jsonl, one line a rollout in task and sample
// order.
func (e *Engine) writeRollouts(ctx context.Context) error {
	return putRollouts(e.Folder, func(put func(*trace.Rollout) error) error {
		next, stop := iter.Pull2(e.Store.EachRollout(ctx))
		defer stop()
		stored, err, more := next()
		for _, t := range e.Pipeline.Tasks {
			for sample := range e.Pipeline.Samples {
				if err != nil {
					return err
				}
				id := rolloutID(t, sample)
				if more && stored.ID == id {
					if err := put(stored); err != nil {
						return err
					}
					stored, err, more = next()
					continue
				}
				r, missing := e.Store.Rollout(ctx, id) // the store has it in another place, or not
				if errors.Is(missing, trace.ErrNotFound) {
					r, missing = &trace.Rollout{ID: id, Task: t.ID, Sample: sample, Status: trace.Queued}, nil
				}
				if missing != nil {
					return missing
				}
				if err := put(r); err != nil {
					return err
				}
			}
		}
		return err
	})
}

// putRollouts writes rollouts.jsonl with all that is put.
func putRollouts(folder *run.Folder, all func(put func(*trace.Rollout) error) error) error {
	return run.Replace(folder.Path("rollouts.jsonl"), func(f *os.File) error {
		w := bufio.NewWriter(f)
		err := all(func(r *trace.Rollout) error {
			line, err := chat.Marshal(r)
			if err == nil {
				_, err = w.Write(append(line, '\n'))
			}
			return err
		})
		if err != nil {
			return err
		}
		return w.Flush()
	})
}

// tellRollouts brings a rollouts.jsonl up to date with the store: who reads it
// does not wait for the run to be resumed. A run that has written none yet
// writes it at its end.
func tellRollouts(ctx context.Context, folder *run.Folder, store *trace.Store) error {
	text, err := os.ReadFile(folder.Path("rollouts.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var lines []*trace.Rollout
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		was := &trace.Rollout{}
		if err := d.Decode(was); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read rollouts.jsonl: %w", err)
		}
		switch now, err := store.Rollout(ctx, was.ID); {
		case err == nil:
			was = now
		case !errors.Is(err, trace.ErrNotFound):
			return err
		}
		lines = append(lines, was)
	}
	return putRollouts(folder, func(put func(*trace.Rollout) error) error {
		for _, r := range lines {
			if err := put(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// files makes a converter's files under temporary names and gives them their
// own when all of them are complete.
type files struct {
	prefix  string
	open    []*os.File
	done    []string
	refused int
}

// Refuse implements converter.Refuser.
func (f *files) Refuse(*converter.Row, []string) { f.refused++ }

// Create implements converter.Output.
func (f *files) Create(ending string) (io.WriteCloser, error) {
	if ending == "" || filepath.Base(ending) != ending {
		return nil, fmt.Errorf("create rows file: %q is no file ending", ending)
	}
	path := f.prefix + "." + ending
	t, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create rows file: %w", err)
	}
	f.open = append(f.open, t)
	return t, nil
}

// finish puts the files in place, or drops them when the converter failed.
func (f *files) finish(failed error) error {
	for _, t := range f.open {
		if err := t.Close(); err != nil && !errors.Is(err, os.ErrClosed) && failed == nil {
			failed = err
		}
		if failed != nil {
			os.Remove(t.Name())
			continue
		}
		path := filepath.Join(filepath.Dir(t.Name()), filepath.Base(t.Name())[1:])
		if failed = os.Rename(t.Name(), path); failed == nil {
			f.done = append(f.done, path)
		}
	}
	return failed
}
