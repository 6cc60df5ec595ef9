package redact

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// opaque are the names under which JSON holds what a provider signed or
// encrypted. A shape in it means nothing, and it must come back as it was.
var opaque = map[string]bool{
	"signature": true, "thoughtSignature": true, "thought_signature": true, "encrypted_content": true, "data": true,
}

// JSON redacts the strings and names of a JSON value, and numbers that are
// secrets, however they are escaped. All other bytes stay as they are. What is
// no JSON is redacted as text. Offsets count bytes of the result.
func (r *Redactor) JSON(raw []byte) ([]byte, []Found) {
	if r == nil || len(raw) == 0 || !r.all.hides(raw) {
		return raw, nil
	}
	out, found, err := r.rewrite(raw)
	if err != nil {
		return r.Bytes(raw)
	}
	if len(found) == 0 {
		return raw, nil
	}
	return out, found
}

// hides says whether there may be a secret in the JSON: one in plain sight, or
// escapes of characters that need none.
func (m *matcher) hides(raw []byte) bool {
	if m.find(raw, nil, true) != nil {
		return true
	}
	for b := raw; ; {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+1 >= len(b) {
			return false
		}
		b = b[i+1:]
		if b[0] == '/' || len(b) >= 5 && b[0] == 'u' && b[1] == '0' && b[2] == '0' && b[3] >= '2' && b[3] <= '7' {
			return true
		}
		b = b[1:]
	}
}

// rewrite goes through a JSON value token by token.
func (r *Redactor) rewrite(raw []byte) ([]byte, []Found, error) {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var out []byte
	var all []Found
	var name string
	at := 0
	for {
		switch d.PeekKind() {
		case '{', '}', '[', ']':
			if _, err := d.ReadToken(); err != nil {
				return nil, nil, err
			}
			continue
		case 0:
			_, err := d.ReadToken()
			if d.StackDepth() > 0 || int(d.InputOffset()) < len(bytes.TrimRight(raw, " \t\r\n")) {
				return nil, nil, err
			}
			return append(out, raw[at:]...), all, nil
		}
		kind, read := d.StackIndex(d.StackDepth())
		token, err := d.ReadValue()
		if err != nil {
			return nil, nil, err
		}
		end := int(d.InputOffset())
		isName := kind == '{' && read%2 == 0
		matcher := r.all
		if !isName && opaque[name] {
			matcher = r.values
		}
		text := unquoted(token)
		if isName {
			name = text
		}
		clean, found := matcher.text(text)
		if found == nil || token.Kind() != '"' && found[0].to-found[0].from < len(text) {
			continue // a number that only holds the digits of one is another number
		}
		quoted, err := chat.Marshal(clean)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, raw[at:end-len(token)]...)
		all = place(all, out, quoted, found)
		out, at = append(out, quoted...), end
	}
}

// unquoted is the text of a JSON string, or of a number as it is.
func unquoted(token jsontext.Value) string {
	if token.Kind() == '"' {
		if text, err := jsontext.AppendUnquote(nil, []byte(token)); err == nil || len(text) > 0 {
			return string(text)
		}
	}
	return string(token)
}

// place gives the marks of one string their offsets in the whole.
func place(all []Found, before, quoted []byte, found []Found) []Found {
	from := 0
	for _, f := range found {
		if i := bytes.Index(quoted[from:], []byte(Mark(f.Kind))); i >= 0 {
			from += i
			f.Offset = len(before) + from
			from += f.Length
		}
		all = append(all, f)
	}
	return all
}

// RawMessage redacts a JSON value and says nothing more of it.
func (r *Redactor) RawMessage(raw json.RawMessage) json.RawMessage {
	out, _ := r.JSON(raw)
	return out
}
