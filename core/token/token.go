// Package token turns rendered segments into token ids, and joins the ids of
// a conversation's turns so that each turn extends the one before exactly.
// What never enters: how a format writes anything, and any engine.
package token

import "github.com/penstock-dev/penstock/sdk/format"

// Tokenizer encodes and decodes text. It is safe for concurrent use.
type Tokenizer interface {
	// Encode appends the ids of text to dst. Only when special is set may a
	// marker in text become its single id.
	Encode(dst []int32, text string, special bool) []int32
	// Decode appends the bytes of ids to dst.
	Decode(dst []byte, ids []int32) []byte
	// Hash identifies the vocabulary.
	Hash() string
}

// EncodeSegments appends the ids of segments to dst: markup with special
// tokens, data without.
func EncodeSegments(t Tokenizer, dst []int32, segments []format.Segment) []int32 {
	for _, s := range segments {
		dst = t.Encode(dst, s.Text, s.Kind == format.Markup)
	}
	return dst
}
