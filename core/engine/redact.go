package engine

import (
	"io"
	"os"
	"path/filepath"

	"github.com/penstock-dev/penstock/core/trace"
)

// redacted is the writer through which an agent's output gets into its file;
// nil where nothing is redacted.
func (e *Engine) redacted() func(io.Writer) io.WriteCloser {
	if e.Redact == nil {
		return nil
	}
	return func(w io.Writer) io.WriteCloser { return e.Redact.Writer(w) }
}

// clean redacts what a stage leaves, before later stages and the store see it:
// a resumed run reads the same as one that wasn't interrupted.
func (e *Engine) clean(res *trace.StageResult) {
	res.Error, res.Text = e.Redact.String(res.Error), e.Redact.String(res.Text)
	res.Output = e.Redact.RawMessage(res.Output)
	e.cleanEdits(res.Edits)
}

// cleanEdits redacts what is kept of what hooks did.
func (e *Engine) cleanEdits(edits []trace.Edit) {
	for i := range edits {
		d := &edits[i]
		d.Reason, d.Error = e.Redact.String(d.Reason), e.Redact.String(d.Error)
		d.Before, d.After, d.Report = e.Redact.RawMessage(d.Before), e.Redact.RawMessage(d.After), e.Redact.RawMessage(d.Report)
	}
}

// cleanWorkspace redacts what is kept of a rollout's files: all of them once it
// is over, else only the homes of agents, which nobody goes on with.
func (r *rollout) cleanWorkspace() error {
	dir := r.Folder.Work(r.state.ID)
	if goesOn(r.state.Status) {
		dir = filepath.Join(dir, "homes")
	}
	if _, err := os.Stat(dir); err != nil {
		return nil // nothing is kept
	}
	_, err := r.Redact.Tree(dir)
	return err
}
