package gateway

import (
	"bytes"

	"github.com/tidwall/gjson"
)

// cacheField is how requests mark cache breakpoints, in every dialect that has
// them.
const cacheField = "cache_control"

// withoutCacheControl takes the cache breakpoints out of a request, and says how
// many these were. They stand on messages, tools and blocks of content; what
// tools are given or write is none of it. All other bytes stay.
func withoutCacheControl(body []byte) ([]byte, int) {
	if !bytes.Contains(body, []byte(cacheField)) {
		return body, 0
	}
	c := &cutter{body: body}
	gjson.ParseBytes(body).ForEach(func(name, value gjson.Result) bool {
		switch name.Str {
		case "messages", "system", "tools":
			c.list(value)
		}
		return true
	})
	return append(c.out, body[c.done:]...), c.n
}

// cutter copies a body but for what is cut out of it.
type cutter struct {
	body, out []byte
	done      int // copied or cut so far
	n         int
}

func (c *cutter) list(v gjson.Result) {
	if v.IsArray() {
		v.ForEach(func(_, item gjson.Result) bool {
			c.item(item)
			return true
		})
	}
}

// item is a message, a tool or a block.
func (c *cutter) item(v gjson.Result) {
	if !v.IsObject() {
		return
	}
	end := v.Index + 1 // of the member before
	first := true
	v.ForEach(func(name, value gjson.Result) bool {
		next := value.Index + len(value.Raw)
		switch name.Str {
		case cacheField:
			c.cut(end, next, first)
		case "content":
			c.list(value)
		case "function":
			c.item(value)
		}
		if name.Str != cacheField {
			first = false
		}
		end = next
		return true
	})
}

// cut leaves out a member that ends at to. What stands before it, from the end
// of the member before, goes with it; of the first one the comma behind does.
func (c *cutter) cut(from, to int, first bool) {
	if first {
		rest := c.body[to:]
		if i := len(rest) - len(bytes.TrimLeft(rest, " \t\r\n")); i < len(rest) && rest[i] == ',' {
			to += i + 1
		}
	}
	c.out = append(c.out, c.body[c.done:from]...)
	c.done = to
	c.n++
}
