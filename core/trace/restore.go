package trace

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// restorer rebuilds the calls of a session. It reads each blob and decodes
// each message once, so that calls share them.
type restorer struct {
	ctx      context.Context
	store    *Store
	blobs    map[key][]byte
	messages map[key]chat.Message
	tools    map[key][]chat.Tool
	calls    map[string]*restored
}

func newRestorer(ctx context.Context, s *Store) *restorer {
	return &restorer{ctx: ctx, store: s, blobs: map[key][]byte{}, messages: map[key]chat.Message{},
		tools: map[key][]chat.Tool{}, calls: map[string]*restored{}}
}

// restored is a call with what calls above it begin with.
type restored struct {
	call     *Call
	messages []key
	chat     []key
	// ids are those of the prompt and the sampled ones. A call that extends
	// them appends in place, so that a chain holds each id once; only the
	// first one may.
	ids      []int32
	extended bool
}

// prompt returns n bytes of the prompt and the text sampled after it.
func (v *restored) prompt(n int) (string, error) {
	switch c := v.call; {
	case n == 0:
		return "", nil
	case c == nil || n > len(c.Prompt)+len(c.Raw):
		return "", errDamaged
	case n <= len(c.Prompt):
		return c.Prompt[:n], nil
	default:
		return c.Prompt + c.Raw[:n-len(c.Prompt)], nil
	}
}

// begin returns n ids to append to.
func (v *restored) begin(n int) ([]int32, error) {
	if n > len(v.ids) {
		return nil, errDamaged
	}
	if n < len(v.ids) || v.extended {
		return v.ids[:n:n], nil
	}
	v.extended = true
	return v.ids, nil
}

// call rebuilds a call from its body. Its base must have been rebuilt before.
func (r *restorer) call(id, base string, body []byte) (*restored, error) {
	from := &restored{}
	if base != "" {
		if from = r.calls[base]; from == nil {
			return nil, fmt.Errorf("%w: its base %s is missing", errDamaged, base)
		}
	}
	b, err := r.store.codec.unpack(body)
	if err != nil {
		return nil, err
	}
	sections, err := readSections(b)
	if err != nil {
		return nil, err
	}
	v := &restored{call: &Call{}}
	if err := decode(sections[secMeta], v.call); err != nil {
		return nil, err
	}
	if v.call.ID != id {
		return nil, fmt.Errorf("%w: it holds call %q", errDamaged, v.call.ID)
	}
	if err := r.fill(v, from, sections); err != nil {
		return nil, err
	}
	r.calls[id] = v
	return v, nil
}

func (r *restorer) fill(v, from *restored, sections map[byte][]byte) (err error) {
	c := v.call
	if v.messages, err = readKeys(sections[secMessages], from.messages); err != nil {
		return err
	}
	for _, k := range v.messages {
		b, err := r.blob(k)
		if err != nil {
			return err
		}
		c.Messages = append(c.Messages, b)
	}
	if c.Chat != nil {
		if err := r.chat(v, from, sections); err != nil {
			return err
		}
	}
	if c.Envelope, err = r.envelope(sections[secEnvelope]); err != nil {
		return err
	}
	c.Body, c.RawReply = sections[secBody], sections[secReply]
	if c.Prompt, err = readPrompt(sections[secPrompt], from); err != nil {
		return err
	}
	if err := v.readIDs(from, sections[secIDs], sections[secSampled]); err != nil {
		return err
	}
	c.Logprobs, err = readFloats(sections[secLogprobs])
	return err
}

// readIDs reads the ids of the prompt, a delta, and the sampled ones.
func (v *restored) readIDs(from *restored, prompt, sampled []byte) (err error) {
	n := 0
	if prompt != nil {
		if n, prompt, err = readLength(prompt); err != nil {
			return err
		}
	}
	if v.ids, err = from.begin(n); err != nil {
		return err
	}
	if v.ids, err = appendReadIDs(v.ids, prompt); err != nil {
		return err
	}
	n = len(v.ids)
	if v.ids, err = appendReadIDs(v.ids, sampled); err != nil {
		return err
	}
	if n > 0 {
		v.call.PromptIDs = v.ids[:n:n]
	}
	if len(v.ids) > n {
		v.call.SampledIDs = v.ids[n:len(v.ids):len(v.ids)]
	}
	return nil
}

func (r *restorer) chat(v, from *restored, sections map[byte][]byte) (err error) {
	if v.chat, err = readKeys(sections[secChat], from.chat); err != nil {
		return err
	}
	c := v.call.Chat
	c.Messages = make([]chat.Message, len(v.chat))
	for i, k := range v.chat {
		if c.Messages[i], err = r.message(k); err != nil {
			return err
		}
	}
	if s := sections[secTools]; s != nil {
		if len(s) != len(key{}) {
			return errDamaged
		}
		c.Tools, err = r.toolset(key(s))
	}
	return err
}

