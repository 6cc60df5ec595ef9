package pipeline

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// within is where character i of a scalar's value stands in its source: quotes,
// escapes, indentation and folded lines are walked over. It is used for
// findings only, so it need not be fast.
func (f *File) within(n *yaml.Node, i int) pos {
	if src := f.sourceOf(n); src.whole {
		value := []rune(n.Value)
		return src.posAt(len(string(value[:min(i, len(value))])))
	}
	w := newWalker(f.sourceOf(n), n)
	if w == nil {
		return f.at(n)
	}
	value := []rune(n.Value)
	for k := 0; k < i && k < len(value); {
		step := w.step(value[k:])
		if step == 0 {
			return f.at(n)
		}
		k += step
	}
	w.settle()
	return pos{src: f.sourceOf(n), line: w.line, col: w.col}
}

// walker walks over the source of a scalar.
type walker struct {
	text      []rune   // the rest of the line, its end included
	more      []string // the lines that follow
	line, col int
	style     yaml.Style
	indent    int // of a block scalar
}

func newWalker(src *source, n *yaml.Node) *walker {
	src.line(1)
	if n.Line < 1 || n.Line > len(src.lines) {
		return nil
	}
	w := &walker{line: n.Line, col: n.Column, style: n.Style, more: src.lines[n.Line-1:]}
	w.fill()
	if n.Column < 1 || n.Column > len(w.text) {
		return nil
	}
	w.text = w.text[n.Column-1:]
	for len(w.text) > 0 && (w.text[0] == '&' || w.text[0] == '!') { // an anchor or a tag
		for len(w.text) > 0 && !blank(w.text[0]) {
			w.skip(1)
		}
		for len(w.text) > 0 && blank(w.text[0]) {
			w.skip(1)
		}
	}
	switch {
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		w.skip(1)
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		w.indent = blockIndent(w.more, n.Value)
		w.skip(len(w.text))
		w.margin()
	}
	return w
}

func blank(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\r' }

// blockIndent is the indentation of a block scalar's lines: that of its first
// line with text, less the spaces that belong to the value.
func blockIndent(lines []string, value string) int {
	for _, l := range lines {
		if text := strings.TrimLeft(l, " "); strings.TrimSpace(text) != "" {
			line := strings.TrimLeft(value, "\n")
			return max(0, len(l)-len(text)-(len(line)-len(strings.TrimLeft(line, " "))))
		}
	}
	return 0
}

// fill takes the next line.
func (w *walker) fill() {
	if len(w.more) == 0 {
		return
	}
	w.text = []rune(w.more[0])
	if w.more = w.more[1:]; len(w.more) > 0 {
		w.text = append(w.text, '\n')
	}
}

func (w *walker) skip(n int) {
	for range n {
		if len(w.text) == 0 {
			return
		}
		if w.text[0] == '\n' {
			w.line++
			w.col = 1
		} else {
			w.col++
		}
		if w.text = w.text[1:]; len(w.text) == 0 {
			w.fill()
		}
	}
}

// margin skips the indentation of a block scalar's line.
func (w *walker) margin() {
	for k := 0; k < w.indent && len(w.text) > 0 && w.text[0] == ' '; k++ {
		w.skip(1)
	}
}

// step walks over the source of the first characters of value and says how
// many they are; 0 when the two don't agree.
func (w *walker) step(value []rune) int {
	if len(w.text) == 0 {
		return 0
	}
	r := w.text[0]
	switch {
	case w.style&yaml.DoubleQuotedStyle != 0 && r == '\\':
		return w.escape()
	case w.style&yaml.SingleQuotedStyle != 0 && r == '\'':
		w.skip(2)
		return 1
	case w.style&yaml.LiteralStyle != 0 && (r == '\n' || r == '\r'):
		for len(w.text) > 0 && w.text[0] == '\r' {
			w.skip(1)
		}
		w.skip(1)
		w.margin()
		return 1
	case w.style&yaml.LiteralStyle == 0 && w.lineEnds():
		return w.fold(value)
	case r != value[0]:
		return 0
	}
	w.skip(1)
	return 1
}

// escape walks over an escape of a double-quoted scalar. One that stands for
// nothing, at the end of a line, is walked over together with what follows.
func (w *walker) escape() int {
	if len(w.text) < 2 {
		return 0
	}
	switch w.text[1] {
	case 'x':
		w.skip(4)
	case 'u':
		w.skip(6)
	case 'U':
		w.skip(10)
	case '\n', '\r':
		w.skip(2)
		for len(w.text) > 0 && blank(w.text[0]) {
			w.skip(1)
		}
		if len(w.text) > 1 && w.text[0] == '\\' {
			return w.escape()
		}
		w.skip(1)
	default:
		w.skip(2)
	}
	return 1
}

// lineEnds reports whether only white space is left of the source line.
func (w *walker) lineEnds() bool {
	for _, r := range w.text {
		if r == '\n' {
			return true
		}
		if !blank(r) {
			return false
		}
	}
	return false
}

// fold walks over a line break that the value has as a space, or over several
// that it has as one less.
func (w *walker) fold(value []rune) int {
	breaks := 0
	for len(w.text) > 0 && blank(w.text[0]) {
		if w.text[0] == '\n' {
			breaks++
			w.skip(1)
			if w.style&yaml.FoldedStyle != 0 {
				w.margin()
				if len(w.text) > 0 && w.text[0] != '\n' {
					break
				}
			}
			continue
		}
		w.skip(1)
	}
	if value[0] == ' ' {
		return 1
	}
	n := 0
	for n < len(value) && n < breaks && value[n] == '\n' {
		n++
	}
	return n
}

// settle moves from the end of a line to the text that follows it.
func (w *walker) settle() {
	if w.style&yaml.LiteralStyle == 0 && w.lineEnds() {
		for len(w.text) > 0 && blank(w.text[0]) {
			w.skip(1)
		}
	}
}
