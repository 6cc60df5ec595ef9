package format

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"sync"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// heads keeps how the head of prompts was rendered. It comes again with each
// request of a session, and with many tools it is most of the work.
type heads struct {
	mu   sync.Mutex
	list []*keptHead // the one used last is the last one
	size int         // of the texts, in bytes
}

type keptHead struct {
	key      [sha256.Size]byte
	segments []Segment
	size     int
}

// The bounds of what is kept for one format.
const (
	mostHeads    = 64
	mostHeadText = 4 << 20
)

// get returns a copy of the segments kept under a key.
func (h *heads) get(key [sha256.Size]byte) ([]Segment, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.list, func(k *keptHead) bool { return k.key == key })
	if i < 0 {
		return nil, false
	}
	k := h.list[i]
	h.list = append(slices.Delete(h.list, i, i+1), k)
	return slices.Clone(k.segments), true
}

// put keeps a copy of segments, and forgets those unused for longest.
func (h *heads) put(key [sha256.Size]byte, segments []Segment) {
	k := &keptHead{key: key, segments: slices.Clone(segments)}
	for _, s := range segments {
		k.size += len(s.Text)
	}
	if k.size > mostHeadText/4 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(h.list, func(o *keptHead) bool { return o.key == key }) {
		return
	}
	h.list, h.size = append(h.list, k), h.size+k.size
	for len(h.list) > mostHeads || h.size > mostHeadText {
		h.size -= h.list[0].size
		h.list = slices.Delete(h.list, 0, 1)
	}
}

// headKey is a key of all that the template of the head can see.
func (v *view) headKey() (key [sha256.Size]byte) {
	s := &summer{h: sha256.New()}
	var flags byte
	for i, set := range []bool{v.HasSystem, v.Think, v.NoThink, v.AfterUser, v.AfterTool} {
		if set {
			flags |= 1 << i
		}
	}
	s.h.Write([]byte{flags})
	s.text(string(v.System))
	for i := range v.c.Tools {
		s.tool(&v.c.Tools[i])
	}
	s.h.Sum(key[:0])
	return key
}

// summer hashes texts through a buffer, since a hash takes no strings.
type summer struct {
	h   hash.Hash
	buf [512]byte
}

func (s *summer) tool(t *chat.Tool) {
	s.text(t.Type)
	s.text(t.Name)
	s.text(t.Description)
	s.length(len(t.Parameters))
	s.h.Write(t.Parameters)
}

func (s *summer) text(text string) {
	s.length(len(text))
	for len(text) > 0 {
		n := copy(s.buf[:], text)
		s.h.Write(s.buf[:n])
		text = text[n:]
	}
}

func (s *summer) length(n int) {
	s.h.Write(binary.LittleEndian.AppendUint64(s.buf[:0], uint64(n)))
}
