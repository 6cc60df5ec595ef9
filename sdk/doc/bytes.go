//go:build !wasip1

package doc

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// Bytes is a document in memory. The bytes must be valid JSON and must not
// change.
type Bytes []byte

// Get implements Doc. It scans, and allocates only for a string with escapes.
func (b Bytes) Get(pointer string) ([]byte, bool) {
	at := gjson.ParseBytes(b)
	if pointer != "" {
		for token := range strings.SplitSeq(pointer[1:], "/") {
			var ok bool
			if at, ok = step(at, token); !ok {
				return nil, false
			}
		}
	}
	switch at.Type {
	case gjson.Null:
		return nil, false
	case gjson.String:
		return []byte(at.Str), true
	default:
		return []byte(at.Raw), true
	}
}

// step goes down one token of a pointer.
func step(at gjson.Result, token string) (found gjson.Result, ok bool) {
	token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	switch {
	case at.IsObject():
		at.ForEach(func(k, v gjson.Result) bool {
			if k.Str == token {
				found, ok = v, true
			}
			return !ok
		})
	case at.IsArray():
		n, err := strconv.Atoi(token)
		if err != nil {
			return found, false
		}
		i := 0
		at.ForEach(func(_, v gjson.Result) bool {
			if n == -1 || i == n {
				found, ok = v, true
			}
			i++
			return n == -1 || !ok
		})
	}
	return found, ok
}
