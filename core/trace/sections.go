package trace

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"slices"
)

// sections gathers the sections of a call's body. Those that may be large are
// turned into bytes only as they are written.
type sections struct {
	list   []section
	size   int
	buf    bytes.Buffer // of the whole, where it is small
	pieces pieces
}

// section is one section. Of text, ids and floats one is set at most; they
// follow head.
type section struct {
	tag    byte
	length int // in bytes
	head   []byte
	text   string
	ids    []int32
	floats []float64
}

func (s *sections) add(x section) {
	if x.length > 0 {
		s.list = append(s.list, x)
		s.size += x.length + 1 + binary.MaxVarintLen32
	}
}

func (s *sections) bytes(tag byte, b []byte) { s.add(section{tag: tag, length: len(b), head: b}) }

func (s *sections) text(tag byte, head []byte, text string) {
	s.add(section{tag: tag, length: len(head) + len(text), head: head, text: text})
}

// ids adds ids, each as its difference from zero: ids are small.
func (s *sections) ids(tag byte, head []byte, ids []int32) {
	n := len(head)
	for _, id := range ids {
		n++
		for u := uint32(id)<<1 ^ uint32(id>>31); u >= 0x80; u >>= 7 {
			n++
		}
	}
	s.add(section{tag: tag, length: n, head: head, ids: ids})
}

func (s *sections) floats(tag byte, f []float64) {
	s.add(section{tag: tag, length: 8 * len(f), floats: f})
}

// pack compresses the sections.
func (s *sections) pack(c *codec) ([]byte, error) {
	if s.size >= largeContent {
		return c.packFrom(s.size, s.writeTo)
	}
	s.buf.Reset()
	if err := s.writeTo(&s.buf); err != nil {
		return nil, err
	}
	return c.pack(s.buf.Bytes()), nil
}

func (s *sections) reset() {
	clear(s.list)
	s.list, s.size = s.list[:0], 0
}

func (s *sections) writeTo(w io.Writer) error {
	for i := range s.list {
		x := &s.list[i]
		if _, err := w.Write(binary.AppendUvarint([]byte{x.tag}, uint64(x.length))); err != nil {
			return err
		}
		if _, err := w.Write(x.head); err != nil {
			return err
		}
		if err := s.pieces.text(w, x.text); err != nil {
			return err
		}
		if err := s.pieces.ids(w, x.ids, false); err != nil {
			return err
		}
		if err := s.pieces.floats(w, x.floats); err != nil {
			return err
		}
	}
	return nil
}

// pieces writes texts and numbers through a buffer, so that their bytes are
// never in memory whole.
type pieces []byte

const piece = 8 << 10

func (b *pieces) text(w io.Writer, s string) error {
	for len(s) > 0 {
		n := min(len(s), piece)
		*b = append((*b)[:0], s[:n]...)
		if _, err := w.Write(*b); err != nil {
			return err
		}
		s = s[n:]
	}
	return nil
}

// ids writes ids as sections hold them, or in four bytes each.
func (b *pieces) ids(w io.Writer, ids []int32, fixed bool) error {
	for part := range slices.Chunk(ids, piece/binary.MaxVarintLen32) {
		*b = (*b)[:0]
		for _, id := range part {
			if fixed {
				*b = binary.LittleEndian.AppendUint32(*b, uint32(id))
			} else {
				*b = binary.AppendVarint(*b, int64(id))
			}
		}
		if _, err := w.Write(*b); err != nil {
			return err
		}
	}
	return nil
}

// floats writes the first bytes of all numbers, then all second bytes and so
// on: those compress, as the numbers themselves don't.
func (b *pieces) floats(w io.Writer, f []float64) error {
	for shift := 56; shift >= 0; shift -= 8 {
		for part := range slices.Chunk(f, piece) {
			*b = (*b)[:0]
			for _, v := range part {
				*b = append(*b, byte(math.Float64bits(v)>>shift))
			}
			if _, err := w.Write(*b); err != nil {
				return err
			}
		}
	}
	return nil
}
