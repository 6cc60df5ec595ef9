package script

import (
	"fmt"
	"regexp"
	"strings"
)

// template is the text of a reply with places that are filled from what the
// rule matched.
type template struct{ pieces []piece }

// piece is literal text, or a group of one of the two patterns.
type piece struct {
	text   string
	group  int // 0 with a nil source: literal
	source source
}

type source uint8

const (
	literal source = iota
	fromLast
	fromPrompt
)

var place = regexp.MustCompile(`\$(?:\$|\d+|\{\w+\})`)

// compile reads $1, ${1} and ${name}; $$ is one dollar, and any other dollar
// is itself. Groups are looked up in the pattern of last first, then in that
// of prompt. An unknown group is an error.
func compile(text string, last, prompt *regexp.Regexp) (template, error) {
	var t template
	at := 0
	for _, m := range place.FindAllStringIndex(text, -1) {
		t.literal(text[at:m[0]])
		at = m[1]
		name := strings.Trim(text[m[0]+1:m[1]], "{}")
		if name == "$" {
			t.literal("$")
			continue
		}
		p, ok := find(name, last, fromLast)
		if !ok {
			p, ok = find(name, prompt, fromPrompt)
		}
		if !ok {
			return t, fmt.Errorf("reply: no pattern of when has a group %s (write $$ for a dollar)", name)
		}
		t.pieces = append(t.pieces, p)
	}
	t.literal(text[at:])
	return t, nil
}

func (t *template) literal(text string) {
	if text != "" {
		t.pieces = append(t.pieces, piece{text: text})
	}
}

func find(name string, re *regexp.Regexp, s source) (piece, bool) {
	if re == nil {
		return piece{}, false
	}
	if i := re.SubexpIndex(name); i > 0 {
		return piece{group: i, source: s}, true
	}
	var n int
	if _, err := fmt.Sscanf(name, "%d", &n); err != nil || fmt.Sprint(n) != name || n > re.NumSubexp() {
		return piece{}, false
	}
	return piece{group: n, source: s}, true
}

// expand fills the places. The index slices are those of FindStringSubmatchIndex.
func (t template) expand(last string, lastAt []int, prompt string, promptAt []int) string {
	var b strings.Builder
	for _, p := range t.pieces {
		switch p.source {
		case literal:
			b.WriteString(p.text)
		case fromLast:
			b.WriteString(group(last, lastAt, p.group))
		case fromPrompt:
			b.WriteString(group(prompt, promptAt, p.group))
		}
	}
	return b.String()
}

func group(text string, at []int, n int) string {
	if 2*n+1 >= len(at) || at[2*n] < 0 {
		return ""
	}
	return text[at[2*n]:at[2*n+1]]
}
