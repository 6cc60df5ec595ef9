package format

import (
	"fmt"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// sourced is data that comes from the first message although it is written
// before all messages.
type sourced string

// literal is text that an action prints as markup.
type literal string

// The first byte of what an action prints says that it is data. A template's
// own text has no such bytes.
const (
	dataMark    = "\x00"
	sourcedMark = "\x01"
)

// templateFuncs are the functions of templates, besides those of the standard
// library.
var templateFuncs = template.FuncMap{
	"data": func(v any) any {
		switch v := v.(type) {
		case literal:
			return v
		case sourced:
			return sourcedMark + string(v)
		}
		return dataMark + fmt.Sprint(v)
	},
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
	"quote":      func(s string) string { return stringValue(s).JSON() },
}

// trimAny keeps the source of what it trims.
func trimAny(v any) any {
	if s, ok := v.(sourced); ok {
		return sourced(strings.TrimSpace(string(s)))
	}
	return strings.TrimSpace(fmt.Sprint(v))
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
	segments []Segment
	message  int
}

func (w *segmentWriter) Write(b []byte) (int, error) {
	switch {
	case len(b) > 0 && b[0] == dataMark[0]:
		w.add(string(b[1:]), Data)
	case len(b) > 0 && b[0] == sourcedMark[0]:
		before := w.message
		w.message = 0
		w.add(string(b[1:]), Data)
		w.message = before
	default:
		w.add(string(b), Markup)
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
