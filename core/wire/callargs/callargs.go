// Package callargs is how a tool call's arguments look in dialects that carry
// them as a string: whole, and as they are streamed. It knows no dialect.
//
// The string is the arguments' JSON as the model wrote it. Absent arguments
// and null are {}, because clients parse the string. Arguments that are a JSON
// string stand for text that is no JSON (chat.Part.ArgumentsRaw); that text is
// the string then, and the client's to refuse.
package callargs

import (
	"bytes"
	"encoding/json"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
)

// maxDepth is how deep arguments may be nested to count as JSON.
const maxDepth = 200

// Text is the string for arguments.
func Text(args []byte) string {
	b := trimLeft(args)
	switch {
	case len(b) == 0, string(bytes.TrimSpace(b)) == "null":
		return "{}"
	case b[0] == '"' && rawjson.Valid(b, maxDepth):
		return rawjson.Of(b).Text()
	}
	return sse.Clean(string(b))
}

func trimLeft(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// Parse is the inverse: the arguments that a client's string stands for, and
// whether they are raw text.
func Parse(text string) (args json.RawMessage, raw bool) {
	b := []byte(text)
	switch {
	case len(bytes.TrimSpace(b)) == 0:
		return nil, false
	case rawjson.Valid(b, maxDepth):
		return b, false
	}
	return sse.AppendString(nil, text), true
}

// Stream gives the string in pieces, as the arguments come. The zero value is
// ready for a call; Rest makes it ready for the next.
type Stream struct {
	runes sse.Runes
	live  bool
	held  []byte
}

// Next gives what can go out after the next bytes of the arguments. What
// begins as a string or as null is held to the end.
func (s *Stream) Next(text string) string {
	if s.live {
		return s.runes.Next(text)
	}
	s.held = append(s.held, text...)
	v := trimLeft(s.held)
	if len(v) == 0 || v[0] == '"' || v[0] == 'n' {
		return ""
	}
	s.live = true
	return s.runes.Next(string(v))
}

// Rest gives what is left when the arguments end.
func (s *Stream) Rest() string {
	out := ""
	if s.live {
		out = s.runes.Rest()
	} else {
		out = Text(s.held)
	}
	s.live, s.held = false, s.held[:0]
	return out
}
