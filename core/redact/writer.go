package redact

import "io"

// Writer redacts a stream. What it holds back is bounded: as much as the
// longest secret may span. Close writes that and leaves the underlying writer
// open.
type Writer struct {
	r     *Redactor
	w     io.Writer
	buf   []byte
	known int // of buf, bytes that are written and only tell what stands before
	found map[string]int
	err   error
}

const (
	before = 8        // bytes that tell what stands before a secret
	chunk  = 32 << 10 // bytes that are looked through at once
)

// Writer redacts what is written to w. With a nil Redactor everything passes.
func (r *Redactor) Writer(w io.Writer) *Writer {
	return &Writer{r: r, w: w, found: map[string]int{}}
}

// Write implements io.Writer. Its error is one of the underlying writer, maybe
// of an earlier write.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.r == nil {
		n, err := w.w.Write(p)
		w.err = err
		return n, err
	}
	n := len(p)
	most := w.r.longest + chunk + before
	for len(p) > 0 {
		k := min(len(p), most-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		p = p[k:]
		if len(w.buf) == most {
			w.flush(len(w.buf) - w.r.longest)
		}
		if w.err != nil {
			return 0, w.err
		}
	}
	return n, nil
}

// Close writes what was held back.
func (w *Writer) Close() error {
	if w.err == nil && w.r != nil {
		w.flush(len(w.buf))
	}
	return w.err
}

// Found counts the replacements so far by kind.
func (w *Writer) Found() map[string]int { return w.found }

// flush writes what stands before to, and a secret that begins there whole.
func (w *Writer) flush(to int) {
	var in []span
	for _, s := range w.r.all.spans(w.buf) {
		if s.from >= to {
			break
		}
		if s.to <= w.known {
			continue // of what is written already
		}
		s.from = max(s.from, w.known)
		to = max(to, s.to)
		w.found[s.kind]++
		in = append(in, s)
	}
	if to <= w.known {
		return
	}
	for i := range in {
		in[i].from -= w.known
		in[i].to -= w.known
	}
	out, _ := replace(w.buf[w.known:to], in)
	if _, err := w.w.Write(out); err != nil {
		w.err = err
		return
	}
	keep := max(0, to-before)
	w.buf = append(w.buf[:0], w.buf[keep:]...)
	w.known = to - keep
}
