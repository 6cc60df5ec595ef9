package trace

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// digest hashes what is appended to it. What is short, as nearly all is, is
// hashed in one go; of what is long only a piece is held at a time.
type digest struct {
	buf  []byte
	long hash.Hash // of the pieces before buf
	cut  bool      // there are such pieces
}

// digestPiece bounds the buffer of a digest, in bytes.
const digestPiece = 32 << 10

func (d *digest) text(s string) {
	for len(s) > digestPiece-len(d.buf) {
		n := digestPiece - len(d.buf)
		d.buf = append(d.buf, s[:n]...)
		s = s[n:]
		d.flush()
	}
	d.buf = append(d.buf, s...)
}

func (d *digest) bytes(b []byte) {
	for len(b) > digestPiece-len(d.buf) {
		n := digestPiece - len(d.buf)
		d.buf = append(d.buf, b[:n]...)
		b = b[n:]
		d.flush()
	}
	d.buf = append(d.buf, b...)
}

func (d *digest) flush() {
	if d.long == nil {
		d.long = sha256.New()
	}
	if !d.cut {
		d.long.Reset()
		d.cut = true
	}
	d.long.Write(d.buf)
	d.buf = d.buf[:0]
}

// number appends a count or a length.
func (d *digest) number(n int) { d.buf = binary.AppendUvarint(d.buf, uint64(n)) }

// field appends a text with its length, so that no other fields read alike.
func (d *digest) field(s string) {
	d.number(len(s))
	d.text(s)
}

// data appends bytes with their length.
func (d *digest) data(b []byte) {
	d.number(len(b))
	d.bytes(b)
}

func (d *digest) flag(b bool) {
	if b {
		d.buf = append(d.buf, 1)
	} else {
		d.buf = append(d.buf, 0)
	}
}

// sum is the key of all that was appended; more may follow.
func (d *digest) sum() key {
	if !d.cut && len(d.buf) <= digestPiece/8 {
		return sha256.Sum256(d.buf)
	}
	d.flush() // so that what is asked for again and again isn't hashed again
	d.buf = d.long.Sum(d.buf)
	k := key(d.buf)
	d.buf = d.buf[:0]
	return k
}

// reset makes the digest empty.
func (d *digest) reset() *digest {
	d.buf, d.cut = d.buf[:0], false
	return d
}
