package trace

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
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
	told   []key    // what was said to the assistant, the leading system messages aside
}

// turn is an assistant message of a request. full and body are the keys of
// all messages up to it, before is the key of those that precede its reply.
type turn struct {
	message            int
	before, full, body key
	reply              key
	reasoning          key  // zero when there is none
	calls              bool // tools, whose ids no other reply has
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
	one             digest // of a part or a tool
	json            map[key]key
	spell           speller
	text, reasoning digest // of what an assistant said
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
				reply: reply, reasoning: run.reasoningKey(), calls: run.calls != (key{})})
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
				w.told = append(w.told, k)
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
	n.text.reset()
	n.reasoning.reset()
	return &said{n: n}
}

func (s *said) add(parts []chat.Part) {
	for i := range parts {
		p := &parts[i]
		switch {
		case p.Type == chat.Reasoning:
			s.n.reasoning.text(p.Text)
			s.thoughts = s.thoughts || p.Text != ""
		case p.Type == chat.Text:
			s.n.text.text(p.Text)
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
	return chain(s.n.text.sum(), s.calls)
}

// reasoningKey is zero when there was no reasoning.
func (s *said) reasoningKey() key {
	if !s.thoughts {
		return key{}
	}
	return s.n.reasoning.sum()
}

// part returns the key of a part; a part that says nothing has none.
func (n *canon) part(role chat.Role, p *chat.Part) (key, bool) {
	if (p.Type == chat.Text && p.Text == "") || p.Type == chat.Reasoning {
		return key{}, false
	}
	n.one.reset().field(string(role))
	n.addPart(p)
	return n.one.sum(), true
}

func (n *canon) addPart(p *chat.Part) {
	d := &n.one
	d.field(string(p.Type))
	switch p.Type {
	case chat.Text:
		d.field(p.Text)
	case chat.ToolCall:
		k := n.value(p.Arguments, "{}")
		d.field(p.ID)
		d.field(p.Name)
		d.bytes(k[:])
	case chat.ToolResult:
		d.field(p.ID)
		d.text(strconv.FormatBool(p.IsError)[:1])
		for i := range p.Content {
			if c := &p.Content[i]; c.Type != chat.Text || c.Text != "" {
				n.addPart(c)
			}
		}
	default:
		d.field(p.MediaType)
		d.field(p.Data)
		d.field(p.URL)
		d.field(p.Text)
	}
}

// toolset returns the key of tools, zero for none, and their names.
func (n *canon) toolset(tools []chat.Tool) (k key, names []string) {
	for i := range tools {
		t := &tools[i]
		schema := n.value(t.Parameters, "")
		n.one.reset().field(t.Type)
		n.one.field(t.Name)
		n.one.field(t.Description)
		n.one.bytes(schema[:])
		k = chain(k, n.one.sum())
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
	canonical, err := n.spell.value(raw)
	if err != nil {
		canonical = append([]byte("!"), raw...)
	}
	k := key(sha256.Sum256(canonical))
	n.spell.trim()
	if n.json == nil || len(n.json) >= maxKept {
		n.json = map[key]key{}
	}
	n.json[written] = k
	return k
}

// speller writes JSON values in a form that two of them share only when they
// are equal: the order of keys and the spelling of strings and numbers don't
// count, and numbers are compared as they stand, at any size.
type speller struct {
	in        bytes.Buffer
	d         jsontext.Decoder
	out, text []byte
}

// keptSpelling bounds what a speller keeps to use again, in bytes.
const keptSpelling = 64 << 10

func (s *speller) trim() {
	if cap(s.out)+cap(s.text) > keptSpelling {
		s.out, s.text = nil, nil
	}
}

// value is that form of raw, until the next one.
func (s *speller) value(raw []byte) ([]byte, error) {
	s.in = *bytes.NewBuffer(raw)
	s.d.Reset(&s.in, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	defer func() { s.in = bytes.Buffer{} }() // and lets raw go
	var err error
	if s.out, err = s.append(s.out[:0]); err != nil {
		return nil, err
	}
	if _, err := s.d.ReadToken(); err != io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	return s.out, nil
}

func (s *speller) append(dst []byte) ([]byte, error) {
	switch s.d.PeekKind() {
	case '[':
		_, err := s.d.ReadToken()
		for dst = append(dst, '['); err == nil && s.d.PeekKind() != ']'; {
			dst, err = s.append(dst)
		}
		if err == nil {
			_, err = s.d.ReadToken()
		}
		return append(dst, ']'), err
	case '{':
		return s.object(dst)
	}
	v, err := s.d.ReadValue()
	if err != nil {
		return nil, err
	}
	switch v.Kind() {
	case '"':
		return appendText(dst, 's', s.unquoted(v)), nil
	case '0':
		return appendText(dst, 'n', number(string(v))), nil
	}
	return append(dst, byte(v.Kind())), nil
}

// unquoted is the text of a JSON string, until the next one.
func (s *speller) unquoted(v jsontext.Value) []byte {
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	s.text, _ = jsontext.AppendUnquote(s.text[:0], v) // half a surrogate pair reads as U+FFFD
	return s.text
}

func appendText[T string | []byte](dst []byte, kind byte, s T) []byte {
	dst = binary.AppendUvarint(append(dst, kind), uint64(len(s)))
	return append(dst, s...)
}

// object sorts the members by name; of a repeated name the last counts, as in
// every client that parses before it sends.
func (s *speller) object(dst []byte) ([]byte, error) {
	type member struct {
		name     string
		from, to int // in dst
	}
	var members []member
	sorted := true
	if _, err := s.d.ReadToken(); err != nil {
		return nil, err
	}
	dst = append(dst, '{')
	start := len(dst)
	for s.d.PeekKind() != '}' {
		name, err := s.d.ReadToken()
		if err != nil {
			return nil, err
		}
		m := member{name: name.String(), from: len(dst)}
		if dst, err = s.append(appendText(dst, 's', m.name)); err != nil {
			return nil, err
		}
		m.to = len(dst)
		sorted = sorted && (len(members) == 0 || members[len(members)-1].name < m.name)
		members = append(members, m)
	}
	if _, err := s.d.ReadToken(); err != nil {
		return nil, err
	}
	if sorted {
		return append(dst, '}'), nil
	}
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	asRead := slices.Clone(dst[start:])
	dst = dst[:start]
	for i, m := range members {
		if i+1 < len(members) && members[i+1].name == m.name {
			continue
		}
		dst = append(dst, asRead[m.from-start:m.to-start]...)
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
