package trace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"

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
	*packing
	blobs []blob
	seen  map[key]bool
}

// packing is what packers use again.
type packing struct {
	sections sections
	one      digest
}

// packCall encodes c against base, which may be nil.
func (s *Store) packCall(c *Call, base *entry) (*packed, error) {
	p := &packer{store: s, seen: map[key]bool{}}
	if p.packing, _ = s.packing.Get().(*packing); p.packing == nil {
		p.packing = &packing{}
	}
	defer func() {
		p.sections.reset()
		s.packing.Put(p.packing)
	}()
	e := &entry{call: c.ID, lineage: c.Lineage}
	from := &entry{}
	if base != nil {
		from, e.depth = base, base.depth+1
	}
	if err := p.call(c, e, from); err != nil {
		return nil, err
	}
	body, err := p.sections.pack(s.codec)
	if err != nil {
		return nil, err
	}
	out := &packed{body: body, blobs: p.blobs, entry: e}
	if base != nil {
		out.base = base.call
	}
	return out, nil
}

// call adds the sections and the blobs of c, and enters what it shares into e.
func (p *packer) call(c *Call, e, from *entry) error {
	meta := *c
	meta.Body, meta.Envelope, meta.Messages, meta.RawReply = nil, nil, nil, nil
	meta.Prompt, meta.PromptIDs, meta.SampledIDs, meta.Logprobs = "", nil, nil, nil

	if err := p.messages(c.Messages, e, from); err != nil {
		return err
	}
	if c.Chat != nil {
		rest := *c.Chat
		rest.Messages, rest.Tools = nil, nil
		meta.Chat = &rest
		if err := p.chat(c.Chat, e, from); err != nil {
			return err
		}
	}
	if err := p.envelope(c.Envelope); err != nil {
		return err
	}
	p.sections.bytes(secBody, c.Body)
	p.sections.bytes(secReply, c.RawReply)
	p.prompt(c, e, from)
	p.sections.ids(secSampled, nil, c.SampledIDs)
	p.sections.floats(secLogprobs, c.Logprobs)
	b, err := encode(&meta)
	if err != nil {
		return err
	}
	p.sections.bytes(secMeta, b)
	return nil
}

// blob stores content under k, unless it is known to be there. data, which
// packs the content, is called only if it is needed.
func (p *packer) blob(k key, data func() ([]byte, error)) error {
	if p.seen[k] || p.store.stored.has(k) {
		return nil
	}
	b, err := data()
	if err != nil {
		return err
	}
	p.seen[k] = true
	p.blobs = append(p.blobs, blob{k, b})
	return nil
}

// raw stores bytes as they are.
func (p *packer) raw(k key, b []byte) error {
	return p.blob(k, func() ([]byte, error) { return p.store.codec.pack(b), nil })
}

// messages writes the messages as received.
func (p *packer) messages(list []json.RawMessage, e, from *entry) error {
	e.messages = make([]key, len(list))
	for i, m := range list {
		e.messages[i] = sha256.Sum256(m)
	}
	for i := p.hashes(secMessages, e.messages, from.messages); i < len(list); i++ {
		if err := p.raw(e.messages[i], list[i]); err != nil {
			return err
		}
	}
	return nil
}

// hashes writes a delta of keys and returns how many are the base's, whose
// content is stored.
func (p *packer) hashes(tag byte, keys, base []key) int {
	if len(keys) == 0 {
		return 0
	}
	n := common(keys, base)
	p.blobs = slices.Grow(p.blobs, len(keys)-n)
	b := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen32+len(key{})*(len(keys)-n)), uint64(n))
	for _, k := range keys[n:] {
		b = append(b, k[:]...)
	}
	p.sections.bytes(tag, b)
	return n
}

// chat writes the messages and the tools of a conversation.
func (p *packer) chat(c *chat.Conversation, e, from *entry) error {
	e.chat = make([]key, len(c.Messages))
	for i := range c.Messages {
		e.chat[i] = p.message(&c.Messages[i])
	}
	for i := p.hashes(secChat, e.chat, from.chat); i < len(c.Messages); i++ {
		m := &c.Messages[i]
		if err := p.blob(e.chat[i], func() ([]byte, error) { return p.store.codec.packJSON(sizeOf(m.Parts), m) }); err != nil {
			return err
		}
	}
	if len(c.Tools) == 0 {
		return nil
	}
	p.one.reset().text("tools/1")
	size := 0
	for i := range c.Tools {
		t := &c.Tools[i]
		for _, s := range []string{t.Type, t.Name, t.Description} {
			p.one.field(s)
		}
		p.one.data(t.Parameters)
		p.one.data(t.Raw)
		size += len(t.Description) + len(t.Parameters) + len(t.Raw)
	}
	k := p.one.sum()
	p.sections.bytes(secTools, k[:])
	return p.blob(k, func() ([]byte, error) {
		tools := make([]storedTool, len(c.Tools))
		for i, t := range c.Tools {
			tools[i] = storedTool{t, t.Raw}
		}
		return p.store.codec.packJSON(size, tools)
	})
}

// storedTool is a tool with its definition, which has no place in its JSON.
type storedTool struct {
	Tool chat.Tool       `json:"tool"`
	Raw  json.RawMessage `json:"raw"`
}

func (p *packer) envelope(envelope []byte) error {
	if len(envelope) == 0 {
		return nil
	}
	var b []byte
	for i, piece := range split(envelope) {
		if i%2 == 0 {
			b = append(binary.AppendUvarint(b, uint64(len(piece))), piece...)
			continue
		}
		k := key(sha256.Sum256(piece))
		if err := p.raw(k, piece); err != nil {
			return err
		}
		b = append(b, k[:]...)
	}
	p.sections.bytes(secEnvelope, b)
	return nil
}

// prompt writes the prompt as far as it isn't the base's.
func (p *packer) prompt(c *Call, e, from *entry) {
	if c.Prompt != "" {
		s := newSummer(from.prompt)
		_ = p.sections.pieces.text(s, c.Prompt) // a summer takes all
		n := s.shared
		_ = p.sections.pieces.text(s, c.Raw)
		e.prompt = s.end()
		p.sections.text(secPrompt, binary.AppendUvarint(nil, uint64(n)), c.Prompt[n:])
	}
	if len(c.PromptIDs) > 0 {
		s := newSummer(from.ids)
		_ = p.sections.pieces.ids(s, c.PromptIDs, true)
		n := s.shared / 4
		_ = p.sections.pieces.ids(s, c.SampledIDs, true)
		e.ids = s.end()
		p.sections.ids(secIDs, binary.AppendUvarint(nil, uint64(n)), c.PromptIDs[n:])
	}
}

// message is the key of a form of m that no other message has.
func (p *packer) message(m *chat.Message) key {
	p.one.reset().text("message/1")
	p.one.field(string(m.Role))
	p.parts(m.Parts)
	return p.one.sum()
}

func (p *packer) parts(parts []chat.Part) {
	d := &p.one
	d.number(len(parts))
	for i := range parts {
		t := &parts[i]
		for _, s := range []string{string(t.Type), t.Text, t.Signature, t.MediaType, t.Data, t.URL, t.ID, t.Name} {
			d.field(s)
		}
		d.data(t.Arguments)
		d.flag(t.ArgumentsRaw)
		d.flag(t.IsError)
		p.parts(t.Content)
	}
}

// sizeOf is about the size of parts as JSON.
func sizeOf(parts []chat.Part) int {
	n := 0
	for i := range parts {
		p := &parts[i]
		n += len(p.Text) + len(p.Data) + len(p.Arguments) + sizeOf(p.Content)
	}
	return n
}
