package trace

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// key identifies what was said, whatever it was written like.
type key [sha256.Size]byte

// walk is a request in canonical form, reduced to keys. A client writes the
// same conversation differently from turn to turn, so what counts is the
// sequence of parts with their roles: where one message of a role ends and
// the next begins doesn't, nor does an empty text.
type walk struct {
	full  key // of all messages
	body  key // of all but the leading system messages
	turns []turn
	// system and tools tell conversations of one session apart.
	system key
	tools  key
	names  []string // of the tools, sorted
	probe  bool     // asks for a single token
}

// turn is an assistant message of a request. full and body are the keys of
// all messages up to it, before is the key of those that precede its reply.
type turn struct {
	message            int
	before, full, body key
	reply              key
	reasoning          key // zero when there is none
}

// chain returns the key of what has key prev followed by what has key next.
func chain(prev, next key) key {
	var b [2 * sha256.Size]byte
	copy(b[:], prev[:])
	copy(b[sha256.Size:], next[:])
	return sha256.Sum256(b[:])
}

// canon makes keys. Arguments of tool calls and tools come again in every
// request of a session, so their canonical keys are kept by their bytes.
type canon struct {
	buf             []byte
	json            map[key]key
	text, reasoning hash.Hash
}

// walk goes over c once.
func (n *canon) walk(c *chat.Conversation) *walk {
	w := &walk{turns: make([]turn, 0, len(c.Messages)/2)}
	leading := true
	var run *said // the assistant messages that follow each other
	var before, beforeBody key
	for i := range c.Messages {
		m := &c.Messages[i]
		if m.Role == chat.Assistant {
			leading = false
			if run == nil {
				run, before, beforeBody = n.newSaid(), w.full, w.body
			}
			run.add(m.Parts)
			reply := run.key()
			w.full, w.body = follow(before, reply), follow(beforeBody, reply)
			w.turns = append(w.turns, turn{message: i, before: before, full: w.full, body: w.body,
				reply: reply, reasoning: run.reasoningKey()})
			continue
		}
		run = nil
		leading = leading && m.Role == chat.System
		for j := range m.Parts {
			k, ok := n.part(m.Role, &m.Parts[j])
			if !ok {
				continue
			}
			w.full = chain(w.full, k)
			if leading {
				w.system = chain(w.system, k)
			} else {
				w.body = chain(w.body, k)
			}
		}
	}
	w.tools, w.names = n.toolset(c.Tools)
	w.probe = len(w.turns) == 0 && c.Sampling.MaxTokens != nil && *c.Sampling.MaxTokens == 1
	return w
}

// follow is chain, but an empty reply leaves no trace.
func follow(prev, reply key) key {
	if reply == (key{}) {
		return prev
	}
	return chain(prev, reply)
}

// said is what an assistant said: its text, its calls, and its reasoning,
// which clients may leave out. A canon has one at a time.
type said struct {
	n               *canon
	texts, thoughts bool
	calls           key
}

func (n *canon) newSaid() *said {
	if n.text == nil {
		n.text, n.reasoning = sha256.New(), sha256.New()
	}
	n.text.Reset()
	n.reasoning.Reset()
	return &said{n: n}
}

func (s *said) add(parts []chat.Part) {
	for i := range parts {
		p := &parts[i]
		switch {
		case p.Type == chat.Reasoning:
			s.n.write(s.n.reasoning, p.Text)
			s.thoughts = s.thoughts || p.Text != ""
		case p.Type == chat.Text:
			s.n.write(s.n.text, p.Text)
			s.texts = s.texts || p.Text != ""
		default:
			if k, ok := s.n.part(chat.Assistant, p); ok {
				s.calls = chain(s.calls, k)
			}
		}
	}
}

// key is zero when nothing was said.
func (s *said) key() key {
	if !s.texts && s.calls == (key{}) {
		return key{}
	}
	return chain(s.n.sum(s.n.text), s.calls)
}

// reasoningKey is zero when there was no reasoning.
func (s *said) reasoningKey() key {
	if !s.thoughts {
		return key{}
	}
	return s.n.sum(s.n.reasoning)
}

func (n *canon) write(h hash.Hash, s string) {
	n.buf = append(n.buf[:0], s...)
	h.Write(n.buf)
}

func (n *canon) sum(h hash.Hash) key {
	n.buf = h.Sum(n.buf[:0])
	return key(n.buf)
}

