package sanitizetools

import (
	"bytes"
	"encoding/json"
	"slices"
)

// JSON is taken apart without being decoded, so that what isn't repaired
// keeps its bytes: key order, numbers, escapes and spaces. All functions here
// want valid JSON.

// member is a key and its value. Key is decoded; rawKey and value are not.
type member struct {
	key    string
	rawKey []byte
	value  []byte
}

// object returns the members of an object.
func object(raw []byte) ([]member, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '{' {
		return nil, false
	}
	out := []member{}
	for i := space(raw, 1); i < len(raw) && raw[i] == '"'; {
		end := skip(raw, i)
		m := member{key: unquote(raw[i:end]), rawKey: raw[i:end]}
		i = space(raw, space(raw, end)+1) // after the colon
		end = skip(raw, i)
		m.value = raw[i:end]
		out = append(out, m)
		i = space(raw, space(raw, end)+1) // after the comma
	}
	return out, true
}

// array returns the items of an array.
func array(raw []byte) [][]byte {
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '[' {
		return nil
	}
	var out [][]byte
	for i := space(raw, 1); i < len(raw) && raw[i] != ']'; {
		end := skip(raw, i)
		out = append(out, raw[i:end])
		i = space(raw, space(raw, end)+1)
	}
	return out
}

func space(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i
}

// skip returns the end of the value that begins at i.
func skip(raw []byte, i int) int {
	depth := 0
	for ; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(raw))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			} else if depth < 0 {
				return i
			}
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return len(raw)
}

// value returns the value of a key, nil if there is none. The last one of
// several counts, as it does for decoders.
func value(members []member, key string) []byte {
	for _, m := range slices.Backward(members) {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// set gives a key a value, at the end if it is new; a nil value removes it.
func set(members []member, key string, v []byte) []member {
	if v == nil {
		return slices.DeleteFunc(members, func(m member) bool { return m.key == key })
	}
	for i := range slices.Backward(members) {
		if members[i].key == key {
			members[i].value = v
			return members
		}
	}
	return append(members, member{key, quote(key), v})
}

func join(members []member) []byte {
	b := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, m.rawKey...), ':'), m.value...)
	}
	return append(b, '}')
}

func joinArray(items [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(items, []byte{','})...), ']')
}

func unquote(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func quote(s string) []byte {
	b, _ := marshal(s) // a string always has a JSON form
	return b
}

// marshal writes JSON without HTML escapes.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
