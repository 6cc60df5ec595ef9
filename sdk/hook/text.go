package hook

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// EditText edits the texts of a conversation in its JSON form, the subject at
// the point request. It calls edit with each text part, and with each text in
// a tool result, and puts what edit returns in its place. Nothing else of the
// conversation is decoded or touched: keys, names of tools, arguments, schemas
// and the spelling of every unchanged value stay byte for byte. The result is
// nil when no text changed.
func EditText(raw []byte, edit func(role chat.Role, text string) string) ([]byte, error) {
	e := editor{in: raw, edit: edit}
	e.object(func(key string) {
		if key == "messages" {
			e.array(e.message)
		} else {
			e.skip()
		}
	})
	e.space()
	if e.err == nil && e.at != len(raw) {
		e.fail("trailing data")
	}
	if e.err != nil {
		return nil, fmt.Errorf("edit texts: %w", e.err)
	}
	if e.out == nil {
		return nil, nil
	}
	return append(e.out, raw[e.copied:]...), nil
}

// editor walks JSON once. What it changes is written to out, with all that
// lies before it; copied is how far that has got.
type editor struct {
	in     []byte
	at     int
	out    []byte
	copied int
	err    error
	edit   func(chat.Role, string) string
	texts  []span // string literals of the message that may be edited
}

type span struct{ start, end int }

// message walks one message. Its role may come after its parts.
func (e *editor) message() {
	var role string
	e.texts = e.texts[:0]
	e.object(func(key string) {
		switch key {
		case "role":
			role = e.text()
		case "parts":
			e.array(e.part)
		default:
			e.skip()
		}
	})
	for _, s := range e.texts {
		e.replace(s, chat.Role(role))
	}
}

// part walks one part and notes its text, or those of its content.
func (e *editor) part() {
	var kind string
	var text span
	before := len(e.texts)
	e.object(func(key string) {
		switch key {
		case "type":
			kind = e.text()
		case "text":
			e.space()
			text.start = e.at
			e.skip()
			text.end = e.at
		case "content":
			e.array(e.part)
		default:
			e.skip()
		}
	})
	switch chat.PartType(kind) {
	case chat.Text:
		e.texts = e.texts[:before]
		if text.end > text.start+2 && e.in[text.start] == '"' {
			e.texts = append(e.texts, text)
		}
	case chat.ToolResult:
	default:
		e.texts = e.texts[:before]
	}
}

// replace edits one string literal.
func (e *editor) replace(s span, role chat.Role) {
	if e.err != nil {
		return
	}
	old := e.unquote(s)
	text := e.edit(role, old)
	if text == old {
		return
	}
	if e.out == nil {
		e.out = make([]byte, 0, len(e.in)+len(e.in)/8)
	}
	literal, err := chat.Marshal(text)
	if err != nil {
		e.err = err
		return
	}
	e.out = append(e.out, e.in[e.copied:s.start]...)
	e.out = append(e.out, literal...)
	e.copied = s.end
}

// unquote is the text of a string literal.
func (e *editor) unquote(s span) string {
	inner := string(e.in[s.start+1 : s.end-1])
	if !strings.Contains(inner, `\`) && utf8.ValidString(inner) {
		return inner
	}
	var text string
	if err := json.Unmarshal(e.in[s.start:s.end], &text); err != nil {
		e.err = err
	}
	return text
}

func (e *editor) fail(what string) {
	if e.err == nil {
		e.err = fmt.Errorf("%s at byte %d", what, e.at)
	}
	e.at = len(e.in)
}

func (e *editor) space() {
	for e.at < len(e.in) {
		switch e.in[e.at] {
		case ' ', '\t', '\n', '\r':
			e.at++
		default:
			return
		}
	}
}

// peek is the next byte that isn't space, 0 at the end.
func (e *editor) peek() byte {
	e.space()
	if e.at < len(e.in) {
		return e.in[e.at]
	}
	return 0
}

func (e *editor) expect(c byte) bool {
	if e.peek() != c {
		e.fail("want " + string(c))
		return false
	}
	e.at++
	return true
}

// object walks an object; member is called at each value. A value that is no
// object is skipped.
func (e *editor) object(member func(key string)) {
	if e.peek() != '{' {
		e.skip()
		return
	}
	e.at++
	if e.peek() == '}' {
		e.at++
		return
	}
	for e.err == nil {
		key := e.text()
		if !e.expect(':') {
			return
		}
		member(key)
		if e.peek() == ',' {
			e.at++
			continue
		}
		e.expect('}')
		return
	}
}

// array walks an array; a value that is none is skipped.
func (e *editor) array(item func()) {
	if e.peek() != '[' {
		e.skip()
		return
	}
	e.at++
	if e.peek() == ']' {
		e.at++
		return
	}
	for e.err == nil {
		item()
		if e.peek() == ',' {
			e.at++
			continue
		}
		e.expect(']')
		return
	}
}

// text reads a string.
func (e *editor) text() string {
	if e.peek() != '"' {
		e.fail("want a string")
		return ""
	}
	start := e.at
	e.literal()
	if e.err != nil {
		return ""
	}
	return e.unquote(span{start, e.at})
}

// literal goes to the end of a string.
func (e *editor) literal() {
	for e.at++; e.at < len(e.in); e.at++ {
		switch e.in[e.at] {
		case '\\':
			e.at++
		case '"':
			e.at++
			return
		}
	}
	e.fail("unfinished string")
}

// skip goes over one value of any kind.
func (e *editor) skip() {
	depth := 0
	for {
		switch c := e.peek(); c {
		case 0:
			e.fail("unfinished value")
			return
		case '"':
			e.literal()
		case '{', '[':
			depth++
			e.at++
		case '}', ']':
			if depth--; depth < 0 {
				e.fail("unexpected " + string(c))
				return
			}
			e.at++
		case ',', ':':
			if depth == 0 {
				e.fail("unexpected " + string(c))
				return
			}
			e.at++
			continue
		default:
			e.scalar()
		}
		if depth == 0 || e.err != nil {
			return
		}
	}
}

// scalar goes over a number or a word.
func (e *editor) scalar() {
	for e.at < len(e.in) {
		switch e.in[e.at] {
		case ',', ':', '}', ']', '{', '[', '"', ' ', '\t', '\n', '\r':
			return
		}
		e.at++
	}
}
