package format

import (
	"bytes"
	"strings"
)

// match says how a piece of text compares to what is looked for.
type match uint8

const (
	no   match = iota
	part       // what there is agrees, but more is needed to tell
	full
	bad // it begins as what is looked for and then goes wrong
)

// markerKind is what a marker means in running text.
type markerKind uint8

const (
	markReasonOpen markerKind = iota + 1
	markReasonClose
	markWrapper  // opens calls
	markBare     // begins a call that has no wrapper
	markLeftover // closes something that isn't open
	markEnd      // ends a message
	markForced   // bare JSON, where the request demands a call
	markFrameOpen
	markFrameClose
	markFrameFree // opens or closes a frame, wherever it is
)

type marker struct {
	text []byte
	kind markerKind
}

// finder looks for markers in running text.
type finder struct {
	markers []marker
	first   [256]bool
	only    int // the single first byte of all markers, or -1
}

func newFinder(markers []marker) *finder {
	f := &finder{markers: markers, only: -1}
	for i, m := range markers {
		f.first[m.text[0]] = true
		if i == 0 || f.only == int(m.text[0]) {
			f.only = int(m.text[0])
		} else {
			f.only = -1
		}
	}
	return f
}

// next returns the first place from i where a marker may begin, or len(b).
func (f *finder) next(b []byte, i int) int {
	if len(f.markers) == 0 {
		return len(b)
	}
	if f.only >= 0 {
		if k := bytes.IndexByte(b[i:], byte(f.only)); k >= 0 {
			return i + k
		}
		return len(b)
	}
	for ; i < len(b); i++ {
		if f.first[b[i]] {
			return i
		}
	}
	return len(b)
}

// at compares b with the markers. The longest wins, so a marker that is the
// beginning of another one waits for it.
func (f *finder) at(b []byte) (marker, match) {
	var best marker
	found := no
	for _, m := range f.markers {
		switch compare(b, m.text) {
		case full:
			if len(m.text) > len(best.text) {
				best, found = m, full
			}
		case part:
			if found == no || len(m.text) > len(best.text) {
				return m, part
			}
		}
	}
	return best, found
}

// compare says whether b begins with text.
func compare(b, text []byte) match {
	if len(b) >= len(text) {
		if bytes.Equal(b[:len(text)], text) {
			return full
		}
		return no
	}
	if bytes.Equal(b, text[:len(b)]) {
		return part
	}
	return no
}

// compareAny says whether b begins with one of texts, and the length of the
// longest that it begins with. As long as a longer one may come, the answer is
// part, save at the end of the text.
func compareAny(b []byte, texts [][]byte, final bool) (int, match) {
	n, found := 0, no
	for _, t := range texts {
		switch compare(b, t) {
		case full:
			if len(t) > n {
				n = len(t)
			}
			if found == no {
				found = full
			}
		case part:
			found = part
		}
	}
	if found == part && final && n > 0 {
		found = full
	}
	return n, found
}

// maxTag bounds a tag, so that a tag that never ends is not waited for.
const maxTag = 512

// tag is a pattern such as <parameter={name}> or
// <arg_key>{name}</arg_key> <arg_value>.
type tag struct {
	before []byte
	equals bool     // before ends with "=", which spaces may surround
	after  [][]byte // literals with optional whitespace before each but the first
	attrs  bool     // attributes may follow the name
	stem   []byte   // before without the attribute that holds the name
	inline bool     // the name is bare text
}

func newTag(pattern string) *tag {
	before, after, _ := cutName(pattern)
	t := &tag{}
	t.after = append(t.after, bytes.Fields([]byte(after))...)
	before = bytes.TrimSuffix(before, []byte(`"`))
	if len(t.after) > 0 {
		t.after[0] = bytes.TrimPrefix(t.after[0], []byte(`"`))
		if len(t.after[0]) == 0 {
			t.after = t.after[1:]
		}
	}
	t.equals = bytes.HasSuffix(before, []byte("="))
	t.before = bytes.TrimSuffix(before, []byte("="))
	if k := bytes.LastIndexByte(t.before, ' '); t.equals && k > 0 {
		t.attrs, t.stem = true, t.before[:k]
	}
	t.inline = len(before) == 0
	return t
}

func cutName(pattern string) (before, after []byte, ok bool) {
	return bytes.Cut([]byte(pattern), []byte("{name}"))
}

