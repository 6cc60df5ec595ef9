package trace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// The body of a call is a list of sections, each a tag, a length and bytes,
// compressed together. A section that is not there holds nothing.
const (
	secMeta     = 1  // the call as JSON, without all that follows
	secMessages = 2  // delta of hashes: the messages as received
	secChat     = 3  // delta of hashes: the messages as rendered
	secTools    = 4  // hash: the tools as rendered
	secPrompt   = 5  // delta of bytes
	secIDs      = 6  // delta of ids: the prompt's
	secSampled  = 7  // ids
	secLogprobs = 8  // one float64 for each sampled id
	secBody     = 9  // bytes
	secEnvelope = 10 // pieces: inline, hash, inline, ...
	secReply    = 11 // bytes: the reply as it came
)

// A delta is how many items of the base it begins with, then its own items.
// The items of the base are its messages, the bytes of its prompt and of the
// text sampled after it, or the ids of both.

// blob is content that is stored once, under its hash.
type blob struct {
	key  key
	data []byte // packed
}

// packed is a call ready to be written.
type packed struct {
	base  string
	body  []byte
	blobs []blob
	entry *entry
}

// size is what it takes in the store, without what a database needs beside it.
func (p *packed) size() int64 {
	n := len(p.body)
	for _, b := range p.blobs {
		n += len(b.data)
	}
	return int64(n)
}

// packer turns one call into its stored form.
type packer struct {
	store *Store
	out   []byte
	buf   []byte // scratch
	blobs []blob
	seen  map[key]bool
}

// packCall encodes c against base, which may be nil.
func (s *Store) packCall(c *Call, base *entry) (*packed, error) {
	p := &packer{store: s, seen: map[key]bool{}}
	if scratch, ok := s.scratch.Get().(*[]byte); ok {
		p.buf = *scratch
	}
	defer func() { s.scratch.Put(&p.buf) }()
	e := &entry{call: c.ID, lineage: c.Lineage}
	from := &entry{}
	if base != nil {
		from, e.depth = base, base.depth+1
	}
	meta := *c
	meta.Body, meta.Envelope, meta.Messages, meta.RawReply = nil, nil, nil, nil
	meta.Prompt, meta.PromptIDs, meta.SampledIDs, meta.Logprobs = "", nil, nil, nil

	p.messages(c.Messages, e, from)
	if c.Chat != nil {
		rest := *c.Chat
		rest.Messages, rest.Tools = nil, nil
		meta.Chat = &rest
		if err := p.chat(c.Chat, e, from); err != nil {
			return nil, err
		}
	}
	p.envelope(c.Envelope)
	p.section(secBody, c.Body)
	p.section(secReply, c.RawReply)
	p.prompt(c, e, from)
	p.section(secSampled, appendIDs(nil, c.SampledIDs))
	p.section(secLogprobs, appendFloats(nil, c.Logprobs))
	b, err := encode(&meta)
	if err != nil {
		return nil, err
	}
	p.section(secMeta, b)
	out := &packed{body: s.codec.pack(p.out), blobs: p.blobs, entry: e}
	if base != nil {
		out.base = base.call
	}
	return out, nil
}

func (p *packer) section(tag byte, b []byte) {
	if len(b) == 0 {
		return
	}
	p.out = binary.AppendUvarint(append(p.out, tag), uint64(len(b)))
	p.out = append(p.out, b...)
}

// blob stores content under k, unless it is known to be there. data is called
// only if it is needed.
func (p *packer) blob(k key, data func() ([]byte, error)) error {
	if p.seen[k] || p.store.stored.has(k) {
		return nil
	}
	b, err := data()
	if err != nil {
		return err
	}
	p.seen[k] = true
	p.blobs = append(p.blobs, blob{k, p.store.codec.pack(b)})
	return nil
}

// raw stores bytes as they are.
func (p *packer) raw(b []byte) key {
	k := key(sha256.Sum256(b))
	p.blob(k, func() ([]byte, error) { return b, nil }) // never fails
	return k
}

// messages writes the messages as received.
func (p *packer) messages(list []json.RawMessage, e, from *entry) {
	e.messages = make([]key, len(list))
	for i, m := range list {
		e.messages[i] = sha256.Sum256(m)
	}
	for i := p.hashes(secMessages, e.messages, from.messages); i < len(list); i++ {
		p.blob(e.messages[i], func() ([]byte, error) { return list[i], nil }) // never fails
	}
}

// hashes writes a delta of keys and returns how many are the base's, whose
// content is stored.
func (p *packer) hashes(tag byte, keys, base []key) int {
	if len(keys) == 0 {
		return 0
	}
	n := common(keys, base)
	b := binary.AppendUvarint(nil, uint64(n))
	for _, k := range keys[n:] {
		b = append(b, k[:]...)
	}
	p.section(tag, b)
	return n
}

