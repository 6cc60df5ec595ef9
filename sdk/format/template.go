package format

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
)

// sourced is data that comes from the first message although it is written
// before all messages.
type sourced string

// literal is text that an action prints as markup; marked is data with its mark.
type (
	literal string
	marked  string
)

// The first byte of what an action prints says that it is data. A template's
// own text has no such bytes.
const (
	dataMark    = "\x00"
	sourcedMark = "\x01"
	longMark    = "\x02"
)

// press is the templates of a renderer, at work for one prompt at a time.
type press struct {
	templates *template.Template
	long      []string
}

// long is data of so many bytes that it is handed to the writer by its place in
// a list: what a template prints is copied several times.
type long struct {
	mark  string
	place int
}

// longData is from how many bytes on data is long.
const longData = 512

func (l long) String() string { return longMark + l.mark + strconv.Itoa(l.place) }

// newPress makes a press of parsed templates.
func newPress(parsed *template.Template) (*press, error) {
	templates, err := parsed.Clone()
	if err != nil {
		return nil, err
	}
	p := &press{}
	p.templates = templates.Funcs(template.FuncMap{"data": p.data})
	return p, nil
}

// data marks what an action prints.
func (p *press) data(v any) any {
	mark, text := dataMark, ""
	switch v := v.(type) {
	case literal, marked, long:
		return v
	case sourced:
		mark, text = sourcedMark, string(v)
	case string:
		text = v
	default:
		text = fmt.Sprint(v)
	}
	if len(text) < longData {
		return marked(mark + text)
	}
	p.long = append(p.long, text)
	return long{mark, len(p.long) - 1}
}

// read is the mark and the text of what was printed.
func (p *press) read(b []byte) (mark, text string) {
	if len(b) == 0 {
		return "", ""
	}
	switch mark = string(b[:1]); mark {
	case dataMark, sourcedMark:
		return mark, string(b[1:])
	case longMark:
		place, err := strconv.Atoi(string(b[2:]))
		if err == nil && place < len(p.long) {
			return string(b[1:2]), p.long[place]
		}
	}
	return "", string(b)
}

// templateFuncs are the functions of templates, besides those of the standard
// library.
var templateFuncs = template.FuncMap{
	"data":       (*press)(nil).data, // each press has its own
	"markup":     func(s string) literal { return literal(s) },
	"trim":       trimAny,
	"trimLeft":   func(cut, s string) string { return strings.TrimLeft(s, cut) },
	"trimRight":  func(cut, s string) string { return strings.TrimRight(s, cut) },
	"trimCut":    func(cut, s string) string { return strings.Trim(s, cut) },
	"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
	"join":       func(sep string, list []string) string { return strings.Join(list, sep) },
	"lower":      strings.ToLower,
	"upper":      strings.ToUpper,
	"extra":      extra,
	"array":      func(items ...Value) Value { return Value{kind: kindArray, items: items} },
	"definitions": func(tools []toolView) Value {
		v := Value{kind: kindArray}
		for _, t := range tools {
			v.items = append(v.items, t.Definition)
		}
		return v
	},
	"functions": func(tools []toolView) Value {
		v := Value{kind: kindArray}
		for _, t := range tools {
			v.items = append(v.items, t.Function)
		}
		return v
	},
	"count":      func(i int) int { return i + 1 },
	"attribute":  func(s string) string { return strings.NewReplacer("&", "&amp;", `"`, "&quot;").Replace(s) },
	"typescript": typescript,
	"gemma":      func(mark string, v Value) string { return string(v.appendGemma(nil, mark)) },
	"gemmaTool":  gemmaTool,
	"kimiTools":  kimiTools,
	"quote":      func(s string) string { return stringValue(s).JSON() },
	"json":       jsonOrText,
}

// trimAny keeps the source of what it trims.
func trimAny(v any) any {
	switch v := v.(type) {
	case sourced:
		return sourced(strings.TrimSpace(string(v)))
	case string:
		return strings.TrimSpace(v)
	}
	return strings.TrimSpace(fmt.Sprint(v))
}

// jsonOrText is text that is JSON as JSON, and any other as a string of it.
func jsonOrText(s string) string {
	if v, err := ParseValue([]byte(s)); err == nil {
		return v.JSON()
	}
	return stringValue(s).JSON()
}

// extra is the members of an object without those of the given keys.
func extra(v Value, handled ...string) []Member {
	var out []Member
	for _, m := range v.members {
		if !slices.Contains(handled, m.Key) {
			out = append(out, m)
		}
	}
	return out
}

// markData makes every action of a template print its value as data.
func markData(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, c := range n.Nodes {
			markData(c)
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) > 0 {
			return
		}
		n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{
			NodeType: parse.NodeCommand,
			Args:     []parse.Node{parse.NewIdentifier("data").SetTree(nil).SetPos(n.Pos)},
			Pos:      n.Pos,
		})
	case *parse.IfNode:
		markData(n.List)
		markData(n.ElseList)
	case *parse.RangeNode:
		markData(n.List)
		markData(n.ElseList)
	case *parse.WithNode:
		markData(n.List)
		markData(n.ElseList)
	}
}

// segmentWriter gathers what a template writes. Each action and each piece of
// the template's own text is one Write.
type segmentWriter struct {
	press    *press
	segments []Segment
	message  int
}

func (w *segmentWriter) Write(b []byte) (int, error) {
	switch mark, text := w.press.read(b); mark {
	case dataMark:
		w.add(text, Data)
	case sourcedMark:
		before := w.message
		w.message = 0
		w.add(text, Data)
		w.message = before
	default:
		w.add(text, Markup)
	}
	return len(b), nil
}

// add appends text, to the last segment where that is of the same kind and
// message.
func (w *segmentWriter) add(s string, kind SegmentKind) {
	if s == "" {
		return
	}
	if n := len(w.segments) - 1; n >= 0 && w.segments[n].Kind == kind && w.segments[n].Message == w.message {
		w.segments[n].Text += s
		return
	}
	w.segments = append(w.segments, Segment{Text: s, Kind: kind, Message: w.message})
}

// cutStop takes the stop marker off the front, where the marker that opens the
// next turn is what ended the last one. It says so when another one does.
func (w *segmentWriter) cutStop(stops []string) string {
	if len(w.segments) > 0 && w.segments[0].Kind == Markup {
		for _, s := range stops {
			if rest, ok := strings.CutPrefix(w.segments[0].Text, s); ok {
				w.segments[0].Text = rest
				if rest == "" {
					w.segments = w.segments[1:]
				}
				return ""
			}
		}
	}
	return "turn_end_changed"
}
