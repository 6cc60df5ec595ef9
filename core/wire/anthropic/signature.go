package anthropic

import (
	"crypto/sha256"
	"encoding/base64"
	"hash"
)

// signaturePrefix begins what our signatures hold, so that they can be told
// from a provider's.
const signaturePrefix = "penstock.1:"

// Signature is the signature that reasoning without one of its own is given:
// base64 of a mark of ours and the SHA-256 of the text as served. It proves
// nothing; it is there because clients drop thinking that has no signature.
func Signature(text string) string {
	h := sha256.New()
	h.Write([]byte(text))
	return signatureOf(h)
}

func signatureOf(h hash.Hash) string {
	return base64.StdEncoding.EncodeToString(h.Sum([]byte(signaturePrefix)))
}