// chat writes the messages and the tools of a conversation.
func (p *packer) chat(c *chat.Conversation, e, from *entry) error {
	e.chat = make([]key, len(c.Messages))
	for i := range c.Messages {
		p.buf = appendMessage(p.buf[:0], &c.Messages[i])
		e.chat[i] = sha256.Sum256(p.buf)
	}
	for i := p.hashes(secChat, e.chat, from.chat); i < len(c.Messages); i++ {
		if err := p.blob(e.chat[i], func() ([]byte, error) { return encode(&c.Messages[i]) }); err != nil {
			return err
		}
	}
	if len(c.Tools) == 0 {
		return nil
	}
	p.buf = append(p.buf[:0], "tools/1"...)
	for i := range c.Tools {
		t := &c.Tools[i]
		p.buf = appendFields(p.buf, t.Type, t.Name, t.Description, string(t.Parameters), string(t.Raw))
	}
	k := key(sha256.Sum256(p.buf))
	p.section(secTools, k[:])
	return p.blob(k, func() ([]byte, error) {
		tools := make([]storedTool, len(c.Tools))
		for i, t := range c.Tools {
			tools[i] = storedTool{t, t.Raw}
		}
		return encode(tools)
	})
}

// storedTool is a tool with its definition, which has no place in its JSON.
type storedTool struct {
	Tool chat.Tool       `json:"tool"`
	Raw  json.RawMessage `json:"raw"`
}

func (p *packer) envelope(envelope []byte) {
	if len(envelope) == 0 {
		return
	}
	var b []byte
	for i, piece := range split(envelope) {
		if i%2 == 1 {
			k := p.raw(piece)
			b = append(b, k[:]...)
		} else {
			b = append(binary.AppendUvarint(b, uint64(len(piece))), piece...)
		}
	}
	p.section(secEnvelope, b)
}

// prompt writes the prompt as far as it isn't the base's.
func (p *packer) prompt(c *Call, e, from *entry) {
	if c.Prompt != "" {
		n := 0
		p.buf = append(p.buf[:0], c.Prompt...)
		e.prompt, n = sum(from.prompt, p.buf, []byte(c.Raw))
		p.section(secPrompt, append(binary.AppendUvarint(nil, uint64(n)), c.Prompt[n:]...))
	}
	if len(c.PromptIDs) > 0 {
		n := 0
		p.buf = appendIDBytes(p.buf[:0], c.PromptIDs)
		e.ids, n = sum(from.ids, p.buf, appendIDBytes(nil, c.SampledIDs))
		n /= 4
		p.section(secIDs, appendIDs(binary.AppendUvarint(nil, uint64(n)), c.PromptIDs[n:]))
	}
}

// sum returns the sums of a prompt and what was sampled after it, and how
// much of the prompt is the base's.
func sum(base sums, prompt, sampled []byte) (sums, int) {
	s := newSummer(base)
	s.Write(prompt)
	shared := s.shared
	s.Write(sampled)
	return s.end(), shared
}

// appendMessage appends a form of m that no other message has.
func appendMessage(dst []byte, m *chat.Message) []byte {
	dst = appendFields(append(dst, "message/1"...), string(m.Role))
	return appendParts(dst, m.Parts)
}

func appendParts(dst []byte, parts []chat.Part) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(parts)))
	for i := range parts {
		p := &parts[i]
		dst = appendFields(dst, string(p.Type), p.Text, p.Signature, p.MediaType, p.Data, p.URL, p.ID, p.Name)
		dst = append(binary.AppendUvarint(dst, uint64(len(p.Arguments))), p.Arguments...)
		dst = append(dst, flag(p.ArgumentsRaw), flag(p.IsError))
		dst = appendParts(dst, p.Content)
	}
	return dst
}

func appendFields(dst []byte, fields ...string) []byte {
	for _, s := range fields {
		dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...)
	}
	return dst
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// appendIDs appends ids, each as its difference from zero: ids are small.
func appendIDs(dst []byte, ids []int32) []byte {
	for _, id := range ids {
		dst = binary.AppendVarint(dst, int64(id))
	}
	return dst
}

// appendFloats appends the first bytes of all numbers, then all second bytes
// and so on: those compress, as the numbers themselves don't.
func appendFloats(dst []byte, f []float64) []byte {
	for shift := 56; shift >= 0; shift -= 8 {
		for _, v := range f {
			dst = append(dst, byte(math.Float64bits(v)>>shift))
		}
	}
	return dst
}