// tagMatch is a tag that was found.
type tagMatch struct {
	name, attrs []byte
	end         int
}

// at compares b with the tag.
func (t *tag) at(b []byte) (tagMatch, match) {
	m, how := t.scan(b)
	if how == part && len(b) > maxTag {
		return m, bad
	}
	return m, how
}

func (t *tag) scan(b []byte) (tagMatch, match) {
	var m tagMatch
	how := compare(b, t.before)
	i := len(t.before)
	if how == no && t.attrs {
		i, how = t.attrsBefore(b)
	}
	if how != full {
		return m, how
	}
	if t.equals {
		if i = blank(b, i); i == len(b) {
			return m, part
		}
		if b[i] != '=' {
			return m, no
		}
		if i = blank(b, i+1); i == len(b) {
			return m, part
		}
	}
	i, how = t.name(b, i, &m)
	if how != full {
		return m, how
	}
	if t.attrs {
		start := i
		for i < len(b) && b[i] != '>' && b[i] != '<' && b[i] != '\n' && !t.ends(b[i:]) {
			i++
		}
		m.attrs = b[min(len(t.stem), start):i]
	}
	for k, lit := range t.after {
		if k > 0 || !t.attrs {
			i = space(b, i)
		}
		if i == len(b) {
			return m, part
		}
		switch compare(b[i:], lit) {
		case part:
			return m, part
		case no:
			return m, bad
		}
		i += len(lit)
	}
	m.end = i
	return m, full
}

// attrsBefore skips attributes that come before the one that holds the name,
// and returns the end of that one's key.
func (t *tag) attrsBefore(b []byte) (int, match) {
	if how := compare(b, t.stem); how != full {
		return 0, how
	}
	key := t.before[len(t.stem)+1:]
	for i := len(t.stem); ; {
		at := blank(b, i)
		if at == len(b) {
			return at, part
		}
		if at == i {
			return at, no
		}
		if how := compare(b[at:], key); how != no {
			return at + len(key), how
		}
		i = at
		for i < len(b) && (b[i] == '_' || b[i] == '-' || b[i]|0x20 >= 'a' && b[i]|0x20 <= 'z') {
			i++
		}
		if i+1 >= len(b) {
			return i, part
		}
		if i == at || b[i] != '=' || b[i+1] != '"' {
			return i, no
		}
		k := bytes.IndexByte(b[i+2:], '"')
		if k < 0 {
			return i, part
		}
		i += k + 3
	}
}

// name reads the name of a tag, in quotes of either kind or none.
func (t *tag) name(b []byte, i int, m *tagMatch) (int, match) {
	if i == len(b) {
		return i, part
	}
	quote := byte(0)
	if t.equals && (b[i] == '"' || b[i] == '\'') {
		quote = b[i]
		i++
	}
	start := i
	for i < len(b) && b[i] != quote && b[i] != '<' && b[i] != '>' && b[i] != '\n' && (quote != 0 || !isSpace(b[i]) && !t.ends(b[i:])) {
		i++
	}
	if i == len(b) {
		return i, part
	}
	if m.name = bytes.TrimSpace(b[start:i]); len(m.name) == 0 || t.inline && bytes.ContainsAny(m.name, "{}[]()\"'`,;=&") {
		return i, bad
	}
	if quote != 0 {
		if b[i] != quote {
			return i, bad
		}
		i++
	} else if b[i] == '>' && t.inline {
		return i, bad
	}
	return i, full
}

// ends reports whether what follows the name is at the start of b, or as much
// of it as there is.
func (t *tag) ends(b []byte) bool {
	return len(t.after) > 0 && b[0] == t.after[0][0] && compare(b, t.after[0]) != no
}

func blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t') {
		i++
	}
	return i
}

func space(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// attr returns the value of an attribute in the rest of a tag.
func attr(attrs []byte, name string) string {
	_, rest, ok := bytes.Cut(attrs, []byte(name+"="))
	if !ok {
		return ""
	}
	rest = bytes.TrimLeft(rest, `"'`)
	if k := bytes.IndexAny(rest, "\"' ><"); k >= 0 {
		rest = rest[:k]
	}
	return string(rest)
}

// entities undoes the two escapes of attributes in tags of special tokens.
func entities(s string) string {
	if !strings.Contains(s, "&") {
		return s
	}
	return strings.NewReplacer("&quot;", `"`, "&amp;", "&").Replace(s)
}