func (r *restorer) message(k key) (m chat.Message, err error) {
	m, ok := r.messages[k]
	if ok {
		return m, nil
	}
	b, err := r.blob(k)
	if err != nil {
		return m, err
	}
	if err := decode(b, &m); err != nil {
		return m, err
	}
	r.messages[k] = m
	return m, nil
}

func (r *restorer) toolset(k key) ([]chat.Tool, error) {
	if tools, ok := r.tools[k]; ok {
		return tools, nil
	}
	b, err := r.blob(k)
	if err != nil {
		return nil, err
	}
	var stored []storedTool
	if err := decode(b, &stored); err != nil {
		return nil, err
	}
	tools := make([]chat.Tool, len(stored))
	for i, t := range stored {
		tools[i] = t.Tool
		tools[i].Raw = t.Raw
	}
	r.tools[k] = tools
	return tools, nil
}

// blob returns stored content. It must not be changed.
func (r *restorer) blob(k key) (json.RawMessage, error) {
	if b, ok := r.blobs[k]; ok {
		return b, nil
	}
	var data []byte
	err := r.store.readers.QueryRowContext(r.ctx, "SELECT data FROM blobs WHERE hash = ?", k[:]).Scan(&data)
	if err == sql.ErrNoRows {
		return nil, fmt.Errorf("%w: content %x is missing", errDamaged, k[:8])
	}
	if err != nil {
		return nil, err
	}
	b, err := r.store.codec.unpack(data)
	if err != nil {
		return nil, err
	}
	r.blobs[k] = b
	return b, nil
}

func (r *restorer) envelope(s []byte) (json.RawMessage, error) {
	var out []byte
	for inline := true; len(s) > 0; inline = !inline {
		if inline {
			n, rest, err := readLength(s)
			if err != nil || n > len(rest) {
				return nil, errDamaged
			}
			out, s = append(out, rest[:n]...), rest[n:]
			continue
		}
		if len(s) < len(key{}) {
			return nil, errDamaged
		}
		b, err := r.blob(key(s[:len(key{})]))
		if err != nil {
			return nil, err
		}
		out, s = append(out, b...), s[len(key{}):]
	}
	return out, nil
}

func readSections(b []byte) (map[byte][]byte, error) {
	sections := map[byte][]byte{}
	for len(b) > 0 {
		tag := b[0]
		n, rest, err := readLength(b[1:])
		if err != nil || n > len(rest) {
			return nil, errDamaged
		}
		sections[tag], b = bytes.Clone(rest[:n]), rest[n:]
	}
	return sections, nil
}

// readLength reads a length or count.
func readLength(b []byte) (n int, rest []byte, err error) {
	v, size := binary.Uvarint(b)
	if size <= 0 || v > math.MaxInt32 {
		return 0, nil, errDamaged
	}
	return int(v), b[size:], nil
}

func readKeys(s []byte, base []key) ([]key, error) {
	if s == nil {
		return nil, nil
	}
	n, rest, err := readLength(s)
	if err != nil || n > len(base) || len(rest)%len(key{}) != 0 {
		return nil, errDamaged
	}
	keys := slices.Clone(base[:n])
	for len(rest) > 0 {
		keys, rest = append(keys, key(rest[:len(key{})])), rest[len(key{}):]
	}
	return keys, nil
}

func readPrompt(s []byte, from *restored) (string, error) {
	if s == nil {
		return "", nil
	}
	n, rest, err := readLength(s)
	if err != nil {
		return "", err
	}
	beginning, err := from.prompt(n)
	return beginning + string(rest), err
}

func appendReadIDs(dst []int32, s []byte) ([]int32, error) {
	for len(s) > 0 {
		v, size := binary.Varint(s)
		if size <= 0 || v < math.MinInt32 || v > math.MaxInt32 {
			return nil, errDamaged
		}
		dst, s = append(dst, int32(v)), s[size:]
	}
	return dst, nil
}

func readFloats(s []byte) ([]float64, error) {
	if len(s)%8 != 0 {
		return nil, errDamaged
	}
	if s == nil {
		return nil, nil
	}
	n := len(s) / 8
	out := make([]float64, n)
	for i := range out {
		var bits uint64
		for j := range 8 {
			bits = bits<<8 | uint64(s[j*n+i])
		}
		out[i] = math.Float64frombits(bits)
	}
	return out, nil
}
