package token

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
)

// firstMarker is the id of the first marker: the ids below are bytes.
const firstMarker = 256

// bytesHash begins the hash of every tokenizer of this kind.
const bytesHash = "bytes:sha256:"

// unknown is what an id that is in no vocabulary decodes to.
const unknown = "\uFFFD"

// bytesTokenizer has one id per byte and one per marker.
type bytesTokenizer struct {
	markers []string
	// starts holds, for each first byte, the ids of the markers that begin
	// with it, longest first.
	starts [256][]int32
	hash   string
}

// NewBytes returns a tokenizer that needs no vocabulary: ids 0 to 255 are
// bytes and 256+i is markers[i]. Where several markers fit, the longest one
// does; an empty marker never fits. Any text decodes to exactly itself.
func NewBytes(markers []string) Tokenizer {
	t := &bytesTokenizer{markers: slices.Clone(markers)}
	h := sha256.New()
	h.Write([]byte("bytes/1"))
	for i, m := range t.markers {
		h.Write(binary.AppendUvarint(nil, uint64(len(m))))
		h.Write([]byte(m))
		if m != "" && !slices.Contains(t.markers[:i], m) {
			t.starts[m[0]] = append(t.starts[m[0]], firstMarker+int32(i))
		}
	}
	for _, ids := range t.starts {
		slices.SortStableFunc(ids, func(a, b int32) int {
			return len(t.markers[b-firstMarker]) - len(t.markers[a-firstMarker])
		})
	}
	t.hash = bytesHash + hex.EncodeToString(h.Sum(nil))
	return t
}

// Encode implements Tokenizer.
func (t *bytesTokenizer) Encode(dst []int32, text string, special bool) []int32 {
	n := len(dst)
	dst = slices.Grow(dst, len(text))
	if !special {
		dst = dst[:n+len(text)]
		for i, own := 0, dst[n:]; i < len(text); i++ {
			own[i] = int32(text[i])
		}
		return dst
	}
	for i := 0; i < len(text); {
		b := text[i]
		if t.starts[b] != nil {
			if id, n := t.marker(text[i:]); n > 0 {
				dst = append(dst, id)
				i += n
				continue
			}
		}
		dst = append(dst, int32(b))
		i++
	}
	return dst
}

// marker returns the longest marker that text begins with, and its length.
func (t *bytesTokenizer) marker(text string) (id int32, n int) {
	for _, id := range t.starts[text[0]] {
		if m := t.markers[id-firstMarker]; strings.HasPrefix(text, m) {
			return id, len(m)
		}
	}
	return 0, 0
}

// Decode implements Tokenizer.
func (t *bytesTokenizer) Decode(dst []byte, ids []int32) []byte {
	dst = slices.Grow(dst, t.length(ids))
	for _, id := range ids {
		switch {
		case id >= 0 && id < firstMarker:
			dst = append(dst, byte(id))
		case id >= firstMarker && int(id-firstMarker) < len(t.markers):
			dst = append(dst, t.markers[id-firstMarker]...)
		default:
			dst = append(dst, unknown...)
		}
	}
	return dst
}

// length is that of the bytes of ids.
func (t *bytesTokenizer) length(ids []int32) int {
	n := len(ids)
	for _, id := range ids {
		switch i := int(id) - firstMarker; {
		case id >= 0 && i < 0:
		case i >= 0 && i < len(t.markers):
			n += len(t.markers[i]) - 1
		default:
			n += len(unknown) - 1
		}
	}
	return n
}

// IsBytes reports whether a hash is that of a tokenizer of NewBytes.
func IsBytes(hash string) bool { return strings.HasPrefix(hash, bytesHash) }

// Hash implements Tokenizer.
func (t *bytesTokenizer) Hash() string { return t.hash }
