package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Source says where text is from. Its meaning is the caller's, save that 0 is
// the template.
type Source int32

// Template text is what a template says itself.
const FromTemplate Source = 0

// Text is a string of which each piece has a source.
type Text struct {
	s    string
	runs []run // in order; the last one ends at len(s)
}

type run struct {
	end  int
	from Source
}

// String makes text of one source.
func String(s string, from Source) Text {
	if s == "" {
		return Text{}
	}
	return Text{s, []run{{len(s), from}}}
}

func lit(s string) Text { return String(s, FromTemplate) }

// String is the text without its sources.
func (t Text) String() string { return t.s }

// Pieces calls f for each piece of the text.
func (t Text) Pieces(f func(s string, from Source)) {
	start := 0
	for _, r := range t.runs {
		f(t.s[start:r.end], r.from)
		start = r.end
	}
}

// slice is the bytes from i to j.
func (t Text) slice(i, j int) Text {
	if i >= j {
		return Text{}
	}
	if i == 0 && j == len(t.s) {
		return t
	}
	out := Text{s: t.s[i:j]}
	for _, r := range t.runs {
		if r.end <= i {
			continue
		}
		out.runs = append(out.runs, run{min(r.end, j) - i, r.from})
		if r.end >= j {
			break
		}
	}
	return out
}

// builder joins text.
type builder struct {
	b    []byte
	runs []run
}

func (b *builder) str(s string, from Source) {
	if s == "" {
		return
	}
	b.b = append(b.b, s...)
	b.mark(from)
}

// mark gives all bytes since the last mark their source.
func (b *builder) mark(from Source) {
	if n := len(b.runs); n > 0 && b.runs[n-1].from == from {
		b.runs[n-1].end = len(b.b)
		return
	}
	b.runs = append(b.runs, run{len(b.b), from})
}

func (b *builder) add(t Text) {
	t.Pieces(b.str)
}

func (b *builder) text() Text { return Text{string(b.b), b.runs} }

// Concat joins texts.
func Concat(list ...Text) Text {
	var b builder
	for _, t := range list {
		b.add(t)
	}
	return b.text()
}

// trim cuts characters off the ends: those of cut, or whitespace where cut is
// empty.
func (t Text) trim(cut string, left, right bool) Text {
	is := unicode.IsSpace
	if cut != "" {
		is = func(r rune) bool { return strings.ContainsRune(cut, r) }
	}
	i, j := 0, len(t.s)
	if left {
		i = len(t.s) - len(strings.TrimLeftFunc(t.s, is))
	}
	if right {
		j = i + len(strings.TrimRightFunc(t.s[i:], is))
	}
	return t.slice(i, j)
}

// replace puts new in for old, at most n times where n >= 0.
func (t Text) replace(old string, with Text, n int) Text {
	var b builder
	at := 0
	for ; n != 0; n-- {
		if old == "" {
			if at > len(t.s) {
				break
			}
			b.add(with)
			if at == len(t.s) {
				return b.text()
			}
			_, size := utf8.DecodeRuneInString(t.s[at:])
			b.add(t.slice(at, at+size))
			at += size
			continue
		}
		k := strings.Index(t.s[at:], old)
		if k < 0 {
			break
		}
		b.add(t.slice(at, at+k))
		b.add(with)
		at += k + len(old)
	}
	b.add(t.slice(at, len(t.s)))
	return b.text()
}

// split cuts at sep, at most n times where n >= 0; from the right with right.
// An empty sep is runs of whitespace.
func (t Text) split(sep string, n int, right bool) []Text {
	if sep == "" {
		return t.fields(n, right)
	}
	var cuts []int
	if right {
		end := len(t.s)
		for n < 0 || len(cuts) < n {
			k := strings.LastIndex(t.s[:end], sep)
			if k < 0 {
				break
			}
			cuts = append([]int{k}, cuts...)
			end = k
		}
	} else {
		at := 0
		for n < 0 || len(cuts) < n {
			k := strings.Index(t.s[at:], sep)
			if k < 0 {
				break
			}
			cuts = append(cuts, at+k)
			at += k + len(sep)
		}
	}
	out := make([]Text, 0, len(cuts)+1)
	at := 0
	for _, k := range cuts {
		out = append(out, t.slice(at, k))
		at = k + len(sep)
	}
	return append(out, t.slice(at, len(t.s)))
}

func (t Text) fields(n int, right bool) []Text {
	var out []Text
	if !right {
		for i := t.word(0, false); i < len(t.s); {
			j := len(t.s)
			if n < 0 || len(out) < n {
				j = t.word(i, true)
			}
			out = append(out, t.slice(i, j))
			i = t.word(j, false)
		}
		return out
	}
	for j := t.wordBack(len(t.s), false); j > 0; {
		i := 0
		if n < 0 || len(out) < n {
			i = t.wordBack(j, true)
		}
		out = append(out, t.slice(i, j))
		j = t.wordBack(i, false)
	}
	slices.Reverse(out)
	return out
}

// word is the end of the word, or with in false of the whitespace, at i.
func (t Text) word(i int, in bool) int {
	k := strings.IndexFunc(t.s[i:], func(r rune) bool { return unicode.IsSpace(r) == in })
	if k < 0 {
		return len(t.s)
	}
	return i + k
}

// wordBack is the start of the word, or of the whitespace, that ends at j.
func (t Text) wordBack(j int, in bool) int {
	k := strings.LastIndexFunc(t.s[:j], func(r rune) bool { return unicode.IsSpace(r) == in })
	if k < 0 {
		return 0
	}
	_, n := utf8.DecodeRuneInString(t.s[k:])
	return k + n
}

// lines cuts at newlines, without an empty last line.
func (t Text) lines() []Text {
	out := t.replace("\r\n", lit("\n"), -1).split("\n", -1, false)
	if n := len(out); n > 0 && out[n-1].s == "" {
		out = out[:n-1]
	}
	return out
}

// mapRunes puts f's string in for each rune; prev is the rune before, 0 at the
// start.
func (t Text) mapRunes(f func(r, prev rune) string) Text {
	var b builder
	prev := rune(0)
	t.Pieces(func(s string, from Source) {
		for _, r := range s {
			b.str(f(r, prev), from)
			prev = r
		}
	})
	return b.text()
}

// runes is the length in characters, as Python counts.
func (t Text) runes() int { return utf8.RuneCountInString(t.s) }

// offset is the byte at which character i begins.
func (t Text) offset(i int) int {
	if len(t.s) == utf8.RuneCountInString(t.s) {
		return min(i, len(t.s))
	}
	at := 0
	for ; i > 0 && at < len(t.s); i-- {
		_, n := utf8.DecodeRuneInString(t.s[at:])
		at += n
	}
	return at
}