// part returns the key of a part; a part that says nothing has none.
func (n *canon) part(role chat.Role, p *chat.Part) (key, bool) {
	if (p.Type == chat.Text && p.Text == "") || p.Type == chat.Reasoning {
		return key{}, false
	}
	n.buf = n.appendPart(n.field(n.buf[:0], string(role)), p)
	return sha256.Sum256(n.buf), true
}

func (n *canon) field(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func (n *canon) appendPart(dst []byte, p *chat.Part) []byte {
	dst = n.field(dst, string(p.Type))
	switch p.Type {
	case chat.Text:
		dst = n.field(dst, p.Text)
	case chat.ToolCall:
		k := n.value(p.Arguments, "{}")
		dst = append(n.field(n.field(dst, p.ID), p.Name), k[:]...)
	case chat.ToolResult:
		dst = n.field(dst, p.ID)
		dst = append(dst, byte(strconv.FormatBool(p.IsError)[0]))
		for i := range p.Content {
			if c := &p.Content[i]; c.Type != chat.Text || c.Text != "" {
				dst = n.appendPart(dst, c)
			}
		}
	default:
		dst = n.field(n.field(n.field(dst, p.MediaType), p.Data), p.URL)
		dst = n.field(dst, p.Text)
	}
	return dst
}

// toolset returns the key of tools, zero for none, and their names.
func (n *canon) toolset(tools []chat.Tool) (k key, names []string) {
	for i := range tools {
		t := &tools[i]
		schema := n.value(t.Parameters, "")
		b := n.field(n.field(n.field(n.buf[:0], t.Type), t.Name), t.Description)
		n.buf = append(b, schema[:]...)
		k = chain(k, sha256.Sum256(n.buf))
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return k, names
}

// maxKept bounds what a canon keeps of one session.
const maxKept = 1 << 14

// value returns the key of a JSON value, absent for one that isn't there.
func (n *canon) value(raw json.RawMessage, absent string) key {
	if len(raw) == 0 {
		raw = json.RawMessage(absent)
	}
	written := key(sha256.Sum256(raw))
	if k, ok := n.json[written]; ok {
		return k
	}
	canonical, err := appendJSON(nil, raw)
	if err != nil {
		canonical = append([]byte("!"), raw...)
	}
	k := key(sha256.Sum256(canonical))
	if n.json == nil || len(n.json) >= maxKept {
		n.json = map[key]key{}
	}
	n.json[written] = k
	return k
}

// appendJSON appends a form of raw that two JSON values share only when they
// are equal: the order of keys and the spelling of strings and numbers don't
// count, and numbers are compared as they stand, at any size.
func appendJSON(dst []byte, raw []byte) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	dst, err := appendValue(dst, d)
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	return dst, nil
}

func appendValue(dst []byte, d *jsontext.Decoder) ([]byte, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '"':
		return appendText(dst, 's', t.String()), nil
	case '0':
		return appendText(dst, 'n', number(t.String())), nil
	case '[':
		dst = append(dst, '[')
		for d.PeekKind() != ']' {
			if dst, err = appendValue(dst, d); err != nil {
				return nil, err
			}
		}
		_, err = d.ReadToken()
		return append(dst, ']'), err
	case '{':
		return appendObject(dst, d)
	}
	return append(dst, byte(t.Kind())), nil
}

func appendText(dst []byte, kind byte, s string) []byte {
	dst = binary.AppendUvarint(append(dst, kind), uint64(len(s)))
	return append(dst, s...)
}

// appendObject sorts the members by name; of a repeated name the last counts,
// as in every client that parses before it sends.
func appendObject(dst []byte, d *jsontext.Decoder) ([]byte, error) {
	type member struct {
		name  string
		value []byte
	}
	var members []member
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		m := member{name: name.String()}
		if m.value, err = appendValue(nil, d); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	dst = append(dst, '{')
	for i, m := range members {
		if i+1 < len(members) && members[i+1].name == m.name {
			continue
		}
		dst = append(appendText(dst, 's', m.name), m.value...)
	}
	return append(dst, '}'), nil
}

// number writes a JSON number so that equal numbers read the same: its digits
// without zeros around them, and the power of ten.
func number(s string) string {
	rest, negative := strings.CutPrefix(s, "-")
	mantissa, exponent := rest, 0
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		e, err := strconv.Atoi(strings.TrimPrefix(rest[i+1:], "+"))
		if err != nil {
			return s
		}
		mantissa, exponent = rest[:i], e
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent -= len(fraction)
	short := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(short)
	if short == "" {
		return "0"
	}
	if negative {
		short = "-" + short
	}
	return short + "e" + strconv.Itoa(exponent)
}

func sumString(s string) key { return sha256.Sum256([]byte(s)) }
